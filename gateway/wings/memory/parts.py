"""The parts of the memory, wired."""

from collections.abc import Callable

from config.wings import MemorySettings
from gateway.operations.operation import Operation
from gateway.wings.memory.masking import Mask, mask
from gateway.wings.memory.operations import MemoryOperations
from gateway.wings.memory.recall import Recaller, Uses
from gateway.wings.memory.requests import Intake
from gateway.wings.memory.store import MemoryStore
from registry.database.postgres import Pool
from registry.embedding.abc import Embedder
from registry.search.encoding import Encoding

ENCODING_S = 2.0  # time limit of the vectors of a query
SENTENCES = 8  # of a query


class MemoryParts:
    def __init__(
        self,
        pool: Pool,
        embedder: Callable[[str], Embedder | None],
        settings: MemorySettings,
        hook: Mask = mask,
    ) -> None:
        encoding = Encoding(embedder, timeout_s=ENCODING_S, sentences_limit=SENTENCES)
        self.store = MemoryStore(pool, settings)
        self.uses = Uses()
        self.recaller = Recaller(pool, encoding, settings, self.uses)
        self.intake = Intake(settings, hook)
        self.memories = MemoryOperations(self.store, self.recaller, self.intake, settings)

    @property
    def operations(self) -> tuple[Operation, ...]:
        return self.memories.operations
