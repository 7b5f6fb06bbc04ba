"""Backward compatibility of a tool's arguments and results after its description changed. Pure."""

from registry.sources.compatibility.compare import input_changes, output_changes
from registry.sources.compatibility.schemas import (
    SOURCE_VISIT_LIMIT,
    SchemaChange,
    comparison_budget,
)

__all__ = [
    "SOURCE_VISIT_LIMIT",
    "SchemaChange",
    "comparison_budget",
    "input_changes",
    "output_changes",
]
