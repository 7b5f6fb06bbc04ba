"""What a portal's own SQL reads: the statements of light-portal's designs, as they stand there."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from psycopg import AsyncConnection
from psycopg.rows import dict_row

from registry.database.postgres import Database
from registry.embedding.backfills import queue_missing
from registry.embedding.target_models import register
from registry.embedding.worker import Worker
from registry.sources.tool_store import SourceDraft, ToolStore
from registry.tools.editable_columns import Details, ManualEdit, NewTool
from registry.tools.tool_edits import ToolEdits
from registry.tools.tool_errors import ToolRefused
from schemas.binding import (
    FunctionBinding,
    HybridBinding,
    McpBinding,
    OpenAPIBinding,
    ScriptBinding,
)
from schemas.tool import ToolDraft
from tests.fixtures_database import HOST
from tests.registry.embedding.conftest import SETTINGS
from tests.registry.embedding.fakes import HashEmbedder, vector

pytestmark = pytest.mark.anyio

# The columns of the designs' tool_t and skill_t (agent skill tool design, 3.1 and 3.2; embedding
# population, "Staleness Tracking" and "Endpoint Sync And Manual Overrides").
TOOL_COLUMNS = (
    "host_id, tool_id, name, description, implementation_type, implementation_class,"
    " mcp_server_name, api_endpoint, api_method, script_content, description_embedding, version,"
    " aggregate_version, active, update_ts, update_user, description_embedding_model,"
    " description_embedding_dimension, description_embedding_source_hash, description_embedding_ts,"
    " description_embedding_status, description_embedding_error, description_source,"
    " description_manual_override, description_override_ts, description_override_user,"
    " routing_domain, semantic_namespace, sensitivity_tier, semantic_weight, source_protocol,"
    " target_personas, tool_metadata, lifecycle_status, cost_tier"
)
SKILL_COLUMNS = (
    "host_id, skill_id, parent_skill_id, name, description, content_markdown,"
    " description_embedding, version, aggregate_version, active, update_ts, update_user"
)
PORTAL = """
CREATE SCHEMA portal;
CREATE VIEW portal.tool_t AS SELECT * FROM tool_v;
CREATE VIEW portal.skill_t AS SELECT * FROM skill_v;
SET search_path = portal, public;
"""
NEAREST = """
SELECT name FROM tool_t
WHERE host_id = %s
AND active = TRUE
AND description_embedding IS NOT NULL
AND description_embedding_status = 'ready'
ORDER BY description_embedding <=> %s::vector
"""


def draft(name: str, binding: Any = None) -> ToolDraft:
    schema = {"type": "object", "properties": {}}
    return ToolDraft(
        f"/{name}@get", name, f"Does {name}.", schema, binding or OpenAPIBinding("GET", f"/{name}")
    )


@pytest.fixture
async def portal(database: Database, store: ToolStore) -> AsyncIterator[AsyncConnection]:
    await store.save(HOST, SourceDraft("pets", "openapi", "x.json"), [draft("getPet"), draft("b")])
    async with database.connect() as connection:
        await connection.execute(PORTAL.encode())
        yield connection
        await connection.execute(b"DROP SCHEMA portal CASCADE")


async def rows(connection: AsyncConnection, statement: str, *values: Any) -> list[Any]:
    return await (await connection.execute(statement.encode(), values)).fetchall()


@pytest.mark.parametrize(
    ("table", "columns"), [("tool_t", TOOL_COLUMNS), ("skill_t", SKILL_COLUMNS)]
)
async def test_the_columns_of_the_design_are_there(
    portal: AsyncConnection, table: str, columns: str
) -> None:
    await portal.execute(f"SELECT {columns} FROM {table}".encode())


async def test_the_nearest_tools_are_found_by_the_designs_query(
    portal: AsyncConnection, database: Database
) -> None:
    assert await rows(portal, "SELECT DISTINCT description_embedding_status FROM tool_t") == [
        ("disabled",)
    ]
    fake = HashEmbedder()
    await register(database.pool, fake)
    assert await rows(portal, "SELECT DISTINCT description_embedding_status FROM tool_t") == [
        ("pending",)
    ]
    await queue_missing(database.pool)
    worker = Worker(database.pool, fake, SETTINGS)
    while await worker.step():
        pass
    (text,) = (
        await rows(
            portal,
            "SELECT source_text FROM public.entity_source_v JOIN tool_t"
            " ON entity_id = tool_id WHERE name = 'b'",
        )
    )[0]
    assert await rows(portal, NEAREST, HOST, str(vector(text).tolist())) == [("b",), ("getPet",)]
    found = await rows(
        portal,
        "SELECT DISTINCT description_embedding_model, description_embedding_dimension FROM tool_t",
    )
    assert found == [("fake/hash", 384)]


@pytest.mark.parametrize(
    ("binding", "expected"),
    [
        (OpenAPIBinding("GET", "/x"), ("rest", None, None, None)),
        (FunctionBinding("count"), ("python", "count", None, None)),
        (HybridBinding("a/b/c/1"), ("hybrid", "a/b/c/1", None, None)),
        (McpBinding("x"), ("mcp_server", None, "pets", None)),
        (ScriptBinding("javascript", "main()"), ("javascript", None, None, "main()")),
    ],
    ids=["rest", "function", "hybrid", "mcp", "script"],
)
async def test_how_a_tool_is_run_stands_in_the_columns_of_the_design(
    portal: AsyncConnection, store: ToolStore, binding: Any, expected: tuple[str | None, ...]
) -> None:
    await store.save(HOST, SourceDraft("pets", "openapi", "x.json"), [draft("t", binding)])
    found = await rows(
        portal,
        "SELECT implementation_type, implementation_class, mcp_server_name, script_content"
        " FROM tool_t WHERE active",
    )
    assert found == [expected]


async def test_cost_tiers_are_set_by_hand(portal: AsyncConnection, database: Database) -> None:
    tools = ToolEdits(database.pool, HOST)
    await tools.add([NewTool(draft("weather"), None, Details(cost_tier="low"))])
    await tools.edit("getPet", ManualEdit(details=Details(cost_tier="high")), "ada")
    assert (await tools.catalog_row("getPet")).cost_tier == "high"
    costs = await rows(
        portal, "SELECT name, cost_tier FROM tool_t WHERE cost_tier <> '' ORDER BY 1"
    )
    assert costs == [("getPet", "high"), ("weather", "low")]
    with pytest.raises(ToolRefused, match="the cost tier is one of low, medium, high"):
        await tools.edit("getPet", ManualEdit(details=Details(cost_tier="free")), "ada")
    await tools.edit("getPet", ManualEdit(details=Details(cost_tier="")), "ada")
    assert (await tools.catalog_row("getPet")).cost_tier is None


async def test_no_column_stands_there_that_nothing_reads(database: Database) -> None:
    async with database.connect() as connection, connection.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(
            "SELECT table_name FROM information_schema.columns WHERE column_name = 'config'"
            " AND table_name IN ('agent_skill_t', 'skill_tool_t')"
        )
        assert await cursor.fetchall() == []
