"""Entities, which are the names that chunks mention, and the paths between them by what mentions
both. Every statement reads the collections that the caller may read alone.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from psycopg import sql

from gateway.wings.documents.chunking.mentions import normal
from gateway.wings.knowledge.caller_access import READABLE, KnowledgeReader
from gateway.wings.knowledge.chunk_search import PERMITTED
from gateway.wings.knowledge.graph_ranking import HUB
from registry.database.postgres import Pool
from registry.database.sql_fragments import compose
from registry.search.transaction import LOOKUPS, Transaction, transaction

HOPS = 3  # chunks of a path at most
BRANCHES = 200  # names from which a path is sought further, the rarest first
ROWS = 5000  # of the graph that one step reads
READ = 200  # chunks of a name that are read for its neighbours
GROUP_NAMES = 100  # names of one group
JOINED_CHUNKS = 50  # chunks of a name in which a graph of many names looks for others
PAIRS = 5  # edges of such a graph for each of its names, at most
QUOTE = 240  # characters of a quote, around what it mentions


@dataclass(frozen=True, slots=True)
class NameMention:
    """A name in a chunk, with its place: `quote` is the text around it."""

    name: str
    type: str
    role: str
    method: str
    collection: str
    document: str
    path: str
    chunk: str
    start_line: int
    end_line: int
    quote: str

    @property
    def lines(self) -> tuple[int, int]:
        return self.start_line, self.end_line


@dataclass(frozen=True, slots=True)
class Neighbour:
    """A name that stands in the same chunks."""

    norm: str
    name: str
    chunks: int  # that mention both
    npmi: float  # from -1, never together, to 1, always (Bouma 2009)


@dataclass(frozen=True, slots=True)
class MergedName:
    """A name that is one with another in a collection, and nowhere else."""

    collection: str  # its id
    norm: str


@dataclass(frozen=True, slots=True)
class NamedEntity:
    norms: Sequence[str]  # its own, then those that were merged with it
    merged: Sequence["MergedName"]
    chunks: int  # that mention it
    mentions: Sequence[NameMention]
    neighbours: Sequence[Neighbour]
    senses: Sequence[str]  # names that tell it from others, such as "Jaguar (car)"


@dataclass(frozen=True, slots=True)
class ChunkName:
    """A name with the chunks that mention it, and those of them that are about it."""

    name: str
    type: str
    chunks: Sequence[str]
    about: Sequence[str]
    description: str  # written by a chat model; "": none has read its texts


@dataclass(frozen=True, slots=True)
class NamedRelation:
    """A relation of two names with the chunks that state it, as a chat model read them."""

    source: str
    target: str
    type: str
    description: str
    chunks: Sequence[str]


@dataclass(frozen=True, slots=True)
class NamePair:
    """Two names that stand in the same chunks, with a relation that a chat model read."""

    source: str
    target: str
    chunks: int  # that mention both, among the first JOINED_CHUNKS of each
    type: str  # "": none read them
    description: str


@dataclass(frozen=True, slots=True)
class Hop:
    """A chunk that mentions two names."""

    source: str
    target: str
    chunk: str


class Entities:
    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def find(
        self,
        reader: KnowledgeReader,
        name: str,
        *,
        collections: Sequence[str] | None = None,
        type_: str | None = None,
        limit: int = 20,
    ) -> NamedEntity | None:
        """Facts of a name; None: no chunk that the caller may read mentions it."""
        values = {
            **_values(reader, collections),
            "norm": normal(name),
            "type": type_,
            "limit": limit,
            "read": READ,
        }
        async with transaction(self._pool, Transaction) as opened:
            merged = await _merged_names(opened, values, values["norm"])
            values |= {"norms": _norms(values["norm"], merged), **_only_there(merged)}
            mentions = await opened.rows(LOOKUPS, _MENTIONS, values)
            if not mentions:
                return None
            near = await opened.rows(LOOKUPS, _NEIGHBOURS, values)
            senses = [row[0] for row in await opened.rows(LOOKUPS, _SENSES, values)]
        mentions_ = [_mention(row[1:]) for row in mentions]
        return NamedEntity(
            values["norms"], merged, mentions[0][0], mentions_, _neighbours(near)[:limit], senses
        )

    async def merge(
        self,
        reader: KnowledgeReader,
        collection: str,
        names: Sequence[str],
        *,
        into: str,
        confidence: float = 1.0,
    ) -> int:
        """Make names one with another; returns how many were not yet. What mentions them stays."""
        values = _edges(reader, collection, names, into)
        async with transaction(self._pool, Transaction) as opened:
            rows = await opened.rows(LOOKUPS, _MERGE, {**values, "confidence": confidence})
        return len(rows)

    async def split(
        self, reader: KnowledgeReader, collection: str, names: Sequence[str], *, into: str
    ) -> int:
        """Undo a merge; returns how many names were one with the other."""
        async with transaction(self._pool, Transaction) as opened:
            rows = await opened.rows(LOOKUPS, _SPLIT, _edges(reader, collection, names, into))
        return len(rows)

    async def popular(
        self,
        reader: KnowledgeReader,
        collections: Sequence[str] | None,
        *,
        prefix: str,
        limit: int,
    ) -> list[str]:
        """Names that most chunks mention, or that begin with `prefix`."""
        values = _values(reader, collections)
        values |= {"prefix": normal(prefix), "limit": limit}
        async with transaction(self._pool, Transaction) as opened:
            return [row[0] for row in await opened.rows(LOOKUPS, _POPULAR, values)]

    async def pairs(
        self,
        reader: KnowledgeReader,
        collections: Sequence[str] | None,
        *,
        prefix: str,
        limit: int,
    ) -> list[NamePair]:
        """Pairs of the names that `popular` lists, those in most chunks first."""
        values = _values(reader, collections)
        values |= {"prefix": normal(prefix), "limit": limit, "pairs": limit * PAIRS}
        async with transaction(self._pool, Transaction) as opened:
            return [NamePair(*row) for row in await opened.rows(LOOKUPS, _PAIRS, values)]

    async def delete(
        self, reader: KnowledgeReader, collection: str, names: Sequence[str], *, pair: bool
    ) -> int:
        """Delete what was read of names in the texts of a collection, or of their relations to each
        other alone (`pair`); returns how many names or relations there were. Texts stay, and one
        that is read again names them again."""
        norms = sorted({normal(name) for name in names} - {""})
        values = {**reader.values("write"), "name": collection, "norms": norms, "pair": pair}
        async with transaction(self._pool, Transaction) as opened:
            # In the order in which documents lose them, or deletions wait for each other.
            named = [] if pair else await opened.rows(LOOKUPS, _DELETE_MENTIONS, values)
            relations = await opened.rows(LOOKUPS, _DELETE_RELATIONS, values)
            if pair:
                return len(relations)
            await opened.rows(LOOKUPS, _DELETE_ALIASES, values)
            return len({row[0] for row in named})

    async def of_chunks(
        self, reader: KnowledgeReader, chunks: Sequence[str], limit: int
    ) -> list[ChunkName]:
        """The names in chunks, those in most of them first."""
        values = {**_values(reader, None), "chunks": list(chunks), "limit": limit}
        async with transaction(self._pool, Transaction) as opened:
            return [ChunkName(*row) for row in await opened.rows(LOOKUPS, _OF_CHUNKS, values)]

    async def relations(
        self,
        reader: KnowledgeReader,
        *,
        limit: int,
        norms: Sequence[str] = (),
        merged_names: Sequence[MergedName] = (),
        chunks: Sequence[str] | None = None,
        collections: Sequence[str] | None = None,
    ) -> list[NamedRelation]:
        """Relations of a name, or in chunks; those that most chunks state first."""
        values = {**_values(reader, collections), **_only_there(merged_names)}
        values |= {"norms": list(norms), "chunks": None if chunks is None else list(chunks)}
        async with transaction(self._pool, Transaction) as opened:
            rows = await opened.rows(LOOKUPS, _RELATIONS, {**values, "limit": limit})
            return [NamedRelation(*row) for row in rows]

    async def paths(
        self,
        reader: KnowledgeReader,
        source: str,
        target: str,
        *,
        collections: Sequence[str] | None = None,
        limit: int = 5,
    ) -> list[list[Hop]]:
        """The shortest paths of chunks from one name to another, at most HOPS long; those of the
        rarest names first."""
        values = _values(reader, collections)
        async with transaction(self._pool, Transaction) as opened:
            from_, to = normal(source), normal(target)
            begin_merged = await _merged_names(opened, values, from_)
            end_merged = await _merged_names(opened, values, to)
            begins, ends = _norms(from_, begin_merged), _norms(to, end_merged)
            if set(begins) & set(ends):
                return []

            async def step(
                names: Iterable[str], merged_names: Sequence[MergedName] = ()
            ) -> "_Step":
                chosen = {
                    "reached": list(names)[:BRANCHES],
                    "rows": ROWS,
                    **_only_there(merged_names),
                }
                return _Step.of(await opened.rows(LOOKUPS, _STEP, {**values, **chosen}))

            first = (await step(begins, begin_merged)).without(begins)
            if direct := [hop for end in ends for hop in first.to(end)]:
                return [[hop] for hop in direct[:limit]]
            last = (await step(ends, end_merged)).without(ends)
            if middle := first.shared_names(last):
                return _join_paths(first, [last], middle, limit)
            second = await step(first.rarest)
            middle = second.shared_names(last)
            return _join_paths(first, [second, last], middle, limit) if middle else []

    async def quoted_mentions(
        self, reader: KnowledgeReader, hops: Sequence[Hop], collections: Sequence[str] | None
    ) -> dict[tuple[str, str], NameMention]:
        """The mentions of both names of hops, by chunk and name."""
        values = _values(reader, collections)
        values |= {
            "chunks": [hop.chunk for hop in hops for _ in range(2)],
            "mentioned": [name for hop in hops for name in (hop.source, hop.target)],
        }
        async with transaction(self._pool, Transaction) as opened:
            rows = await opened.rows(LOOKUPS, _QUOTES, values)
        mentions = [(row[0], _mention(row[1:])) for row in rows]
        return {(mention.chunk, norm): mention for norm, mention in mentions}


@dataclass(frozen=True, slots=True)
class _Step:
    """Names that chunks mention beside those that a search has reached."""

    hops: Mapping[str, Sequence[Hop]]  # by their targets
    seldom: Mapping[str, int]  # chunks that mention a name

    @classmethod
    def of(cls, rows: Sequence[Sequence[Any]]) -> "_Step":
        hops: dict[str, list[Hop]] = {}
        for source, target, chunk, _ in rows:
            hops.setdefault(target, []).append(Hop(source, target, chunk))
        return cls(hops, {target: count for _, target, _, count in rows})

    def without(self, names: Sequence[str]) -> "_Step":
        """The step, but for what leads to other names of its beginning."""
        return _Step({k: v for k, v in self.hops.items() if k not in names}, self.seldom)

    @property
    def near(self) -> frozenset[str]:
        return frozenset(self.hops)

    @property
    def rarest(self) -> list[str]:
        return sorted(self.hops, key=lambda name: (self.seldom[name], name))

    def to(self, target: str) -> Sequence[Hop]:
        return self.hops.get(target, ())

    def shared_names(self, step: "_Step") -> list[str]:
        """Names of both, the rarest first."""
        return sorted(self.near & step.near, key=lambda name: (self.seldom[name], name))


def _join_paths(
    first: _Step, later_steps: Sequence[_Step], middle: Sequence[str], limit: int
) -> list[list[Hop]]:
    """Paths through the names in `middle`; the last step was made from the end."""
    *between, last = later_steps
    paths: list[list[Hop]] = []
    for name in middle:
        back = last.to(name)[0]
        turned = Hop(back.target, back.source, back.chunk)
        if not between:
            path = [first.to(name)[0], turned]
        else:
            hop = between[0].to(name)[0]
            path = [first.to(hop.source)[0], hop, turned]
        if len({hop.chunk for hop in path}) == len(path):
            paths.append(path)
        if len(paths) == limit:
            break
    return paths


def _edges(
    reader: KnowledgeReader, collection: str, names: Sequence[str], into: str
) -> dict[str, Any]:
    norm = normal(into)
    aliases = sorted({normal(name) for name in names} - {norm, ""})
    return {**reader.values("write"), "name": collection, "aliases": aliases, "norm": norm}


async def _merged_names(
    transaction: Transaction, values: Mapping[str, Any], norm: str
) -> Sequence[MergedName]:
    """Names merged with a name in collections that the caller may read."""
    rows = await transaction.rows(LOOKUPS, _MERGED_NAMES, {**values, "norm": norm})
    return [MergedName(*row) for row in rows]


def _norms(norm: str, merged_names: Sequence[MergedName]) -> list[str]:
    return [norm, *sorted({merged_name.norm for merged_name in merged_names})]


def _only_there(merged_names: Sequence[MergedName]) -> dict[str, Any]:
    """Parameters of _THERE."""
    return {
        "merged": [merged_name.norm for merged_name in merged_names],
        "shelves": [merged_name.collection for merged_name in merged_names],
    }


def _values(reader: KnowledgeReader, collections: Sequence[str] | None) -> dict[str, Any]:
    names = None if collections is None else list(collections)
    return {**reader.values(), "names": names}


def _neighbours(rows: Sequence[Sequence[Any]]) -> list[Neighbour]:
    neighbours = [
        Neighbour(norm, name, together, round(npmi(together, alone, nearby, total), 6))
        for norm, name, together, alone, nearby, total in rows
    ]
    return sorted(neighbours, key=lambda name: (-name.npmi * math.log1p(name.chunks), name.norm))


def npmi(together: int, first: int, second: int, total: int) -> float:
    """Normalised pointwise mutual information of two names, by the chunks that mention them."""
    if together >= total or together == 0:
        return 1.0 if together else -1.0
    return math.log(together * total / (first * second)) / -math.log(together / total)


def _mention(row: Sequence[Any]) -> NameMention:
    mention = NameMention(*row)
    return replace(mention, quote=_quote(mention.quote, mention.name))


def _quote(text: str, name: str) -> str:
    """The text around a name, on one line."""
    at = max(text.lower().find(name.lower()), 0)
    begin = max(at - (QUOTE - len(name)) // 2, 0)
    return " ".join(text[begin : begin + QUOTE].split())


_PLACE = sql.SQL("""mention.name, mention.type, mention.role, mention.method, shelf,
    document.document_id::text, document.path, chunk.chunk_id::text, chunk.start_line,
    chunk.end_line, knowledge_text(content, chunk.start_byte, chunk.end_byte)""")
_JOIN_TEXTS = sql.SQL("""
    JOIN knowledge_chunk_t AS chunk
        ON (chunk.host_id, chunk.chunk_id) = (%(host)s, mention.chunk_id)
    JOIN knowledge_document_t AS document
        ON (document.host_id, document.document_id) = (%(host)s, chunk.document_id)
    JOIN knowledge_blob_t AS blob ON (blob.host_id, blob.sha256) = (%(host)s, chunk.sha256)""")
# Who may write to a collection merges names in it alone, not in others that its readers read.
_THERE = sql.SQL("""({norm} <> ALL (%(merged)s::text[]) OR EXISTS (
    SELECT FROM unnest(%(shelves)s::uuid[], %(merged)s::text[]) AS there (shelf, norm)
    WHERE there.shelf = {shelf} AND there.norm = {norm}))""")
# The chunks of each permitted collection that mention a name.
_NAMING = sql.SQL("knowledge_naming(%(host)s, permitted.collection_id, {norm}, 0) AS naming")
_IN_CHUNK = sql.SQL("(mention.host_id, mention.chunk_id) = (%(host)s, {table}.chunk_id)")
_ALL_MENTIONS = sql.SQL("""permitted JOIN knowledge_chunk_t AS chunk
    ON (chunk.host_id, chunk.collection_id) = (%(host)s, permitted.collection_id)
    JOIN knowledge_mention_v AS mention ON {in_chunk}""").format(
    in_chunk=_IN_CHUNK.format(table=sql.Identifier("chunk"))
)
_OF_NAME = sql.SQL("""permitted CROSS JOIN unnest(%(norms)s::text[]) AS asked (norm)
    CROSS JOIN LATERAL {naming}
    JOIN knowledge_mention_v AS mention ON {in_chunk} AND mention.norm = asked.norm
        AND {mentioned_there} AND (%(type)s::text IS NULL OR mention.type = %(type)s)""").format(
    naming=_NAMING.format(norm=sql.Identifier("asked", "norm")),
    in_chunk=_IN_CHUNK.format(table=sql.Identifier("naming")),
    mentioned_there=_THERE.format(
        shelf=sql.Identifier("permitted", "collection_id"), norm=sql.Identifier("asked", "norm")
    ),
)
_MENTIONS = compose(
    """
    WITH {permitted}, first AS MATERIALIZED (
        SELECT DISTINCT ON (mention.chunk_id, mention.role) mention.*, permitted.name AS shelf
        FROM {of_name}
        ORDER BY mention.chunk_id, mention.role, mention.start_byte
    )
    SELECT (SELECT count(DISTINCT chunk_id) FROM first), {place}
    FROM first AS mention {joined}
    ORDER BY mention.role <> 'subject', document.path, chunk.ordinal, mention.role LIMIT %(limit)s
""",
    permitted=PERMITTED,
    of_name=_OF_NAME,
    place=_PLACE,
    joined=_JOIN_TEXTS,
)
_MERGE = compose(
    """
    INSERT INTO knowledge_alias_t (host_id, collection_id, alias, norm, confidence, owner)
    SELECT collection.host_id, collection.collection_id, one, %(norm)s, %(confidence)s, %(owner)s
    FROM knowledge_collection_t AS collection CROSS JOIN unnest(%(aliases)s::text[]) AS one
    WHERE {allowed} AND collection.name = %(name)s AND %(norm)s <> ''
    ON CONFLICT DO NOTHING RETURNING alias
""",
    allowed=READABLE,
)
_SPLIT = compose(
    """
    WITH gone AS MATERIALIZED (
        SELECT edge.* FROM knowledge_alias_t AS edge JOIN knowledge_collection_t AS collection
            ON {allowed} AND collection.name = %(name)s AND edge.host_id = %(host)s
                AND edge.collection_id = collection.collection_id
        WHERE edge.norm = %(norm)s AND edge.alias = ANY (%(aliases)s::text[])
        ORDER BY edge.alias FOR UPDATE OF edge
    )
    DELETE FROM knowledge_alias_t AS edge USING gone
    WHERE (edge.host_id, edge.collection_id, edge.alias, edge.norm)
        = (%(host)s, gone.collection_id, gone.alias, gone.norm)
    RETURNING edge.alias
""",
    allowed=READABLE,
)
# Both directions: a merge of merged names is one group, and cycles end.
_MERGED_NAMES = compose(
    """
    WITH RECURSIVE {permitted}, same (collection_id, norm) AS (
        SELECT collection_id, %(norm)s::text COLLATE "C" FROM permitted
        UNION
        SELECT same.collection_id, CASE edge.alias WHEN same.norm THEN edge.norm ELSE edge.alias END
        FROM same JOIN knowledge_alias_t AS edge ON edge.host_id = %(host)s
            AND edge.collection_id = same.collection_id AND same.norm IN (edge.alias, edge.norm)
    )
    SELECT collection_id::text, norm FROM same WHERE norm <> %(norm)s LIMIT {merged}
""",
    permitted=PERMITTED,
    merged=sql.Literal(GROUP_NAMES),
)
_SENSES = compose(
    """
    WITH {permitted}
    SELECT min(mention.name) FROM permitted
    CROSS JOIN LATERAL knowledge_naming(%(host)s, permitted.collection_id, %(norm)s, 3) AS naming
    JOIN knowledge_mention_v AS mention ON {in_chunk}
    WHERE starts_with(mention.norm, %(norm)s || ' (') AND mention.norm LIKE '%%)'
    GROUP BY mention.norm ORDER BY mention.norm LIMIT %(limit)s
""",
    permitted=PERMITTED,
    in_chunk=_IN_CHUNK.format(table=sql.Identifier("naming")),
)
_NEIGHBOURS = compose(
    """
    WITH {permitted}, own AS MATERIALIZED (
        SELECT DISTINCT mention.chunk_id FROM {of_name}
        ORDER BY mention.chunk_id LIMIT %(read)s
    ), near AS MATERIALIZED (
        SELECT mention.norm, min(mention.name) AS name, count(DISTINCT mention.chunk_id) AS docs
        FROM own JOIN knowledge_mention_v AS mention
            ON (mention.host_id, mention.chunk_id) = (%(host)s, own.chunk_id)
        WHERE mention.norm <> ALL (%(norms)s::text[])
        GROUP BY mention.norm ORDER BY docs DESC, mention.norm LIMIT 100
    )
    SELECT near.norm, near.name, near.docs::integer, (SELECT count(*) FROM own)::integer,
        (SELECT count(*) FROM permitted CROSS JOIN LATERAL {naming})::integer,
        (SELECT greatest(count(*), 1) FROM permitted JOIN knowledge_chunk_t AS chunk
            ON chunk.host_id = %(host)s AND chunk.collection_id = permitted.collection_id)::integer
    FROM near
""",
    permitted=PERMITTED,
    of_name=_OF_NAME,
    naming=_NAMING.format(norm=sql.Identifier("near", "norm")),
)
_POPULAR = compose(
    """
    WITH {permitted}
    SELECT min(mention.name), count(DISTINCT mention.chunk_id) AS docs FROM {mentions}
    WHERE starts_with(mention.norm, %(prefix)s)
    GROUP BY mention.norm ORDER BY docs DESC, mention.norm LIMIT %(limit)s
""",
    permitted=PERMITTED,
    mentions=_ALL_MENTIONS,
)
# Each name with the first of its chunks alone, so that hubs cost no more than others.
_PAIRS = compose(
    """
    WITH {permitted}, named AS MATERIALIZED (
        SELECT mention.norm, min(mention.name) AS name FROM {mentions}
        WHERE starts_with(mention.norm, %(prefix)s)
        GROUP BY mention.norm
        ORDER BY count(DISTINCT mention.chunk_id) DESC, mention.norm LIMIT %(limit)s
    ), here AS MATERIALIZED (
        SELECT named.norm, named.name, one.chunk_id FROM named CROSS JOIN LATERAL (
            SELECT naming.chunk_id FROM permitted CROSS JOIN LATERAL {naming}
            ORDER BY naming.chunk_id LIMIT {joined}
        ) AS one
    ), pair AS MATERIALIZED (
        SELECT one.norm AS source, other.norm AS target, min(one.name) AS source_name,
            min(other.name) AS target_name, count(*) AS docs
        FROM here AS one JOIN here AS other USING (chunk_id) WHERE one.norm < other.norm
        GROUP BY one.norm, other.norm ORDER BY docs DESC, source, target LIMIT %(pairs)s
    )
    SELECT CASE WHEN stated.turned THEN target_name ELSE source_name END,
        CASE WHEN stated.turned THEN source_name ELSE target_name END,
        docs::integer, coalesce(stated.type, ''), coalesce(stated.description, '')
    FROM pair LEFT JOIN LATERAL (
        SELECT relation.type, relation.description, relation.source = pair.target AS turned
        FROM permitted JOIN knowledge_relation_t AS relation ON relation.host_id = %(host)s
            AND relation.collection_id = permitted.collection_id
            AND ((relation.source, relation.target) = (pair.source, pair.target)
                OR (relation.source, relation.target) = (pair.target, pair.source))
        ORDER BY relation.type LIMIT 1
    ) AS stated ON true
    ORDER BY docs DESC, source, target
""",
    permitted=PERMITTED,
    mentions=_ALL_MENTIONS,
    naming=_NAMING.format(norm=sql.Identifier("named", "norm")),
    joined=sql.Literal(JOINED_CHUNKS),
)
_OF_WRITER = sql.SQL("""JOIN knowledge_collection_t AS collection
    ON {allowed} AND collection.name = %(name)s AND had.host_id = %(host)s
        AND had.collection_id = collection.collection_id""").format(allowed=READABLE)
_DELETE_MENTIONS = compose(
    """
    SELECT norm FROM knowledge_collection_t AS collection
    CROSS JOIN LATERAL knowledge_unname(%(host)s, collection.collection_id, %(norms)s) AS norm
    WHERE {allowed} AND collection.name = %(name)s
""",
    allowed=READABLE,
)
_DELETE_ALIASES = compose(
    """
    WITH gone AS MATERIALIZED (
        SELECT had.* FROM knowledge_alias_t AS had {of_writer}
        WHERE had.norm = ANY (%(norms)s::text[]) OR had.alias = ANY (%(norms)s::text[])
        ORDER BY had.alias, had.norm FOR UPDATE OF had
    )
    DELETE FROM knowledge_alias_t AS had USING gone
    WHERE (had.host_id, had.collection_id, had.alias, had.norm)
        = (%(host)s, gone.collection_id, gone.alias, gone.norm)
    RETURNING had.norm
""",
    of_writer=_OF_WRITER,
)
_DELETE_RELATIONS = compose(
    """
    WITH gone AS MATERIALIZED (
        SELECT had.chunk_id, had.source, had.target, had.type
        FROM knowledge_relation_t AS had {of_writer}
        WHERE CASE WHEN %(pair)s
            THEN had.source = ANY (%(norms)s::text[]) AND had.target = ANY (%(norms)s::text[])
            ELSE had.source = ANY (%(norms)s::text[]) OR had.target = ANY (%(norms)s::text[]) END
        ORDER BY had.chunk_id, had.source, had.target, had.type FOR UPDATE OF had
    )
    DELETE FROM knowledge_relation_t AS had USING gone
    WHERE (had.host_id, had.chunk_id, had.source, had.target, had.type)
        = (%(host)s, gone.chunk_id, gone.source, gone.target, gone.type)
    RETURNING had.source
""",
    of_writer=_OF_WRITER,
)
_OF_CHUNKS = compose(
    """
    WITH {permitted}
    SELECT min(mention.name), min(mention.type), array_agg(DISTINCT mention.chunk_id::text),
        coalesce(array_agg(DISTINCT mention.chunk_id::text)
            FILTER (WHERE mention.role = 'subject'), '{{}}'), max(mention.description)
    FROM unnest(%(chunks)s::uuid[]) AS one (chunk_id)
    JOIN knowledge_mention_v AS mention
        ON (mention.host_id, mention.chunk_id) = (%(host)s, one.chunk_id)
    JOIN permitted USING (collection_id)
    GROUP BY mention.norm ORDER BY count(DISTINCT mention.chunk_id) DESC, mention.norm
    LIMIT %(limit)s
""",
    permitted=PERMITTED,
)
# A name as one of the chunks that state a relation writes it.
_NAME_OF = sql.SQL("""coalesce((SELECT min(mention.name) FROM knowledge_mention_v AS mention
    WHERE mention.host_id = %(host)s AND mention.chunk_id = ANY (array_agg(stated.chunk_id))
        AND mention.norm = stated.{norm}), stated.{norm})""")
_RELATIONS = compose(
    """
    WITH {permitted}, stated AS MATERIALIZED (
        SELECT one.* FROM permitted JOIN knowledge_relation_t AS one
            ON one.host_id = %(host)s AND one.collection_id = permitted.collection_id
                AND one.source = ANY (%(norms)s::text[])
                AND {source_there}
        UNION
        SELECT one.* FROM permitted JOIN knowledge_relation_t AS one
            ON one.host_id = %(host)s AND one.collection_id = permitted.collection_id
                AND one.target = ANY (%(norms)s::text[])
                AND {target_there}
        UNION
        SELECT one.* FROM unnest(%(chunks)s::uuid[]) AS chunk (chunk_id)
        JOIN knowledge_relation_t AS one
            ON (one.host_id, one.chunk_id) = (%(host)s, chunk.chunk_id)
        JOIN permitted USING (collection_id)
    )
    SELECT {source}, {target}, type,
        max(description), array_agg(DISTINCT chunk_id::text)
    FROM stated GROUP BY source, target, type
    ORDER BY count(DISTINCT chunk_id) DESC, source, target, type LIMIT %(limit)s
""",
    permitted=PERMITTED,
    source_there=_THERE.format(
        shelf=sql.Identifier("one", "collection_id"), norm=sql.Identifier("one", "source")
    ),
    target_there=_THERE.format(
        shelf=sql.Identifier("one", "collection_id"), norm=sql.Identifier("one", "target")
    ),
    source=_NAME_OF.format(norm=sql.Identifier("source")),
    target=_NAME_OF.format(norm=sql.Identifier("target")),
)
# What stands beside names that are no hubs, in chunks; a hub may be reached, but leads nowhere.
_STEP = compose(
    """
    WITH {permitted}, name AS MATERIALIZED (
        SELECT norm, place FROM unnest(%(reached)s::text[]) WITH ORDINALITY AS one (norm, place)
    ), here AS MATERIALIZED (
        SELECT name.norm, name.place, one.chunk_id FROM name CROSS JOIN LATERAL (
            SELECT naming.chunk_id FROM permitted CROSS JOIN LATERAL {naming}
            WHERE {there} ORDER BY naming.chunk_id LIMIT {hub}
        ) AS one
    ), near AS MATERIALIZED (
        SELECT DISTINCT here.norm, here.place, mention.norm AS target, here.chunk_id
        FROM here JOIN knowledge_mention_v AS mention
            ON (mention.host_id, mention.chunk_id) = (%(host)s, here.chunk_id)
        WHERE mention.norm <> here.norm
        ORDER BY here.place, here.chunk_id, target LIMIT %(rows)s
    ), seldom AS MATERIALIZED (
        SELECT target, (SELECT count(*) FROM permitted CROSS JOIN LATERAL {naming_target}) AS docs
        FROM (SELECT DISTINCT target FROM near) AS near
    )
    SELECT near.norm, near.target, near.chunk_id::text, seldom.docs::integer
    FROM near JOIN seldom USING (target) ORDER BY near.place, near.chunk_id, near.target
""",
    permitted=PERMITTED,
    naming=_NAMING.format(norm=sql.Identifier("name", "norm")),
    there=_THERE.format(
        shelf=sql.Identifier("permitted", "collection_id"), norm=sql.Identifier("name", "norm")
    ),
    hub=sql.Literal(HUB),
    naming_target=_NAMING.format(norm=sql.Identifier("near", "target")),
)
_QUOTES = compose(
    """
    WITH {permitted}, wanted AS MATERIALIZED (
        SELECT DISTINCT chunk_id, norm
        FROM unnest(%(chunks)s::uuid[], %(mentioned)s::text[]) AS one (chunk_id, norm)
    ), first AS MATERIALIZED (
        SELECT DISTINCT ON (wanted.chunk_id, wanted.norm) mention.*, permitted.name AS shelf
        FROM wanted JOIN knowledge_mention_v AS mention
            ON (mention.host_id, mention.chunk_id, mention.norm)
                = (%(host)s, wanted.chunk_id, wanted.norm)
        JOIN permitted USING (collection_id)
        ORDER BY wanted.chunk_id, wanted.norm, mention.start_byte
    )
    SELECT mention.norm, {place} FROM first AS mention {joined}
""",
    permitted=PERMITTED,
    place=_PLACE,
    joined=_JOIN_TEXTS,
)
