"""The documents as other wings read them: what the caller of a context may read, and nothing else.

Each statement has the tenant and the grants of the caller as conditions. Symbols are definitions in
code; references to them are found by the last part of a name, so that several definitions may be
meant: `confidence` says how many. What an index of code has resolved needs no such guess.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import psycopg
from psycopg import sql

from config.knowledge import KnowledgeSettings
from gateway.context import Context
from gateway.operations.job_declarations import Job
from gateway.operations.problems import ProblemDetails, invalid, not_found
from gateway.wings.document_library import (
    CollectionStatus,
    FileLink,
    IndexedCode,
    IndexedFile,
    IngestedSource,
    LibraryFile,
    Lines,
    Passage,
    PassageHits,
    PassageQuery,
    ReadableCollection,
    RelatedFile,
    SourcePlace,
    SymbolPlace,
    SymbolQuery,
)
from gateway.wings.documents.chunking.chunks import line_starts
from gateway.wings.documents.chunking.data_chunks import SCANNERS
from gateway.wings.documents.reading.reading_limits import ReadingRefused
from gateway.wings.knowledge.caller_access import READABLE, KnowledgeReader, has_access, reader_of
from gateway.wings.knowledge.chunk_filters import ChunkFilter, narrowing
from gateway.wings.knowledge.chunk_rows import dot_name
from gateway.wings.knowledge.chunk_search import (
    KIND,
    ChunkQuery,
    Searcher,
    chunks_query,
    convert_rows,
)
from gateway.wings.knowledge.collections import NewCollection
from gateway.wings.knowledge.documents import STATUS
from gateway.wings.knowledge.entities import Entities
from gateway.wings.knowledge.grep_and_records import (
    LinePattern,
    RecordPattern,
    TextSearches,
    line_pattern,
    record_pattern,
)
from gateway.wings.knowledge.ingestion import Ingestion, SourceSpec, check_location
from gateway.wings.knowledge.scip_store import ResolvedCode
from registry.database.postgres import Pool
from registry.database.sql_fragments import compose
from registry.search.transaction import LOOKUPS, Transaction, transaction

GLOB = 256  # characters
LINE = 500  # characters of a line that is quoted
GREP_BATCH = 2**21  # bytes of texts that are held at a time
REFERENCES = 5000  # of one name that are ranked
AMBIGUOUS = 8  # definitions of one name, beyond which it links no files
OCCURRENCES = 100  # definitions of one name, or chunks with it, that are read
RELATED_FILES = 5  # that define or have one name, beyond which it says little about any
LINKS = 20_000  # rows of the graph of files
FILES = 10_000  # of one page
RESULTS_LIMIT = 1000  # symbols, references or lines of one answer


class CollectionLibrary:
    """`gateway.wings.document_library.Library` over the collections of the knowledge."""

    def __init__(
        self,
        pool: Pool,
        searcher: Searcher,
        entities: Entities,
        settings: KnowledgeSettings,
        *,
        ingestion: Ingestion,
        resolved: ResolvedCode,
    ) -> None:
        self._resolved = resolved
        self._pool = pool
        self._searcher = searcher
        self._entities = entities
        self._ingestion = ingestion
        self._settings = settings
        self._searches = TextSearches(settings)

    async def collections(self, context: Context) -> Sequence[ReadableCollection]:
        values = self._values(context, None)
        values["writers"] = self._reader(context).values("write")["accesses"]
        rows = await self._rows(_COLLECTIONS, values)
        return convert_rows(ReadableCollection, rows)

    async def status(
        self, context: Context, collections: Sequence[str] | None
    ) -> Sequence[CollectionStatus]:
        rows = await self._rows(_STATUS, self._values(context, collections))
        return convert_rows(CollectionStatus, rows)

    async def prepare(
        self, context: Context, collection: str, place: SourcePlace
    ) -> ReadableCollection:
        try:
            check_location(place.type, place.location)
        except ReadingRefused as error:
            raise invalid(f"location: {error}.") from error
        await self._ingestion.ensure(self._reader(context), NewCollection(collection))
        return next(
            candidate
            for candidate in await self.collections(context)
            if candidate.name == collection
        )

    async def ingest(
        self, context: Context, collection: ReadableCollection, place: SourcePlace, job: Job
    ) -> IngestedSource:
        spec = SourceSpec(
            place.type,
            place.location,
            place.ref,
            place.filter,
            below=place.folder,
            seen=place.seen,
        )
        reader, target = self._reader(context), NewCollection(collection.name, id=collection.id)
        report = await self._ingestion.source(reader, target, spec, job=job)
        return IngestedSource(
            added=report.added,
            changed=report.changed,
            unchanged=report.unchanged,
            deleted=report.deleted,
            failed=[(file.path, file.reason) for file in report.failed],
            left_out=[(file.path, file.reason) for file in report.left_out],
            seen="" if report.failed else report.seen,
        )

    async def index(
        self, context: Context, collection: str, files: Iterator[IndexedFile], *, folder: str = ""
    ) -> IndexedCode:
        return await self._resolved.store(self._reader(context), collection, files, folder)

    async def search(self, context: Context, query: PassageQuery) -> PassageHits:
        paths = (_glob(query.path),) if query.path else ()
        chunk_query = ChunkQuery(
            reader=self._reader(context),
            text=query.text,
            collections=query.collections,
            filter=ChunkFilter(paths=paths),
            limit=query.limit,
        )
        return await self._searcher.search(chunk_query)

    async def files(
        self,
        context: Context,
        collections: Sequence[str] | None,
        *,
        path: str = "",
        after: str = "",
        limit: int = 1000,
    ) -> Sequence[LibraryFile]:
        where, values = self._path_condition(context, collections, path)
        name, _, rest = after.partition("/")
        values |= {"after": name, "after_path": rest, "limit": min(limit, FILES)}
        rows = await self._rows(_compose(_FILES, path=where), values)
        return convert_rows(LibraryFile, rows)

    async def chunks(
        self,
        context: Context,
        collection: str,
        *,
        path: str = "",
        after: tuple[str, int] = ("", -1),
        limit: int = 200,
        embeddings: bool = False,
    ) -> Sequence[Passage]:
        where, values = self._path_condition(context, [collection], path)
        values |= {"after": after[0], "ordinal": after[1], "limit": min(limit, RESULTS_LIMIT)}
        values["embeddings"] = embeddings
        rows = await self._rows(_compose(_CHUNKS, path=where), values)
        return convert_rows(Passage, rows)

    async def read(
        self, context: Context, collection: str, path: str, lines: Lines | None = None
    ) -> Passage:
        values = {**self._values(context, [collection]), "path": path}
        rows = await self._rows(_READ, values)
        if not rows:
            raise not_found("document", path)
        ((version, content),) = rows
        text = bytes(content).decode()
        starts = line_starts(text)
        last = len(starts) - (starts[-1] == len(text) and len(starts) > 1)
        first, end = lines or (1, last)
        if not 1 <= first <= end or first > last:
            raise invalid(f"lines: expected two within 1 to {last}, found {first} to {end}")
        end = min(end, last)
        lines_text = text[starts[first - 1] : starts[end] if end < len(starts) else len(text)]
        return Passage(
            collection=collection, path=path, version=version, lines=(first, end), text=lines_text
        )

    async def grep(
        self,
        context: Context,
        collections: Sequence[str] | None,
        pattern: str,
        *,
        path: str = "",
        limit: int = 100,
    ) -> Sequence[Passage]:
        line = line_pattern(pattern, self._settings)
        where, values = self._path_condition(context, collections, path)
        return await self._scan(context, where, values, pattern=line, limit=limit)

    async def records(
        self,
        context: Context,
        collections: Sequence[str] | None,
        record: str,
        *,
        path: str = "",
        limit: int = 100,
    ) -> Sequence[Passage]:
        where, values = self._path_condition(context, collections, path)
        where += sql.SQL(" AND document.media_type = ANY (%(media)s)")
        values["media"] = list(SCANNERS)
        record_lines = record_pattern(record)
        return await self._scan(context, where, values, pattern=record_lines, limit=limit)

    async def _scan(
        self,
        context: Context,
        where: sql.Composed,
        values: dict[str, Any],
        *,
        pattern: LinePattern | RecordPattern,
        limit: int,
    ) -> list[Passage]:
        """Scan texts and collect matches. Raises ProblemDetails for more than may be read, in bytes
        or in time."""
        sizes = await self._rows(_compose(_SIZES, path=where), values)
        self._check_size(sum(row[1] for row in sizes))
        limit, passages, principal = min(limit, RESULTS_LIMIT), list[Passage](), context.principal
        ends = self._searches.deadline()
        for ids in _batches(sizes):
            rows = await self._rows(_TEXTS, {**values, "ids": ids})
            passages += await self._searches.run(
                pattern.search(rows),
                limit - len(passages),
                ends=ends,
                tenant=principal.tenant,
                owner=principal.id,
            )
            if len(passages) >= limit:
                break
        return passages

    def _check_size(self, size: int) -> None:
        if size > (most := self._settings.grep_bytes):
            raise ProblemDetails(
                413,
                "too-large",
                f"The texts have {size} bytes, expected at most {most} (knowledge.grep_bytes):"
                " narrow the path.",
            )

    async def symbols(self, context: Context, query: SymbolQuery) -> Sequence[SymbolPlace]:
        path, values = self._path_condition(context, query.collections, query.path)
        symbol, heir = dot_name(query.name), dot_name(query.inherits).rpartition(".")[2]
        values |= {
            "symbol": symbol,
            "name": symbol.rpartition(".")[2],
            "kind": query.kind,
            "visibility": query.visibility,
            "inherits": heir,
            "limit": min(query.limit, RESULTS_LIMIT),
        }
        statement = _symbols(path, by_name=bool(symbol), heirs=bool(heir))
        return convert_rows(SymbolPlace, await self._rows(statement, values))

    async def references(
        self, context: Context, collections: Sequence[str] | None, symbol: str, limit: int = 50
    ) -> Sequence[SymbolPlace]:
        dotted = dot_name(symbol).strip()
        values = self._values(context, collections)
        values |= {
            "symbol": dotted,
            "name": dotted.rpartition(".")[2],
            "limit": min(limit, RESULTS_LIMIT),
        }
        if not values["name"]:
            return []
        return [_reference(row) for row in await self._rows(_REFERENCES_TO, values)]

    async def links(
        self, context: Context, collections: Sequence[str] | None, *, path: str = ""
    ) -> Sequence[FileLink]:
        where, values = self._path_condition(context, collections, path)
        rows = await self._rows(_compose(_LINKED_FILES, path=where), values)
        return convert_rows(FileLink, rows)

    async def passages(self, context: Context, chunks: Sequence[str]) -> Sequence[Passage]:
        values = {**self._values(context, None), "ids": list(chunks)}
        return convert_rows(Passage, await self._rows(chunks_query(None), values))

    async def related_files(
        self,
        context: Context,
        collections: Sequence[str] | None,
        chunks: Sequence[str],
        *,
        names: Sequence[str] = (),
        path: str = "",
    ) -> Sequence[RelatedFile]:
        where, values = self._path_condition(context, collections, path)
        values |= {"chunks": list(chunks), "identifiers": list(names)}
        return convert_rows(
            RelatedFile, await self._rows(_compose(_RELATED_FILES, path=where), values)
        )

    async def neighbors(
        self, context: Context, collections: Sequence[str] | None, name: str, limit: int = 20
    ) -> Sequence[tuple[str, float]]:
        if "\0" in name:
            return []
        entity = await self._entities.find(
            self._reader(context), name[:GLOB], collections=collections, limit=limit
        )
        return (
            []
            if entity is None
            else [(neighbour.name, neighbour.npmi) for neighbour in entity.neighbours]
        )

    def _reader(self, context: Context) -> KnowledgeReader:
        return reader_of(context, self._settings.agent_claim)

    def _path_condition(
        self, context: Context, collections: Sequence[str] | None, path: str
    ) -> tuple[sql.Composed, dict[str, Any]]:
        """The condition on paths; its parameters, and those of the shelves."""
        where, values = narrowing(ChunkFilter(paths=(_glob(path),) if path else ()))
        condition = sql.Composed([] if where is None else [sql.SQL("AND "), where])
        return condition, {**values, **self._values(context, collections)}

    def _values(self, context: Context, collections: Sequence[str] | None) -> dict[str, Any]:
        """Parameters of the shelves."""
        names = None if collections is None else list(collections)
        return {**self._reader(context).values(), "names": names}

    async def _rows(self, statement: bytes, values: dict[str, Any]) -> list[Any]:
        try:
            async with transaction(self._pool, Transaction) as opened:
                return await opened.rows(LOOKUPS, statement, values)
        except psycopg.DataError as error:  # such as NUL in a text, which code may ask for
            raise invalid("Expected text and numbers that a database can store.") from error


def _glob(path: str) -> str:
    if len(path) > GLOB:
        raise invalid(f"path: expected a pattern of at most {GLOB} characters")
    return path


def _batches(sizes: Sequence[Sequence[Any]]) -> Iterator[list[str]]:
    ids: list[str] = []
    batch_bytes = 0
    for id_, size in sizes:
        if ids and batch_bytes + size > GREP_BATCH:
            yield ids
            ids, batch_bytes = [], 0
        ids.append(id_)
        batch_bytes += size
    if ids:
        yield ids


def _reference(row: Sequence[Any]) -> SymbolPlace:
    name, role, collection, path, version, first, text, at, scope, confidence = row
    before = text.encode()[:at].decode(errors="replace")
    starts = line_starts(before)
    line = text[starts[-1] :].splitlines()[0] if text[starts[-1] :] else ""
    number = first + len(starts) - 1
    return SymbolPlace(
        symbol=name,
        role=role,
        collection=collection,
        path=path,
        version=version,
        lines=(number, number),
        quote=line.strip()[:LINE],
        scope=scope or "",
        confidence=round(confidence, 4),
    )


_SHELVES = sql.SQL("""shelf AS MATERIALIZED (
    SELECT collection_id, name FROM knowledge_collection_t AS collection
    WHERE {allowed} AND (%(names)s::text[] IS NULL OR name = ANY (%(names)s))
)""").format(allowed=READABLE)
_COLLECTIONS = compose(
    """
    WITH {shelves}
    SELECT collection_id::text, name, {can_write}
    FROM shelf JOIN knowledge_collection_t AS collection USING (collection_id, name)
    WHERE collection.host_id = %(host)s ORDER BY name
""",
    shelves=_SHELVES,
    can_write=has_access("%(writers)s"),
)
_STATUS = compose(
    """
    WITH {shelves}
    SELECT shelf.name, coalesce((
        SELECT jsonb_object_agg(status, number) FROM (
            SELECT {status} AS status, count(*) AS number FROM knowledge_document_t AS document
            JOIN knowledge_version_t AS version
                ON (version.host_id, version.document_id, version.version)
                    = (%(host)s, document.document_id, document.version)
            WHERE (document.host_id, document.collection_id) = (%(host)s, shelf.collection_id)
            GROUP BY 1
        ) AS one), '{{}}'), counted.chunks::integer, counted.embedded::integer
    FROM shelf CROSS JOIN LATERAL (
        SELECT count(*) AS chunks, count(*) FILTER (WHERE EXISTS (
            SELECT FROM entity_embedding_t AS vector WHERE vector.host_id = %(host)s
                AND vector.entity_type = 'knowledge_chunk' AND vector.entity_id = chunk.chunk_id
                AND vector.status = 'ready')) AS embedded
        FROM knowledge_chunk_t AS chunk
        WHERE (chunk.host_id, chunk.collection_id) = (%(host)s, shelf.collection_id)
    ) AS counted ORDER BY shelf.name
""",
    shelves=_SHELVES,
    status=STATUS,
)
# Documents that have a version which is served.
_SERVED_DOCUMENTS = sql.SQL("""FROM shelf JOIN knowledge_document_t AS document
    ON (document.host_id, document.collection_id) = (%(host)s, shelf.collection_id)
    AND document.live > 0""")
_FILES = sql.SQL("""
    WITH {shelves}
    SELECT shelf.name, document.path, live, bytes, media_type, language,
        encode(sha256, 'hex') {served}
    WHERE (shelf.name, document.path) > (%(after)s, %(after_path)s) {path}
    ORDER BY shelf.name, document.path LIMIT %(limit)s
""")
_CONTENT = sql.SQL("""JOIN knowledge_blob_t AS blob
    ON (blob.host_id, blob.sha256) = (%(host)s, document.sha256)""")
_CHUNKS = sql.SQL("""
    WITH {shelves}
    SELECT shelf.name, document.path, document.live, ARRAY[chunk.start_line, chunk.end_line],
        knowledge_text(blob.content, chunk.start_byte, chunk.end_byte), chunk.chunk_id::text,
        chunk.kind, chunk.header, chunk.symbol, chunk.ordinal,
        document.document_id::text, chunk.page,
        coalesce(defined.visibility, ''), coalesce(defined.signature, ''),
        coalesce(vector.embedding::real[], '{{}}'), coalesce(vector.model, '')
    {served} JOIN knowledge_chunk_t AS chunk
        ON (chunk.host_id, chunk.document_id) = (%(host)s, document.document_id)
    {content} LEFT JOIN LATERAL (
        SELECT visibility, signature FROM knowledge_symbol_t AS symbol
        WHERE (symbol.host_id, symbol.document_id) = (%(host)s, document.document_id)
            AND chunk.symbol <> '' AND symbol.symbol = chunk.symbol
            AND symbol.start_byte BETWEEN chunk.start_byte AND chunk.end_byte
        ORDER BY symbol.ordinal LIMIT 1
    ) AS defined ON true
    LEFT JOIN LATERAL (
        SELECT embedding, model FROM entity_embedding_t JOIN embedding_model_t USING (model)
        WHERE %(embeddings)s AND serving AND purpose = {purpose} AND status = 'ready'
            AND (host_id, entity_type, entity_id) = (%(host)s, {kind}, chunk.chunk_id)
    ) AS vector ON true
    WHERE (document.path, chunk.ordinal) > (%(after)s, %(ordinal)s) {path}
    ORDER BY document.path, chunk.ordinal LIMIT %(limit)s
""")
_READ = compose(
    """
    WITH {shelves}
    SELECT live, blob.content {served} AND document.path = %(path)s {content}
""",
    shelves=_SHELVES,
    served=_SERVED_DOCUMENTS,
    content=_CONTENT,
)
_SIZES = sql.SQL("""
    WITH {shelves}
    SELECT document_id::text, bytes {served} WHERE true {path} ORDER BY shelf.name, document.path
""")
_TEXTS = compose(
    """
    WITH {shelves}
    SELECT shelf.name, document.path, live, blob.content, document.media_type
    {served} {content}
    WHERE document.document_id = ANY (%(ids)s::uuid[]) ORDER BY shelf.name, document.path
""",
    shelves=_SHELVES,
    served=_SERVED_DOCUMENTS,
    content=_CONTENT,
)
# What inherits a class, also over others, by the names of these.
_HEIRS = sql.SQL(""", heir (collection_id, symbol, name) AS (
    SELECT symbol.collection_id, symbol.symbol, symbol.name FROM shelf
    JOIN knowledge_inherited_v AS base ON (base.host_id, base.collection_id, base.base)
        = (%(host)s, shelf.collection_id, %(inherits)s)
    JOIN knowledge_definition_v AS symbol ON (symbol.host_id, symbol.document_id, symbol.ordinal)
        = (%(host)s, base.document_id, base.ordinal)
    UNION
    SELECT symbol.collection_id, symbol.symbol, symbol.name FROM heir
    JOIN knowledge_inherited_v AS base ON (base.host_id, base.collection_id, base.base)
        = (%(host)s, heir.collection_id, heir.name)
    JOIN knowledge_definition_v AS symbol ON (symbol.host_id, symbol.document_id, symbol.ordinal)
        = (%(host)s, base.document_id, base.ordinal)
)""")
_HAS_NAME = sql.SQL(""" AND symbol.name = %(name)s
    AND (symbol.symbol = %(symbol)s OR right(symbol.symbol, length(%(symbol)s) + 1)
        = '.' || %(symbol)s)""")
_INHERITS = sql.SQL(""" AND EXISTS (SELECT FROM heir WHERE heir.collection_id = symbol.collection_id
    AND heir.symbol IN (symbol.symbol, symbol.scope))""")
_SYMBOLS = sql.SQL("""
    WITH RECURSIVE {shelves}{heirs}
    SELECT symbol.symbol, 'define', shelf.name, document.path, document.live,
        ARRAY[symbol.start_line, symbol.end_line], symbol.signature, symbol.kind,
        symbol.visibility, symbol.scope
    FROM shelf
    JOIN knowledge_definition_v AS symbol
        ON (symbol.host_id, symbol.collection_id) = (%(host)s, shelf.collection_id)
    JOIN knowledge_document_t AS document
        ON (document.host_id, document.document_id) = (%(host)s, symbol.document_id)
    WHERE (%(kind)s = '' OR symbol.kind = %(kind)s)
        AND (%(visibility)s = '' OR symbol.visibility = %(visibility)s) {where} {path}
    ORDER BY shelf.name, document.path, symbol.ordinal LIMIT %(limit)s
""")


def _symbols(path: sql.Composed, *, by_name: bool, heirs: bool) -> bytes:
    """Statement of symbols by their name, or by what they inherit."""
    nothing = sql.SQL("")
    return _compose(
        _SYMBOLS,
        heirs=_HEIRS if heirs else nothing,
        where=(_HAS_NAME if by_name else nothing) + (_INHERITS if heirs else nothing),
        path=path,
    )


_NAMES_OF_CODE = sql.SQL("""type = 'symbol' AND role IN ('call', 'import', 'inherit')""")
_REFERENCES_TO = compose(
    """
    WITH {shelves}, defined AS MATERIALIZED (
        SELECT symbol.collection_id, count(*) AS number,
            array_agg(DISTINCT symbol.document_id) AS documents
        FROM shelf JOIN knowledge_definition_v AS symbol
            ON (symbol.host_id, symbol.collection_id, symbol.name)
                = (%(host)s, shelf.collection_id, %(name)s)
        GROUP BY symbol.collection_id
    ), named AS MATERIALIZED (
        SELECT one.*, shelf.name AS shelf FROM shelf CROSS JOIN LATERAL (
            SELECT mention.chunk_id, mention.collection_id, mention.name, role, start_byte
            FROM knowledge_naming(%(host)s, shelf.collection_id, %(name)s, 4) AS naming
            JOIN knowledge_mention_v AS mention
                ON (mention.host_id, mention.chunk_id) = (%(host)s, naming.chunk_id)
            WHERE {names_of_code} AND right(mention.name, length(%(name)s)) = %(name)s
                AND knowledge_last(mention.name) = %(name)s
            ORDER BY mention.chunk_id LIMIT {references}
        ) AS one
    ), placed AS MATERIALIZED (
        SELECT named.name, named.role, named.shelf, document.path, document.live, chunk.start_line,
            chunk.sha256, chunk.start_byte, chunk.end_byte, named.start_byte AS at,
            document.document_id, CASE
                WHEN defined.number IS NULL OR defined.number = 1 THEN 1
                WHEN strpos(%(symbol)s, '.') > 0 AND right('.' || replace(replace(named.name, '::',
                    '.'), '->', '.'), length(%(symbol)s) + 1) = '.' || %(symbol)s THEN 1
                WHEN document.document_id = ANY (defined.documents)
                    THEN greatest(0.5, 1.0 / defined.number)
                ELSE 1.0 / defined.number
            END::float8 AS confidence
        FROM named
        JOIN knowledge_chunk_t AS chunk
            ON (chunk.host_id, chunk.chunk_id) = (%(host)s, named.chunk_id)
        JOIN knowledge_document_t AS document
            ON (document.host_id, document.document_id) = (%(host)s, chunk.document_id)
        LEFT JOIN defined ON defined.collection_id = named.collection_id
        WHERE NOT EXISTS (SELECT FROM knowledge_index_t AS indexed
            WHERE (indexed.host_id, indexed.document_id) = (%(host)s, document.document_id))
        UNION ALL
        SELECT resolved.whole, resolved.role, shelf.name, document.path, document.live,
            resolved.start_line, document.sha256, resolved.line_byte, resolved.line_end,
            resolved.start_byte - resolved.line_byte, document.document_id, CASE
                WHEN strpos(%(symbol)s, '.') > 0 THEN 1
                ELSE 1.0 / greatest(defined.number, 1) END
        FROM shelf JOIN knowledge_resolved_t AS resolved
            ON (resolved.host_id, resolved.collection_id, resolved.name)
                = (%(host)s, shelf.collection_id, %(name)s) AND resolved.role <> 'define'
            AND right('.' || resolved.whole, length(%(symbol)s) + 1) = '.' || %(symbol)s
        JOIN knowledge_document_t AS document
            ON (document.host_id, document.document_id) = (%(host)s, resolved.document_id)
        LEFT JOIN defined ON defined.collection_id = resolved.collection_id
        ORDER BY confidence DESC, shelf, path, start_line, at, role
        LIMIT %(limit)s
    )
    SELECT name, role, shelf, path, live, start_line,
        knowledge_text(content, start_byte, end_byte), at, (
            SELECT symbol FROM knowledge_symbol_t AS symbol
            WHERE (symbol.host_id, symbol.document_id) = (%(host)s, placed.document_id)
                AND symbol.start_byte <= placed.start_byte + at
                AND symbol.end_byte > placed.start_byte + at
            ORDER BY symbol.start_byte DESC, symbol.end_byte LIMIT 1
        ), confidence
    FROM placed JOIN knowledge_blob_t AS blob
        ON (blob.host_id, blob.sha256) = (%(host)s, placed.sha256)
    ORDER BY confidence DESC, shelf, path, placed.start_byte + at, role
""",
    shelves=_SHELVES,
    names_of_code=_NAMES_OF_CODE,
    references=sql.Literal(REFERENCES),
)
# Rows are looked up one by one (OFFSET 0): without statistics, as after a large source, the planner
# would read all chunks of the collection and all documents of the tenant.
_RELATED_FILES = sql.SQL("""
    WITH {shelves}, asked AS MATERIALIZED (
        SELECT chunk.chunk_id, chunk.document_id, collection_id, shelf.name AS shelf,
            knowledge_last(chunk.symbol) AS name
        FROM unnest(%(chunks)s::uuid[]) AS given (chunk_id) CROSS JOIN LATERAL (
            SELECT * FROM knowledge_chunk_t AS chunk
            WHERE (chunk.host_id, chunk.chunk_id) = (%(host)s, given.chunk_id) OFFSET 0
        ) AS chunk JOIN shelf USING (collection_id)
    ), named AS MATERIALIZED (
        SELECT DISTINCT asked.*, knowledge_last(mention.name) AS other
        FROM asked JOIN knowledge_mention_v AS mention
            ON (mention.host_id, mention.chunk_id) = (%(host)s, asked.chunk_id)
        WHERE {names_of_code}
        UNION
        SELECT NULL, NULL, collection_id, name, NULL, unnest(%(identifiers)s::text[]) FROM shelf
    ), defining AS (
        SELECT named.chunk_id, named.shelf, target.document_id, target.files,
            chunk.chunk_id AS passage
        FROM named CROSS JOIN LATERAL (
            SELECT document_id, count(*) OVER () AS files, sum(count(*)) OVER () AS number,
                min(start_byte) AS start_byte
            FROM (
                SELECT symbol.document_id, symbol.start_byte FROM knowledge_definition_v AS symbol
                WHERE (symbol.host_id, symbol.collection_id, symbol.name)
                    = (%(host)s, named.collection_id, named.other) LIMIT {occurrences}
            ) AS definition GROUP BY document_id
        ) AS target CROSS JOIN LATERAL (
            SELECT chunk_id FROM knowledge_chunk_t AS chunk
            WHERE (chunk.host_id, chunk.document_id) = (%(host)s, target.document_id)
                AND chunk.start_byte <= target.start_byte ORDER BY chunk.ordinal DESC LIMIT 1
        ) AS chunk
        WHERE target.number < {occurrences} AND target.files <= {files}
            AND target.document_id IS DISTINCT FROM named.document_id
    ), naming AS (
        SELECT asked.chunk_id, asked.shelf, target.document_id, target.files, target.passage
        FROM asked CROSS JOIN LATERAL (
            SELECT chunk.document_id, count(*) OVER () AS files,
                sum(count(*)) OVER () AS number,
                (array_agg(chunk.chunk_id ORDER BY chunk.ordinal))[1] AS passage
            FROM (
                SELECT naming.chunk_id
                FROM knowledge_naming(%(host)s, asked.collection_id, asked.name, 4) AS naming
                LIMIT {occurrences}
            ) AS naming JOIN knowledge_chunk_t AS chunk
                ON (chunk.host_id, chunk.chunk_id) = (%(host)s, naming.chunk_id)
            WHERE chunk.document_id <> asked.document_id GROUP BY chunk.document_id
        ) AS target
        WHERE asked.name <> '' AND target.number < {occurrences} AND target.files <= {files}
    )
    SELECT DISTINCT ON (1, 2, 3) coalesce(related.chunk_id::text, ''), related.shelf,
        document.path, related.passage::text, (1.0 / related.files)::float8
    FROM (SELECT * FROM defining UNION ALL SELECT * FROM naming) AS related
    CROSS JOIN LATERAL (
        SELECT path FROM knowledge_document_t AS document
        WHERE (document.host_id, document.document_id) = (%(host)s, related.document_id) {path}
        OFFSET 0
    ) AS document ORDER BY 1, 2, 3, 5 DESC, 4
""")
# Names that few definitions share, and who names them.
_LINKED_FILES = sql.SQL("""
    WITH {shelves}, defined AS MATERIALIZED (
        SELECT symbol.collection_id, symbol.name, symbol.symbol, symbol.kind, symbol.start_line,
            symbol.end_line, symbol.signature, document.path,
            count(*) OVER (PARTITION BY symbol.collection_id, symbol.name) AS number
        {served} JOIN knowledge_definition_v AS symbol
            ON (symbol.host_id, symbol.document_id) = (%(host)s, document.document_id)
        WHERE true {path}
    ), source AS MATERIALIZED (
        SELECT document.document_id, document.path, shelf.name AS shelf {served}
        WHERE true {path}
    ), naming AS MATERIALIZED (
        SELECT mention.collection_id, source.path, source.shelf,
            knowledge_last(mention.name) AS name, NULL AS whole, count(*) AS places
        FROM source JOIN knowledge_chunk_t AS chunk
            ON (chunk.host_id, chunk.document_id) = (%(host)s, source.document_id)
        JOIN knowledge_mention_v AS mention
            ON (mention.host_id, mention.chunk_id) = (%(host)s, chunk.chunk_id)
        WHERE {names_of_code} AND NOT EXISTS (SELECT FROM knowledge_index_t AS indexed
            WHERE (indexed.host_id, indexed.document_id) = (%(host)s, source.document_id))
        GROUP BY mention.collection_id, source.path, source.shelf, knowledge_last(mention.name)
        UNION ALL
        SELECT resolved.collection_id, source.path, source.shelf, resolved.name,
            '.' || resolved.whole, count(*)
        FROM source JOIN knowledge_resolved_t AS resolved
            ON (resolved.host_id, resolved.document_id) = (%(host)s, source.document_id)
        WHERE resolved.role <> 'define'
        GROUP BY resolved.collection_id, source.path, source.shelf, resolved.name, resolved.whole
    )
    SELECT naming.shelf, naming.path, defined.path, defined.symbol, defined.kind,
        ARRAY[defined.start_line, defined.end_line], defined.signature,
        naming.places::float8 / CASE WHEN whole IS NULL THEN defined.number ELSE 1 END
    FROM defined JOIN naming USING (collection_id, name)
    WHERE defined.number <= {ambiguous} AND (whole IS NULL
        OR right(whole, length(defined.symbol) + 1) = '.' || defined.symbol)
    ORDER BY 8 DESC, naming.shelf, naming.path, defined.path, defined.symbol,
        defined.start_line LIMIT {links}
""")


def _compose(template: sql.SQL, **parts: sql.Composable) -> bytes:
    """The statement of a template with these parts, and those that all have."""
    return template.format(
        shelves=_SHELVES,
        served=_SERVED_DOCUMENTS,
        content=_CONTENT,
        purpose=sql.Literal(KIND.purpose),
        kind=sql.Literal(KIND.name),
        names_of_code=_NAMES_OF_CODE,
        ambiguous=sql.Literal(AMBIGUOUS),
        links=sql.Literal(LINKS),
        occurrences=sql.Literal(OCCURRENCES),
        files=sql.Literal(RELATED_FILES),
        **parts,
    ).as_bytes()
