"""Globs: case-insensitive patterns, as in `fnmatch`, with which operators select names. Pure.

Compiled when settings are read, not when a name is matched.
"""

import re
from collections.abc import Iterable, Sequence
from fnmatch import translate
from functools import lru_cache

PATTERNS_CACHED = 1000  # cached patterns of imports
TAG, DOMAIN = "tag:", "domain:"
WILDCARDS = 1000  # of patterns of a tenant: to compile each takes up to 0.3 ms


class Globs:
    """Matcher of any of these patterns; they and the names are case-folded (`str.casefold`)."""

    __slots__ = ("_compiled", "patterns")

    def __init__(self, patterns: Iterable[str]) -> None:
        self.patterns = tuple(patterns)
        # Unfolded too: "[A-z]" includes "_", its folded form does not.
        spellings = dict.fromkeys(
            (*self.patterns, *(pattern.casefold() for pattern in self.patterns))
        )
        self._compiled = re.compile("|".join(map(translate, spellings)) or "(?!)", re.IGNORECASE)

    def __bool__(self) -> bool:
        return bool(self.patterns)

    def match(self, name: str) -> bool:
        if self._compiled.match(name) is not None:
            return True
        return not name.isascii() and self._compiled.match(name.casefold()) is not None

    def match_any(self, names: Iterable[str]) -> bool:
        return any(map(self.match, names))


@lru_cache(PATTERNS_CACHED)
def glob(pattern: str) -> Globs:
    """One compiled pattern, cached, for code that gets the text each time."""
    return Globs((pattern,))


class ToolGlobs:
    """Matcher of tools by any of these patterns: of names, or with the prefixes `tag:` and
    `domain:` of tags and routing domains."""

    __slots__ = ("_domains", "_names", "_tags", "patterns")

    def __init__(self, patterns: Sequence[str]) -> None:
        self.patterns = tuple(patterns)
        by_kind = split(patterns)
        self._names = Globs(by_kind[""])
        self._tags = Globs(by_kind[TAG])
        self._domains = Globs(by_kind[DOMAIN])

    def __bool__(self) -> bool:
        return bool(self.patterns)

    def match(
        self, names: Iterable[str], tags: Sequence[str] = (), domain: str | None = None
    ) -> bool:
        """Whether a tool of these names, tags and routing domain matches."""
        if self._names and self._names.match_any(names):
            return True
        if self._tags and self._tags.match_any(tags):
            return True
        return domain is not None and bool(self._domains) and self._domains.match(domain)


def wildcards_problem(patterns: Iterable[str]) -> str | None:
    """The problem of patterns that take so long to compile that other callers would wait."""
    count = sum(pattern.count("*") + pattern.count("[") for pattern in patterns)
    if count <= WILDCARDS:
        return None
    return f"expected at most {WILDCARDS} wildcards in all patterns, found {count}"


def split(patterns: Iterable[str]) -> dict[str, list[str]]:
    """Patterns by what they match ("" for names, TAG, DOMAIN), without their prefix."""
    by_kind: dict[str, list[str]] = {"": [], TAG: [], DOMAIN: []}
    for pattern in patterns:
        kind = next(
            (prefix for prefix in (TAG, DOMAIN) if pattern.casefold().startswith(prefix)), ""
        )
        by_kind[kind].append(pattern[len(kind) :])
    return by_kind
