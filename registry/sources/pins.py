"""Pins: accepted definitions of another server's tools.

A pinned source is trusted on first import (trust on first use). The model also reads what the tools
state later: a tool that is new, or differs from the accepted definition, is held back until it is
accepted.
"""

import logging
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Raw, Struct
from psycopg import AsyncConnection
from psycopg.types.json import Json

from registry.database.postgres import Pool, borrow
from registry.database.tables import Tables
from schemas.invisible_characters import visible_in
from schemas.tool import ToolDraft

log = logging.getLogger("toolgate.catalog")

NEW = "new"
MORE = "more"  # the member for all that has no member of its own

Document = dict[str, Any]

_TRUST = """
UPDATE tool_t AS tool SET pin = document, held = NULL
FROM json_to_recordset(%(rows)s) AS offered (endpoint text, document json)
JOIN api_endpoint_t AS endpoint USING (endpoint)
WHERE (tool.host_id, tool.endpoint_id) = (endpoint.host_id, endpoint.endpoint_id)
    AND endpoint.host_id = %(host)s AND endpoint.api_id = %(api)s
"""


class HeldTool(Struct, frozen=True):
    """A tool that waits to be accepted."""

    name: str
    source: str
    pin: Document | None  # the accepted definition; None: never accepted
    held: Document

    @property
    def reason(self) -> str:
        return reason(self.pin, self.held)


def document(draft: ToolDraft, name: str) -> bytes:
    """The definition to accept of a tool that its server calls `name`, in canonical form.

    It has every field that clients receive, known here or not: what a model reads or a client acts
    on. Invisible characters are escaped, so that a reviewer sees them. Keys are sorted: a server
    may write the same in another order each time.
    """
    visible_members = {
        "name": name,
        "title": draft.title,
        "description": draft.description,
        "inputSchema": draft.input_schema,
        "outputSchema": draft.output_schema,
        "annotations": msgspec.to_builtins(draft.annotations),
        MORE: draft.definition or {},
        **draft.binding.pinned_facts,
    }
    return msgspec.json.encode(visible_in(visible_members), order="deterministic")


def reason(pin: Document | None, definition: Document) -> str:
    """The parts of a tool to review: "new", or "description and inputSchema changed"."""
    if pin is None:
        return NEW
    before, after = _members(pin), _members(definition)
    changed = [member for member in {**after, **before} if after.get(member) != before.get(member)]
    return f"{' and '.join(changed) or 'definition'} changed"


def _members(definition: Document) -> Document:
    """The parts of a definition, by the server's names for them."""
    members = {name: value for name, value in definition.items() if name != MORE}
    more: Document = definition.get(MORE, {})
    return members | more


class SourcePins:
    """The pins of one source, in the transaction that imports it."""

    def __init__(self, connection: AsyncConnection, host_id: str, api_id: str) -> None:
        self._connection = connection
        self._values: dict[str, Any] = {"host": host_id, "api": api_id}

    async def trust(self, documents: dict[str, bytes]) -> None:
        """Accept all of `documents`, by key of the operation."""
        await self._connection.execute(_TRUST, self._with(documents))

    async def hold_back(self, documents: dict[str, bytes]) -> dict[str, str]:
        """Hold back tools that differ from their pins; reasons by name of tool."""
        await self._connection.execute(_HOLD_BACK, self._with(documents))
        rows = await self._connection.execute(
            "SELECT tool.name, pin, held"
            " FROM tool_t AS tool JOIN api_endpoint_t AS endpoint USING (host_id, endpoint_id)"
            " WHERE host_id = %(host)s AND endpoint.api_id = %(api)s AND tool.active"
            " AND held IS NOT NULL ORDER BY tool.name",
            self._values,
        )
        return {name: reason(pin, definition) async for name, pin, definition in rows}

    async def extend(self, documents: dict[str, bytes]) -> None:
        """Complete the pins of a release that pinned fewer members of a tool, where those pinned
        are unchanged. The added members count as accepted."""
        done = await self._connection.execute(_EXTEND, self._with(documents))
        if done.rowcount:
            log.warning("pins_extended", extra={"tools": done.rowcount})

    async def forget(self) -> None:
        """Remove all pins and holds of the source."""
        await self._connection.execute(
            "UPDATE tool_t AS tool SET pin = NULL, held = NULL FROM api_endpoint_t AS endpoint"
            " WHERE (tool.host_id, tool.endpoint_id) = (endpoint.host_id, endpoint.endpoint_id)"
            " AND endpoint.host_id = %(host)s AND endpoint.api_id = %(api)s"
            " AND (pin IS NOT NULL OR held IS NOT NULL)",
            self._values,
        )

    def _with(self, documents: dict[str, bytes]) -> dict[str, Any]:
        rows = [{"endpoint": key, "document": Raw(document)} for key, document in documents.items()]
        return self._values | {"rows": Json(rows, dumps=msgspec.json.encode)}


_HOLD_BACK = """
WITH due AS (
    SELECT host_id, tool_id,
        CASE WHEN pin::text = document::text THEN NULL ELSE document END AS document
    FROM json_to_recordset(%(rows)s) AS offered (endpoint text, document json)
    JOIN api_endpoint_t AS endpoint USING (endpoint)
    JOIN tool_t AS tool USING (host_id, endpoint_id)
    WHERE host_id = %(host)s AND endpoint.api_id = %(api)s
)
UPDATE tool_t AS tool SET held = document
FROM due
WHERE (tool.host_id, tool.tool_id) = (due.host_id, due.tool_id)
    AND held::text IS DISTINCT FROM document::text
"""


_EXTEND = """
UPDATE tool_t AS tool SET pin = document
FROM json_to_recordset(%(rows)s) AS offered (endpoint text, document json)
JOIN api_endpoint_t AS endpoint USING (endpoint)
WHERE (tool.host_id, tool.endpoint_id) = (endpoint.host_id, endpoint.endpoint_id)
    AND endpoint.host_id = %(host)s AND endpoint.api_id = %(api)s
    AND CASE WHEN tool.pin -> 'more' IS NULL AND tool.pin::text NOT LIKE '%%\\u0000%%'
        THEN tool.pin::jsonb = document::jsonb - 'more' END
"""


class Pins(Tables):
    """Tools that wait to be accepted. All methods raise `psycopg.OperationalError`."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def list_held(self, host_id: str) -> list[HeldTool]:
        """The tools held back, by name."""
        rows = await self._fetch(
            """
            SELECT tool.name, api.name, tool.pin, tool.held
            FROM tool_t AS tool
            JOIN api_endpoint_t AS endpoint USING (host_id, endpoint_id)
            JOIN api_t AS api USING (host_id, api_id)
            WHERE host_id = %s AND tool.active AND tool.held IS NOT NULL
            ORDER BY tool.name COLLATE "C"
            """,
            [host_id],
        )
        return [HeldTool(*row) for row in rows]

    async def accept(self, host_id: str, tools: Sequence[HeldTool]) -> list[str]:
        """Accept these tools, unless they changed since the review; returns their names."""
        looked_at = [{"name": tool.name, "held": tool.held} for tool in tools]
        async with borrow(self._pool) as connection, connection.transaction():
            rows = await connection.execute(
                """
                UPDATE tool_t AS tool SET pin = tool.held, held = NULL
                FROM json_to_recordset(%(rows)s) AS looked_at (name text, held json)
                WHERE tool.host_id = %(host)s AND tool.active AND tool.name = looked_at.name
                    AND tool.held::jsonb = looked_at.held::jsonb
                RETURNING tool.name
                """,
                {"host": host_id, "rows": Json(looked_at, dumps=msgspec.json.encode)},
            )
            return sorted([name async for (name,) in rows])
