"""Names of a tool's arguments: legal for model providers, and one name a value on the wire."""

import re
from collections.abc import Iterable
from itertools import chain, count

from registry.names.tool_names import legal

# Anthropic's API refuses a tool whose top-level properties are not ^[a-zA-Z0-9_.-]{1,64}$
_ILLEGAL = re.compile(r"[^A-Za-z0-9_.-]+")


class Arguments:
    """Names given so far. No two values get the same one."""

    def __init__(self) -> None:
        self._taken: set[str] = set()

    def claim_exact(self, name: str) -> bool:
        """Take `name` as it is, where it is legal and free."""
        free = name not in self._taken and legal_argument(name) == name
        if free:
            self._taken.add(name)
        return free

    def claim(self, *wanted: str) -> str:
        """The first of `wanted` that is free, else the last one with a number."""
        names = [legal_argument(name) for name in wanted]
        numbered = (legal_argument(f"{names[-1]}_{n}") for n in count(2))
        return self._first_free(chain(names, numbered))

    def _first_free(self, names: Iterable[str]) -> str:
        name = next(name for name in names if name not in self._taken)
        self._taken.add(name)
        return name


def legal_argument(name: str) -> str:
    """`filter[status]` gives `filter_status`."""
    return legal(name, _ILLEGAL) or legal(f"value of {name}", _ILLEGAL)
