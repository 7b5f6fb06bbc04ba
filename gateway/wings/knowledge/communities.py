# ruff: noqa: S608 - made of constants; the values of callers are parameters
"""Communities: names of a collection that stand in the same passages, found on demand by label
propagation (Raghavan 2007) in an order that is always the same. No model is asked.

A large collection is judged by a sample of its chunks: those with the first ids, which are random.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations

from anyio import CapacityLimiter, to_thread

from gateway.wings.knowledge.entities import Entities, Hop, NameMention, npmi
from gateway.wings.knowledge.graph import MERGES
from gateway.wings.knowledge.readers import KnowledgeReader
from gateway.wings.knowledge.search import EDGES, PERMITTED
from registry.database.postgres import Pool
from registry.search.transaction import LOOKUPS, Transaction, transaction

CHUNKS = 500  # of a collection that are read
NAMES = 20  # of a chunk that are read
ROUNDS = 20
PASSAGES = 3  # that show what a community is about
KEPT = 8  # results that are kept, by the rows that they were computed from
Ties = Mapping[str, Mapping[str, float]]


@dataclass(frozen=True, slots=True)
class Community:
    names: Sequence[str]  # those with the strongest ties to the others first
    chunks: int  # that mention one of them
    evidence: Sequence[Hop]  # chunks that mention most of them, each with a name in it


class Communities:
    def __init__(self, pool: Pool, entities: Entities) -> None:
        self._pool = pool
        self._entities = entities
        self._limiter = CapacityLimiter(1)

    async def of(
        self, reader: KnowledgeReader, collection: str
    ) -> tuple[Sequence[Community], int, bool]:
        """Those that most chunks mention first, the number of chunks that were read, and whether
        there are more."""
        values = {**reader.values(), "names": [collection]}
        async with transaction(self._pool, Transaction) as opened:
            rows = await opened.rows(LOOKUPS, _ROWS, values)
            merges = await opened.rows(LOOKUPS, _MERGES, values)
        found = await to_thread.run_sync(
            communities, tuple(map(tuple, rows)), tuple(map(tuple, merges)), limiter=self._limiter
        )
        chunks = len({row[2] for row in rows})
        return found, chunks, chunks >= CHUNKS or len(rows) >= EDGES

    async def quoted(
        self, reader: KnowledgeReader, collection: str, found: Sequence[Community]
    ) -> list[list[NameMention]]:
        """The evidence of each."""
        hops = [hop for one in found for hop in one.evidence]
        quotes = await self._entities.quoted(reader, hops, [collection]) if hops else {}
        places = [[(hop.chunk, hop.source) for hop in one.evidence] for one in found]
        return [[quotes[place] for place in one if place in quotes] for one in places]


@lru_cache(maxsize=KEPT)
def communities(
    rows: tuple[tuple[str, str, str], ...], merges: tuple[tuple[str, str], ...]
) -> tuple[Community, ...]:
    """Communities of rows (norm, name, chunk); `merges` are pairs of norms that are one."""
    root = _roots(merges)
    written = {root.get(norm, norm): name for norm, name, _ in sorted(rows, reverse=True)}
    places: defaultdict[str, dict[str, str]] = defaultdict(dict)
    names: defaultdict[str, set[str]] = defaultdict(set)
    for norm, _, chunk in sorted(rows):
        one = root.get(norm, norm)
        places[one].setdefault(chunk, norm)
        names[chunk].add(one)
    ties = _ties([sorted(one) for one in names.values()])
    groups: defaultdict[str, list[str]] = defaultdict(list)
    for norm, label in _labels(ties).items():
        groups[label].append(norm)
    found = [_community(group, ties, written, places) for group in groups.values()]
    return tuple(sorted(found, key=lambda it: (-it.chunks, -len(it.names), list(it.names))))


def _community(
    group: Sequence[str],
    ties: Ties,
    written: Mapping[str, str],
    places: Mapping[str, Mapping[str, str]],
) -> Community:
    members = set(group)
    inside = {one: sum(t for other, t in ties[one].items() if other in members) for one in group}
    norms = sorted(group, key=lambda norm: (-round(inside[norm], 9), norm))
    held: defaultdict[str, list[str]] = defaultdict(list)
    for norm in norms:
        for chunk in places[norm]:
            held[chunk].append(norm)
    chunks = sorted(held, key=lambda one: (-len(held[one]), one))
    evidence = [
        Hop(mentioned, mentioned, chunk)
        for chunk in chunks[:PASSAGES]
        if (mentioned := places[held[chunk][0]][chunk])
    ]
    return Community([written[norm] for norm in norms], len(chunks), evidence)


def _roots(merges: Sequence[tuple[str, str]]) -> dict[str, str]:
    """The first name of its group for each merged name."""
    groups: dict[str, set[str]] = {}
    for pair in merges:
        whole = set(pair).union(*(groups.get(one, ()) for one in pair))
        groups |= dict.fromkeys(whole, whole)
    return {norm: min(group) for norm, group in groups.items()}


def _ties(chunks: Sequence[Sequence[str]]) -> Ties:
    """How much more often than by chance names stand together; one chunk more, without names, ties
    those that all others mention, too."""
    single = Counter(norm for names in chunks for norm in names)
    both = Counter(pair for names in chunks for pair in combinations(names, 2))
    ties: defaultdict[str, dict[str, float]] = defaultdict(dict)
    for (one, other), count in both.items():
        tie = count * npmi(count, single[one], single[other], len(chunks) + 1)
        if tie > 0:
            ties[one][other] = ties[other][one] = tie
    return ties


def _labels(ties: Ties) -> dict[str, str]:
    """The label that most of its neighbours have, for each name; the first one of several."""
    labels = {norm: norm for norm in ties}
    order = sorted(ties, key=lambda norm: (len(ties[norm]), norm))
    for _ in range(ROUNDS):
        before = dict(labels)
        for norm in order:
            weights: defaultdict[str, float] = defaultdict(float)
            for other in sorted(ties[norm]):
                weights[labels[other]] += ties[norm][other]
            labels[norm] = min(weights, key=lambda one: (-round(weights[one], 9), one))
        if labels == before:
            break
    return labels


_ROWS = f"""
    WITH {PERMITTED}, chosen AS MATERIALIZED (
        SELECT chunk.chunk_id FROM permitted JOIN knowledge_chunk_t AS chunk
            ON (chunk.host_id, chunk.collection_id) = (%(host)s, permitted.collection_id)
        ORDER BY chunk.chunk_id LIMIT {CHUNKS}
    )
    SELECT one.norm, one.name, chosen.chunk_id::text FROM chosen CROSS JOIN LATERAL (
        SELECT mention.norm, min(mention.name) AS name FROM knowledge_mention_t AS mention
        WHERE (mention.host_id, mention.chunk_id) = (%(host)s, chosen.chunk_id)
        GROUP BY mention.norm ORDER BY min(mention.start_byte), mention.norm LIMIT {NAMES}
    ) AS one
    ORDER BY chosen.chunk_id, one.norm LIMIT {EDGES}
""".encode()
_MERGES = f"""
    WITH {PERMITTED}
    SELECT edge.alias, edge.norm FROM permitted JOIN knowledge_alias_t AS edge
        ON (edge.host_id, edge.collection_id) = (%(host)s, permitted.collection_id)
    ORDER BY edge.alias, edge.norm LIMIT {MERGES}
""".encode()
