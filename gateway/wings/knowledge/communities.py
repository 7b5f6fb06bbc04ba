"""Communities: names of a collection that stand in the same passages, found on demand by label
propagation (Raghavan 2007) in an order that is always the same. No model is asked.

Their titles are the names that tell them from the other communities, by c-TF-IDF (Grootendorst
2022); the sentences nearest to all that their passages say sum them up. A large collection is
judged by a sample of its chunks: those with the first ids, which are random.
"""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations
from typing import TypeVar

from anyio import CapacityLimiter, to_thread
from psycopg import sql

from gateway.wings.document_library import Passage
from gateway.wings.documents.chunking.text_splitting import sentences
from gateway.wings.knowledge.caller_access import KnowledgeReader
from gateway.wings.knowledge.chunk_search import EDGES, PERMITTED, chunks_query, passages_by_chunk
from gateway.wings.knowledge.entities import npmi
from gateway.wings.knowledge.graph_ranking import MERGES
from registry.database.fair_limiter import FairLimiter
from registry.database.postgres import Pool
from registry.database.sql_fragments import compose
from registry.search.transaction import LOOKUPS, Transaction, transaction

CHUNKS = 500  # of a collection that are read
NAMES = 20  # of a chunk that are read
ROUNDS = 20
TITLE = 3  # names
CENTRAL = 3  # sentences
PASSAGES = 20  # of a community that sentences are chosen of, those with most of its names
SENTENCE = 400  # characters of a sentence that are shown
RESULTS = 8  # results that are kept, by the rows that they were computed from
_WORD = re.compile(r"\w{3,}")
Result = TypeVar("Result")
Ties = Mapping[str, Mapping[str, float]]


@dataclass(frozen=True, slots=True)
class Community:
    names: Sequence[str]  # those with the strongest ties to the others first
    title: Sequence[str]  # those that others have least
    chunks: Sequence[str]  # that mention one of them, those with most of them first


@dataclass(frozen=True, slots=True)
class CitedSentence:
    text: str
    document: str
    path: str
    line: int


@dataclass(frozen=True, slots=True)
class CommunitiesFound:
    """Communities, most mentioned first. `is_sample`: there are more chunks than were read."""

    items: Sequence[tuple[Community, Sequence[CitedSentence]]]
    chunks: int
    is_sample: bool


class Communities:
    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._turns = FairLimiter(1)
        self._threads = CapacityLimiter(1)

    async def of(self, reader: KnowledgeReader, collection: str, limit: int) -> CommunitiesFound:
        values = {**reader.values(), "names": [collection]}
        async with transaction(self._pool, Transaction) as opened:
            rows = await opened.rows(LOOKUPS, _ROWS, values)
            merges = await opened.rows(LOOKUPS, _MERGES, values)
        # between two transactions: who waits for the thread holds no connection
        groups = await self._compute(
            reader, lambda: communities(tuple(map(tuple, rows)), tuple(map(tuple, merges)))
        )
        ids = [id_ for community in groups[:limit] for id_ in community.chunks[:PASSAGES]]
        async with transaction(self._pool, Transaction) as opened:
            sentences = (
                await opened.rows(LOOKUPS, chunks_query(None), {**values, "ids": ids})
                if ids
                else []
            )
        passages = passages_by_chunk(sentences)
        summed = await self._compute(
            reader, lambda: [central(community, passages) for community in groups[:limit]]
        )
        chunks = len({row[2] for row in rows})
        is_sample = chunks >= CHUNKS or len(rows) >= EDGES
        return CommunitiesFound(list(zip(groups[:limit], summed, strict=True)), chunks, is_sample)

    async def _compute(self, reader: KnowledgeReader, function: Callable[[], Result]) -> Result:
        """Run `function` in the thread of communities, when it is the caller's turn."""
        async with self._turns.turn(reader.tenant, reader.owner):
            return await to_thread.run_sync(function, limiter=self._threads)


def central(community: Community, passages: Mapping[str, Passage]) -> Sequence[CitedSentence]:
    """The sentences nearest to all that the passages say, by the cosine of tf-idf, with their
    places. What several say counts once."""
    texts = [passages[id_] for id_ in community.chunks[:PASSAGES] if id_ in passages]
    sentences = {
        sentence.text.lower(): sentence
        for text in texts
        for sentence in reversed(list(_sentences(text)))
    }
    words = {key: frozenset(_WORD.findall(key)) for key in sentences}
    spread = Counter(word for words_of_text in words.values() for word in words_of_text)
    rare = {word: math.log(1 + len(sentences) / count) for word, count in spread.items()}

    def nearness(key: str) -> float:
        length = math.sqrt(sum(rare[word] ** 2 for word in words[key])) or 1.0
        return sum(spread[word] * rare[word] ** 2 for word in words[key]) / length

    best = sorted(sentences, key=lambda key: (-round(nearness(key), 9), key))
    return [sentences[key] for key in best[:CENTRAL]]


def _sentences(passage: Passage) -> Iterator[CitedSentence]:
    text, at = passage.text, 0
    for end in (*sentences(text, 0, len(text)), len(text)):
        sentence = " ".join(text[at:end].split())[:SENTENCE]
        begin = end - len(text[at:end].lstrip())
        if sentence:
            line = passage.lines[0] + text.count("\n", 0, begin)
            yield CitedSentence(sentence, passage.document, passage.path, line)
        at = end


@lru_cache(maxsize=RESULTS)
def communities(
    rows: tuple[tuple[str, str, str], ...], merges: tuple[tuple[str, str], ...]
) -> tuple[Community, ...]:
    """Communities of rows (norm, name, chunk); `merges` are pairs of norms that are one."""
    root = _roots(merges)
    written = {root.get(norm, norm): name for norm, name, _ in sorted(rows, reverse=True)}
    places: defaultdict[str, dict[str, str]] = defaultdict(dict)
    names: defaultdict[str, set[str]] = defaultdict(set)
    for norm, _, chunk in sorted(rows):
        norm_ = root.get(norm, norm)
        places[norm_].setdefault(chunk, norm)
        names[chunk].add(norm_)
    ties = _ties([sorted(names_of_chunk) for names_of_chunk in names.values()])
    groups: defaultdict[str, list[str]] = defaultdict(list)
    for norm, label in _labels(ties).items():
        groups[label].append(norm)
    groups_found = [_community(group, ties, places) for group in groups.values()]
    titled = zip(
        groups_found, _titles([community.names for community in groups_found], places), strict=True
    )
    named = [
        Community(
            [written[norm] for norm in community.names],
            [written[norm] for norm in title],
            community.chunks,
        )
        for community, title in titled
    ]
    named.sort(key=lambda group: (-len(group.chunks), -len(group.names), list(group.names)))
    return tuple(named)


def _community(
    group: Sequence[str], ties: Ties, places: Mapping[str, Mapping[str, str]]
) -> Community:
    """The community of some norms, as yet without a title."""
    members = set(group)
    inside = {
        norm: sum(t for neighbour, t in ties[norm].items() if neighbour in members)
        for norm in group
    }
    norms = sorted(group, key=lambda norm: (-round(inside[norm], 9), norm))
    counts = Counter(chunk for norm in norms for chunk in places[norm])
    return Community(norms, (), sorted(counts, key=lambda chunk: (-counts[chunk], chunk)))


def _titles(
    groups: Sequence[Sequence[str]], places: Mapping[str, Mapping[str, str]]
) -> list[list[str]]:
    """The norms that weigh most in each group by c-TF-IDF: a chunk counts for the group that it
    names most."""
    counts = [Counter(chunk for norm in group for chunk in places[norm]) for group in groups]
    home: dict[str, int] = {}
    for at, counts_of_group in enumerate(counts):
        for chunk, count in counts_of_group.items():
            if chunk not in home or count > counts[home[chunk]][chunk]:
                home[chunk] = at
    average = sum(map(len, places.values())) / (len(groups) or 1)

    def weight(at: int, norm: str) -> float:
        home_chunks = sum(home[chunk] == at for chunk in places[norm])
        return home_chunks * math.log(1 + average / len(places[norm]))

    return [
        sorted(group, key=lambda norm: -round(weight(at, norm), 9))[:TITLE]
        for at, group in enumerate(groups)
    ]


def _roots(merges: Sequence[tuple[str, str]]) -> dict[str, str]:
    """The first name of its group for each merged name."""
    groups: dict[str, set[str]] = {}
    for pair in merges:
        joined = set(pair).union(*(groups.get(norm, ()) for norm in pair))
        groups |= dict.fromkeys(joined, joined)
    return {norm: min(group) for norm, group in groups.items()}


def _ties(chunks: Sequence[Sequence[str]]) -> Ties:
    """How much more often than by chance names stand together; one chunk more, without names, ties
    those that all others mention, too."""
    single = Counter(norm for names in chunks for norm in names)
    pair_counts = Counter(pair for names in chunks for pair in combinations(names, 2))
    ties: defaultdict[str, dict[str, float]] = defaultdict(dict)
    for (first, second), count in pair_counts.items():
        tie = count * npmi(count, single[first], single[second], len(chunks) + 1)
        if tie > 0:
            ties[first][second] = ties[second][first] = tie
    return ties


def _labels(ties: Ties) -> dict[str, str]:
    """The label that most of its neighbours have, for each name; the first one of several."""
    labels = {norm: norm for norm in ties}
    order = sorted(ties, key=lambda norm: (len(ties[norm]), norm))
    for _ in range(ROUNDS):
        before = dict(labels)
        for norm in order:
            weights: defaultdict[str, float] = defaultdict(float)
            for neighbour in sorted(ties[norm]):
                weights[labels[neighbour]] += ties[norm][neighbour]
            labels[norm] = min(weights, key=lambda label: (-round(weights[label], 9), label))
        if labels == before:
            break
    return labels


_ROWS = compose(
    """
    WITH {permitted}, chosen AS MATERIALIZED (
        SELECT chunk.chunk_id FROM permitted JOIN knowledge_chunk_t AS chunk
            ON (chunk.host_id, chunk.collection_id) = (%(host)s, permitted.collection_id)
        ORDER BY chunk.chunk_id LIMIT {chunks}
    )
    SELECT one.norm, one.name, chosen.chunk_id::text FROM chosen CROSS JOIN LATERAL (
        SELECT mention.norm, min(mention.name) AS name FROM knowledge_mention_v AS mention
        WHERE (mention.host_id, mention.chunk_id) = (%(host)s, chosen.chunk_id)
        GROUP BY mention.norm ORDER BY min(mention.start_byte), mention.norm LIMIT {names}
    ) AS one
    ORDER BY chosen.chunk_id, one.norm LIMIT {edges}
""",
    permitted=PERMITTED,
    chunks=sql.Literal(CHUNKS),
    names=sql.Literal(NAMES),
    edges=sql.Literal(EDGES),
)
_MERGES = compose(
    """
    WITH {permitted}
    SELECT edge.alias, edge.norm FROM permitted JOIN knowledge_alias_t AS edge
        ON (edge.host_id, edge.collection_id) = (%(host)s, permitted.collection_id)
    ORDER BY edge.alias, edge.norm LIMIT {merges}
""",
    permitted=PERMITTED,
    merges=sql.Literal(MERGES),
)
