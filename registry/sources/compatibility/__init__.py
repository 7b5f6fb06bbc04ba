"""Backward compatibility of a tool's arguments and results after its description changed. Pure."""

from registry.sources.compatibility.prepared_schemas import (
    SOURCE_VISIT_LIMIT,
    SchemaChange,
    comparison_budget,
)
from registry.sources.compatibility.tool_changes import input_changes, output_changes

__all__ = [
    "SOURCE_VISIT_LIMIT",
    "SchemaChange",
    "comparison_budget",
    "input_changes",
    "output_changes",
]
