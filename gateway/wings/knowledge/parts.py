"""The parts of the knowledge, wired."""

from collections.abc import Callable, Sequence

from config.knowledge import KnowledgeSettings
from gateway.operations.operation import Operation
from gateway.wings.knowledge.chunking.chunks import Chunk, Chunking
from gateway.wings.knowledge.chunking.cut import cut
from gateway.wings.knowledge.collections import CollectionStore
from gateway.wings.knowledge.credentials import PlaceCredentials
from gateway.wings.knowledge.documents import DocumentStore
from gateway.wings.knowledge.entities import Entities
from gateway.wings.knowledge.ingestion import Ingestion, reading_limits
from gateway.wings.knowledge.operations import KnowledgeOperations
from gateway.wings.knowledge.reading.workers import ReadingWorkers
from gateway.wings.knowledge.search import Searcher
from registry.access.secrets import Keys
from registry.database.postgres import Pool
from registry.embedding.abc import Embedder
from registry.search.encoding import Encoding

SENTENCES = 8  # of a query


class KnowledgeParts:
    def __init__(
        self,
        pool: Pool,
        embedder: Callable[[str], Embedder | None],
        settings: KnowledgeSettings,
        keys: Keys,
    ) -> None:
        encoding = Encoding(embedder, timeout_s=settings.encode_s, sentences_limit=SENTENCES)
        self._chunking = Chunking(settings.chunking.size, settings.chunking.overlap)
        self.collections = CollectionStore(pool, settings.collections)
        self.documents = DocumentStore(pool, self.collections, self.cut, settings.document_bytes)
        self.searcher = Searcher(pool, encoding, settings)
        self.workers = ReadingWorkers(settings.readers, reading_limits(settings))
        self.ingestion = Ingestion(
            self.documents, self.workers, PlaceCredentials(pool, keys), settings
        )
        self._operations = KnowledgeOperations(
            self.collections,
            self.documents,
            self.searcher,
            settings,
            entities=Entities(pool),
            ingestion=self.ingestion,
        )

    @property
    def operations(self) -> tuple[Operation, ...]:
        return self._operations.operations

    def cut(self, text: str, media_type: str, path: str) -> Sequence[Chunk]:
        return cut(text, media_type=media_type, path=path, chunking=self._chunking)
