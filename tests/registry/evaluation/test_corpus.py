"""A catalog becomes tools of a registry, is searched as one, and is measured."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from config.load import load as load_settings
from registry.database.postgres import Database
from registry.embedding.embedder import EmbeddingFailed
from registry.evaluation.corpus import NotEmbedded, load_corpus
from registry.evaluation.evaluate import evaluate, sample_requests
from registry.evaluation.mode_searches import MODES, CachingEmbedder
from registry.evaluation.quality_metrics import BASELINE
from registry.evaluation.report import as_json
from registry.evaluation.request_sets import (
    CatalogTool,
    EvaluationRequest,
    Index,
    read_catalog,
    read_requests,
)
from registry.evaluation.temporary_catalog import HOST, load
from registry.sources.tool_store import ToolStore
from tests.registry.search.meaning import MODEL, Words

pytestmark = pytest.mark.anyio

SETTINGS = load_settings(None, {})
NO_INPUT = {"type": "object"}
LONG = "a-very-long-name/" * 9
TOOLS = [
    CatalogTool("1", "search", "Find pages of the web", NO_INPUT, server="Web Pages"),
    CatalogTool(
        "2", "search", "Find letters in a mailbox", NO_INPUT, server="Mail", tags=("post",)
    ),
    CatalogTool("3", "tools.delete", "Delete an invoice", NO_INPUT),
    CatalogTool("4", "Tools.Delete", "Delete a customer", NO_INPUT),
    CatalogTool("5", "天气", "Weather of a city\0", NO_INPUT),
    CatalogTool("6", LONG, "Nothing in particular", NO_INPUT, title="\ud800"),
]


def nothing(*_: object) -> None:
    pass


def wanting(query: str, *gold: str, number: int = 0) -> EvaluationRequest:
    return EvaluationRequest(f"r{number}", query, gold, tuple((one,) for one in gold))


async def test_tools_of_a_corpus_get_valid_distinct_names(database: Database) -> None:
    ids = await load(database, TOOLS)
    assert sorted(ids.values()) == ["1", "2", "3", "4", "5", "6"]
    tools = {ids[tool.id]: tool for tool in await ToolStore(database.pool).tools(HOST)}
    assert {tool.source for tool in tools.values()} == {"Web Pages", "Mail", ""}
    assert [tools["1"].name, tools["2"].name] == ["search", "Mail_search"]
    assert [tools["3"].name, tools["4"].name] == ["tools_delete", "Tools_Delete"]
    assert tools["5"].title == "天气"
    assert max(len(tool.name) for tool in tools.values()) <= 64


async def test_a_set_is_searched_in_all_modes_and_compared(database: Database) -> None:
    heard: list[str] = []
    corpus = await load_corpus(
        database, TOOLS, SETTINGS, Words(), progress=lambda step, *_: heard.append(step)
    )
    requests = [
        wanting("erase the bill", "3"),
        wanting("Find letters. Delete a customer.", "2", "4", number=1),
        wanting("nobody has this", "gone", number=2),
    ]
    result = await evaluate("mine", corpus, requests, MODES, progress=nothing, baseline=True)
    assert {"loading", "embedding"} <= set(heard)
    assert result.quality.modes == ("hybrid", "dense", "lexical", BASELINE)
    assert (result.tools, result.requests, result.model) == (6, 3, MODEL)
    assert result.unknown == {"gone": ["r2"]}
    assert [len(ms) for ms in result.search_ms.values()] == [3, 3, 3]
    assert len(result.encode_ms) == 3, "vectors of queries are made once, for all modes"
    assert result.paths == {
        "hybrid": {"exact": 3}, "dense": {"exact": 3}, "lexical": {"lexical": 3},
    }  # fmt: skip
    # two of three: what nobody has is never found
    for mode, complete in (("hybrid", 200 / 3), ("dense", 200 / 3), ("lexical", 100 / 3)):
        found = result.quality.interval(mode, "completeness@10").mean
        assert found == pytest.approx(complete), mode
    told = as_json([result, result])
    assert set(told["sets"][0]["modes"]) == set(result.quality.modes)
    assert told["mean"]["modes"]["hybrid"]["completeness@10"]["mean"] == 66.67
    assert set(told["mean"]["differences"]) == {
        "hybrid - dense", "hybrid - lexical", f"hybrid - {BASELINE}",
    }  # fmt: skip


async def test_a_catalog_that_cannot_be_embedded_is_not_measured(database: Database) -> None:
    broken = Words(error=EmbeddingFailed("it speaks Latin only", retryable=False))
    with pytest.raises(NotEmbedded, match="6 of 6 tools could not be embedded: it speaks Latin"):
        await load_corpus(database, TOOLS, SETTINGS, broken, progress=nothing)


async def test_without_a_model_the_words_are_measured(database: Database) -> None:
    disabled = replace(SETTINGS, embedding=replace(SETTINGS.embedding, provider="disabled"))
    corpus = await load_corpus(database, TOOLS, disabled, None, progress=nothing)
    result = await evaluate(
        "mine", corpus, [wanting("delete an invoice", "3")], MODES, progress=nothing, baseline=True
    )
    assert result.quality.interval("lexical", "recall@1").mean == 100
    assert result.quality.interval(BASELINE, "recall@1").mean == 100
    assert result.quality.modes == ("hybrid", "lexical", BASELINE)
    assert result.notes == {
        "hybrid": {"searched by words only: embeddings are disabled": 1},
        "dense": {"no vectors: nothing can be found by meaning": 1},
    }
    assert result.encode_ms == []


async def test_without_a_model_dense_alone_is_not_measured(database: Database) -> None:
    corpus = await load_corpus(database, TOOLS, SETTINGS, None, progress=nothing)
    with pytest.raises(NotEmbedded, match="mine: no vectors: nothing can be found by meaning"):
        await evaluate(
            "mine", corpus, [wanting("delete an invoice", "3")], ["dense"], progress=nothing
        )


async def test_vectors_of_a_text_are_made_once() -> None:
    words = Words()
    remembering = CachingEmbedder(words)
    first = await remembering.embed(["rain", "sun", "rain"], query=True)
    again = await remembering.embed(["sun", "snow"], query=True)
    assert words.asked == [["rain", "sun"], ["snow"]]
    assert first.shape == (3, 384)
    assert (first[1] == again[0]).all()
    assert (await remembering.embed([])).shape == (0, 384)


def test_a_sample_is_the_same_each_time_and_in_order() -> None:
    requests = [wanting("q", "1", number=number) for number in range(50)]
    some = sample_requests(requests, 10)
    assert some == sample_requests(requests, 10)
    assert len(some) == 10
    assert some == [one for one in requests if one in some]
    assert some != requests[:10]
    assert sample_requests(requests, None) == sample_requests(requests, 50) == requests


def test_the_sets_of_the_repository_fit_together() -> None:
    folder = Path(__file__).parents[2] / "quality"
    tools, requests = (
        read_catalog(folder / "tools.jsonl"),
        read_requests(folder / "queries.jsonl"),
    )
    index = Index([(tool.id, tool.name, tool.server) for tool in tools])
    assert index.unknown(requests) == {}
    assert {one for request in requests for one in request.gold} == {tool.id for tool in tools}
    assert len({request.query for request in requests}) == len(requests) >= 120
