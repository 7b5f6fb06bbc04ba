"""Objects of a file: JSON lines, one JSON list, or what an MCP server answers to `tools/list`.

What cannot be read is told with file and line.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from schemas.errors import ToolgateError

EMPTY_SCHEMA: Mapping[str, Any] = {"type": "object"}
_SHOWN_RECORD = 80  # characters of a message that is not ours


class UnreadableSet(ToolgateError):
    """A file that cannot be read as requests or tools."""


@dataclass(frozen=True, slots=True)
class Record:
    """One object of a file, and how to complain about it."""

    path: Path
    line: int
    value: Mapping[str, Any]

    def bad(self, what: str) -> UnreadableSet:
        return UnreadableSet(f"{self.path}:{self.line}: {what}")

    def text(self, *keys: str, needed: bool = False) -> str:
        """The first of `keys` that it has; "" where it may be missing."""
        key = next((key for key in keys if self.value.get(key) is not None), keys[0])
        found = self.value.get(key)
        if found is None and not needed:
            return ""
        if not isinstance(found, str) or (needed and not found.strip()):
            raise self.bad(f"{key} is {kind_of(found)}, expected text")
        return found

    def texts(self, key: str, value: Any = None) -> tuple[str, ...]:
        """A list of texts, or one text."""
        found = self.value.get(key) if value is None else value
        if found is None:
            return ()
        several = [found] if isinstance(found, str) else found
        if not isinstance(several, list) or not all(isinstance(one, str) for one in several):
            raise self.bad(f"{key} is {kind_of(found)}, expected a list of texts")
        return tuple(several)

    def schema(self) -> Mapping[str, Any]:
        for key in ("inputSchema", "input_schema", "parameters"):
            found = self.value.get(key)
            if isinstance(found, dict) and isinstance(found.get("properties"), dict):
                return found
            if not isinstance(found, dict | None):
                raise self.bad(f"{key} is {kind_of(found)}, expected a JSON Schema")
        return EMPTY_SCHEMA


def records(path: Path) -> Iterator[Record]:
    """`line` is the place in the list, where the file is one."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UnreadableSet(f"{path}: {(error.strerror or str(error)).lower()}") from error
    whole = _whole(data)
    if whole is not None:
        yield from (_record(path, place, one) for place, one in enumerate(whole, start=1))
        return
    for line, text in enumerate(data.split(b"\n"), start=1):
        if text.strip():
            yield _record(path, line, _decoded(path, line, text))


def _whole(data: bytes) -> list[Any] | None:
    """The tools of a file that is one JSON list, or the answer to `tools/list`."""
    try:
        found = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    if isinstance(found, dict):
        inner = found.get("result")
        found = (inner if isinstance(inner, dict) else found).get("tools")
    return found if isinstance(found, list) else None


def _decoded(path: Path, line: int, text: bytes) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UnreadableSet(f"{path}:{line}: is no JSON: {str(error)[:_SHOWN_RECORD]}") from error


def _record(path: Path, line: int, value: Any) -> Record:
    if not isinstance(value, dict):
        raise UnreadableSet(f"{path}:{line}: is {kind_of(value)}, expected a JSON object")
    return Record(path, line, value)


def kind_of(value: Any) -> str:
    if value is None:
        return "missing"
    if isinstance(value, str) and not value.strip():
        return "empty"
    kinds = {dict: "an object", list: "a list", str: "text", bool: "true or false"}
    return kinds.get(type(value), "a number")
