"""Backward compatibility of a tool's arguments and results after its description changed. Pure."""

from registry.sources.compat.compare import input_changes, output_changes
from registry.sources.compat.schemas import READ_IN_ALL, SchemaChange, bounded

__all__ = ["READ_IN_ALL", "SchemaChange", "bounded", "input_changes", "output_changes"]
