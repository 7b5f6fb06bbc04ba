"""The second stage of a search.

`overlap/model.onnx` stands for a cross-encoder: its score is the number of pairs of equal tokens in
the request and the text. Its vectors stand for a first stage that knows nothing of the request.
"""

import shutil
import sys
from pathlib import Path

import anyio
import numpy as np
import pytest
from msgspec.structs import replace

import registry.embedding
from config.settings import SearchSettings as Settings
from registry.database.postgres import Database
from registry.search import Filters, Hit, Mode, Search, SearchQuery
from registry.search.rerank import CLEAR, RUNS, SecondStage, mix_scores
from registry.sources.tool_store import ToolStore
from tests.fixtures_database import HOST
from tests.registry.search.finding import SETTINGS
from tests.registry.search.meaning import Words, save_tools

pytestmark = pytest.mark.anyio

TOOLS = {
    "alpha": "Weather of a city, by its name.",
    "beta": "Weather of a city today, with wind and rain.",
    "gamma": "Invoices of a customer.",
}
ASKED = "weather with rain and wind today"


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """Those of a second stage that decides alone."""
    folder = tmp_path_factory.mktemp("overlap")
    shutil.copy(Path(__file__).with_name("overlap") / "model.onnx", folder)
    shutil.copy(Path(registry.embedding.__file__).with_name("model") / "tokenizer.json", folder)
    return replace(
        SETTINGS, rerank="on", rerank_model=str(folder), rerank_share=1.0, query_timeout_s=60.0
    )


def hit(name: str, score: float, description: str = "") -> Hit:
    return Hit(name, name, None, description or TOOLS[name], "shop", score, 0.0, score)


def hits(*scores: float) -> list[Hit]:
    return [hit(name, score) for name, score in zip(TOOLS, scores, strict=True)]


async def names(settings: Settings, found: list[Hit], text: str = ASKED) -> list[str]:
    return [one.name for one in await SecondStage(settings).rerank(text, found)]


async def test_a_tool_that_reads_better_moves_up(settings: Settings) -> None:
    assert await names(settings, hits(0.51, 0.5, 0.49)) == ["beta", "alpha", "gamma"]


async def test_only_the_best_tools_are_read(settings: Settings) -> None:
    found = [hit("alpha", 0.5), hit("gamma", 0.4), hit("beta", 0.3)]
    assert await names(replace(settings, rerank_tools=2), found) == ["alpha", "gamma", "beta"]
    assert await names(replace(settings, rerank_tools=3), found) == ["beta", "alpha", "gamma"]


async def test_auto_reads_nothing_where_the_first_leads_clearly(settings: Settings) -> None:
    auto = replace(settings, rerank="auto")
    assert await names(auto, hits(0.51 + CLEAR, 0.5, 0.4)) == ["alpha", "beta", "gamma"]
    assert await names(auto, hits(0.49 + CLEAR, 0.5, 0.4)) == ["beta", "alpha", "gamma"]
    assert await names(settings, hits(0.51 + CLEAR, 0.5, 0.4)) == ["beta", "alpha", "gamma"]


async def test_long_and_odd_texts_are_read_in_part(settings: Settings) -> None:
    long = [hit("alpha", 0.5, "city " * 50_000), hit("beta", 0.4, "\ud800\0"), hit("gamma", 0.3)]
    assert set(await names(settings, long, "city \ud800" * 10_000)) == {"alpha", "beta", "gamma"}


async def test_a_model_that_cannot_be_loaded_leaves_the_order(
    settings: Settings, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    stage = SecondStage(replace(settings, rerank_model=str(tmp_path)))
    for _ in range(2):
        assert await stage.rerank(ASKED, hits(0.3, 0.2, 0.1)) == hits(0.3, 0.2, 0.1)
    assert [one.message for one in caplog.records] == ["search_rerank_failed"]


async def test_a_model_with_other_inputs_leaves_the_order(
    settings: Settings, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    bundled = Path(registry.embedding.__file__).with_name("model")
    for name in ("model.onnx", "tokenizer.json"):
        shutil.copy(bundled / name, tmp_path)
    wrong = replace(settings, rerank_model=str(tmp_path))
    assert await names(wrong, hits(0.3, 0.2, 0.1)) == ["alpha", "beta", "gamma"]
    assert "token_type_ids" in caplog.records[0].reason  # type: ignore[attr-defined]


async def test_a_second_stage_that_failed_rests_and_is_tried_again(
    settings: Settings, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """One failure must not end it until a restart, nor may each search pay for a broken model."""
    caplog.set_level("INFO", logger="toolgate.search")
    now = 100.0
    stage = SecondStage(replace(settings, rerank_model=str(tmp_path)), clock=lambda: now)

    async def first() -> str:
        return (await stage.rerank(ASKED, hits(0.51, 0.5, 0.49)))[0].name

    def logged_failures() -> list[tuple[str, float | None]]:
        return [(one.message, getattr(one, "retry_s", None)) for one in caplog.records]

    assert [await first() for _ in range(3)] == ["alpha"] * 3
    assert logged_failures() == [("search_rerank_failed", 1.0)]
    now += 1.0
    assert [await first() for _ in range(3)] == ["alpha"] * 3
    assert logged_failures()[1:] == [("search_rerank_failed", 2.0)]
    for name in ("model.onnx", "tokenizer.json"):
        shutil.copy(Path(settings.rerank_model) / name, tmp_path)
    now += 1.9
    assert await first() == "alpha"
    now += 0.1
    assert [await first() for _ in range(2)] == ["beta"] * 2
    assert logged_failures()[2:] == [("search_rerank_recovered", None)]


async def test_a_model_that_fails_in_a_run_is_loaded_again(
    settings: Settings, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model = (Path(settings.rerank_model) / "model.onnx").read_bytes()
    divides = model.replace(b'y"\x03Mul', b'y"\x03Div')  # by 0, where a token is of the request
    (tmp_path / "model.onnx").write_bytes(divides)
    shutil.copy(Path(settings.rerank_model) / "tokenizer.json", tmp_path)
    now = 100.0
    stage = SecondStage(replace(settings, rerank_model=str(tmp_path)), clock=lambda: now)
    assert await stage.rerank(ASKED, hits(0.51, 0.5, 0.49)) == hits(0.51, 0.5, 0.49)
    assert "finite" in caplog.records[0].reason  # type: ignore[attr-defined]
    (tmp_path / "model.onnx").unlink()  # the graph that is loaded may still read the old file
    (tmp_path / "model.onnx").write_bytes(model)
    now += 1.0
    assert (await stage.rerank(ASKED, hits(0.51, 0.5, 0.49)))[0].name == "beta"


async def test_a_search_that_is_given_up_counts_until_its_thread_ends(settings: Settings) -> None:
    """Else each that times out while a model loads leaves one more thread."""
    stage = SecondStage(settings)
    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            with stage._lock:  # the model is loaded under it
                for _ in range(RUNS):
                    group.start_soon(stage.rerank, ASKED, hits(0.3, 0.2, 0.1))
                while stage._runs.borrowed_tokens < RUNS:  # noqa: ASYNC110
                    await anyio.sleep(0.01)
                group.cancel_scope.cancel()
                with anyio.CancelScope(shield=True):
                    await anyio.sleep(0.1)
                assert stage._runs.borrowed_tokens == RUNS


def test_scores_of_any_scale_count_the_same() -> None:
    scores = np.array([1.0, 3.0, 2.0], np.float32)
    small, large = (mix_scores(hits(0.3, 0.29, 0.1), by * scores, 0.1) for by in (0.01, 100))
    assert [one.name for one in small] == ["beta", "alpha", "gamma"]
    assert [one.score for one in small] == pytest.approx([one.score for one in large], abs=1e-6)
    same = mix_scores(hits(0.3, 0.2, 0.1), np.ones(3, np.float32), 0.5)
    assert same == hits(0.3, 0.2, 0.1)


@pytest.fixture
async def tools_database(store: ToolStore, database: Database) -> Database:
    await save_tools(store, database, TOOLS)
    return database


async def test_a_search_for_few_reads_more_and_answers_few(
    settings: Settings, tools_database: Database
) -> None:
    async def find_names(settings: Settings, mode: Mode = "hybrid") -> list[str]:
        search = Search(lambda: tools_database.pool, lambda _: Words(), settings)
        result = await search.run(SearchQuery("city", 1, mode, Filters(HOST)))
        return [one.name for one in result.hits]

    (first,) = await find_names(replace(settings, rerank="off"))
    assert await find_names(settings) == [first]  # as good as any for this request
    invoices = replace(settings, rerank_tools=3)
    search = Search(lambda: tools_database.pool, lambda _: Words(), invoices)
    result = await search.run(SearchQuery(ASKED, 1, "hybrid", Filters(HOST)))
    assert [one.name for one in result.hits] == ["beta"]
    assert await find_names(settings, "lexical") == await find_names(
        replace(settings, rerank="off"), "lexical"
    )


def test_reranking_is_not_imported_while_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "registry.search.rerank", None)  # importing it would fail
    Search(lambda: None, lambda _: None, SETTINGS)
    with pytest.raises(ImportError):
        Search(lambda: None, lambda _: None, replace(SETTINGS, rerank="on"))
