"""Searching by words, on the operations of a small shop."""

import pytest

from registry.postgres import Database
from registry.search import search
from registry.store import SourceDraft, ToolStore
from schemas.binding import OpenAPIBinding
from schemas.tool import ToolDraft
from tests.fixtures_database import HOST

pytestmark = pytest.mark.anyio

TOOLS = {
    "issues_list-for-repo": "List issues in a repository. Only open issues will be listed.",
    "issues_create": "Any user with read access to a repository can create an issue.",
    "issues_create-comment": "Creates a comment on the issue specified by its number.",
    "repos_list-branches": "Lists all branches of the repository.",
    "repos_delete": "Deleting a repository requires admin access.",
    "getPetByID": "Returns a single pet.",
    "orders_pay": "Settles an invoice with a credit card.",
}


@pytest.fixture
async def filled(store: ToolStore, database: Database) -> Database:
    drafts = [
        ToolDraft(f"/{name}@get", name, text, {"type": "object"}, OpenAPIBinding("GET", "/x"))
        for name, text in TOOLS.items()
    ]
    await store.save(HOST, SourceDraft("forge", "openapi", "forge.json"), drafts)
    tagged = ToolDraft(
        "/z@get",
        "zap",
        "",
        {"type": "object"},
        OpenAPIBinding("GET", "/z"),
        title="Remove everything",
        tags=("houseKeeping",),
    )
    await store.save(HOST, SourceDraft("other", "openapi", "other.json"), [tagged])
    return database


async def found(database: Database, query: str, source: str | None = None) -> list[str]:
    return [hit.name for hit in await search(database.pool, HOST, query, 5, source)]


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
        ("remov", "zap"),  # a half-typed last word
        ("house keeping", "zap"),  # a tag
    ],
)
async def test_the_best_tool_for_a_request(filled: Database, query: str, best: str) -> None:
    assert (await found(filled, query))[0] == best


@pytest.mark.parametrize(
    "query",
    ["", "   ", "the of and", "& | ! :* <-> ( ) ' \\", "xylophone", "\0", "\ud800", "x" * 10_000],
)
async def test_queries_that_find_nothing(filled: Database, query: str) -> None:
    assert await found(filled, query) == []


@pytest.mark.parametrize(
    "query", ["issue\0 create", "create \udfff issue", "create issue " + "y " * 10_000]
)
async def test_what_cannot_be_read_is_passed_over(filled: Database, query: str) -> None:
    assert (await found(filled, query))[0] == "issues_create"


async def test_a_hit_says_what_and_whence(filled: Database) -> None:
    (hit,) = await search(filled.pool, HOST, "invoice", 5)
    assert (hit.name, hit.title, hit.description) == ("orders_pay", None, TOOLS["orders_pay"])
    assert hit.source == "forge"
    assert hit.score > 0
    assert len(hit.tool_id) == 36


async def test_one_source_can_be_asked_for(filled: Database) -> None:
    assert await found(filled, "remove repository", "other") == ["zap"]
    assert await found(filled, "remove repository", "nobody") == []


async def test_no_more_than_asked_for(filled: Database) -> None:
    assert len(await search(filled.pool, HOST, "issue", 2)) == 2


async def test_tools_that_are_gone_are_not_found(filled: Database, store: ToolStore) -> None:
    await store.save(HOST, SourceDraft("other", "openapi", "other.json"), [])
    assert await found(filled, "remove") == []


async def test_tenants_do_not_find_each_others_tools(filled: Database) -> None:
    other = "00000000-0000-0000-0000-000000000002"
    assert await search(filled.pool, other, "issue", 5) == []
