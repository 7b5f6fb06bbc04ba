"""Searching by words, on the operations of a small shop."""

from dataclasses import replace

import pytest

from config.settings import DatabaseSettings
from registry.database.postgres import Database
from registry.search import Filters, Search, SearchQuery
from registry.sources.tool_store import SourceDraft, ToolStore
from schemas.binding import OpenAPIBinding
from schemas.errors import InvalidParams
from schemas.tool import ToolDraft
from tests.fixtures_database import HOST
from tests.registry.search.finding import SETTINGS, find, found_by_words
from tests.registry.shared import anyio_backend, database

__all__ = ["anyio_backend", "database"]
pytestmark = pytest.mark.anyio

TOOLS = {
    "issues_list-for-repo": "List issues in a repository. Only open issues will be listed.",
    "issues_create": "Any user with read access to a repository can create an issue.",
    "issues_create-comment": "Creates a comment on the issue specified by its number.",
    "repos_list-branches": "Lists all branches of the repository.",
    "repos_delete": "Deleting a repository requires admin access.",
    "getPetByID": "Returns a single pet.",
    "orders_pay": "Settles an invoice with a credit card.",
    "bing_search": "使用必应搜索指定的关键词",
}


def draft(name: str, description: str, **fields: object) -> ToolDraft:
    binding = OpenAPIBinding("GET", f"/{name}")
    schema = fields.pop("schema", {"type": "object"})
    return ToolDraft(f"/{name}@get", name, description, schema, binding, **fields)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
async def tools_database(database: Database) -> Database:
    await save_tools(ToolStore(database.pool))
    return database


async def save_tools(store: ToolStore) -> None:
    drafts = [draft(name, text) for name, text in TOOLS.items()]
    await store.save(HOST, SourceDraft("forge", "openapi", "forge.json"), drafts)
    schema = {
        "type": "object",
        "properties": {"warehouseCode": {"type": "string", "description": "Three letters."}},
    }
    zap = draft("zap", "", title="Remove everything", tags=("houseKeeping",), schema=schema)
    await store.save(HOST, SourceDraft("other", "openapi", "other.json"), [zap])


@pytest.mark.parametrize(
    ("query", "best"),
    [
        ("list the issues of a repository", "issues_list-for-repo"),
        ("create an issue", "issues_create"),
        ("comment on an issue", "issues_create-comment"),
        ("deleted repositories", "repos_delete"),  # stemmed on both sides
        ("pet by id", "getPetByID"),  # identifiers are split
        ("issues_create", "issues_create"),
        ("GET /pet", "getPetByID"),
        ("paying invoices", "orders_pay"),
        ("house keeping", "zap"),  # a tag
        ("warehouse", "zap"),  # the name of a parameter
        ("letters", "zap"),  # what is said of it
        ("the tool of forge that settles", "orders_pay"),  # its source
        ("搜索关键词", "bing_search"),  # a script without spaces
    ],
)
async def test_the_best_tool_for_a_request(tools_database: Database, query: str, best: str) -> None:
    assert (await found_by_words(tools_database, query))[0] == best


@pytest.mark.parametrize(
    ("query", "best"),
    [("remov", "zap"), ("everything rem", "zap"), ("create com", "issues_create-comment")],
)
async def test_the_last_word_may_be_half_typed(
    tools_database: Database, query: str, best: str
) -> None:
    found = await find(tools_database, query, prefix=True)
    assert found.hits[0].name == best


async def test_known_words_are_not_taken_for_beginnings_unasked(tools_database: Database) -> None:
    assert await found_by_words(tools_database, "remo") == ["zap"], "of remove"
    found = await found_by_words(tools_database, "repos")  # which "repository" begins with
    assert sorted(found) == ["issues_list-for-repo", "repos_delete", "repos_list-branches"]


@pytest.mark.parametrize(
    "query",
    [
        "the of and",
        "& | ! :* <-> ( ) ' \\",
        "'; DROP TABLE tool_t; --",
        "%(host)s %s %%",
        "xylophone",
        "\U0001f600 \U0001f4a5",
        "\x01\x02\x7f\ufffe",
        "x" * 100_000,
    ],
    ids=["stop-words", "tsquery", "sql", "placeholders", "no-such", "emoji", "binary", "100kB"],
)
async def test_queries_that_find_nothing(tools_database: Database, query: str) -> None:
    assert await found_by_words(tools_database, query) == []


@pytest.mark.parametrize("query", ["", " \n\t ", "\0\0"], ids=["empty", "blank", "nul"])
async def test_an_empty_query_is_refused(tools_database: Database, query: str) -> None:
    with pytest.raises(InvalidParams, match="query is empty"):
        await find(tools_database, query)


@pytest.mark.parametrize(
    "query",
    [
        "issue\0 create",
        "create \udfff issue",
        "create issue " + "y " * 10_000,
        "create issue " * 10_000,
        "create issue '); (((*** <->",
    ],
    ids=["nul", "surrogate", "100kB", "repeated", "operators"],
)
async def test_unreadable_parts_of_a_query_are_skipped(
    tools_database: Database, query: str
) -> None:
    assert (await found_by_words(tools_database, query))[0] == "issues_create"


async def test_a_hit_has_name_description_source_and_score(tools_database: Database) -> None:
    (hit,) = (await find(tools_database, "invoice")).hits
    assert (hit.name, hit.title, hit.description) == ("orders_pay", None, TOOLS["orders_pay"])
    assert (hit.source, hit.semantic, hit.score) == ("forge", None, 1.0)
    assert hit.lexical > 0
    assert len(hit.id) == 36


async def test_a_hit_can_be_returned_without_description(tools_database: Database) -> None:
    search = Search(lambda: tools_database.pool, lambda _: None, SETTINGS)
    query = SearchQuery("invoice", 5, "lexical", Filters(HOST))
    full = (await search.run(query)).hits
    bare = (await search.run(replace(query, details=False))).hits
    assert bare == [replace(hit, title=None, description="", source="") for hit in full]


async def test_one_source_can_be_asked_for(tools_database: Database) -> None:
    async def names(source: str) -> list[str]:
        found = await find(tools_database, "remove repository", Filters(HOST, sources=(source,)))
        return [hit.name for hit in found.hits]

    assert await names("other") == ["zap"]
    assert await names("nobody") == []


async def test_no_more_than_asked_for(tools_database: Database) -> None:
    assert len(await found_by_words(tools_database, "issue", 2)) == 2


async def test_tools_that_are_gone_are_not_found(database_settings: DatabaseSettings) -> None:
    async with Database.open(database_settings, wait=False) as database:
        store = ToolStore(database.pool)
        await save_tools(store)
        await store.save(HOST, SourceDraft("other", "openapi", "other.json"), [])
        assert await found_by_words(database, "remove") == []


async def test_tenants_do_not_find_tools_of_other_tenants(tools_database: Database) -> None:
    other = "00000000-0000-0000-0000-000000000002"
    assert (await find(tools_database, "issue", Filters(other))).hits == []
