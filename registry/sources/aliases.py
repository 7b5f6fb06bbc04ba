"""Names that tools had before: they still call them, and are not listed."""

from collections.abc import Mapping

from psycopg import AsyncConnection


class AliasSaving:
    """The aliases that one import makes and ends, in its transaction."""

    def __init__(self, connection: AsyncConnection, host_id: str) -> None:
        self._connection = connection
        self._host_id = host_id

    async def run(self, aliases: Mapping[str, str]) -> None:
        """Let these names call these tools, by id; end all whose name a tool has by now."""
        if aliases:
            await self._connection.execute(
                """
                INSERT INTO tool_alias_t AS old (host_id, name, tool_id)
                SELECT %s, name, tool_id FROM unnest(%s::text[], %s::uuid[]) AS one (name, tool_id)
                ON CONFLICT (host_id, lower(name)) DO UPDATE SET
                    name = excluded.name, tool_id = excluded.tool_id, since = current_timestamp
                """,
                [self._host_id, list(aliases), list(aliases.values())],
            )
        await self._connection.execute(
            """
            DELETE FROM tool_alias_t AS alias USING tool_t AS tool
            WHERE alias.host_id = %s AND tool.host_id = alias.host_id AND tool.active
                AND lower(tool.name) = lower(alias.name)
                AND (tool.tool_id <> alias.tool_id OR tool.name = alias.name)
            """,
            [self._host_id],
        )
