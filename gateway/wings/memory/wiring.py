"""The parts of the memory, wired once, for its operations."""

from collections.abc import Callable

from config.memory import MemorySettings
from gateway.operations.operation import OperationInput
from gateway.operations.problems import invalid
from gateway.wings.memory.caller_owners import Reader, reader_of
from gateway.wings.memory.captured_calls import CallNotes
from gateway.wings.memory.erasure import Eraser
from gateway.wings.memory.extraction import Extractor
from gateway.wings.memory.masking import hook_of
from gateway.wings.memory.memory_search import PendingUseCounts, Recaller
from gateway.wings.memory.memory_store import MemoryStore
from gateway.wings.memory.promotion import Promoter
from gateway.wings.memory.requests_and_views import MemoryNormalizer
from gateway.wings.memory.retention import MemoryRetention
from gateway.wings.models.messages import ChatModels
from registry.database.postgres import Pool
from registry.embedding.embedder import Embedder
from registry.search.query_encoding import QueryEncoder
from schemas.signals import AsyncSignal

ENCODING_S = 2.0  # time limit of the vectors of a query
SENTENCES = 8  # of a query


class MemoryParts:
    def __init__(
        self,
        pool: Pool,
        embedder: Callable[[str], Embedder | None],
        settings: MemorySettings,
        *,
        erased: AsyncSignal[str, str] | None = None,
        models: ChatModels | None = None,
    ) -> None:
        """`erased` hears of erased persons. `models` extract facts, where the settings want it.
        Raises ToolgateError for a masking hook that cannot be imported."""
        encoding = QueryEncoder(embedder, timeout_s=ENCODING_S, sentences_limit=SENTENCES)
        extracts = models is not None and settings.extraction.enabled
        self.pool = pool
        self.settings = settings
        self.store = MemoryStore(pool, settings)
        self.uses = PendingUseCounts()
        self.recaller = Recaller(pool, encoding, settings, self.uses)
        self.intake = MemoryNormalizer(settings, hook_of(settings.masking.hook))
        self.eraser = Eraser(pool, erased or AsyncSignal())
        self.notes = CallNotes(pool, self.store, self.intake, settings)
        self.promoter = Promoter(
            pool,
            self.store,
            settings,
            intake=self.intake,
            extractor=Extractor(models, settings.extraction) if models and extracts else None,
        )
        self.retention = MemoryRetention(
            pool, self.promoter, settings, uses=self.uses, notes=self.notes
        )

    def reader(self, request: OperationInput) -> Reader:
        """The caller of an operation. Raises ProblemDetails."""
        if request.context is None:
            raise invalid("Expected a caller.")
        members = request.body if request.body is not None else request.query
        return reader_of(
            request.context,
            self.settings.agent_claim,
            session=getattr(members, "session", None),
            user=getattr(members, "user_id", None),
        )
