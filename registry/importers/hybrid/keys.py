"""Unknown keys: a typo must not silently disable a restriction.

`scpoe: portal.w` would open an action to all, and so would a `scope` that slipped into `request`:
keys that resemble a restriction are marked. Any other unknown key is reported and harmless.
"""

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import Any, NamedTuple

_DESCRIPTIVE_KEYS = frozenset(("description", "title", "summary", "handler", "example", "examples"))
DOCUMENT_KEYS = _DESCRIPTIVE_KEYS | {"host", "service", "action", "schemas"}
_ACTION_KEYS = _DESCRIPTIVE_KEYS | {"name", "version", "scope", "skipAuth", "request", "response"}
_OLD_ACTION_KEYS = _DESCRIPTIVE_KEYS | {"schema", "scope", "skipAuth"}
_MESSAGE_KEYS = _DESCRIPTIVE_KEYS | {"schema"}  # of `request` and `response`

_RESTRICTIONS = {"scope": "scope", "skipauth": "skipAuth"}
_SIMILARITY = 0.7  # similarity, of 1: scpoe, scop and scopes are like scope, schema is not
_KEY_LENGTH = 60  # characters of a key that are shown, and compared


class KeyFinding(NamedTuple):
    text: str
    restricts: bool = False  # probably meant to restrict callers


def action_findings(node: Mapping[str, Any]) -> Iterator[KeyFinding]:
    """Unknown or misspelled keys of one item of the list `action`."""
    yield from _findings(node, _ACTION_KEYS)
    for name in ("request", "response"):
        message = node.get(name)
        if isinstance(message, dict):
            yield from _findings(message, _MESSAGE_KEYS, f"{name}.")


def old_action_findings(node: Mapping[str, Any]) -> Iterator[KeyFinding]:
    """The same in a schema.json."""
    return _findings(node, _OLD_ACTION_KEYS)


def unknown_keys(node: Mapping[str, Any], known: frozenset[str]) -> Iterator[str]:
    return (finding.text for finding in _findings(node, known))


def _findings(
    node: Mapping[str, Any], known: frozenset[str], where: str = ""
) -> Iterator[KeyFinding]:
    for key in map(str, node):
        if key in known or key.lower().startswith("x-"):
            continue
        restriction = _restriction(key)
        meant = restriction or _nearest(key, known)
        hint = f" (did you mean {meant}?)" if meant else ""
        yield KeyFinding(f"unknown key '{where}{key[:_KEY_LENGTH]}'{hint}", restriction is not None)


def _restriction(key: str) -> str | None:
    letters = _letters(key)
    for plain, name in _RESTRICTIONS.items():
        if plain in letters or get_close_matches(letters, [plain], cutoff=_SIMILARITY):
            return name
    return None


def _nearest(key: str, known: frozenset[str]) -> str | None:
    by_letters = {_letters(name): name for name in known}
    near = get_close_matches(_letters(key), by_letters, n=1, cutoff=_SIMILARITY)
    return by_letters[near[0]] if near else None


def _letters(key: str) -> str:
    """Normalized form for comparison: skip_auth equals skipAuth."""
    return key[:_KEY_LENGTH].replace("_", "").replace("-", "").casefold()
