"""Toolsets: subsets of a catalog with an endpoint of their own. Pure."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from config.settings import ToolsetDefinition
from registry.names.tool_names import CODE_WING
from schemas.globs import ToolGlobs
from schemas.mcp.snapshot import SnapshotItem
from schemas.source import Source
from schemas.tool import Tool


def members(
    name: str,
    toolset: ToolsetDefinition,
    *,
    tools: Sequence[Tool],
    sources: Mapping[str, Source],
    items: Sequence[SnapshotItem],
) -> tuple[list[Tool], list[Source], list[SnapshotItem]]:
    """The tools, sources and items of a catalog that are in `toolset`, whose name is `name`.

    Patterns select tools, and so do descriptions: a tool is in the toolsets that it names, unless
    `exclude` removes it. `code`, where it is set, decides on those that run programs. Prompts and
    resources are those of the toolset's sources; where it names none, of all sources of a selected
    tool.
    """
    has = membership(name, toolset)
    picked = [tool for tool in tools if has(tool)]
    whose = set(toolset.sources)
    if not whose:
        patterns = toolset.include or toolset.exclude
        whose = {tool.source for tool in picked} if patterns else set(sources)
    called = whose | {tool.source for tool in picked}
    return (
        picked,
        [source for source in sources.values() if source.name in called],
        [item for item in items if item.source in whose],
    )


def unknown(tools: Iterable[tuple[str, ...]], toolsets: Collection[str]) -> dict[str, int]:
    """Undefined toolsets that `tools` name, each with the number of those tools."""
    counts = Counter(name for names in tools for name in names)
    return {name: count for name, count in sorted(counts.items()) if name not in toolsets}


def membership(name: str, toolset: ToolsetDefinition) -> Callable[[Tool], bool]:
    """Whether a tool is in the toolset of this name."""
    include, exclude = ToolGlobs(toolset.include), ToolGlobs(toolset.exclude)

    def has(tool: Tool) -> bool:
        if exclude.match((tool.name,), tool.tags, tool.domain):
            return False
        if toolset.code is not None and tool.binding.wing == CODE_WING:
            return toolset.code != "off"
        if name in tool.toolsets:
            return True
        if toolset.sources and tool.source not in toolset.sources:
            return False
        return not include or include.match((tool.name,), tool.tags, tool.domain)

    return has
