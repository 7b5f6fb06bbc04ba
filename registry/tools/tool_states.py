"""The tools of a tenant as administrators see them: including those not served."""

from datetime import datetime
from typing import Any, Literal

import msgspec
from msgspec import Struct
from psycopg.rows import class_row

from registry.database.postgres import Pool, borrow
from registry.sources.pins import reason
from schemas.binding import Binding
from schemas.source import binding_decoder

State = Literal["served", "held", "disabled"]
Protocol = Literal["openapi", "graphql", "hybrid", "python", "mcp", "function", "script"]
"""How a tool is called: the tag of its binding."""


class ToolState(Struct, frozen=True):
    name: str
    title: str | None
    description: str
    source: str  # "": no source
    state: State
    manual: bool  # made by hand
    overridden: bool  # its description differs from its source's
    tier: str | None
    domain: str | None
    namespace: str | None
    weight: float
    personas: str | None
    cost: str | None
    keywords: Any  # as stored: a list of texts
    protocol: str  # of its calls
    lifecycle: str
    toolsets: list[str]
    tags: list[str]
    service: str | None  # id of its hybrid action
    accepted: Any  # of a held tool: its last accepted definition; None: it was never accepted
    waiting: Any  # of a held tool: its changed definition, not yet accepted
    updated: datetime
    version: int  # number of writes of the row

    @property
    def held_reason(self) -> str | None:
        return None if self.waiting is None else reason(self.accepted, self.waiting)


class ToolDetail(Struct, frozen=True):
    """All details of one tool."""

    id: str
    tool: ToolState
    input_schema: Any
    output_schema: Any
    annotations: Any
    aliases: list[str]
    override_user: str | None
    override_time: datetime | None
    digest: str  # of its definition
    definition: Any  # what another server told beside the columns
    binding: Binding | None  # None: of a newer release, which this one cannot call


_ROW = b"""
    SELECT tool.name, tool.title, tool.description, coalesce(api.name, '') AS source,
        CASE WHEN tool.disabled THEN 'disabled' WHEN tool.held IS NOT NULL THEN 'held'
            ELSE 'served' END AS state,
        tool.endpoint_id IS NULL AS manual, tool.description_manual_override AS overridden,
        tool.sensitivity_tier AS tier, tool.routing_domain AS domain,
        tool.semantic_namespace AS namespace, tool.semantic_weight::float8 AS weight,
        tool.target_personas AS personas, tool.cost_tier AS cost,
        tool.tool_metadata #> '{routing,semanticKeywords}' AS keywords,
        tool.binding ->> 'type' AS protocol, tool.lifecycle_status AS lifecycle, tool.toolsets,
        tool.tags, tool.binding ->> 'service' AS service,
        CASE WHEN tool.held IS NOT NULL THEN tool.pin END AS accepted, tool.held AS waiting,
        tool.update_ts AS updated, tool.aggregate_version AS version
    FROM tool_t AS tool
    LEFT JOIN api_endpoint_t AS endpoint USING (host_id, endpoint_id)
    LEFT JOIN api_t AS api ON (api.host_id, api.api_id)
        = (tool.host_id, coalesce(endpoint.api_id, tool.source_api_id))
    WHERE tool.host_id = %(host)s AND (tool.active OR tool.disabled)
"""
_LAST_CALLS = b"""
    AND (%(called)s::text IS NULL OR %(called)s IN (tool.name, tool.binding ->> 'service')
        OR EXISTS (SELECT FROM tool_alias_t AS alias
            WHERE (alias.host_id, alias.tool_id, alias.name::text)
                = (tool.host_id, tool.tool_id, %(called)s)))
"""
_MORE = """
    SELECT tool.tool_id::text, tool.input_schema, tool.output_schema, tool.annotations,
        ARRAY(SELECT alias.name::text FROM tool_alias_t AS alias
            WHERE (alias.host_id, alias.tool_id) = (tool.host_id, tool.tool_id)
            ORDER BY alias.since, alias.name),
        tool.description_override_user, tool.description_override_ts, tool.digest,
        tool.definition, tool.binding
    FROM tool_t AS tool
    WHERE tool.host_id = %s AND tool.name = %s AND (tool.active OR tool.disabled)
    ORDER BY tool.disabled LIMIT 1
"""


class ToolStates:
    """States of one tenant's tools. All methods raise `psycopg.OperationalError`."""

    def __init__(self, pool: Pool, host_id: str) -> None:
        self._pool = pool
        self._host_id = host_id

    async def list_states(
        self,
        after: str,
        limit: int,
        source: str | None = None,
        state: State | None = None,
        *,
        part: str | None = None,
        tier: str | None = None,
        domain: str | None = None,
        namespace: str | None = None,
        protocol: str | None = None,
        called: str | None = None,
    ) -> list[ToolState]:
        """At most `limit` tools with names after `after`; `part` is a substring of the name,
        `called` the whole name, a former one, or the id of a hybrid action."""
        values = {
            "host": self._host_id,
            "after": after,
            "limit": limit,
            "source": source,
            "state": state,
            "part": part,
            "tier": tier,
            "domain": domain,
            "namespace": namespace,
            "protocol": protocol,
            "called": called,
        }
        statement = (
            b"SELECT * FROM ("
            + _ROW
            + _LAST_CALLS
            + b""") AS tool
            WHERE name COLLATE "C" > %(after)s
                AND (%(source)s::text IS NULL OR source = %(source)s)
                AND (%(state)s::text IS NULL OR state = %(state)s)
                AND (%(tier)s::text IS NULL OR tier = %(tier)s)
                AND (%(domain)s::text IS NULL OR domain = %(domain)s)
                AND (%(namespace)s::text IS NULL OR namespace = %(namespace)s)
                AND (%(protocol)s::text IS NULL OR protocol = %(protocol)s)
                AND (%(part)s::text IS NULL OR strpos(lower(name), lower(%(part)s)) > 0)
            ORDER BY name COLLATE "C", state LIMIT %(limit)s"""
        )
        async with (
            borrow(self._pool) as connection,
            connection.cursor(row_factory=class_row(ToolState)) as cursor,
        ):
            await cursor.execute(statement, values)
            return await cursor.fetchall()

    async def detail(self, name: str) -> ToolDetail | None:
        """One tool; if an active and a disabled one share this name, the active one."""
        values = {"host": self._host_id, "name": name}
        async with borrow(self._pool) as connection:
            async with connection.cursor(row_factory=class_row(ToolState)) as cursor:
                statement = _ROW + b" AND tool.name = %(name)s ORDER BY tool.disabled LIMIT 1"
                await cursor.execute(statement, values)
                tool = await cursor.fetchone()
            rows = await connection.execute(_MORE, [self._host_id, name])
            row = await rows.fetchone()
        if tool is None or row is None:
            return None
        id_, schema, output, hints, aliases, user, time, digest, definition, binding = row
        return ToolDetail(
            id=id_,
            tool=tool,
            input_schema=schema,
            output_schema=output,
            annotations=hints,
            aliases=aliases,
            override_user=user,
            override_time=time,
            digest=digest,
            definition=definition,
            binding=_binding(binding),
        )


def _binding(value: Any) -> Binding | None:
    try:
        return binding_decoder().decode(msgspec.json.encode(value))
    except msgspec.ValidationError:
        return None
