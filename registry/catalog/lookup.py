"""The tools of one catalog by whatever somebody calls them."""

from collections.abc import Mapping, Sequence
from functools import cached_property

from registry.display.profiles import Chosen, Profiles
from registry.display.shaping import shown_names
from schemas.tool import Tool


class Lookup:
    def __init__(self, tools: Sequence[Tool], profiles: Profiles) -> None:
        self.by_name: Mapping[str, Tool] = {tool.name: tool for tool in tools}
        self._by_alias = {alias: tool for tool in tools for alias in tool.aliases}
        self._tools = tools
        self._profiles = profiles
        self._renamed: dict[str, Mapping[str, str]] = {}
        self._originals: dict[str, Mapping[str, str]] = {}

    @cached_property
    def by_id(self) -> Mapping[str, Tool]:
        return {tool.id: tool for tool in self._tools}

    def get(self, name: str) -> Tool | None:
        """The tool of this name; else the one that had it before."""
        return self.by_name.get(name) or self._by_alias.get(name)

    def find(self, name: str, chosen: Chosen | None) -> Tool | None:
        """The tool of this name; else the one to which a profile gives it, best the one that is
        chosen; else the one that had it before."""
        if name in self.by_name:
            return self.by_name[name]
        for one in (chosen or self._profiles.default, *self._profiles):
            if name in (names := self._originals_of(one)):
                return self.by_name[names[name]]
        return self.get(name)

    def called(self, tool: Tool, chosen: Chosen) -> str:
        """The name that a profile has for the tool."""
        return self._renamed_by(chosen).get(tool.name, tool.name)

    def _renamed_by(self, chosen: Chosen) -> Mapping[str, str]:
        """Names that a profile has instead, by those in the catalog."""
        if chosen.name not in self._renamed:
            self._renamed[chosen.name] = shown_names(list(self.by_name), chosen)
        return self._renamed[chosen.name]

    def _originals_of(self, chosen: Chosen) -> Mapping[str, str]:
        """Names in the catalog, by those that a profile has instead."""
        if chosen.name not in self._originals:
            names = self._renamed_by(chosen)
            self._originals[chosen.name] = {shown: name for name, shown in names.items()}
        return self._originals[chosen.name]
