"""The gate: how well code words, half typed, misspelled and compound words find their tools.

words/tools.jsonl has 91 tools with names of many styles, 31 of them described in German; they are
searched together with those of the invented company. words/queries.jsonl has some 27 queries of
each kind.
"""

from collections import defaultdict

import pytest

from config.load import load
from registry.database.postgres import Database
from registry.embedding.embedder_factory import make_embedder
from registry.evaluation.corpus import load_corpus
from registry.evaluation.request_sets import QUERIES, TOOLS, read_catalog, read_requests
from registry.search import SearchQuery
from tests.quality.test_quality import FOLDER

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(900)]

WORDS = FOLDER / "words"
FIRST = 5
FOUND = 0.9  # of the queries of each kind, with one of its tools among the first


async def test_each_kind_of_word_finds_its_tools(database: Database) -> None:
    settings = load(None, {})
    embedder = make_embedder(settings.embedding)
    assert embedder is not None
    tools = [*read_catalog(FOLDER / TOOLS), *read_catalog(WORDS / TOOLS)]
    missed, queries = defaultdict[str, list[str]](list), defaultdict[str, int](int)
    try:
        corpus = await load_corpus(database, tools, settings, embedder, progress=lambda *_: None)
        for request in read_requests(WORDS / QUERIES):
            kind = request.id.partition("-")[0]
            queries[kind] += 1
            result = await corpus.search.run(
                SearchQuery(request.query, FIRST, "hybrid", corpus.filters)
            )
            (wanted,) = corpus.index.resolve(request).slots
            if wanted.isdisjoint(corpus.names[hit.id] for hit in result.hits):
                missed[kind].append(request.query)
    finally:
        await embedder.close()
    found = {kind: 1 - len(missed[kind]) / number for kind, number in queries.items()}
    print({kind: f"{share:.0%}" for kind, share in found.items()}, dict(missed))
    assert len(found) == 5
    assert {kind: missed[kind] for kind, share in found.items() if share < FOUND} == {}
