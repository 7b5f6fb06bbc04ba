"""The parts of the knowledge, wired."""

import posixpath
from collections.abc import Callable
from typing import TYPE_CHECKING

from config.knowledge import KnowledgeSettings
from gateway.operations.operation import Operation
from gateway.operations.problems import invalid
from gateway.wings.document_library import Library
from gateway.wings.documents.chunking.chunks import ChunkingOptions
from gateway.wings.documents.chunking.chunks_by_kind import CHUNKERS, cut
from gateway.wings.documents.reading.process_pool import ReadingWorkers, Turn
from gateway.wings.documents.reading.reading_limits import ReadingRefused
from gateway.wings.knowledge.chunk_search import Searcher
from gateway.wings.knowledge.collections import CollectionStore
from gateway.wings.knowledge.communities import Communities
from gateway.wings.knowledge.document_library import CollectionLibrary
from gateway.wings.knowledge.documents import CutText, DocumentStore, TextToCut
from gateway.wings.knowledge.entities import Entities
from gateway.wings.knowledge.ingestion import INLINE, INLINE_BYTES, Ingestion, reading_limits
from gateway.wings.knowledge.metrics import KnowledgeMetrics
from gateway.wings.knowledge.operations import KnowledgeOperations
from gateway.wings.knowledge.quotas import DocumentQuotas
from gateway.wings.knowledge.scip_store import ResolvedCode
from gateway.wings.knowledge.source_credentials import PlaceCredentials
from gateway.wings.knowledge.wasm_chunker_operations import ChunkerOperations, wasm_limits
from gateway.wings.knowledge.wasm_chunker_store import ChunkerStore
from registry.access.secrets import Keys
from registry.database.postgres import Pool
from registry.embedding.embedder import Embedder
from registry.search.query_encoding import QueryEncoder

if TYPE_CHECKING:  # not loaded where no chat model is asked
    from gateway.wings.knowledge.chat_model_uses import KnowledgeModel

SENTENCES = 8  # of a query
EXTENSIONS = {"text/markdown": ".md", "text/x-rst": ".rst"}


class KnowledgeParts:
    def __init__(
        self,
        pool: Pool,
        embedder: Callable[[str], Embedder | None],
        settings: KnowledgeSettings,
        keys: Keys,
        *,
        model: "KnowledgeModel | None" = None,
    ) -> None:
        self.model = model
        self.metrics = KnowledgeMetrics()
        encoding = QueryEncoder(
            embedder, timeout_s=settings.encode_timeout_s, sentences_limit=SENTENCES
        )
        self._chunking = ChunkingOptions(settings.chunking.size, settings.chunking.overlap)
        self.collections = CollectionStore(pool, settings.collections)
        self.chunkers = ChunkerStore(pool, self.collections, settings.chunkers.count)
        self.quotas = DocumentQuotas(settings)
        self.documents = DocumentStore(
            pool, self.collections, self.cut, settings.document_bytes, quotas=self.quotas
        )
        self.searcher = Searcher(pool, encoding, settings)
        self.workers = ReadingWorkers(
            settings.reader_processes, reading_limits(settings), wasm_limits(settings)
        )
        self.ingestion = Ingestion(
            self.documents,
            self.workers,
            PlaceCredentials(pool, keys),
            settings,
            metrics=self.metrics,
        )
        entities = Entities(pool)
        self.library: Library = CollectionLibrary(
            pool,
            self.searcher,
            entities,
            settings,
            ingestion=self.ingestion,
            resolved=ResolvedCode(pool, self.collections),
        )
        self._operations = KnowledgeOperations(
            self.collections,
            self.documents,
            self.searcher,
            settings,
            entities=entities,
            communities=Communities(pool),
            ingestion=self.ingestion,
            metrics=self.metrics,
            answer=None if model is None else model.query,
            chunkers=ChunkerOperations(self.chunkers, self.workers, settings),
        )

    @property
    def operations(self) -> tuple[Operation, ...]:
        more = () if self.model is None else self.model.operations
        return (*self._operations.operations, *more)

    async def cut(self, task: TextToCut) -> CutText:
        """The chunks of a text, which is cut here if that takes milliseconds. Raises
        ProblemDetails."""
        text, media_type, path = task.content.decode(), task.media_type, task.path
        module = None
        if task.chunker:
            module = await self.chunkers.module(task.tenant, task.chunker)
        elif media_type in INLINE and len(task.content) <= INLINE_BYTES:
            return CutText(cut(text, media_type=media_type, path=path, chunking=self._chunking))
        name = path if module else _readable_path(path, media_type)
        try:
            parsed = await self.workers.read(
                name,
                task.content,
                self._chunking,
                turn=Turn(task.tenant, task.owner),
                chunker=module or b"",
            )
        except ReadingRefused as error:
            raise invalid(f"text: {error}.") from error
        if not text.startswith(parsed.text):
            raise invalid(f"text: expected one that can be read as {media_type}.")
        return CutText(parsed.chunks, parsed.note, parsed.degraded)


def _readable_path(path: str, media_type: str) -> str:
    """A path that says what kind of text it is, of a document that was perhaps none."""
    if media_type in CHUNKERS and media_type not in INLINE:
        return path
    return posixpath.splitext(path)[0] + EXTENSIONS.get(media_type, ".txt")
