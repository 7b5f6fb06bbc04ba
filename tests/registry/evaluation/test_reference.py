"""The SQL of the product ranks as the reference does, on catalogs of random words."""

import random
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import get_args

import numpy as np
import pytest

from config.load import load as load_settings
from registry.database.postgres import Database, borrow
from registry.embedding.texts import query_text, sentences
from registry.evaluation.corpus import Corpus, load_corpus
from registry.evaluation.request_sets import CatalogTool
from registry.search import Mode, SearchQuery
from tests.registry.evaluation.reference import Fields, Score, bm25f, covering, meaning, score_all
from tests.registry.search.meaning import Words

pytestmark = pytest.mark.anyio

SETTINGS = load_settings(None, {})
WORDS = re.findall(
    r"\w+",
    """invoice customer list create delete weather forecast city parcel track refund payments
    searching documents translate signature report meeting calendar open tickets assign""",
)
SERVERS = ("Acme Mail", "globexCloud", "")
TOOLS = 40
QUERIES = (
    "delete the customer's invoice",
    "Track a parcel.",
    "What is the weather in the city? Create a report. Assign tickets to the meeting!",
    "invoice invoice invoice refund",
    "globex translateDocuments",
)


def catalog(seed: int) -> list[CatalogTool]:
    chance = random.Random(seed)

    def words(most: int) -> str:
        return " ".join(chance.choices(WORDS, k=chance.randint(1, most)))

    def tool(number: int) -> CatalogTool:
        joint = chance.choice(("_", "-"))
        properties = {
            f"{word}Id": {"type": "string", "description": words(5)}
            for word in chance.sample(WORDS, chance.randint(0, 3))
        }
        return CatalogTool(
            id=str(number),
            name=f"{words(3).replace(' ', joint)}{joint}x{number}",
            title=words(3) if number % 4 == 0 else None,
            description=words(15),
            input_schema={"type": "object", "properties": properties},
            server=chance.choice(SERVERS),
            tags=(words(1),) if number % 3 == 0 else (),
        )

    return [tool(number) for number in range(TOOLS)]


def fields(tool: CatalogTool) -> Fields:
    properties = tool.input_schema["properties"]
    return {
        "name": tool.name,
        "title": tool.title or "",
        "description": tool.description,
        "source": tool.server,
        "tags": " ".join(tool.tags),
        "parameters": " ".join(properties),
        "parameter_texts": " ".join(one["description"] for one in properties.values()),
    }


@dataclass(frozen=True)
class Facts:
    """What the reference takes from the database: stems of English, and the stored vectors."""

    stems: dict[str, Counter[str]]
    vectors: dict[str, np.ndarray]  # by the ids of the catalog

    @classmethod
    async def read(cls, database: Database, corpus: Corpus, texts: Iterable[str]) -> "Facts":
        stems: dict[str, Counter[str]] = {text: Counter() for text in texts}
        async with borrow(database.pool) as connection:
            words = await connection.execute(
                "SELECT text, lexeme, cardinality(positions) FROM unnest(%s::text[]) AS text,"
                " unnest(to_tsvector('pg_catalog.english', search_words(text)))",
                [list(stems)],
            )
            async for text, lexeme, count in words:
                stems[text][lexeme] = count
            rows = await connection.execute(
                "SELECT entity_id::text, embedding::real[] FROM entity_embedding_t"
            )
            return cls(stems, {corpus.names[id_]: np.array(v, "f4") async for id_, v in rows})


async def reference(
    facts: Facts, embedder: Words, tools: list[CatalogTool], query: str, share: float
) -> dict[str, Score]:
    """By the ids of the catalog."""
    read = query_text(query)
    parts = sentences(read, SETTINGS.search.sentences) or [read]
    asked = await embedder.embed(parts)
    words = bm25f([fields(tool) for tool in tools], query, facts.stems.__getitem__)
    vectors = np.stack([facts.vectors[tool.id] for tool in tools])
    meanings = meaning(vectors, asked, [len(part) for part in parts])
    ids = [tool.id for tool in tools]
    found = dict(zip(ids, score_all(words, meanings, share), strict=True))
    if share == 0 or len(parts) == 1:
        return found
    near = dict(zip(ids, np.maximum(vectors @ asked.T, 0), strict=True))
    covered = covering({id_: one.score for id_, one in found.items()}, near)
    return {id_: replace(found[id_], score=score) for id_, score in covered.items()}


@pytest.mark.parametrize("seed", [1, 2])
async def test_the_product_scores_as_the_reference(database: Database, seed: int) -> None:
    tools = catalog(seed)
    corpus = await load_corpus(database, tools, SETTINGS, Words(), progress=lambda *_: None)
    texts = {*QUERIES, *(text for tool in tools for text in fields(tool).values())}
    facts = await Facts.read(database, corpus, texts)
    for query in QUERIES:
        for mode in get_args(Mode):
            share = {"lexical": 0.0, "dense": 1.0}.get(mode, SETTINGS.search.semantic_share)
            expected = await reference(facts, Words(), tools, query, share)
            found = await corpus.search.run(SearchQuery(query, TOOLS, mode, corpus.filters))
            assert len(found.hits) > 5
            for hit in found.hits:
                score = expected[corpus.names[hit.id]]
                if mode != "dense":
                    assert hit.lexical == pytest.approx(score.words, abs=1e-4), (query, mode)
                if mode != "lexical":  # where words alone count, only their order matters
                    assert hit.semantic == pytest.approx(score.meaning, abs=1e-4), (query, mode)
                    assert hit.score == pytest.approx(score.score, abs=1e-4), (query, mode)
            best = sorted((one.score for one in expected.values()), reverse=True)
            given = [expected[corpus.names[hit.id]].score for hit in found.hits]
            assert given == pytest.approx(best[: len(given)], abs=1e-4)
