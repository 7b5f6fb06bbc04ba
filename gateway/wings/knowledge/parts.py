"""The parts of the knowledge, wired."""

import posixpath
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from config.knowledge import KnowledgeSettings
from gateway.operations.operation import Operation, invalid
from gateway.wings.knowledge.chunking.chunks import Chunk, Chunking
from gateway.wings.knowledge.chunking.cut import CHUNKERS, cut
from gateway.wings.knowledge.collections import CollectionStore
from gateway.wings.knowledge.credentials import PlaceCredentials
from gateway.wings.knowledge.documents import DocumentStore
from gateway.wings.knowledge.entities import Entities
from gateway.wings.knowledge.ingestion import INLINE, INLINE_BYTES, Ingestion, reading_limits
from gateway.wings.knowledge.library import CollectionLibrary
from gateway.wings.knowledge.operations import KnowledgeOperations
from gateway.wings.knowledge.reading.limits import ReadingRefused
from gateway.wings.knowledge.reading.workers import ReadingWorkers
from gateway.wings.knowledge.search import Searcher
from gateway.wings.library import Library
from registry.access.secrets import Keys
from registry.database.postgres import Pool
from registry.embedding.abc import Embedder
from registry.search.encoding import Encoding

if TYPE_CHECKING:  # not loaded where no chat model is asked
    from gateway.wings.knowledge.modelled import KnowledgeModel

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
        encoding = Encoding(embedder, timeout_s=settings.encode_s, sentences_limit=SENTENCES)
        self._chunking = Chunking(settings.chunking.size, settings.chunking.overlap)
        self.collections = CollectionStore(pool, settings.collections)
        self.documents = DocumentStore(pool, self.collections, self.cut, settings.document_bytes)
        self.searcher = Searcher(pool, encoding, settings)
        self.workers = ReadingWorkers(settings.readers, reading_limits(settings))
        self.ingestion = Ingestion(
            self.documents, self.workers, PlaceCredentials(pool, keys), settings
        )
        entities = Entities(pool)
        self.library: Library = CollectionLibrary(pool, self.searcher, entities, settings)
        self._operations = KnowledgeOperations(
            self.collections,
            self.documents,
            self.searcher,
            settings,
            entities=entities,
            ingestion=self.ingestion,
            answer=None if model is None else model.query,
        )

    @property
    def operations(self) -> tuple[Operation, ...]:
        more = () if self.model is None else self.model.operations
        return (*self._operations.operations, *more)

    async def cut(self, text: str, media_type: str, path: str) -> Sequence[Chunk]:
        """The chunks of a text, which is cut here if that takes milliseconds. Raises
        ProblemDetails."""
        data = text.encode()
        if media_type in INLINE and len(data) <= INLINE_BYTES:
            return cut(text, media_type=media_type, path=path, chunking=self._chunking)
        try:
            found = await self.workers.read(_named(path, media_type), data, self._chunking)
        except ReadingRefused as error:
            raise invalid(f"text: {error}.") from error
        if not text.startswith(found.text):
            raise invalid(f"text: expected one that can be read as {media_type}.")
        return found.chunks


def _named(path: str, media_type: str) -> str:
    """A path that says what kind of text it is, of a document that was perhaps none."""
    if media_type in CHUNKERS and media_type not in INLINE:
        return path
    return posixpath.splitext(path)[0] + EXTENSIONS.get(media_type, ".txt")
