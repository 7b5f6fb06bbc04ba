"""Searches by words give what a plain computation of BM25 gives, after any writes; and writers of
the same words do not wait for each other."""

import math
import random
from collections import Counter
from collections.abc import Mapping, Sequence

import anyio
import pytest

from gateway.wings.knowledge.caller_access import KnowledgeReader
from gateway.wings.knowledge.chunk_filters import ChunkFilter
from gateway.wings.knowledge.chunk_search import ChunkQuery
from registry.database.postgres import Database
from registry.search.word_selection import K1, B
from tests.fixtures_database import HOST
from tests.wings.knowledge.rig import KnowledgeCaller, KnowledgeRig, knowledge_settings, open_rig

pytestmark = pytest.mark.anyio

# Each is its own stem.
WORDS = [
    *("zub", "kram", "flot", "brin", "dask", "plom", "gurt", "vonk"),
    *("stib", "trell", "quast", "morp", "lind", "fask", "jolt", "wex"),
]
READER = KnowledgeReader(HOST, "ann", ("user:ann",))
PATHS = "n1*.txt"


def random_text(chance: random.Random) -> str:
    """Frequent words and rare ones, some of them more often than others."""
    words = [WORDS[min(int(chance.expovariate(0.3)), 15)] for _ in range(chance.randint(1, 60))]
    return " ".join(words + words[:1] * chance.choice((0, 0, 0, 12)))


def bm25(
    texts: Mapping[str, str], query: Sequence[str], postings_limit: int, glob: str = ""
) -> dict[str, float]:
    """Scores of the paths that have a word that proposes texts: the rarest, up to a number of
    places in which they stand."""
    frequencies = {path: Counter(text.split()) for path, text in texts.items()}
    for path, words in frequencies.items():
        words.update(dict.fromkeys(path.replace(".", " ").split(), 2))  # weight of paths
    lengths = {path: words.total() for path, words in frequencies.items()}
    average = sum(lengths.values()) / len(texts)
    docs = {word: sum(word in words for words in frequencies.values()) for word in set(query)}
    rising = sorted((word for word in docs if docs[word]), key=lambda word: (docs[word], word))
    scanned, left = [], postings_limit
    for word in rising:
        if scanned and docs[word] > left:
            break
        left -= docs[word]
        scanned.append(word)
    scores = {}
    for path, words in frequencies.items():
        if not any(word in words for word in scanned) or not path.startswith(glob):
            continue
        scores[path] = sum(
            math.log(1 + (len(texts) - docs[word] + 0.5) / (docs[word] + 0.5))
            * (K1 + 1)
            * words[word]
            / (words[word] + K1 * (1 - B + B * lengths[path] / average))
            for word in rising
        )
    return scores


async def assert_same(rig: KnowledgeRig, texts: Mapping[str, str], chance: random.Random) -> None:
    """Assert that queries find what the plain computation finds, with the same scores."""
    for number in range(6):
        query = chance.sample(WORDS, chance.randint(1, 6))
        glob = PATHS if number % 2 else ""
        asked = ChunkQuery(
            reader=READER,
            text=" ".join(query),
            mode="naive",
            limit=200,
            filter=ChunkFilter(paths=(glob,) if glob else ()),
        )
        chunks = (await rig.parts.searcher.search(asked)).passages
        expected = bm25(texts, query, rig.settings.postings_limit, glob.partition("*")[0])
        assert {chunk.path: chunk.words for chunk in chunks} == pytest.approx(expected, abs=1e-9)
        words = [chunk.words for chunk in chunks]
        assert words == pytest.approx(sorted(words, reverse=True), abs=1e-9)


@pytest.mark.parametrize("postings_limit", [50_000, 40], ids=["all words", "rare words propose"])
async def test_searches_by_words_agree_with_a_plain_computation(
    database: Database, postings_limit: int
) -> None:
    """Texts of two collections are added, replaced and deleted; frequencies, lengths and the lists
    of words follow (mending 6)."""
    chance = random.Random(postings_limit)
    async with open_rig(database, knowledge_settings(postings_limit=postings_limit)) as rig:
        ann, texts, ids = rig.caller(), dict[str, str](), dict[str, str]()
        for number in range(60):
            path = f"n{number % 45}.txt"
            texts[path] = random_text(chance)
            added = await ann.add(texts[path], _collection(path), path=path)
            ids[path] = added.document
        await assert_same(rig, texts, chance)
        for path in chance.sample(sorted(texts), 20):
            await _delete(ann, path, ids[path])
            del texts[path]
        await assert_same(rig, texts, chance)
        for path in texts:
            await _delete(ann, path, ids[path])
        for table in ("search_wordlist_t", "search_posting_t"):
            assert await rig.rows(f"SELECT FROM {table}") == []
        terms = "SELECT term FROM search_count_t JOIN search_part_t USING (part_id)"
        assert await rig.rows(f"{terms} WHERE owner <> ''") == []


async def test_deletions_of_the_same_words_do_not_wait_for_each_other(rig: KnowledgeRig) -> None:
    """While a text is deleted, or added, others with the same words are deleted and added
    (mending 6)."""
    ann = rig.caller()
    added = [await ann.add("zub kram flot", path=f"{name}.txt") for name in "abc"]
    async with rig.database.connect() as connection:
        await connection.execute("BEGIN")
        deleted = "DELETE FROM knowledge_chunk_t WHERE document_id = %s"
        await connection.execute(deleted, [added[0].document])
        with anyio.fail_after(60):  # it would wait for ever
            await ann("delete", collection="notes", documents=[added[1].document])
            await ann.add("zub kram flot", path="d.txt")
        await connection.execute("COMMIT")
    assert len(await ann.find_texts("kram")) == 2
    docs = "SELECT sum(docs) FROM search_count_t WHERE term = 'kram'"
    assert await rig.rows(docs) == [(2,)]


def _collection(path: str) -> str:
    return "even" if int(path.strip("n.tx")) % 2 else "odd"


async def _delete(ann: KnowledgeCaller, path: str, document: str) -> None:
    await ann("delete", collection=_collection(path), documents=[document])
