"""The parts of the memory, wired."""

from collections.abc import Callable, Iterator

from config.wings import MemorySettings
from gateway.models.abc import ChatModels
from gateway.operations.operation import Operation
from gateway.wings.memory.capture import CallNotes
from gateway.wings.memory.dialects.operations import file_operations, graph_operations
from gateway.wings.memory.dialects.stores import DialectParts
from gateway.wings.memory.erasure import Eraser
from gateway.wings.memory.extraction import Extractor
from gateway.wings.memory.keeping import KeepingOperations
from gateway.wings.memory.life import MemoryLife
from gateway.wings.memory.masking import hook_of
from gateway.wings.memory.operations import MemoryOperations
from gateway.wings.memory.recall import Recaller, Uses
from gateway.wings.memory.requests import Intake
from gateway.wings.memory.store import MemoryStore
from gateway.wings.memory.transfer import Transfer
from registry.database.postgres import Pool
from registry.embedding.abc import Embedder
from registry.search.encoding import Encoding
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
        encoding = Encoding(embedder, timeout_s=ENCODING_S, sentences_limit=SENTENCES)
        self.store = MemoryStore(pool, settings)
        self.uses = Uses()
        self.recaller = Recaller(pool, encoding, settings, self.uses)
        self.intake = Intake(settings, hook_of(settings.masking.hook))
        extractor = None
        if models is not None and settings.extraction.enabled:
            extractor = Extractor(models, settings.extraction)
        self.notes = CallNotes(self.store, self.intake, settings)
        self.life = MemoryLife(
            pool,
            self.store,
            self.uses,
            settings,
            intake=self.intake,
            extractor=extractor,
            notes=self.notes,
        )
        self.memories = MemoryOperations(self.store, self.recaller, self.intake, settings)
        eraser = Eraser(pool, erased or AsyncSignal())
        self._settings = settings
        self._dialects = DialectParts(
            pool, self.store, self.intake, settings, eraser=eraser, recaller=self.recaller
        )
        self.keeping = KeepingOperations(
            pool,
            store=self.store,
            recaller=self.recaller,
            eraser=eraser,
            transfer=Transfer(pool, self.store, settings.session),
            life=self.life,
            intake=self.intake,
            reader=self.memories.reader,
            settings=settings,
        )

    @property
    def operations(self) -> tuple[Operation, ...]:
        return (*self.memories.operations, *self.keeping.operations, *self._of_dialects())

    def _of_dialects(self) -> Iterator[Operation]:
        settings, reader = self._settings, self.memories.reader
        if "graph" in settings.compat:
            yield from graph_operations(self._dialects, reader)
        if "files" in settings.compat:
            yield from file_operations(self._dialects, reader, overwrites=settings.overwrite_files)
