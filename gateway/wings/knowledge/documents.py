"""Documents in the database: their versions, texts and chunks, and how they are deleted.

A version becomes visible in one transaction: chunks that it shares with the version before keep
their ids, words and vectors; others are written, or deleted. Writers of a document lock its row.
"""

import codecs
import hashlib
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from datetime import datetime
from typing import Any

from psycopg import AsyncConnection, sql
from psycopg.types.json import Jsonb

from gateway.operations.problems import ProblemDetails, conflict
from gateway.state.quotas import Usage
from gateway.wings.documents.chunking.chunks import Chunk
from gateway.wings.documents.chunking.chunks_by_kind import CODE
from gateway.wings.knowledge.caller_access import READABLE, KnowledgeReader
from gateway.wings.knowledge.chunk_rows import mentions_of, rows, symbols_of
from gateway.wings.knowledge.collections import CollectionStore, NewCollection
from gateway.wings.knowledge.quotas import DocumentQuotas
from gateway.wings.knowledge.wasm_chunker_store import chosen_chunker
from registry.database.postgres import Pool, borrow
from registry.database.sql_fragments import compose

SEPARATOR = "\n\n"  # between the texts of one document
TRIES = 100  # of an addition to a document to which others are adding


@dataclass(frozen=True, slots=True)
class TextToCut:
    """The whole text of a version. `chunker`: hash of the module that cuts it; empty: none."""

    tenant: str
    content: bytes
    media_type: str
    path: str
    chunker: str = ""
    owner: str = ""  # of the collection


@dataclass(frozen=True, slots=True)
class CutText:
    """The chunks of a text. `note`: why its own chunker did not cut it; `degraded`: another time it
    may."""

    chunks: Sequence[Chunk]
    note: str = ""
    degraded: bool = False


Cut = Callable[[TextToCut], Awaitable[CutText]]
# A version that has been read for so long is not any more: its process ended.
_CUT_OFF = sql.SQL("version.status = 'parsing' AND version.created_ts < now() - interval '1 hour'")
STATUS = sql.SQL("CASE WHEN {cut_off} THEN 'failed' ELSE version.status END").format(
    cut_off=_CUT_OFF
)


@dataclass(frozen=True, slots=True)
class NewDocument:
    """A text to be stored."""

    path: str
    text: str
    media_type: str = "text/plain"
    language: str = ""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    dated: datetime | None = None
    origin: Mapping[str, Any] = field(default_factory=dict)
    trivial: bool = False  # left out, where the collection wants that
    chunks: Sequence[Chunk] | None = None  # None: it is cut as text
    is_file: bool = False  # its text is replaced as a whole, whatever the collection does
    track_id: str = ""  # "": a new one


@dataclass(frozen=True, slots=True)
class KeptDocument:
    id: str  # "": it was left out
    track_id: str
    changed: bool  # False: the same text was there already
    version: int
    chunks: int


@dataclass(frozen=True, slots=True)
class DocumentState:
    """A document, or one of its versions, as lists show it."""

    id: str
    collection: str
    path: str
    status: str
    version: int
    live: int
    bytes: int
    chunks: int
    media_type: str
    metadata: Mapping[str, Any]
    track_id: str
    error: str | None
    created: datetime
    changed: datetime
    extraction: str  # by a chat model, of the live version
    attempt: int
    failure: str | None
    next: datetime | None
    note: str | None  # why it was not read as its type is
    begin: str | None  # of its text, where that was asked for


@dataclass(eq=False)
class DocumentStore:
    pool: Pool
    collections: CollectionStore
    cut: Cut
    limit_bytes: int
    _: KW_ONLY
    quotas: DocumentQuotas

    async def add(
        self, reader: KnowledgeReader, collection: NewCollection, new: NewDocument
    ) -> KeptDocument:
        """Store a text as a version of the document of its path. The collection is created if there
        is none of its name. Texts that are appended, or cut by a module, are cut while the
        document is not locked. Raises ProblemDetails."""
        cut: tuple[TextToCut, CutText] | None = None
        for _ in range(TRIES):
            async with borrow(self.pool) as connection:
                values = await self.collections.ensure_in(connection, reader, collection, "write")
                if new.trivial and values["skip_trivial"]:
                    return KeptDocument("", "", changed=False, version=0, chunks=0)
                stored = await self._add(connection, values, new, cut)
            if isinstance(stored, KeptDocument):
                return stored
            cut = stored, await self.cut(stored)
        raise conflict(f"Others are adding to the document {new.path[:255]!r}; try again.")

    async def _add(
        self,
        connection: AsyncConnection,
        values: dict[str, Any],
        new: NewDocument,
        cut: tuple[TextToCut, CutText] | None,
    ) -> KeptDocument | TextToCut:
        """The document, or its text if that is another one than was cut. Raises
        ProblemDetails."""
        values |= {**_document_values(new), "document": str(uuid.uuid4())}
        values["chunker"] = chunker = chosen_chunker(values.pop("chunkers"), new.path)
        if new.is_file:
            values["on_same_source"] = "version"
        values |= await self._lock(connection, values)
        values["track"] = new.track_id or new_track_id()
        values["degraded"] = "degraded" in new.origin or (cut is not None and cut[1].degraded)
        stored_rows = await (await connection.execute(_SAME_VERSION, values)).fetchall()
        if stored_rows:
            await connection.execute(_SAME, values)
            return KeptDocument(
                values["document"], stored_rows[0][0], False, values["live"], values["old_chunks"]
            )
        content, appended = await self._content(connection, values, new)
        task = TextToCut(
            str(values["host"]),
            content,
            new.media_type,
            new.path,
            chunker,
            owner=values["collection_owner"],
        )
        if cut is not None and cut[0] == task:
            return await self._write(
                connection, _with_notes(values, new, cut[1]), content, cut[1].chunks
            )
        if appended or chunker:
            return task
        chunks = new.chunks
        if chunks is None:
            chunks = (await self.cut(task)).chunks
        return await self._write(connection, values, content, chunks)

    async def _lock(self, connection: AsyncConnection, values: Mapping[str, Any]) -> dict[str, Any]:
        """Parameters for the document of a path, which is locked, as it was. Raises
        ProblemDetails where it is new and passes a quota."""
        rows_ = await (await connection.execute(_LOCK, values)).fetchall()
        ((id_, live, old, chunks, bytes_, is_new),) = rows_
        if is_new:
            await self.quotas.take(connection, {**values, "new": id_}, Usage(number=1))
        return {
            "document": id_,
            "live": live,
            "old": old,
            "old_chunks": chunks,
            "old_bytes": bytes_,
        }

    async def _content(
        self, connection: AsyncConnection, values: dict[str, Any], new: NewDocument
    ) -> tuple[bytes, bool]:
        """The whole text of the version, and whether it was appended. Raises ProblemDetails."""
        content = new.text.encode()
        if values["live"] and values["on_same_source"] == "reject":
            raise conflict(f"There is another text of the name {new.path[:255]!r}.")
        appended = bool(values["live"]) and values["on_same_source"] == "append"
        if appended:
            rows = await connection.execute(_CONTENT, values)
            ((before,),) = await rows.fetchall()
            content = bytes(before).removeprefix(codecs.BOM_UTF8) + SEPARATOR.encode() + content
        if len(content) > self.limit_bytes:
            raise ProblemDetails(
                413,
                "too-large",
                f"The document has {len(content)} bytes, expected at most {self.limit_bytes}"
                " (knowledge.document_bytes).",
            )
        return content, appended

    async def _write(
        self,
        connection: AsyncConnection,
        values: dict[str, Any],
        content: bytes,
        chunks: Sequence[Chunk],
    ) -> KeptDocument:
        added = Usage(bytes=len(content) - values["old_bytes"])
        await self.quotas.take(connection, values, added)
        sha256 = hashlib.sha256(content).digest()
        chunk_rows = rows(values["document"], content, chunks)
        values |= {
            "sha256": sha256,
            "content": content,
            "bytes": len(content),
            "chunks": Jsonb(chunk_rows),
            "documents": [values["document"]],
            "mentions": Jsonb(mentions_of(chunk_rows, chunks)),
            "symbols": Jsonb(symbols_of(chunks)),
            "count": len(chunk_rows),
            "version": values["live"] + 1,
        }
        async with connection.pipeline():  # one round trip
            await connection.execute(_BLOB_LOCK, {**values, "blobs": _blobs(sha256, values["old"])})
            former = (*_LOCK_NAMES, _TRIM, _MOVE, _CLEAR) if values["live"] else ()
            for statement in (_BLOB, *former, _NEW, _NAME, _DEFINE, _LIVE, _VERSION):
                await connection.execute(statement, values)
            if values["old"] not in (None, sha256):
                await connection.execute(_DELETE_BLOBS, {**values, "blobs": [values["old"]]})
        return KeptDocument(
            values["document"], values["track"], True, values["version"], len(chunk_rows)
        )

    async def ensure(self, reader: KnowledgeReader, collection: NewCollection) -> NewCollection:
        """The collection, which is there and which the caller may write to: by its id, so that it
        is not created again where it is deleted later. Raises ProblemDetails."""
        async with borrow(self.pool) as connection:
            values = await self.collections.ensure_in(connection, reader, collection, "write")
            return replace(collection, id=values["collection"])

    async def begin(
        self, reader: KnowledgeReader, collection: NewCollection, new: NewDocument
    ) -> "BegunVersion":
        """Show that a file is being read. Raises ProblemDetails."""
        async with borrow(self.pool) as connection:
            values = await self.collections.ensure_in(connection, reader, collection, "write")
            values |= {**_document_values(new), "document": str(uuid.uuid4())}
            values |= {**await self._lock(connection, values), "track": new_track_id()}
            await connection.execute(_UNDONE, values)
            ((version,),) = await (await connection.execute(_BEGIN, values)).fetchall()
            return BegunVersion(reader.tenant, values["collection"], values["document"], version)

    async def fail(self, version: "BegunVersion", reason: str) -> None:
        """The version that was begun failed; the one before goes on."""
        values = {"host": version.tenant, "document": version.document, "version": version.version}
        async with borrow(self.pool) as connection:
            await connection.execute(_FAIL, {**values, "error": reason[:500]})

    async def contents(
        self, reader: KnowledgeReader, collection: str, source: str
    ) -> list[tuple[str, str]]:
        """Paths and ids of the contents of a source that are served; the id of one that is to be
        cut otherwise now is empty."""
        values = {**reader.values(), "name": collection, "source": source}
        async with borrow(self.pool) as connection:
            result = await connection.execute(_OF_SOURCE, values)
            rows_ = await result.fetchall()
        return [
            (path, id_ if cut == chosen_chunker(rules, path) and not degraded else "")
            for _, path, id_, cut, rules, degraded in rows_
        ]

    async def of_source(
        self, reader: KnowledgeReader, collection: str, source: str
    ) -> list[tuple[str, str]]:
        """Ids and paths of the documents of a source."""
        values = {**reader.values("write"), "name": collection, "source": source}
        async with borrow(self.pool) as connection:
            rows = await connection.execute(_OF_SOURCE, values)
            return [(row[0], row[1]) for row in await rows.fetchall()]

    async def delete(self, reader: KnowledgeReader, collection: str, ids: Sequence[str]) -> int:
        """Delete documents with all that is known from them; returns how many there were."""
        values = {**reader.values("write"), "name": collection, "ids": list(ids)}
        async with borrow(self.pool) as connection:
            rows = await (await connection.execute(_TO_DELETE, values)).fetchall()
            if not rows:
                return 0
            values |= {"documents": [row[0] for row in rows]}
            values |= {"blobs": sorted({bytes(row[1]) for row in rows if row[1] is not None})}
            async with connection.pipeline():
                for statement in (
                    _BLOB_LOCK,
                    *_LOCK_NAMES,
                    _DELETE_CHUNKS,
                    _DELETE_DOCUMENTS,
                    _DELETE_BLOBS,
                ):
                    await connection.execute(statement, values)
        return len(rows)

    async def states(
        self,
        reader: KnowledgeReader,
        *,
        collections: Sequence[str] | None = None,
        ids: Sequence[str] | None = None,
        track_id: str | None = None,
        after: str = "",
        limit: int,
        begin: int = 0,
    ) -> list[DocumentState]:
        """Documents that the caller may read, in the order of their ids. `track_id`: of one of
        their versions. `begin`: characters of each text that are read, of its first chunk."""
        values = {
            **reader.values(),
            "names": None if collections is None else list(collections),
            "ids": None if ids is None else list(ids),
            "track": track_id,
            "after": after or "00000000-0000-0000-0000-000000000000",
            "limit": limit,
            "begin": begin,
        }
        async with borrow(self.pool) as connection:
            rows = await connection.execute(_STATES, values)
            return [DocumentState(*row) for row in await rows.fetchall()]

    async def text(self, reader: KnowledgeReader, document: str) -> tuple[str, int, str] | None:
        """Path, version and text of a document; None: there is none that the caller may read."""
        values = {**reader.values(), "document": document}
        async with borrow(self.pool) as connection:
            rows = await (await connection.execute(_TEXT, values)).fetchall()
        return (rows[0][0], rows[0][1], bytes(rows[0][2]).decode()) if rows else None

    async def counts(self, reader: KnowledgeReader, collection: str) -> dict[str, int]:
        """Documents by the status of their last version."""
        values = {**reader.values(), "name": collection}
        async with borrow(self.pool) as connection:
            rows = await connection.execute(_COUNTS, values)
            return dict(await rows.fetchall())

    async def extractions(self, reader: KnowledgeReader, collection: str) -> dict[str, int]:
        """Documents by how far a chat model has read them."""
        values = {**reader.values(), "name": collection}
        async with borrow(self.pool) as connection:
            rows = await connection.execute(_EXTRACTIONS, values)
            return dict(await rows.fetchall())


@dataclass(frozen=True, slots=True)
class BegunVersion:
    """A version that is being read."""

    tenant: str
    collection: str  # id
    document: str
    version: int


def new_track_id() -> str:
    """The id by which the versions of one request are found."""
    return f"insert_{uuid.uuid4().hex}"


def _document_values(new: NewDocument) -> dict[str, Any]:
    return {
        "path": new.path,
        "media_type": new.media_type,
        "language": new.language or CODE.get(new.media_type, ""),
        "metadata": Jsonb(dict(new.metadata)),
        "dated": new.dated,
        "origin": Jsonb(dict(new.origin)),
        "given": hashlib.sha256(new.text.encode()).digest(),
        "given_bytes": len(new.text.encode()),
    }


def _with_notes(values: dict[str, Any], new: NewDocument, cut: CutText) -> dict[str, Any]:
    """With the chunker that has cut the version, or why it did not."""
    chunker = {"chunker": values["chunker"]} if values["chunker"] else {}
    note = {"note": cut.note} if cut.note else {}
    degraded = {"degraded": True} if cut.degraded else {}
    return {**values, "origin": Jsonb({**new.origin, **chunker, **note, **degraded})}


def _blobs(*hashes: bytes | None) -> list[bytes]:
    return sorted({bytes(digest) for digest in hashes if digest is not None})


_LOCK = b"""
    INSERT INTO knowledge_document_t AS had (host_id, document_id, collection_id, path)
    VALUES (%(host)s, %(document)s, %(collection)s, %(path)s)
    ON CONFLICT (host_id, collection_id, path) DO UPDATE SET path = had.path
    RETURNING document_id::text, live, sha256, chunks, bytes, xmax = 0
"""
# The same text again; of documents that are replaced as a whole, as the present one, which the same
# chunker has cut, and not worse than it is cut now.
_SAME_VERSION = b"""
    SELECT track_id FROM knowledge_version_t
    WHERE (host_id, document_id) = (%(host)s, %(document)s) AND given_hash = %(given)s
        AND status = 'processed' AND CASE %(on_same_source)s WHEN 'append' THEN true
            WHEN 'reject' THEN version = %(live)s
            ELSE version = %(live)s AND coalesce(origin ->> 'chunker', '') = %(chunker)s
                AND (%(degraded)s OR NOT origin ? 'degraded') END
    ORDER BY version DESC LIMIT 1
"""
# What was being read of it is no version of its own.
_SAME = b"""
    WITH same AS (
        UPDATE knowledge_document_t SET version = live
        WHERE (host_id, document_id) = (%(host)s, %(document)s) AND version > live
    )
    DELETE FROM knowledge_version_t
    WHERE (host_id, document_id) = (%(host)s, %(document)s) AND version > %(live)s
"""
_UNDONE = b"""
    DELETE FROM knowledge_version_t AS undone
    WHERE (host_id, document_id) = (%(host)s, %(document)s) AND status IN ('parsing', 'failed')
"""
_BEGIN = b"""
    WITH begun AS (
        UPDATE knowledge_document_t SET version = live + 1
        WHERE (host_id, document_id) = (%(host)s, %(document)s) RETURNING version
    )
    INSERT INTO knowledge_version_t (host_id, document_id, version, track_id, given_hash, bytes,
        origin, status, attempt)
    SELECT %(host)s, %(document)s, version, %(track)s, '', 0, %(origin)s, 'parsing', 1 FROM begun
    ON CONFLICT (host_id, document_id, version) DO UPDATE SET status = 'parsing'
    RETURNING version
"""
_FAIL = b"""
    UPDATE knowledge_version_t SET status = 'failed', error = %(error)s, done_ts = now()
    WHERE (host_id, document_id, version) = (%(host)s, %(document)s, %(version)s)
        AND status = 'parsing'
"""
_OF_SOURCE = compose(
    """
    SELECT document.document_id::text, document.path, version.origin ->> 'id',
        coalesce(version.origin ->> 'chunker', ''), collection.chunkers,
        version.origin ? 'degraded'
    FROM knowledge_collection_t AS collection
    JOIN knowledge_document_t AS document
        ON (document.host_id, document.collection_id) = (%(host)s, collection.collection_id)
    JOIN knowledge_version_t AS version ON (version.host_id, version.document_id, version.version)
        = (%(host)s, document.document_id, document.live)
    WHERE {allowed} AND collection.name = %(name)s AND version.origin ->> 'source' = %(source)s
""",
    allowed=READABLE,
)
_CONTENT = b"""
    SELECT content FROM knowledge_blob_t WHERE (host_id, sha256) = (%(host)s, %(old)s)
"""
# Who adds a text that another document loses waits for that, or is waited for.
_BLOB_LOCK = b"""
    SELECT pg_advisory_xact_lock(hashtextextended(%(host)s || encode(one, 'hex'), 20))
    FROM unnest(%(blobs)s::bytea[]) AS one
"""
_BLOB = b"""
    INSERT INTO knowledge_blob_t (host_id, sha256, content)
    VALUES (%(host)s, %(sha256)s, %(content)s) ON CONFLICT DO NOTHING
"""
_DELETE_BLOBS = b"""
    DELETE FROM knowledge_blob_t AS blob
    WHERE host_id = %(host)s AND sha256 = ANY (%(blobs)s::bytea[]) AND NOT EXISTS (
        SELECT FROM knowledge_document_t AS document
        WHERE (document.host_id, document.sha256) = (blob.host_id, blob.sha256))
"""
_CHUNKS = sql.SQL("""jsonb_to_recordset(%(chunks)s) AS given (id uuid, ordinal integer, kind text,
    start_byte integer, end_byte integer, start_line integer, end_line integer, page integer,
    header text, symbol text, weight real)""")
# What is known from chunks goes with them in any order; whoever deletes names takes them in the
# order of their keys (see `Entities.delete`), and whoever adds names to a chunk takes that first.
# So all are taken in this order before, each kind by a statement of its own, which sees what was
# added while the one before waited.
_LOCK_NAMES = (
    b"""
    SELECT FROM knowledge_chunk_t
    WHERE host_id = %(host)s AND document_id = ANY (%(documents)s::uuid[])
    ORDER BY chunk_id FOR UPDATE
""",
    *(
        compose(
            """
    SELECT FROM {table} WHERE host_id = %(host)s AND chunk_id = ANY (ARRAY(
        SELECT chunk_id FROM knowledge_chunk_t
        WHERE host_id = %(host)s AND document_id = ANY (%(documents)s::uuid[])))
    ORDER BY {key} FOR UPDATE
""",
            table=sql.Identifier(table),
            key=sql.SQL(key),
        )
        for table, key in (
            ("knowledge_named_t", "chunk_id"),
            ("knowledge_relation_t", "chunk_id, source, target, type"),
        )
    ),
)
_TRIM = compose(
    """
    DELETE FROM knowledge_chunk_t AS had
    WHERE (host_id, document_id) = (%(host)s, %(document)s)
        AND chunk_id NOT IN (SELECT id FROM {given})
""",
    given=_CHUNKS,
)
_MOVE = compose(
    """
    UPDATE knowledge_chunk_t AS had SET ordinal = given.ordinal, start_byte = given.start_byte,
        end_byte = given.end_byte, start_line = given.start_line, end_line = given.end_line,
        page = given.page, sha256 = %(sha256)s
    FROM {given} WHERE (had.host_id, had.document_id, had.chunk_id)
        = (%(host)s, %(document)s, given.id)
""",
    given=_CHUNKS,
)
_NEW = compose(
    """
    INSERT INTO knowledge_chunk_t (host_id, chunk_id, collection_id, document_id, ordinal, kind,
        start_byte, end_byte, start_line, end_line, page, header, symbol, weight, sha256)
    SELECT %(host)s, id, %(collection)s, %(document)s, ordinal, kind, start_byte, end_byte,
        start_line, end_line, page, header, symbol, weight, %(sha256)s
    FROM {given} WHERE (SELECT true FROM knowledge_chunk_t AS had
        WHERE (had.host_id, had.chunk_id) = (%(host)s, given.id)) IS NULL
""",
    given=_CHUNKS,
)
# Chunks that were there have their mentions.
_NAME = b"""
    SELECT knowledge_name(%(host)s, %(collection)s, %(mentions)s, false)
"""
_CLEAR = b"""
    DELETE FROM knowledge_symbol_t WHERE (host_id, document_id) = (%(host)s, %(document)s)
"""
_DEFINE = b"""
    WITH given AS MATERIALIZED (
        SELECT * FROM jsonb_to_recordset(%(symbols)s) AS given (ordinal integer, symbol text,
            name text, scope text, kind text, visibility text, signature text, start_byte integer,
            end_byte integer, start_line integer, end_line integer, bases text[])
    ), defined AS (
        INSERT INTO knowledge_symbol_t (host_id, document_id, ordinal, collection_id, symbol, name,
            scope, kind, visibility, signature, start_byte, end_byte, start_line, end_line)
        SELECT %(host)s, %(document)s, ordinal, %(collection)s, symbol, name, scope, kind,
            visibility, signature, start_byte, end_byte, start_line, end_line FROM given
    )
    INSERT INTO knowledge_base_t (host_id, document_id, ordinal, base, collection_id)
    SELECT %(host)s, %(document)s, ordinal, unnest(bases), %(collection)s FROM given
"""
_LIVE = b"""
    UPDATE knowledge_document_t AS had SET version = %(version)s, live = %(version)s,
        sha256 = %(sha256)s, bytes = %(bytes)s, chunks = %(count)s, media_type = %(media_type)s,
        language = %(language)s, metadata = %(metadata)s, dated_ts = %(dated)s, changed_ts = now()
    WHERE (host_id, document_id) = (%(host)s, %(document)s)
"""
_VERSION = b"""
    INSERT INTO knowledge_version_t (host_id, document_id, version, track_id, given_hash, bytes,
        origin, status, done_ts)
    VALUES (%(host)s, %(document)s, %(version)s, %(track)s, %(given)s, %(given_bytes)s, %(origin)s,
        'processed', now())
    ON CONFLICT (host_id, document_id, version) DO UPDATE SET status = 'processed', error = NULL,
        track_id = excluded.track_id, given_hash = excluded.given_hash, bytes = excluded.bytes,
        origin = excluded.origin, done_ts = now()
"""
_TO_DELETE = compose(
    """
    SELECT document.document_id, document.sha256
    FROM knowledge_collection_t AS collection JOIN knowledge_document_t AS document
        ON (document.host_id, document.collection_id) = (%(host)s, collection.collection_id)
    WHERE {allowed} AND collection.name = %(name)s
        AND document.document_id = ANY (%(ids)s::uuid[])
    ORDER BY document.document_id FOR UPDATE OF document
""",
    allowed=READABLE,
)
_DELETE_CHUNKS = b"""
    DELETE FROM knowledge_chunk_t WHERE host_id = %(host)s AND document_id = ANY (%(documents)s)
"""
_DELETE_DOCUMENTS = b"""
    DELETE FROM knowledge_document_t WHERE host_id = %(host)s AND document_id = ANY (%(documents)s)
"""
_READ = sql.SQL("""knowledge_extraction_t AS state
    ON (state.host_id, state.document_id, state.version)
        = (%(host)s, document.document_id, document.live)""")
_STATES = compose(
    """
    SELECT document.document_id::text, collection.name, document.path, {status},
        version.version, document.live, document.bytes, document.chunks, document.media_type,
        document.metadata, version.track_id,
        CASE WHEN {cut_off} THEN 'its reading was cut off' ELSE version.error END,
        document.created_ts, document.changed_ts, coalesce(state.status, 'waiting'),
        coalesce(state.attempt, 0), state.error, state.next_ts, version.origin ->> 'note',
        CASE WHEN %(begin)s > 0 THEN (
            SELECT left(knowledge_text(blob.content, 0, chunk.end_byte), %(begin)s)
            FROM knowledge_blob_t AS blob JOIN knowledge_chunk_t AS chunk
                ON (chunk.host_id, chunk.document_id, chunk.ordinal)
                    = (%(host)s, document.document_id, 0)
            WHERE (blob.host_id, blob.sha256) = (%(host)s, document.sha256)) END
    FROM knowledge_collection_t AS collection
    JOIN knowledge_document_t AS document
        ON (document.host_id, document.collection_id) = (%(host)s, collection.collection_id)
    JOIN knowledge_version_t AS version
        ON (version.host_id, version.document_id) = (%(host)s, document.document_id)
    LEFT JOIN {read}
    WHERE {allowed} AND (%(names)s::text[] IS NULL OR collection.name = ANY (%(names)s))
        AND (%(ids)s::uuid[] IS NULL OR document.document_id = ANY (%(ids)s::uuid[]))
        AND CASE WHEN %(track)s::text IS NULL THEN version.version = document.version
            ELSE version.track_id = %(track)s END
        AND document.document_id > %(after)s::uuid
    ORDER BY document.document_id LIMIT %(limit)s
""",
    status=STATUS,
    cut_off=_CUT_OFF,
    read=_READ,
    allowed=READABLE,
)
_TEXT = compose(
    """
    SELECT document.path, document.live, blob.content
    FROM knowledge_collection_t AS collection
    JOIN knowledge_document_t AS document
        ON (document.host_id, document.collection_id) = (%(host)s, collection.collection_id)
    JOIN knowledge_blob_t AS blob ON (blob.host_id, blob.sha256) = (%(host)s, document.sha256)
    WHERE {allowed} AND document.document_id = %(document)s::uuid
""",
    allowed=READABLE,
)
_COUNTS = compose(
    """
    SELECT {status}, count(*)::integer
    FROM knowledge_collection_t AS collection
    JOIN knowledge_document_t AS document
        ON (document.host_id, document.collection_id) = (%(host)s, collection.collection_id)
    JOIN knowledge_version_t AS version ON (version.host_id, version.document_id, version.version)
        = (%(host)s, document.document_id, document.version)
    WHERE {allowed} AND collection.name = %(name)s GROUP BY 1
""",
    status=STATUS,
    allowed=READABLE,
)
_EXTRACTIONS = compose(
    """
    SELECT coalesce(state.status, 'waiting'), count(*)::integer
    FROM knowledge_collection_t AS collection
    JOIN knowledge_document_t AS document
        ON (document.host_id, document.collection_id) = (%(host)s, collection.collection_id)
    LEFT JOIN {read}
    WHERE {allowed} AND collection.name = %(name)s AND document.live > 0 GROUP BY 1
""",
    read=_READ,
    allowed=READABLE,
)
