"""Bytes to a document: JSON or YAML, detected by content. Errors name line and column.

Built on libyaml's events instead of PyYAML's loader: that one turns `2024-01-01` into a date, `no`
into False and `200:` into a number, recurses once per level, and shares what aliases expand to
without a limit. It also takes a quarter of the time (GitHub's description: 0.5 s).
"""

import json
import re
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any, NoReturn

import msgspec
import yaml

from config.yaml_document import syntax_problem
from schemas.errors import DuplicateKeys, ImportRejected, ParseError
from schemas.jsonrpc import decode_strict, is_all_of, nests_within

DEPTH_LIMIT = 512  # levels; Stripe's description, the deepest we know, has 24
# Values after alias expansion, per written value. A file of one kilobyte can expand to 10^9
# ("billion laughs"); descriptions that use aliases stay far below ten times.
GROWTH_LIMIT = 10
GROWTH_FREE = 200_000  # values that any document may have
TEXT_SHARE = 100  # characters of a text or key that count as one more value

# members of schemas of text, of server variables and of `info` whose spelling counts
_TEXTS = frozenset(("const", "default", "enum", "example", "examples", "version"))

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
# not 01234, a post code: 1234 in YAML 1.2, 668 in 1.1
_INTEGER = re.compile(r"[-+]?(0|[1-9][0-9]{0,4000})|0o[0-7]{1,4000}|0x[0-9a-fA-F]{1,3000}")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|(0|[1-9][0-9]*)(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
# YAML 1.2, section 10.3 (core schema); `yes`, `no`, `on` and `off` are text
_WORDS = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}


def parse_yaml(
    content: str, location: str, *, unique: bool = False, notes: list[str] | None = None
) -> Any:
    """The single document in `content`; `unique` rejects duplicate keys. Otherwise two objects of
    one key are merged, and of other values the last counts; `notes` takes a sentence for each.
    Raises `ImportRejected`."""
    try:
        return _compose(content, location, unique, [] if notes is None else notes)
    except yaml.MarkedYAMLError as error:
        place, problem = _where(location, error.problem_mark), syntax_problem(error, content)
        raise ImportRejected(f"{place}: not valid YAML: {problem}.") from error
    except yaml.YAMLError as error:
        raise ImportRejected(f"{location}: not valid YAML: {error}.") from error


@dataclass(slots=True)
class _Container:
    """A list or object that is still open."""

    value: dict[str, Any] | list[Any]
    anchor: str | None
    size: int = 1  # values in it after alias expansion
    key: str | None = None  # pending key of an object
    merges: list[Any] = field(default_factory=list)
    # members that YAML reads as numbers or words, as they are spelled; of lists, by member
    spelled: dict[Any, Any] = field(default_factory=dict)


class _Composer:
    """Builds values from parser events, with a stack of open containers."""

    def __init__(self, location: str, unique: bool, notes: list[str]) -> None:
        self.location = location
        self.unique = unique
        self.notes = notes
        self.result: Any = None
        self.size = 0  # values in the result after alias expansion
        self.written = 0  # values in the text
        self.merged = 0  # members copied by `<<` and for duplicate keys; plain aliases share values
        self.documents = 0
        self.stack: list[_Container] = []
        self.anchors: dict[str, tuple[Any, int]] = {}

    def open(self, event: Any, value: dict[str, Any] | list[Any]) -> None:
        if len(self.stack) == DEPTH_LIMIT:
            self.reject(event, f"nested deeper than {DEPTH_LIMIT} levels")
        self.stack.append(_Container(value, event.anchor))

    def close(self, event: Any) -> None:
        done = self.stack.pop()
        if isinstance(done.value, dict):
            if done.merges:
                self._merge(event, done.value, done.merges)
            if done.spelled and self._holds_text(done.value):
                _restore_spelling(done.value, done.spelled)
        elif done.spelled and self.stack:
            self.stack[-1].spelled[self.stack[-1].key] = done.spelled
        self.add(event, done.value, done.size, done.anchor)

    def _holds_text(self, value: dict[str, Any]) -> bool:
        """Whether the values of a closed object are text by what OpenAPI says of its place: schemas
        of text, server variables (OpenAPI 3.1, section 4.8.6) and `info`."""
        at = self.stack[-1].key if self.stack else None
        above = self.stack[-2].key if len(self.stack) > 1 else None
        return _is_of_text(value.get("type")) or above == "variables" or at == "info"

    def scalar(self, event: Any) -> None:
        long = len(event.value) // TEXT_SHARE
        self.written += long
        if self._expects_key():
            self.stack[-1].key = event.value
            self.stack[-1].size += long
            if event.anchor:
                self.anchors[event.anchor] = (event.value, 1 + long)
        else:
            value = _resolve(event)
            if self.stack and not (value is None or isinstance(value, str)):
                parent = self.stack[-1]
                at = len(parent.value) if isinstance(parent.value, list) else parent.key
                parent.spelled[at] = event.value
            self.add(event, value, 1 + long, event.anchor)

    def alias(self, event: Any) -> None:
        if event.anchor not in self.anchors:
            self.reject(event, f"alias *{event.anchor} stands before or inside its anchor")
        value, size = self.anchors[event.anchor]
        if self._expects_key() and isinstance(value, str):
            self.stack[-1].key = value
            self.stack[-1].size += size - 1
        else:
            self.add(event, value, size, None)

    def add(self, event: Any, value: Any, size: int, anchor: str | None) -> None:
        if anchor:
            self.anchors[anchor] = (value, size)
        self.written += 1
        if not self.stack:
            self.result, self.size = value, size
            return
        self.stack[-1].size += size
        self._place(event, self.stack[-1], value)

    def _place(self, event: Any, parent: _Container, value: Any) -> None:
        if isinstance(parent.value, list):
            parent.value.append(value)
        elif parent.key is None:
            self.reject(event, "a key must be text, not a list or an object")
        elif parent.key == "<<":
            parent.merges.append(value)
            parent.key = None
        elif parent.key in parent.value:
            self._place_again(event, parent.value, parent.key, value)
            parent.key = None
        else:
            parent.value[parent.key] = value
            parent.key = None

    def _place_again(self, event: Any, members: dict[str, Any], key: str, value: Any) -> None:
        if self.unique:
            self.reject(event, f"the key {key[:100]!r} stands twice in one object")
        where = f"line {event.start_mark.line + 1}: "
        earlier = members[key]
        if isinstance(earlier, dict) and isinstance(value, dict):
            self._count_merged(event, len(earlier) + len(value), "duplicate keys")
            earlier = dict(earlier)  # an anchor may name it
        members[key] = merge_duplicates(key, earlier, value, self.notes, where=where)

    def _count_merged(self, event: Any, members: int, cause: str) -> None:
        self.merged += members
        if self.merged > GROWTH_FREE + GROWTH_LIMIT * self.written:
            self.reject(event, f"{cause} expand it more than {GROWTH_LIMIT} times")

    def _merge(self, event: Any, members: dict[str, Any], merges: list[Any]) -> None:
        """Apply `<<: *base` (YAML 1.1, widely used): own members win, earlier bases win."""
        for merged in merges:
            for base in merged if isinstance(merged, list) else [merged]:
                if not isinstance(base, dict):
                    self.reject(event, "`<<` must name an object or a list of objects")
                self._count_merged(event, len(base), "aliases")
                members.update({key: value for key, value in base.items() if key not in members})

    def _expects_key(self) -> bool:
        return bool(
            self.stack and isinstance(self.stack[-1].value, dict) and self.stack[-1].key is None
        )

    def document(self, event: Any) -> None:
        self.documents += 1
        if self.documents > 1:
            self.reject(event, "a second YAML document begins; expected one")

    def reject(self, event: Any, problem: str) -> None:
        raise ImportRejected(f"{_where(self.location, event.start_mark)}: {problem}.")


def _compose(content: str, location: str, unique: bool, notes: list[str]) -> Any:
    composer = _Composer(location, unique, notes)
    handlers = {
        yaml.ScalarEvent: composer.scalar,
        yaml.MappingStartEvent: lambda event: composer.open(event, {}),
        yaml.SequenceStartEvent: lambda event: composer.open(event, []),
        yaml.MappingEndEvent: composer.close,
        yaml.SequenceEndEvent: composer.close,
        yaml.AliasEvent: composer.alias,
        yaml.DocumentStartEvent: composer.document,
    }
    for event in yaml.parse(content, Loader=_LOADER):
        if handler := handlers.get(type(event)):
            handler(event)
    if composer.size > GROWTH_FREE + GROWTH_LIMIT * composer.written:
        raise ImportRejected(f"{location}: aliases expand it more than {GROWTH_LIMIT} times.")
    return composer.result


def merge_duplicates(
    key: str, earlier: Any, later: Any, notes: list[str], *, where: str = ""
) -> Any:
    """The value of a key that stands twice: the members of `later` are added to `earlier` where
    both are objects, else the later one counts."""
    if isinstance(earlier, dict) and isinstance(later, dict):
        earlier.update(later)
        outcome, value = "both are read", earlier
    else:
        outcome, value = "the last one counts", later
    notes.append(f"{where}the key {key[:100]!r} stands twice in one object; {outcome}")
    return value


def _is_of_text(type_: Any) -> bool:
    types = type_ if isinstance(type_, list) else [type_]
    return "string" in types and not {"number", "integer", "boolean"}.intersection(
        name for name in types if isinstance(name, str)
    )


def _restore_spelling(value: dict[str, Any], spellings: dict[Any, Any]) -> None:
    """Replace values that YAML read as numbers or words, as 1.10 and 0x1F, by their spelling."""
    for keyword in _TEXTS.intersection(spellings):
        text = spellings[keyword]
        if isinstance(text, str):
            value[keyword] = text
        elif isinstance(value.get(keyword), list):
            value[keyword] = [text.get(at, item) for at, item in enumerate(value[keyword])]


def _resolve(event: Any) -> Any:
    """A scalar's value. Quoted text stays text; `.inf` and `.nan` too, JSON has no such numbers."""
    plain = event.implicit[0] or (event.tag or "").startswith("tag:yaml.org,2002:")
    if not plain or event.tag == "tag:yaml.org,2002:str":
        return event.value
    value: str = event.value
    if value in _WORDS:
        return _WORDS[value]
    if _INTEGER.fullmatch(value):
        return int(value, 0 if value[:2] in ("0o", "0x") else 10)
    if _FLOAT.fullmatch(value) and abs(number := float(value)) != float("inf"):
        return number
    return value


def _where(location: str, mark: Any) -> str:
    return f"{location}, line {mark.line + 1}, column {mark.column + 1}" if mark else location


_WSDL = re.compile(r"<(\w+:)?(definitions|description)\b[^>]*wsdl")
_WSDL_SEARCHED = 10_000  # characters
_UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")
_DOCUMENT_EXPECTED = "expected an OpenAPI description, a JSON or YAML object"


def parse(
    data: bytes,
    location: str,
    expected: str = _DOCUMENT_EXPECTED,
    *,
    unique: bool = False,
    notes: list[str] | None = None,
) -> dict[str, Any]:
    """The document in `data`; `location` (path or URL) is for messages and the file extension,
    `expected` for messages. `unique` rejects duplicate keys in an object; otherwise `notes` takes a
    sentence for each, see `parse_yaml`.

    Raises `ImportRejected` when it is neither JSON nor YAML, or not an object.
    """
    content = _decode(data, location)
    if not content.strip():
        raise ImportRejected(f"{location} is empty; {expected}.")
    if content.lstrip().startswith("<"):
        kind = "a WSDL document" if _WSDL.search(content[:_WSDL_SEARCHED]) else "HTML or XML"
        raise ImportRejected(f"{location} is {kind}; {expected}.")
    document = _parse_text(content, location, unique, [] if notes is None else notes)
    if not isinstance(document, dict):
        raise ImportRejected(f"{location} holds a {_kind(document)}; {expected}.")
    return document


def _decode(data: bytes, location: str) -> str:
    encoding = "utf-16" if data[:2] in _UTF16_MARKS else "utf-8-sig"
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ImportRejected(f"{location}, line {line}: not valid {error.encoding}.") from error


def _parse_text(content: str, location: str, unique: bool, notes: list[str]) -> Any:
    """JSON when it starts like JSON. Flow-style YAML does too: `.yaml` gets a second try."""
    if content.lstrip()[0] not in "{[":
        return parse_yaml(content, location, unique=unique, notes=notes)
    try:
        encoded = content.encode()
        if not nests_within(encoded, DEPTH_LIMIT):  # Python 3.12 and newer would read such ones
            raise ImportRejected(f"{location} is nested too deeply: over {DEPTH_LIMIT} levels.")
        return decode_strict(encoded) if unique else _decode_json(encoded, notes)
    except DuplicateKeys as error:
        raise ImportRejected(f"{location}: {error}.") from error
    except (msgspec.DecodeError, ParseError, UnicodeEncodeError) as error:
        if PurePosixPath(location).suffix in (".yaml", ".yml"):
            return parse_yaml(content, location, unique=unique, notes=notes)
        _reject_json(content, location, error)


def _decode_json(data: bytes, notes: list[str]) -> Any:
    """The value of JSON text, with the members of duplicate keys; see `merge_duplicates`."""
    value = msgspec.json.decode(data)
    if is_all_of(data, value):
        return value

    def read_members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        members: dict[str, Any] = {}
        for key, member in pairs:
            again = key in members
            members[key] = merge_duplicates(key, members[key], member, notes) if again else member
        return members

    return json.loads(data, object_pairs_hook=read_members)


def _reject_json(content: str, location: str, cause: Exception) -> NoReturn:
    """Reject with the position that the standard library reports: msgspec knows only the byte."""
    try:
        json.loads(content, parse_int=str, parse_float=str)
    except json.JSONDecodeError as error:
        where = f"{location}, line {error.lineno}, column {error.colno}"
        raise ImportRejected(f"{where}: not valid JSON: {error.msg}.") from cause
    # accepted by the standard library alone: NaN, big numbers, lone surrogates
    raise ImportRejected(f"{location}: not valid JSON (RFC 8259): {cause}.") from cause


def _kind(value: object) -> str:
    return {list: "list", str: "text", bool: "boolean", type(None): "null"}.get(
        type(value), "number"
    )
