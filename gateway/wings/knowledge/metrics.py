"""Metrics of the knowledge: documents and chunks that were stored, and sizes of answers."""

from prometheus_client import Counter, Histogram

CHARACTERS = (0, 500, 2000, 8000, 32_000, 128_000)  # bounds of the histogram of answers


class KnowledgeMetrics:
    """Counts of this process."""

    def __init__(self) -> None:
        self.documents = Counter(
            "toolgate_knowledge_documents",
            "Documents that were given: stored, unchanged, skipped or failed.",
            labelnames=("outcome",),
            registry=None,
        )
        self.chunks = Counter(
            "toolgate_knowledge_chunks", "Chunks of documents that were stored.", registry=None
        )
        self.context = Histogram(
            "toolgate_knowledge_context_characters",
            "Characters of passages that queries returned, by mode.",
            labelnames=("mode",),
            buckets=CHARACTERS,
            registry=None,
        )

    @property
    def collectors(self) -> list[Counter | Histogram]:
        return [self.documents, self.chunks, self.context]

    def count_stored(self, chunks: int, *, changed: bool, skipped: bool = False) -> None:
        """Count a document that was not refused."""
        outcome = "skipped" if skipped else "stored" if changed else "unchanged"
        self.documents.labels(outcome).inc()
        self.chunks.inc(chunks if changed else 0)

    def count_failed(self) -> None:
        self.documents.labels("failed").inc()
