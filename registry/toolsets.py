"""Toolsets: which part of a catalog an endpoint of its own has. Pure."""

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase

from config.settings import Toolset
from schemas.mcp.snapshot import Item
from schemas.source import Source
from schemas.tool import Tool


def narrowed(
    toolset: Toolset, tools: Sequence[Tool], sources: Mapping[str, Source], items: Sequence[Item]
) -> tuple[list[Tool], list[Source], list[Item]]:
    """What of a catalog is in `toolset`.

    Patterns pick tools. Prompts and resources are those of its sources; where it names none, of
    all from which a tool was picked.
    """
    picked = [tool for tool in tools if _has(toolset, tool)]
    whose = set(toolset.sources)
    if not whose:
        patterns = toolset.include or toolset.exclude
        whose = {tool.source for tool in picked} if patterns else set(sources)
    return (
        picked,
        [source for source in sources.values() if source.name in whose],
        [item for item in items if item.source in whose],
    )


def _has(toolset: Toolset, tool: Tool) -> bool:
    if toolset.sources and tool.source not in toolset.sources:
        return False
    if any(fnmatchcase(tool.name, pattern) for pattern in toolset.exclude):
        return False
    return not toolset.include or any(fnmatchcase(tool.name, p) for p in toolset.include)
