"""A catalog in a temporary database: an evaluation leaves no rows in the registry."""

import re
import tempfile
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import msgspec
from psycopg import AsyncConnection
from psycopg.types.json import Json

from config.settings import DatabaseSettings as Settings
from registry.database.postgres import EMBEDDED_URL, Database, borrow
from registry.database.tenants import lock_tenant
from registry.evaluation.request_sets import CatalogTool
from registry.names.tool_names import add_suffix, assign, legal
from registry.sources.import_plan import SourceDraft, storable
from registry.sources.tool_store import ToolStore
from schemas.binding import McpBinding
from schemas.source import McpOptions
from schemas.tool import ToolDraft

HOST = "00000000-0000-0000-0000-000000000001"
SOURCE_LIMIT = 63  # characters, limit of the column
_ODD = re.compile(r"[^A-Za-z0-9_-]+")
CARELESS = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}


@asynccontextmanager
async def scratch_database(settings: Settings) -> AsyncIterator[Database]:
    """A temporary embedded database, whatever database the settings name."""
    with _folder() as folder:
        options = {**settings.options, **CARELESS}
        scratch_settings = msgspec.structs.replace(
            settings, url=EMBEDDED_URL, data_dir=str(folder / "data"), options=options
        )
        async with Database.open(scratch_settings, wait=False) as database:
            yield database


@contextmanager
def _folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="toolgate-eval-", ignore_cleanup_errors=True) as name:
        Path(name).chmod(0o755)  # as root the server runs as another user, who needs access
        yield Path(name)


async def load(
    database: Database, tools: Sequence[CatalogTool], host_id: str = HOST
) -> dict[str, str]:
    """Insert `tools` as the tenant's tools, as imports would; ids in the catalog by tool ids.

    Each server is a source. Tools without a server are inserted as if made by hand.
    """
    servers = defaultdict(list)
    for tool in tools:
        servers[tool.server].append(tool)
    alone = servers.pop("", [])
    store = ToolStore(database.pool)
    for server, listed in servers.items():
        source = SourceDraft(_source(server), "mcp", server, options=McpOptions())
        await store.save(host_id, source, _drafts(listed))
    async with borrow(database.pool) as connection:
        await _insert(connection, host_id, _drafts(alone))
        rows = await connection.execute(
            "SELECT tool_id::text, coalesce(endpoint.endpoint, tool_metadata ->> 'catalog')"
            " FROM tool_t LEFT JOIN api_endpoint_t AS endpoint USING (host_id, endpoint_id)"
            " WHERE host_id = %s",
            [host_id],
        )
        loaded = {tool_id: id_ async for tool_id, id_ in rows}
        await connection.execute("ANALYZE")  # as the autovacuum would some time after an import
    return loaded


def _source(server: str) -> str:
    """The source's name, unchanged: it is never typed."""
    return server if len(server) <= SOURCE_LIMIT else add_suffix(server, server, SOURCE_LIMIT)


def _drafts(tools: Sequence[CatalogTool]) -> list[ToolDraft]:
    """Drafts under callable names. A tool distinguished only by a hash keeps its own name as
    title."""
    candidates = {
        tool.id: (legal(tool.name) or add_suffix("tool", tool.name), tool.name) for tool in tools
    }
    names = assign(candidates)
    return [
        ToolDraft(
            key=tool.id,
            name=names[tool.id],
            title=tool.title or _title(tool.name, names[tool.id]),
            description=tool.description,
            input_schema=dict(tool.input_schema),
            binding=McpBinding(tool.name),
            tags=tool.tags,
        )
        for tool in tools
    ]


def _title(name: str, original: str) -> str | None:
    return None if _ODD.sub("_", name).strip("_-") == original.strip("_-") else name


async def _insert(connection: AsyncConnection, host_id: str, drafts: Sequence[ToolDraft]) -> None:
    await lock_tenant(connection, host_id)
    await connection.execute(
        """
        INSERT INTO tool_t (host_id, name, title, description, input_schema, tags, binding,
            tool_metadata)
        SELECT %s, name, title, description, input_schema, tags, binding,
            jsonb_build_object('catalog', key)
        FROM json_to_recordset(%s) AS draft (key text, name text, title text, description text,
            input_schema json, tags text[], binding jsonb)
        """,
        [host_id, Json([_row(draft) for draft in drafts], dumps=msgspec.json.encode)],
    )


def _row(draft: ToolDraft) -> Mapping[str, Any]:
    clean: Mapping[str, Any] = msgspec.to_builtins(storable(draft)[0])
    return {**clean, "key": draft.key}
