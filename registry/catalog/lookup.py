"""Lookup of tools in one catalog: by name, by service, by keywords.

No index and no stemming: a word counts wherever it occurs in the text, rare ones more.
"""

import logging
import math
import re
from collections.abc import Mapping, Sequence
from functools import cached_property

from registry.display.profile_names import ProfileNames
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
    def __init__(self, tools: Sequence[Tool], names: ProfileNames) -> None:
        """`names` are those of all tools of the tenant, also of a part of its catalog."""
        self.by_name: Mapping[str, Tool] = {tool.name: tool for tool in tools}
        self._by_alias = {alias: tool for tool in tools for alias in tool.aliases}
        self._tools = tools
        self._names = names

    @cached_property
    def by_id(self) -> Mapping[str, Tool]:
        return {tool.id: tool for tool in self._tools}

    def get(self, name: str) -> Tool | None:
        """The tool of this name; else the one that formerly had it."""
        return self.by_name.get(name) or self._by_alias.get(name)

    def find(self, name: str) -> Tool | None:
        """The tool of this name; else the one that some profile renamed to it; else the one that
        formerly had the name."""
        tool = self.by_name.get(name)
        original = self._names.originals.get(name) if tool is None else None
        if original is not None:  # of a tool that this view may hide: then it is that of none
            return self.by_name.get(original)
        return tool or self._by_alias.get(name)

    def is_free(self, name: str) -> bool:
        """Whether no tool has the name, or formerly had it, in any profile."""
        return name not in self._names.originals and self.find(name) is None
