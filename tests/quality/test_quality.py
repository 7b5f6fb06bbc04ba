"""The gate: how well the product finds the tools of an invented company's services.

tools.jsonl has 93 tools of 14 services, queries.jsonl 164 requests to them: plain ones, paraphrases
that share no word with their tool, key words, long stories, and requests for several tools. All of
it was written for this test and nothing was trained or tuned on it. The floors stand some points
below what was measured, since changes of other things move single requests.
"""

from pathlib import Path

import pytest

from benchmarks.fit import made_up
from config.load import load
from registry.database.postgres import Database
from registry.embedding.embedder_factory import make_embedder
from registry.evaluation.corpus import Corpus, load_corpus
from registry.evaluation.evaluate import evaluate
from registry.evaluation.mode_searches import MODES
from registry.evaluation.quality_metrics import BASELINE
from registry.evaluation.request_sets import QUERIES, TOOLS, read_catalog, read_requests
from registry.search import SearchQuery

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(900)]

FOLDER = Path(__file__).parent
FLOORS = {"hybrid": 88.0, "dense": 87.0, "lexical": 70.0}  # NDCG@10, per cent
SMALL = 2.0  # points that a part may be better by
WARNED = 8  # of 164 requests that have a tool: some share no word with it
GIBBERISH = 35  # of 60 that are warned of, at least
AHEAD = 9.0  # points over plain BM25 and vectors with fused ranks, at least


async def test_tools_are_found(database: Database) -> None:
    settings = load(None, {})
    embedder = make_embedder(settings.embedding)
    assert embedder is not None
    corpus = await load_corpus(
        database, read_catalog(FOLDER / TOOLS), settings, embedder, progress=lambda *_: None
    )
    try:
        requests = read_requests(FOLDER / QUERIES)
        result = await evaluate(
            "quality", corpus, requests, MODES, progress=lambda *_: None, baseline=True
        )
        warned = [one.query for one in requests if await warning(corpus, one.query)]
        gibberish = [text for text in made_up() if await warning(corpus, text)]
    finally:
        await embedder.close()
    found = {mode: result.quality.interval(mode, "ndcg@10").mean for mode in result.quality.modes}
    print({mode: round(mean, 1) for mode, mean in found.items()})
    assert {mode: mean for mode, mean in found.items() if mean < FLOORS.get(mode, 0)} == {}
    assert found["hybrid"] >= max(found["dense"], found["lexical"]) - SMALL
    assert found["hybrid"] >= found[BASELINE] + AHEAD
    assert result.notes == {}, "each mode has searched as it should"
    assert result.paths["dense"] == {"exact": len(requests)}
    assert len(warned) <= WARNED, warned
    assert len(gibberish) >= GIBBERISH


async def warning(corpus: Corpus, text: str) -> str | None:
    return (await corpus.search.run(SearchQuery(text, 5, "hybrid", corpus.filters))).warning
