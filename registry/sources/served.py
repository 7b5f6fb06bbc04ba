"""What of a source is served: the other side of every comparison with a new description."""

from dataclasses import dataclass
from typing import Any

from anyio import to_thread
from psycopg import AsyncCursor

from registry.database.rows import RawLoader, readable
from schemas.tool import Tool


@dataclass(frozen=True, slots=True)
class Served:
    """An operation that the current description has, and its tool."""

    endpoint_id: str
    key: str
    tool: Tool


async def served(cursor: AsyncCursor[Any], host_id: str, source: str) -> list[Served]:
    """By key. Also what is held back, or was taken out of service by hand."""
    for json_type in ("json", "jsonb"):
        cursor.adapters.register_loader(json_type, RawLoader)
    await cursor.execute(
        """
        SELECT endpoint.endpoint_id::text, endpoint.endpoint, tool.tool_id::text, tool.name,
            tool.title, tool.description, tool.input_schema, tool.output_schema, tool.annotations,
            tool.binding, api.name, tool.digest, tool.definition, tool.toolsets, ARRAY[]::text[],
            tool.sensitivity_tier, tool.tags, tool.routing_domain
        FROM api_t AS api
        JOIN api_endpoint_t AS endpoint USING (host_id, api_id)
        JOIN tool_t AS tool USING (host_id, endpoint_id)
        WHERE host_id = %s AND api.name = %s AND endpoint.active
        ORDER BY endpoint.endpoint COLLATE "C"
        """,
        [host_id, source],
    )
    rows = await cursor.fetchall()
    return await to_thread.run_sync(_read, rows)


def _read(rows: list[tuple[Any, ...]]) -> list[Served]:
    ids = {row[2]: (row[0], row[1]) for row in rows}
    return [Served(*ids[tool.id], tool) for tool in readable([row[2:] for row in rows])]
