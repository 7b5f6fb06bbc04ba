"""Names of the gateway's own tools, taken back from the tools of others that have them.

A tool may have such a name if it was stored by a release that did not reserve it, or before a wing
offered a tool of that name. It keeps its id, its edits and its state, and gets the name that a new
import would give it.
"""

import logging
from collections.abc import Collection, Mapping, Sequence

from msgspec import Struct
from psycopg import AsyncConnection
from psycopg.rows import class_row

from registry.database.tenants import lock_tenant
from registry.names.tool_names import Naming, TakenNames, is_reserved
from schemas.source import facts_of

log = logging.getLogger("toolgate.registry")

BY_HAND = "manual"  # in front of the names of tools that have no source


class RenamedTool(Struct, frozen=True):
    """A tool that lost a name of the gateway's."""

    old: str
    name: str
    source: str  # "": made by hand


class _Named(Struct, frozen=True):
    id: str
    name: str
    source: str
    kind: str
    key: str  # of its operation
    plain: str  # its name in the description


class _Plan(Struct, frozen=True):
    renamed: list[RenamedTool]
    names: dict[str, str]  # of the tools of others, by id
    plain: dict[str, str]  # of the tools of wings, by id; free once the others have their names


async def reclaim_names(
    connection: AsyncConnection, host_id: str, wing_names: Collection[str] = ()
) -> list[RenamedTool]:
    """Rename the tools of others whose names are reserved, or are those that a wing wants; then
    give the tools of wings their plain names. It waits for the lock of the tenant only where there
    is something to rename."""
    plan = _plan(await _named_tools(connection, host_id), wing_names)
    if not plan.names and not plan.plain:
        return []
    await lock_tenant(connection, host_id)
    plan = _plan(await _named_tools(connection, host_id), wing_names)
    await _rename(connection, host_id, plan.names)
    await _rename(connection, host_id, plan.plain)
    return plan.renamed


def _plan(tools: Sequence[_Named], wing_names: Collection[str]) -> _Plan:
    own_tools = [tool for tool in tools if facts_of(tool.kind).own]
    claimed = {name.casefold() for name in (*wing_names, *(tool.plain for tool in own_tools))}
    taken_names, new_names = TakenNames([*(tool.name for tool in tools), *claimed]), set[str]()
    names: dict[str, str] = {}
    renamed: list[RenamedTool] = []
    for tool in tools:
        is_squatter = is_reserved(tool.name) or tool.name.casefold() in claimed
        if facts_of(tool.kind).own or not is_squatter:
            continue
        candidates = Naming(tool.source or BY_HAND).tool_names(tool.name, tool.key or tool.id)
        name = next(
            candidate
            for candidate in candidates
            if candidate not in taken_names
            and not taken_names.shows(candidate)
            and candidate.casefold() not in new_names
        )
        new_names.add(name.casefold())
        names[tool.id] = name
        renamed.append(RenamedTool(tool.name, name, tool.source))
    plain = {tool.id: tool.plain for tool in own_tools if tool.plain != tool.name}
    return _Plan(renamed, names, plain)


def log_renamed(host_id: str, tools: Sequence[RenamedTool]) -> None:
    for tool in tools:
        log.warning(
            "tool_renamed",
            extra={
                "tenant": host_id,
                "source": tool.source,
                "tool": tool.old,
                "renamed": tool.name,
                "reason": "its name is kept for the gateway's own tools",
            },
        )


async def _named_tools(connection: AsyncConnection, host_id: str) -> list[_Named]:
    cursor = connection.cursor(row_factory=class_row(_Named))
    await cursor.execute(
        """
        SELECT tool.tool_id::text AS id, tool.name, coalesce(api.name, '') AS source,
            coalesce(api.kind, '') AS kind, coalesce(endpoint.endpoint, '') AS key,
            coalesce(endpoint.endpoint_name, tool.name) AS plain
        FROM tool_t AS tool
        LEFT JOIN api_endpoint_t AS endpoint USING (host_id, endpoint_id)
        LEFT JOIN api_t AS api ON (api.host_id, api.api_id)
            = (tool.host_id, coalesce(endpoint.api_id, tool.source_api_id))
        WHERE tool.host_id = %s AND (tool.active OR tool.disabled)
        ORDER BY tool.name COLLATE "C"
        """,
        [host_id],
    )
    return await cursor.fetchall()


async def _rename(connection: AsyncConnection, host_id: str, names: Mapping[str, str]) -> None:
    if not names:
        return
    await connection.execute(
        "UPDATE tool_t AS tool SET name = renamed.name,"
        " aggregate_version = aggregate_version + 1, update_ts = current_timestamp,"
        " update_user = session_user"
        " FROM unnest(%s::uuid[], %s::text[]) AS renamed (tool_id, name)"
        " WHERE tool.host_id = %s AND tool.tool_id = renamed.tool_id",
        [list(names), list(names.values()), host_id],
    )
