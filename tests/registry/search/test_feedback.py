"""Tools are drawn to the queries after which they were called with success."""

import numpy as np
import pytest
from msgspec.structs import replace

from registry.database.postgres import Database
from registry.search import Filters, Search, SearchQuery
from registry.search.feedback import Feedback
from registry.search.statements import USED_ABOVE
from registry.sources.tool_store import SourceDraft, ToolStore
from schemas.binding import OpenAPIBinding
from schemas.tool import ToolDraft
from tests.fixtures_database import HOST
from tests.registry.search.finding import SETTINGS
from tests.registry.search.meaning import MODEL, Words, direction, embed_tools, vector

pytestmark = pytest.mark.anyio

OTHER = "00000000-0000-0000-0000-000000000002"
ASKED = "holiday request"
ON = replace(SETTINGS, feedback=True, query_timeout_s=60.0)
GAIN = ON.feedback_share * (1 - USED_ABOVE)  # for the very queries that a tool was used for


@pytest.fixture
async def tools(store: ToolStore, database: Database) -> dict[str, str]:
    """Ids by name; two tenants have the same tools."""
    drafts = [
        ToolDraft(f"/{n}", n, text, {"type": "object"}, OpenAPIBinding("GET", "/"))
        for n, text in {"absence": "Books an absence.", "calendar": "Shows a calendar."}.items()
    ]
    for host in (HOST, OTHER):
        await store.save(host, SourceDraft("hr", "openapi", "hr.json"), drafts)
        await embed_tools(database, host)
    return {tool.name: tool.id for tool in await store.tools(HOST)}


async def cosine(
    database: Database, name: str, host: str = HOST, settings: object = ON, text: str = ASKED
) -> float:
    search = Search(lambda: database.pool, lambda _: Words(), settings)  # type: ignore[arg-type]
    found = await search.run(SearchQuery(text, 5, "hybrid", Filters(host)))
    (hit,) = [hit for hit in found.hits if hit.name == name]
    assert hit.semantic is not None
    return hit.semantic


async def record_use(database: Database, id_: str, principal: str, text: str = ASKED) -> bool:
    return await Feedback(lambda: database.pool).record(
        HOST, id_, model=MODEL, vector=vector(text), principal=principal
    )


async def test_a_tool_moves_nearer_to_queries_that_led_to_its_use(
    database: Database, tools: dict[str, str]
) -> None:
    before = await cosine(database, "absence")
    for n, share in ((1, 1 / 3), (2, 2 / 3), (3, 1.0), (4, 1.0)):
        assert await record_use(database, tools["absence"], f"agent-{n}")
        expected = before + share * GAIN
        assert await cosine(database, "absence") == pytest.approx(expected, abs=1e-5)
    assert await cosine(database, "calendar") < 0.3


async def test_the_gain_is_as_the_settings_say(database: Database, tools: dict[str, str]) -> None:
    before = await cosine(database, "absence")
    for n in range(4):
        await record_use(database, tools["absence"], f"agent-{n}")
    less = await cosine(database, "absence", settings=replace(ON, feedback_share=0.1))
    assert less == pytest.approx(before + GAIN / 2, abs=1e-5)


async def test_queries_that_are_far_change_nothing(
    database: Database, tools: dict[str, str]
) -> None:
    before = await cosine(database, "absence", text="calendar")
    for n in range(4):
        await record_use(database, tools["absence"], f"agent-{n}")
    assert await cosine(database, "absence", text="calendar") == before


async def test_feedback_is_off_by_default(database: Database, tools: dict[str, str]) -> None:
    before = await cosine(database, "absence", settings=SETTINGS)
    await record_use(database, tools["absence"], "agent")
    assert await cosine(database, "absence", settings=SETTINGS) == before


async def test_a_caller_counts_once_per_tool(database: Database, tools: dict[str, str]) -> None:
    before = await cosine(database, "absence")
    assert await record_use(database, tools["absence"], "agent")
    assert not await record_use(database, tools["absence"], "agent")  # a moment ago
    for _ in range(5):
        await past(database)
        assert await record_use(database, tools["absence"], "agent")
    assert await cosine(database, "absence") == pytest.approx(before + GAIN / 3, abs=1e-5)
    assert await count(database, "usage_query_t") == 3


async def test_the_newest_queries_of_a_caller_count(
    database: Database, tools: dict[str, str]
) -> None:
    for text in ("old one", "old two", "old three", ASKED, ASKED, ASKED):
        await past(database)
        assert await record_use(database, tools["absence"], "agent", text)
    before = await cosine(database, "absence", settings=SETTINGS)
    found = await cosine(database, "absence")
    assert found == pytest.approx(before + GAIN / 3, abs=1e-4)


async def test_another_tenant_is_not_moved(database: Database, tools: dict[str, str]) -> None:
    before = await cosine(database, "absence", OTHER)
    for n in range(4):
        await record_use(database, tools["absence"], f"agent-{n}")
    assert await cosine(database, "absence", OTHER) == before


async def test_unattributable_usage_is_not_recorded(
    database: Database, tools: dict[str, str]
) -> None:
    assert not await record_use(database, "00000000-0000-0000-0000-00000000000f", "agent")
    feedback = Feedback(lambda: database.pool)
    elsewhere = "00000000-0000-0000-0000-00000000000e"
    assert not await feedback.record(
        elsewhere, tools["absence"], model=MODEL, vector=vector("x"), principal="agent"
    )
    assert not await Feedback(lambda: None).record(
        HOST, tools["absence"], model=MODEL, vector=vector("x"), principal="a"
    )


async def test_callers_are_enough_at_some_point(database: Database, tools: dict[str, str]) -> None:
    found = [await record_use(database, tools["absence"], f"agent-{n}") for n in range(34)]
    assert found == [True] * 32 + [False] * 2


async def test_a_deleted_tool_leaves_nothing(
    database: Database, store: ToolStore, tools: dict[str, str]
) -> None:
    await record_use(database, tools["absence"], "agent")
    assert await store.remove(HOST, "hr") == 2
    assert await count(database, "usage_query_t") == await count(database, "usage_embedding_t") == 0


def test_directions_of_different_words_differ() -> None:
    assert abs(float(np.dot(direction("holiday"), direction("absence")))) < 0.3


async def past(database: Database) -> None:
    async with database.connect() as connection:
        await connection.execute(
            "UPDATE usage_query_t SET update_ts = update_ts - interval '2 minutes'"
        )


async def count(database: Database, table: str) -> int:
    async with database.connect() as connection:
        found = await connection.execute(f"SELECT count(*) FROM {table}".encode())
        row = await found.fetchone()
    return int(row[0]) if row else 0
