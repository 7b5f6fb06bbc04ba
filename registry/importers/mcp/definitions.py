"""Entries of a server's lists, validated as JSON objects."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from schemas.errors import ParseError
from schemas.jsonrpc import decode_json, json_type
from schemas.mcp.snapshot import Eras, ItemKind, SnapshotEntry

KEY_LIMIT = 2048  # bytes of a name or URI: longer ones fit no index and no header
DEPTH_LIMIT = 128  # levels of a definition; recursive code needs some frames per level
_LABEL = 80  # characters of a name in a report

Kind = ItemKind | str  # or "tool"
_IDENTITY = {"tool": "name", "prompt": "name", "resource": "uri", "template": "uriTemplate"}


class SkipEntry(Exception):
    """The entry cannot be offered; `str()` is the reason."""


@dataclass(frozen=True, slots=True)
class Definition:
    """One entry with a valid identifier."""

    kind: Kind
    key: str  # its name, URI or URI template
    members: dict[str, Any]
    eras: Eras

    @property
    def label(self) -> str:
        return self.key if self.kind == "tool" else f"{self.kind} {self.key}"


@dataclass(frozen=True, slots=True)
class UnusableEntry:
    label: str
    reason: str


def definitions(
    kind: Kind, entries: Sequence[SnapshotEntry]
) -> Iterator[Definition | UnusableEntry]:
    """The entries in their order. Of duplicates the first counts."""
    seen: set[str] = set()
    for number, entry in enumerate(entries, start=1):
        try:
            members = _object(bytes(entry.definition))
            key = _identity(members, _IDENTITY[kind])
        except SkipEntry as skip:
            yield UnusableEntry(f"{kind} {number} of the list", str(skip))
            continue
        definition = Definition(kind, key, members, entry.eras)
        if key in seen:
            yield UnusableEntry(definition.label, "is listed twice; the first one counts")
        else:
            seen.add(key)
            yield definition


def _object(text: bytes) -> dict[str, Any]:
    try:
        found = decode_json(text)
    except ParseError as error:
        raise SkipEntry(error.message.replace("The body", "The definition")) from error
    if not isinstance(found, dict):
        raise SkipEntry(f"is {json_type(found)}, expected an object")
    if _is_deep(found):
        raise SkipEntry(f"is nested more than {DEPTH_LIMIT} levels deep")
    return found


def _is_deep(value: Any) -> bool:
    level = [value]
    for _ in range(DEPTH_LIMIT):
        level = [
            inner
            for outer in level
            if isinstance(outer, dict | list)
            for inner in (outer.values() if isinstance(outer, dict) else outer)
        ]
        if not level:
            return False
    return True


def _identity(members: dict[str, Any], member: str) -> str:
    key = members.get(member)
    if not isinstance(key, str):
        found = json_type(key) if member in members else "missing"
        raise SkipEntry(f"its {member} is {found}, expected text")
    if not key.strip():
        raise SkipEntry(f"its {member} is empty")
    if len(key.encode()) > KEY_LIMIT:
        raise SkipEntry(f"its {member}, {key[:_LABEL]}…, has more than {KEY_LIMIT} bytes")
    if "\0" in key:
        raise SkipEntry(f"its {member} holds a NUL character")
    return key
