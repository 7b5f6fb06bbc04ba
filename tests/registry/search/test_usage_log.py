"""Requests and the tools called after them are kept for evaluations, without personal data."""

import pytest

from registry.database.postgres import Database, borrow
from registry.search.usage_log import UsageLog, UsedRequest
from registry.sources.tool_store import SourceDraft, ToolStore
from schemas.binding import OpenAPIBinding
from schemas.tool import ToolDraft
from tests.fixtures_database import HOST

pytestmark = pytest.mark.anyio

OTHER = "00000000-0000-0000-0000-000000000002"
FIRST, SECOND = (f"00000000-0000-0000-0000-0000000000{n}" for n in ("a1", "a2"))


@pytest.fixture
async def tools(store: ToolStore) -> dict[str, str]:
    drafts = [
        ToolDraft(f"/{n}", n, n, {"type": "object"}, OpenAPIBinding("GET", "/")) for n in "ab"
    ]
    for host in (HOST, OTHER):
        await store.save(host, SourceDraft("hr", "openapi", "hr.json"), drafts)
    return {tool.name: tool.id for tool in await store.tools(HOST)}


def log(database: Database) -> UsageLog:
    return UsageLog(lambda: database.pool, 30, 40)


async def rows(database: Database, statement: str) -> list[tuple[object, ...]]:
    async with borrow(database.pool) as connection:
        return await (await connection.execute(statement)).fetchall()


async def test_the_tools_of_a_request_are_kept_together(
    database: Database, tools: dict[str, str]
) -> None:
    used = log(database)
    for tool, request in (("a", FIRST), ("b", FIRST), ("b", FIRST), ("b", SECOND)):
        await used.record(HOST, tools[tool], request_id=request, query="ask", principal="ann")
    assert await rows(database, "SELECT cardinality(called) FROM usage_request_t") == [(2,), (1,)]
    assert await used.requests(HOST) == [UsedRequest("ask", tuple(sorted(tools.values())))]
    assert await used.requests(OTHER) == []


async def test_the_usage_log_names_no_person(database: Database, tools: dict[str, str]) -> None:
    text = "mail ann@example.com\0 about the trip to Rome and back"
    await log(database).record(HOST, tools["a"], request_id=FIRST, query=text, principal="ann")
    [(query, caller)] = await rows(database, "SELECT query, caller FROM usage_request_t")
    assert query == "mail [email]  about the trip to Rome and"
    assert "ann" not in str(caller)


async def test_a_secret_that_is_cut_is_masked(database: Database, tools: dict[str, str]) -> None:
    text = "log in with my token=" + 60 * "a"
    await log(database).record(HOST, tools["a"], request_id=FIRST, query=text, principal="ann")
    assert await rows(database, "SELECT query FROM usage_request_t") == [
        ("log in with my token=[key]",)
    ]


async def test_old_requests_are_deleted(database: Database, tools: dict[str, str]) -> None:
    used = log(database)
    await used.record(HOST, tools["a"], request_id=FIRST, query="old", principal="ann")
    async with borrow(database.pool) as connection:
        await connection.execute("UPDATE usage_request_t SET asked_ts = now() - interval '31 days'")
    assert await used.requests(HOST) == []
    await used.record(OTHER, tools["a"], request_id=SECOND, query="new", principal="ann")
    await used.prune()
    assert await rows(database, "SELECT query FROM usage_request_t") == [("new",)]


async def test_a_tool_that_is_gone_is_in_no_set(database: Database, tools: dict[str, str]) -> None:
    used = log(database)
    await used.record(HOST, tools["a"], request_id=FIRST, query="ask", principal="ann")
    async with borrow(database.pool) as connection:
        await connection.execute("DELETE FROM tool_t WHERE tool_id = %s", [tools["a"]])
    assert await used.requests(HOST) == []
