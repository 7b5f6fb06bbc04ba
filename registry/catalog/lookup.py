"""Lookup of tools in one catalog: by name, by service, by keywords.

No index and no stemming: a word counts wherever it occurs in the text, rare ones more.
"""

import logging
import math
import re
from collections.abc import Mapping, Sequence
from functools import cached_property

from registry.display.profiles import Profiles, SelectedProfile
from registry.display.tool_shaper import shown_names
from schemas.tool import Tool

log = logging.getLogger("toolgate.catalog")

DUPLICATES_SHOWN = 20  # ids in one warning

WORDS = 32  # words of a query that are looked up
SHORTEST = 3  # characters of a word
IN_NAME = 2.0  # weight of a word in the name, against 1 elsewhere

_WORD = re.compile(rf"\w{{{SHORTEST},}}")


def by_service(tools: Sequence[Tool]) -> dict[str, Tool]:
    """Tools that call hybrid actions, by action id; `tools` are ordered by name. Of several for one
    id, one serves it, and the log states which."""
    claims: dict[str, list[Tool]] = {}
    for tool in tools:
        if (action := tool.binding.action) is not None:
            claims.setdefault(action.service, []).append(tool)
    chosen = {id_: min(claiming, key=_is_remote) for id_, claiming in claims.items()}
    duplicates = [
        _conflict_text(id_, chosen[id_], claiming)
        for id_, claiming in claims.items()
        if len(claiming) > 1
    ]
    if duplicates:
        log.warning("service_duplicate", extra={"services": duplicates[:DUPLICATES_SHOWN]})
    return chosen


def _conflict_text(id_: str, serving: Tool, claiming: Sequence[Tool]) -> str:
    """Log text: which source serves an id, and which others have it too."""
    others = ", ".join(tool.source for tool in claiming if tool is not serving)
    return f"{id_} served by {serving.source}, not by {others}"


def _is_remote(tool: Tool) -> bool:
    """Whether `tool` calls a server behind the gateway; tools that run inside take precedence."""
    return tool.binding.facts.remote


def by_words(texts: Mapping[str, str], query: str, limit: int) -> list[tuple[str, float]]:
    """Keyword search: names of the best matches for `query`, best first, with scores from 0 to 1.
    `texts`: searchable text by name."""
    words = list(dict.fromkeys(_WORD.findall(query.casefold())))[:WORDS]
    lower_names = [name.casefold() for name in texts]
    lower_texts = [text.casefold() for text in texts.values()]
    scores = dict.fromkeys(texts, 0.0)
    most = 0.0
    for word in words:
        named = [word in name for name in lower_names]
        having = [
            is_named or word in text for is_named, text in zip(named, lower_texts, strict=True)
        ]
        rarity = math.log(1 + len(texts) / (1 + sum(having)))
        most += IN_NAME * rarity
        for name, has, is_named in zip(texts, having, named, strict=True):
            if has:
                scores[name] += rarity * (IN_NAME if is_named else 1.0)
    best = sorted(texts, key=lambda name: (-scores[name], name))
    return [(name, scores[name] / most) for name in best[:limit] if scores[name] > 0]


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
        """The tool of this name; else the one that formerly had it."""
        return self.by_name.get(name) or self._by_alias.get(name)

    def find(self, name: str, chosen: SelectedProfile | None) -> Tool | None:
        """The tool of this name; else the one that a profile renamed to it, preferably `chosen`;
        else the one that formerly had the name."""
        if name in self.by_name:
            return self.by_name[name]
        if name in self._displayed_names:
            for profile in (chosen or self._profiles.default, *self._profiles):
                if name in (names := self._originals_of(profile)):
                    return self.by_name[names[name]]
        return self.get(name)

    @cached_property
    def _displayed_names(self) -> frozenset[str]:
        """The names of tools in any profile."""
        every = (self._profiles.default, *self._profiles)
        return frozenset(name for profile in every for name in self._originals_of(profile))

    def is_free(self, name: str) -> bool:
        """Whether no tool has the name, or formerly had it, in any profile."""
        return name not in self._displayed_names and self.get(name) is None

    def display_name(self, tool: Tool, chosen: SelectedProfile) -> str:
        """The tool's name in a profile."""
        return self._renamed_by(chosen).get(tool.name, tool.name)

    def _renamed_by(self, chosen: SelectedProfile) -> Mapping[str, str]:
        """Names in a profile, by names in the catalog."""
        if chosen.name not in self._renamed:
            self._renamed[chosen.name] = shown_names(list(self.by_name), chosen)
        return self._renamed[chosen.name]

    def _originals_of(self, chosen: SelectedProfile) -> Mapping[str, str]:
        """Names in the catalog, by names in a profile."""
        if chosen.name not in self._originals:
            names = self._renamed_by(chosen)
            self._originals[chosen.name] = {shown: name for name, shown in names.items()}
        return self._originals[chosen.name]
