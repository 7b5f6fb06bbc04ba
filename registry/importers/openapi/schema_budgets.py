"""Limits of the size of converted schemas."""

from typing import Any

from registry.importers.openapi.document import SkipOperation
from schemas.jsonrpc import encode

# Kubernetes' largest request body needs 134. Models read far fewer, and a document with thousands
# of such operations would exceed memory.
DEFINITIONS_LIMIT = 2_000


OUTPUT_LEFT_OUT = (
    "its output schema is left out: those of this description are too large together (setting "
    "imports.schemas_limit_bytes)"
)


class OutputBudget:
    """Size budget of all output schemas of one description: a tool can do without."""

    def __init__(self, limit: int) -> None:
        """`limit` is in bytes: `imports.schemas_limit_bytes`."""
        self._left = limit

    def take(self, schema: dict[str, Any] | None, notes: list[str]) -> dict[str, Any] | None:
        """An output schema if there is room for it; else None, with a note."""
        size = 0 if schema is None else len(encode(schema))
        if size > self._left:
            notes.append(OUTPUT_LEFT_OUT)
            return None
        self._left -= size
        return schema


class SizeBudget:
    """Size budget of all input schemas of one description. A shared schema counts for each
    operation that refers to it: a description of a megabyte can expand to gigabytes."""

    def __init__(self, limit: int) -> None:
        """`limit` is in bytes: `imports.schemas_limit_bytes`."""
        self.outputs = OutputBudget(limit)
        self._limit = limit
        self._left = limit

    def take(self, size: int) -> None:
        """Use up `size` bytes. Raises `SkipOperation` when the budget is exhausted, and from then
        on."""
        self._left -= size
        if self._left < 0:
            raise SkipOperation(
                f"the input schemas of this description are larger than {self._limit:,} bytes "
                "together (setting imports.schemas_limit_bytes)"
            )
