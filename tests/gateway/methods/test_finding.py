"""search_tools and what follows from it, with a search that answers as the test says: real ones are
for the tests of the registry and of the whole gateway."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from msgspec.json import decode
from psycopg import OperationalError

from config.settings import Toolset
from gateway.context import Context, Identity, Principal, QueryOptions, Session
from gateway.methods.lists import Lists
from gateway.methods.search_tools import (
    ANY_DOMAIN,
    BY_WORDS,
    HOLDS_S,
    PastSearch,
    SearchLimits,
    SearchTools,
    Usage,
)
from registry.catalog.catalog import Catalog
from registry.catalog.catalogs import Catalogs
from registry.display.token_budgets import tokens
from registry.embedding.search_kinds import TOOL
from registry.search.fusion import Hit
from registry.search.query import SearchQuery, SearchResult, ToolsetFilter
from schemas.binding import HybridBinding
from schemas.errors import InvalidParams, Unavailable, Unreachable
from schemas.mcp.revisions import V2025_06_18, V2026_07_28
from schemas.tool import TextContent, ToolResult
from tests.registry.shown import describe_tool, shaper

pytestmark = pytest.mark.anyio

SCHEMA = {"type": "object", "properties": {"id": {"type": "string"}}, "required": ["id"]}
TOOLS = [
    describe_tool("getPet", SCHEMA, description="One pet."),
    describe_tool("deletePet", SCHEMA, description="Removes a pet."),
    describe_tool("secret", binding=HybridBinding("h/s/a/1", scope="admin"), description="A pet."),
]
TOOLSETS = {"few": Toolset(include=("get*",))}
NOTHING = ToolResult((TextContent("ok"),))


@dataclass
class Searches:
    """Answers with these hits, or raises that."""

    names: Sequence[str] = ()
    note: str | None = None
    failure: Exception | None = None
    vector: Any = None
    asked: list[SearchQuery] = field(default_factory=list)

    async def run(self, query: SearchQuery) -> SearchResult:
        self.asked.append(query)
        if self.failure is not None:
            raise self.failure
        hits = [Hit(one, one, None, "", "api", 0.98765, 1.0, None) for one in self.names]
        return SearchResult(hits, self.note, model="m" if self.vector else None, vector=self.vector)


class Held(Catalogs):
    def __init__(self, catalog: Catalog) -> None:
        super().__init__(TOOLSETS, shaper())
        self._catalog = catalog

    def of(self, tenant: str, toolset: str | None = None) -> Catalog:
        assert tenant in ("t", "other")
        return self._catalog.toolset(toolset, TOOLSETS[toolset]) if toolset else self._catalog


CATALOG = Catalog(TOOLS, shaper=shaper())
LISTS = Lists(
    Held(CATALOG), page_size=100, ttl_ms=1000, down=lambda _tenant, _catalog: (), fail_closed=False
)


def caller(tenant: str = "t", scopes: Sequence[str] = (), **more: Any) -> Context:
    who = Identity(Principal("ann", tenant, frozenset(scopes)), verified=True)
    return Context(who, V2026_07_28, "r-1", **more)


async def run_search(
    search: Searches, context: Context | None = None, most: int = 2000, **arguments: Any
) -> Any:
    own = SearchTools(LISTS, search.run, limits=SearchLimits(5, 20, most))
    tool = CATALOG.own["search_tools"]
    result = await own.call(tool, None, {"query": "pet", **arguments}, context or caller())
    if result.is_error:
        return result
    assert isinstance(result.content[0], TextContent)
    assert result.content[0].text.encode() == bytes(result.structured_content)  # type: ignore[arg-type]
    return decode(result.content[0].text)


async def test_the_search_is_filtered_by_the_permissions_of_the_caller() -> None:
    search = Searches(["getPet"])
    await run_search(search, caller("other", ["x"], toolset="few"), limit=500)
    [query] = search.asked
    assert query.filters.host_id == "other"
    assert query.filters.scopes == {"x"}
    assert query.filters.toolset == ToolsetFilter("few", (), ("get*",), ())
    assert (query.text, query.limit, query.kind) == ("pet", 20, TOOL)


async def test_without_tokens_nobody_s_scopes_are_looked_at() -> None:
    search = Searches()
    await run_search(search, Context(Identity(Principal("p", "t")), V2026_07_28, "r"))
    assert search.asked[0].filters.scopes is None
    assert search.asked[0].limit == 5


@pytest.mark.parametrize(
    ("said", "domains"),
    [({}, None), ({"domain": ""}, None), ({"domain": "sales"}, ["sales"])],
    ids=str,
)
async def test_a_search_can_be_of_a_domain(said: dict[str, str], domains: list[str] | None) -> None:
    search = Searches()
    await run_search(search, **said)
    assert search.asked[0].filters.domains == domains


async def test_plain_words_know_no_domain_and_say_so() -> None:
    away = Searches(failure=Unavailable("gone"))
    told = await run_search(away, query="Remove a pet", domain="sales")
    assert told["note"] == f"{BY_WORDS} {ANY_DOMAIN}"
    assert [one["name"] for one in told["tools"]] == ["deletePet", "getPet"]


async def test_surplus_hits_of_the_search_are_dropped() -> None:
    """The index may be ahead of the catalog, or behind."""
    search = Searches(["secret", "gone", "getPet"])
    assert [one["name"] for one in (await run_search(search))["tools"]] == ["getPet"]
    admin = await run_search(search, caller(scopes=["admin"]))
    assert [one["name"] for one in admin["tools"]] == ["secret", "getPet"]


async def test_entries_are_ready_to_be_called_and_scores_are_short() -> None:
    told = await run_search(Searches(["getPet"], note="Searched by words. " * 100))
    assert told["tools"] == [
        {"name": "getPet", "description": "One pet.", "score": 0.988, "inputSchema": SCHEMA}
    ]
    assert len(told["note"]) <= 300
    assert "more" not in told


async def test_tools_are_found_as_stubs() -> None:
    own = SearchTools(
        LISTS,
        Searches(["getPet", "deletePet"], note="Nothing\nfits.").run,
        limits=SearchLimits(5, 20, 2000),
    )
    asked = {"query": "pet", "as": "python"}
    result = await own.call(CATALOG.own["search_tools"], None, asked, caller())
    stubs = [
        'def getPet(*, id: str) -> Any: """One pet."""',
        'def deletePet(*, id: str) -> Any: """Removes a pet."""',
    ]
    assert result.content == (TextContent("\n".join((*stubs, "# Nothing fits."))),)
    assert decode(bytes(result.structured_content))["tools"] == [  # type: ignore[arg-type]
        {"name": name, "score": 0.988, "stub": stub}
        for name, stub in zip(("getPet", "deletePet"), stubs, strict=True)
    ]


@pytest.mark.parametrize("failure", [Unavailable("gone"), OperationalError("gone")], ids=str)
async def test_the_fallback_by_words_finds_only_callable_tools(
    failure: Exception,
) -> None:
    told = await run_search(Searches(failure=failure), query="Remove a pet")
    assert told["note"] == BY_WORDS
    assert [one["name"] for one in told["tools"]] == ["deletePet", "getPet"]
    few = await run_search(Searches(failure=failure), caller(toolset="few"), query="Remove a pet")
    assert [one["name"] for one in few["tools"]] == ["getPet"]


async def test_where_meaning_is_wanted_or_nothing_its_absence_is_a_failure_to_react_to() -> None:
    result = await run_search(Searches(failure=Unreachable("try again later")))
    assert result.content[0].text == "try again later"
    with pytest.raises(InvalidParams):
        await run_search(Searches(failure=InvalidParams("the query is empty")))


@pytest.mark.parametrize("most", [250, 500, 2000])
async def test_no_answer_exceeds_its_token_budget(most: int) -> None:
    huge = {"type": "object", "properties": {f"p{n}": SCHEMA for n in range(400)}}
    tools = [
        describe_tool(f"{n:02}{'x' * 60}", huge, description="Does. " * 999) for n in range(20)
    ]
    lists = Lists(
        Held(Catalog(tools, shaper=shaper())),
        page_size=9,
        ttl_ms=9,
        down=lambda _tenant, _catalog: (),
        fail_closed=False,
    )
    names = [one.name for one in tools]
    own = SearchTools(
        lists,
        Searches(names, note="n" * 999).run,
        limits=SearchLimits(5, 20, most),
    )
    arguments = {"query": "x", "limit": 20}
    result = await own.call(CATALOG.own["search_tools"], None, arguments, caller())
    assert isinstance(result.content[0], TextContent)
    told = decode(result.content[0].text)
    assert tokens(result.content[0].text) <= most
    left_out = 20 - len(told["tools"])
    assert told["tools"]
    more = told.get("more", "")
    assert (f"{left_out} left out" in more) == bool(left_out)
    folded = sum("inputSchema" not in one for one in told["tools"])
    assert (f"{folded} without input schema: describe_tools" in more) == bool(folded)


async def test_schemas_are_written_for_the_client() -> None:
    schema = {
        "type": "object",
        "properties": {"pet": {"$ref": "#/$defs/Pet"}},
        "$defs": {"Pet": {"type": "object", "properties": {"name": {"type": ["string", "null"]}}}},
    }
    catalog = Catalog([describe_tool("a-" + "x" * 61, schema)], shaper=shaper())
    lists = Lists(
        Held(catalog), page_size=9, ttl_ms=9, down=lambda _tenant, _catalog: (), fail_closed=False
    )
    own = SearchTools(
        lists,
        Searches([catalog.tools[0].name]).run,
        limits=SearchLimits(5, 20, 2000),
    )
    shown = {}
    for profile in ("plain", "openai", "gemini"):
        around = caller(options=QueryOptions(profile=profile))
        result = await own.call(CATALOG.own["search_tools"], None, {"query": "x"}, around)
        assert isinstance(result.content[0], TextContent)
        [shown[profile]] = decode(result.content[0].text)["tools"]
    pets = {name: one["inputSchema"]["properties"]["pet"] for name, one in shown.items()}
    assert pets["plain"] == {"$ref": "#/$defs/Pet"}
    assert pets["openai"]["properties"]["name"]["type"] == ["string", "null"]
    assert pets["gemini"]["properties"]["name"] == {"type": "string", "nullable": True}
    assert shown["plain"]["name"] == catalog.tools[0].name
    for profile in ("openai", "gemini"):  # which put something in front of it
        assert len(shown[profile]["name"]) < 63
        assert catalog.find(shown[profile]["name"]) == catalog.tools[0]


@dataclass
class Records:
    said: list[tuple[Any, ...]] = field(default_factory=list)
    now: float = 0.0
    failure: Exception | None = None

    async def record(self, principal: Principal, tool: str, search: PastSearch) -> None:
        said = (principal.tenant, tool, search.query, search.model, search.vector, principal.id)
        self.said.append(said)
        if self.failure is not None:
            raise self.failure


def session(context: Context, id_: str) -> Context:
    context.session = Session(id_, V2025_06_18, context.principal, {}, {})
    return context


async def test_a_call_with_success_after_a_search_is_told_once() -> None:
    records, tool = Records(), TOOLS[0]
    usage = Usage([records.record], lambda: records.now, characters=4)
    ann, other = session(caller(), "1"), session(caller(), "2")
    search = await Searches(["getPet"], vector=[0.5]).run(None)  # type: ignore[arg-type]
    usage.on_search(ann, "pets" + 1_000_000 * "!", search, [tool])
    usage.on_call(other, tool, NOTHING)  # another session found nothing
    usage.on_call(ann, TOOLS[1], NOTHING)  # not what was found
    usage.on_call(ann, tool, ToolResult((), is_error=True))
    await usage.tasks.drain()
    assert records.said == []
    for _ in range(2):
        usage.on_call(ann, tool, NOTHING)
    await usage.tasks.drain()
    assert records.said == [("t", "getPet", "pets", "m", [0.5], "ann")]


async def test_late_calls_are_not_attributed_to_a_search() -> None:
    records, tool = Records(), TOOLS[0]
    usage = Usage([records.record], lambda: records.now)
    search = await Searches(["getPet"], vector=[0.5]).run(None)  # type: ignore[arg-type]
    usage.on_search(caller(), "pets", search, [tool])
    records.now = HOLDS_S + 1
    usage.on_call(caller(), tool, NOTHING)
    await usage.tasks.drain()
    assert records.said == []


async def test_indistinguishable_callers_are_not_remembered() -> None:
    records, tool = Records(), TOOLS[0]
    usage = Usage([records.record])
    anybody = Context(Identity(Principal("anonymous", "t")), V2026_07_28, "r")
    search = await Searches(["getPet"], vector=[0.5]).run(None)  # type: ignore[arg-type]
    usage.on_search(anybody, "pets", search, [tool])
    usage.on_call(anybody, tool, NOTHING)
    await usage.tasks.drain()
    assert records.said == []


async def test_unrecorded_usage_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    records = Records(failure=OperationalError("the server is away\nand more"))
    usage, tool = Usage([records.record]), TOOLS[0]
    search = await Searches(["getPet"], vector=[0.5]).run(None)  # type: ignore[arg-type]
    usage.on_search(caller(), "pets", search, [tool])
    usage.on_call(caller(), tool, NOTHING)
    await usage.tasks.drain()
    [line] = [one for one in caplog.records if one.message == "usage_not_recorded"]
    assert vars(line)["reason"] == "the server is away"
