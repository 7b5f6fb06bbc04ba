"""Unknown keys: a typo must not silently disable a restriction.

`scpoe: portal.w` would open an action to all, and so would a `scope` that slipped into `request`:
keys that resemble a restriction are marked. Any other unknown key is reported and harmless.
"""

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import Any, NamedTuple

_ABOUT = frozenset(("description", "title", "summary", "handler", "example", "examples"))
DOCUMENT = _ABOUT | {"host", "service", "action", "schemas"}
_ACTION = _ABOUT | {"name", "version", "scope", "skipAuth", "request", "response"}
_OLD_ACTION = _ABOUT | {"schema", "scope", "skipAuth"}
_MESSAGE = _ABOUT | {"schema"}  # of `request` and `response`

_RESTRICTIONS = {"scope": "scope", "skipauth": "skipAuth"}
_LIKENESS = 0.7  # similarity, of 1: scpoe, scop and scopes are like scope, schema is not
_LENGTH = 60  # characters of a key that are shown, and compared


class Oddity(NamedTuple):
    text: str
    restricts: bool = False  # probably meant to restrict callers


def of_action(node: Mapping[str, Any]) -> Iterator[Oddity]:
    """Unknown or misspelled keys of one item of the list `action`."""
    yield from _oddities(node, _ACTION)
    for name in ("request", "response"):
        message = node.get(name)
        if isinstance(message, dict):
            yield from _oddities(message, _MESSAGE, f"{name}.")


def of_old_action(node: Mapping[str, Any]) -> Iterator[Oddity]:
    """The same in a schema.json."""
    return _oddities(node, _OLD_ACTION)


def unknown(node: Mapping[str, Any], known: frozenset[str]) -> Iterator[str]:
    return (oddity.text for oddity in _oddities(node, known))


def _oddities(node: Mapping[str, Any], known: frozenset[str], where: str = "") -> Iterator[Oddity]:
    for key in map(str, node):
        if key in known or key.lower().startswith("x-"):
            continue
        restriction = _restriction(key)
        meant = restriction or _nearest(key, known)
        hint = f" (did you mean {meant}?)" if meant else ""
        yield Oddity(f"unknown key '{where}{key[:_LENGTH]}'{hint}", restriction is not None)


def _restriction(key: str) -> str | None:
    letters = _letters(key)
    for plain, name in _RESTRICTIONS.items():
        if plain in letters or get_close_matches(letters, [plain], cutoff=_LIKENESS):
            return name
    return None


def _nearest(key: str, known: frozenset[str]) -> str | None:
    by_letters = {_letters(name): name for name in known}
    near = get_close_matches(_letters(key), by_letters, n=1, cutoff=_LIKENESS)
    return by_letters[near[0]] if near else None


def _letters(key: str) -> str:
    """Normalized form for comparison: skip_auth equals skipAuth."""
    return key[:_LENGTH].replace("_", "").replace("-", "").casefold()
