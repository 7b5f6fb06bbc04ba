"""Descriptions of tools written by hand: imports preserve them (`registry.sources.write`)."""

from psycopg import AsyncConnection


async def set_description(
    connection: AsyncConnection, host_id: str, tool_id: str, text: str, user: str
) -> bool:
    """Describe a tool by hand; later imports keep this description. Returns whether the tool
    exists."""
    done = await connection.execute(
        """
        UPDATE tool_t SET description = %s, description_source = 'manual',
            description_manual_override = endpoint_id IS NOT NULL,
            description_override_ts = CASE WHEN endpoint_id IS NOT NULL
                THEN current_timestamp END,
            description_override_user = CASE WHEN endpoint_id IS NOT NULL THEN %s END,
            aggregate_version = aggregate_version + 1, update_ts = current_timestamp,
            update_user = session_user
        WHERE host_id = %s AND tool_id = %s
        """,
        [text, user, host_id, tool_id],
    )
    return done.rowcount > 0


async def reset_description(connection: AsyncConnection, host_id: str, tool_id: str) -> str | None:
    """Restore an imported tool's description from its source; returns it. None: there is none to
    restore."""
    found = await connection.execute(
        """
        UPDATE tool_t AS tool SET description = endpoint.endpoint_desc,
            description_source = 'endpoint_sync', description_manual_override = false,
            description_override_ts = NULL, description_override_user = NULL,
            aggregate_version = tool.aggregate_version + 1, update_ts = current_timestamp,
            update_user = session_user
        FROM api_endpoint_t AS endpoint
        WHERE tool.host_id = %s AND tool.tool_id = %s
            AND (endpoint.host_id, endpoint.endpoint_id) = (tool.host_id, tool.endpoint_id)
        RETURNING tool.description
        """,
        [host_id, tool_id],
    )
    row = await found.fetchone()
    return str(row[0]) if row else None
