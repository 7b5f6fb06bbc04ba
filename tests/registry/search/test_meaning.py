"""Searching by meaning and by both, with vectors that are known."""

import time
from collections.abc import Sequence

import anyio
import numpy as np
import pytest
from msgspec.structs import replace

from config.settings import DatabaseSettings as Settings
from registry.database.postgres import Database
from registry.embedding.embedder import Vectors
from registry.search import Filters, Mode, Search, SearchQuery, SearchResult
from registry.search.fusion import enough
from registry.sources.tool_store import SourceDraft, ToolStore
from schemas.binding import OpenAPIBinding
from schemas.errors import Unavailable, Unreachable
from schemas.tool import ToolDraft
from tests.backends import idle_backends
from tests.fixtures_database import HOST
from tests.registry.search.finding import SETTINGS
from tests.registry.search.meaning import DOWN, MODEL, Words, embed_tools, save_tools, vector

pytestmark = pytest.mark.anyio

TOOLS = {
    "repos_delete": "Deletes a repository for good.",
    "invoices_list": "Lists each invoice of a customer.",
    "invoices_send": "Sends an invoice to a customer by mail.",
    "weather_today": "The weather of a city today.",
}
PATIENT = replace(SETTINGS, query_timeout_s=60.0)


@pytest.fixture
async def tools_database(store: ToolStore, database: Database) -> Database:
    await save_tools(store, database, TOOLS)
    return database


def searching(database: Database, words: Words | None, **fields: object) -> Search:
    return Search(lambda: database.pool, lambda _: words, replace(PATIENT, **fields))


async def ask(search: Search, text: str, mode: Mode = "hybrid", limit: int = 5) -> SearchResult:
    return await search.run(SearchQuery(text, limit, mode, Filters(HOST)))


async def test_a_tool_is_found_that_has_no_word_of_the_query(tools_database: Database) -> None:
    found = await ask(searching(tools_database, Words()), "erase")
    (best, *_), words = found.hits, await ask(searching(tools_database, None), "erase")
    assert best.name == "repos_delete"
    assert (best.lexical, found.path, found.note) == (0.0, "exact", None)
    assert words.hits == []


async def test_semantic_scores_are_cosines_of_the_vectors(tools_database: Database) -> None:
    found = await ask(searching(tools_database, Words()), "weather of a city", "dense")
    for hit in found.hits:
        text = f"{hit.name} {TOOLS[hit.name]}"
        expected = float(vector("weather of a city") @ vector(text))
        assert hit.semantic == pytest.approx(expected, abs=1e-5)
        assert hit.score == pytest.approx(expected, abs=1e-5)
    assert len(found.hits) == len(TOOLS)


async def test_most_of_a_cosine_is_that_of_the_sentence_that_fits_best(
    tools_database: Database,
) -> None:
    query = "First erase that repository for good. Then show me the weather today."
    embedder = Words()
    found = await ask(searching(tools_database, embedder), query, "dense")
    ((first, second),) = embedder.asked
    assert f"{first} {second}" == query
    whole = len(first) * vector(first) + len(second) * vector(second)
    whole /= np.linalg.norm(whole)
    assert np.allclose(found.vector, whole, atol=1e-6)
    for hit in found.hits:
        own = vector(f"{hit.name} {TOOLS[hit.name]}")
        best = max(float(vector(first) @ own), float(vector(second) @ own))
        expected = 0.3 * float(whole @ own) + 0.7 * best
        assert hit.semantic == pytest.approx(expected, abs=1e-5)


async def test_words_and_vectors_score_all_proposed_candidates(tools_database: Database) -> None:
    found = await ask(
        searching(tools_database, Words(), candidates=1), "erase the invoice of a customer"
    )
    assert {hit.name for hit in found.hits} <= set(TOOLS)
    assert all(hit.semantic is not None for hit in found.hits)
    assert any(hit.lexical > 0 for hit in found.hits)


async def test_the_vector_of_the_query_comes_back(tools_database: Database) -> None:
    found = await ask(searching(tools_database, Words()), "weather")
    assert found.vector is not None
    assert np.allclose(found.vector, vector("weather"), atol=1e-6)
    assert found.model == MODEL


async def test_a_tool_without_a_vector_is_found_by_its_words_and_the_note_says_so(
    tools_database: Database, store: ToolStore
) -> None:
    new = ToolDraft(
        "/n", "maps_route", "Plans a route.", {"type": "object"}, OpenAPIBinding("GET", "/")
    )
    await store.save(HOST, SourceDraft("maps", "openapi", "maps.json"), [new])
    found = await ask(searching(tools_database, Words()), "plan a route")
    assert (found.hits[0].name, found.hits[0].semantic) == ("maps_route", None)
    assert found.note == "1 tool has no vector yet and is found by its words only"


async def test_a_tool_without_a_vector_is_not_found_by_meaning_and_the_note_says_so(
    tools_database: Database, store: ToolStore
) -> None:
    search = searching(tools_database, Words())
    one, two = "1 tool has no vector yet and is", "2 tools have no vector yet and are"
    for name, waiting in (("maps_a", one), ("maps_b", two)):
        new = ToolDraft(name, name, "Route.", {"type": "object"}, OpenAPIBinding("GET", "/"))
        await store.save(HOST, SourceDraft(name, "openapi", f"{name}.json"), [new])
        found = await ask(search, "delete a repository", "dense")
        assert (found.note, found.hits[0].name) == (f"{waiting} not found", "repos_delete")


@pytest.mark.parametrize(
    ("embedder", "reason"),
    [
        (None, "embeddings are disabled"),
        (Words(error=DOWN), "the embedding model gives no vectors at the moment"),
    ],
    ids=["disabled", "down"],
)
async def test_by_meaning_alone_nothing_is_found_without_vectors(
    tools_database: Database, embedder: Words | None, reason: str
) -> None:
    found = await ask(searching(tools_database, embedder), "list invoices", "dense")
    assert found.hits == []
    assert found.note == f"no vectors: nothing can be found by meaning. {reason}"


async def test_a_vector_of_another_model_is_never_compared(tools_database: Database) -> None:
    found = await ask(searching(tools_database, Words(model="test/other")), "erase")
    assert [hit.semantic for hit in found.hits] == []


@pytest.mark.parametrize("status", ["pending", "failed"])
async def test_only_vectors_that_are_ready_are_searched(
    tools_database: Database, status: str
) -> None:
    async with tools_database.connect() as connection:
        await connection.execute(
            "UPDATE entity_embedding_t SET status = %s, embedding = NULL", [status]
        )
    assert (await ask(searching(tools_database, Words()), "erase")).hits == []


async def test_with_embeddings_disabled_words_count(tools_database: Database) -> None:
    found = await ask(searching(tools_database, None), "list invoices")
    assert found.hits[0].name == "invoices_list"
    assert (found.path, found.note) == (
        "lexical",
        "searched by words only: embeddings are disabled",
    )


async def test_a_provider_that_fails_is_left_alone_for_a_while(
    tools_database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    """E9, open: what is asked meanwhile is answered by words, with a note."""
    embedder, now = Words(error=DOWN), [1000.0]
    search = Search(lambda: tools_database.pool, lambda _: embedder, PATIENT, clock=lambda: now[0])
    for _ in range(3):
        found = await ask(search, "list invoices")
        assert found.hits[0].name == "invoices_list"
        assert found.note == (
            "searched by words only: the embedding model gives no vectors at the moment"
        )
    assert len(embedder.asked) == 1
    assert [(one.msg, one.reason) for one in caplog.records] == [  # type: ignore[attr-defined]
        ("search_model_failed", "it is down")
    ]
    embedder.error = None
    now[0] += 11
    assert (await ask(search, "erase")).hits[0].name == "repos_delete"


async def test_a_query_that_comes_again_is_not_encoded_again(tools_database: Database) -> None:
    embedder = Words()
    search = searching(tools_database, embedder)
    once, again = [await ask(search, "erase a repository") for _ in range(2)]
    assert [hit.id for hit in once.hits] == [hit.id for hit in again.hits]
    assert embedder.asked == [["erase a repository"]]
    embedder.model = "another"
    await ask(search, "erase a repository")
    assert len(embedder.asked) == 2


async def test_spaces_make_no_other_query_and_few_queries_are_cached(
    tools_database: Database,
) -> None:
    embedder = Words()
    search = searching(tools_database, embedder, cached_queries=1)
    for text in ("erase a repository", "  erase \ta  repository\r", "the weather", "erase it"):
        await ask(search, text)
    assert embedder.asked == [["erase a repository"], ["the weather"], ["erase it"]]
    await ask(search, "the weather")
    assert len(embedder.asked) == 4


async def test_a_provider_that_does_not_answer_is_not_waited_for(tools_database: Database) -> None:
    class Silent(Words):
        async def embed(self, texts: object, *, query: bool = False) -> object:  # type: ignore[override]
            await anyio.sleep_forever()
            raise AssertionError

    search = searching(tools_database, Silent(), query_timeout_s=0.05)
    with anyio.fail_after(60):
        found = await ask(search, "list invoices")
    assert (found.hits[0].name, found.path) == ("invoices_list", "lexical")


async def test_a_search_awaiting_a_model_holds_no_connection(
    tools_database: Database, database_settings: Settings
) -> None:
    class Slow(Words):
        asked_once, go_on = anyio.Event(), anyio.Event()

        async def embed(self, texts: Sequence[str], *, query: bool = False) -> Vectors:
            self.asked_once.set()
            await self.go_on.wait()
            return await super().embed(texts, query=query)

    slow, found = Slow(), []
    async with Database.open(replace(database_settings, pool_max=1)) as database:
        search = searching(database, slow)

        async def erase() -> None:
            found.append(await ask(search, "erase"))

        with anyio.fail_after(60):
            async with anyio.create_task_group() as group:
                group.start_soon(erase)
                await slow.asked_once.wait()
                words = await ask(search, "list invoices", "lexical")
                assert not found
                slow.go_on.set()
    assert words.hits[0].name == "invoices_list"
    assert found[0].hits[0].name == "repos_delete"


@pytest.mark.parametrize("embedder", [None, Words(error=DOWN)], ids=["disabled", "down"])
async def test_fail_closed_refuses_a_fallback_to_words(
    tools_database: Database, embedder: Words | None
) -> None:
    """E9, closed (`disclosure.when_down`)."""
    search = Search(
        lambda: tools_database.pool, lambda _: embedder, PATIENT, when_down="fail_closed"
    )
    with pytest.raises(Unreachable, match=r"disclosure\.when_down is fail_closed"):
        await ask(search, "list invoices")
    assert (await ask(search, "list invoices", "lexical")).hits[0].name == "invoices_list"


async def test_without_a_database_there_is_nothing_to_search() -> None:
    with pytest.raises(Unavailable):
        await ask(Search(lambda: None, lambda _: Words(), PATIENT), "invoice")


async def test_a_retired_tool_is_not_found_and_a_deprecated_one_stands_behind(
    tools_database: Database, store: ToolStore
) -> None:
    """E8, and E10: a row without a vector is never an answer of vectors."""
    search = searching(tools_database, Words())
    twin = [
        ToolDraft(
            f"/{n}", n, TOOLS["weather_today"], {"type": "object"}, OpenAPIBinding("GET", "/")
        )
        for n in ("weather_today_a", "weather_today_b")
    ]
    await store.save(HOST, SourceDraft("twins", "openapi", "t.json"), twin)
    await embed_tools(tools_database)
    async with tools_database.connect() as connection:
        await connection.execute(
            "UPDATE tool_t SET lifecycle_status = 'deprecated' WHERE name = 'weather_today_a'"
        )
        await connection.execute(
            "UPDATE tool_t SET lifecycle_status = 'retired' WHERE name = 'weather_today'"
        )
        await connection.execute(
            "UPDATE entity_embedding_t SET status = 'failed', embedding = NULL WHERE entity_id ="
            " (SELECT tool_id FROM tool_t WHERE name = 'repos_delete')"
        )
        await connection.execute("DELETE FROM embedding_task_t")
    found = await ask(search, "what is the weather today")
    order = [hit.name for hit in found.hits if hit.name.startswith("weather")]
    assert order == ["weather_today_b", "weather_today_a"]
    dense = await ask(search, "delete repository", "dense")
    assert "repos_delete" not in [hit.name for hit in dense.hits]


@pytest.mark.parametrize("mode", ["force_custom_plan", "force_generic_plan"])
async def test_answers_do_not_depend_on_prepared_plans(
    tools_database: Database, database_settings: Settings, mode: str
) -> None:
    query = "erase the invoice of a customer"
    first = await ask(searching(tools_database, Words()), query)
    async with tools_database.connect() as connection:
        name = connection.info.dbname
        await connection.execute(f"ALTER DATABASE {name} SET plan_cache_mode = {mode}".encode())
    idle_backends.forbid(name)  # they began without the mode
    async with Database.open(database_settings) as database:
        search = searching(database, Words())
        for _ in range(12):  # psycopg prepares what came five times
            assert (await ask(search, query)).hits == first.hits


@pytest.mark.parametrize(
    "text",
    ["\U0001f600\U0001f4a5", "of the and", "\x01\x02", "invoice " * 10_000, "a\ud800b", "文字化け"],
    ids=["emoji", "stop-words", "binary", "repeated", "surrogate", "japanese"],
)
async def test_strange_queries_have_an_answer(tools_database: Database, text: str) -> None:
    found = await ask(searching(tools_database, Words()), text)
    assert len(found.hits) == len(TOOLS)


async def test_timings_are_told_apart(tools_database: Database) -> None:
    started = time.perf_counter()
    found = await ask(searching(tools_database, Words()), "invoice")
    whole_ms = (time.perf_counter() - started) * 1000
    assert 0 < found.took.encode_ms + found.took.sql_ms <= whole_ms


async def test_a_query_in_an_unknown_language_is_told(tools_database: Database) -> None:
    """Who asks in a language that the model does not know, in words that no tool has, is told so
    (mending 45)."""
    model = Words(model="bundled/of-a-test")
    await embed_tools(tools_database, model=model.model)
    for text, language in (
        ("busca una guitarra para tocar", "Spanish"), ("吉他弦", "Chinese"),
        ("eine Geige für den Anfang", "German"), ("weather of a city", None),
        ("erase", None),
    ):  # fmt: skip
        found = await ask(searching(tools_database, model), text)
        told = (found.warning or "").partition(" know ")[2].partition(",")[0]
        assert told == (language or ""), text


@pytest.mark.parametrize(
    ("text", "share"),
    [
        ("send the invoice of today", 0.8),
        ("stuur mij de invoice van het huis", 0.3),
        ("στείλε το weather", 0.1),
        ("quiero la invoice de hoy", 0.6),
        ("今天 的 weather", 0.6),
    ],
)
async def test_words_decide_in_a_language_that_the_model_does_not_know(
    tools_database: Database, text: str, share: float
) -> None:
    model = Words(model="bundled/of-a-test")
    await embed_tools(tools_database, model=model.model)
    found = await ask(searching(tools_database, model), text)
    full = max(*(hit.lexical for hit in found.hits), enough(len(TOOLS)))
    assert any(hit.lexical for hit in found.hits)
    for hit in found.hits:
        assert hit.semantic is not None
        expected = share * hit.semantic + (1 - share) * hit.lexical / full
        assert hit.score == pytest.approx(expected, abs=1e-6), hit.name
