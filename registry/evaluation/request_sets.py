"""Sets of requests with their relevant tools, and catalogs of tools, read from files.

Errors name file and line.

A request is `{"query", "gold": [tools], "id"?, "gold_slots"?: [[tools], ...]}`. A tool stands in
`gold` with its id or its name. Where several would do, `gold_slots` has one list of alternatives
for each tool that is needed. A catalog is a file of tools, one JSON object per line, or the result
of an MCP server's `tools/list`. Both are third-party data: an unreadable record is an error with
file and line, and none is skipped silently.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from schemas.errors import ToolgateError

EMPTY_SCHEMA: Mapping[str, Any] = {"type": "object"}
_SHOWN_RECORD = 80  # characters of a message of a library


class UnreadableSet(ToolgateError):
    """A file that cannot be read as requests or tools."""


@dataclass(frozen=True, slots=True)
class Record:
    """One object of a file, with its location for errors."""

    path: Path
    line: int
    value: Mapping[str, Any]

    def bad(self, problem: str) -> UnreadableSet:
        return UnreadableSet(f"{self.path}:{self.line}: {problem}")

    def text(self, *keys: str, needed: bool = False) -> str:
        """The first of `keys` that it has; "" where it may be missing."""
        key = next((key for key in keys if self.value.get(key) is not None), keys[0])
        value = self.value.get(key)
        if value is None and not needed:
            return ""
        if not isinstance(value, str) or (needed and not value.strip()):
            raise self.bad(f"{key} is {kind_of(value)}, expected text")
        return value

    def texts(self, key: str, value: Any = None) -> tuple[str, ...]:
        """A list of texts, or a single text as a list."""
        texts = self.value.get(key) if value is None else value
        if texts is None:
            return ()
        members = [texts] if isinstance(texts, str) else texts
        if not isinstance(members, list) or not all(isinstance(text, str) for text in members):
            raise self.bad(f"{key} is {kind_of(texts)}, expected a list of texts")
        return tuple(members)

    def schema(self) -> Mapping[str, Any]:
        for key in ("inputSchema", "input_schema", "parameters"):
            schema = self.value.get(key)
            if isinstance(schema, dict) and isinstance(schema.get("properties"), dict):
                return schema
            if not isinstance(schema, dict | None):
                raise self.bad(f"{key} is {kind_of(schema)}, expected a JSON Schema")
        return EMPTY_SCHEMA


def records(path: Path) -> Iterator[Record]:
    """Records of a file; `line` is the index in the list, where the file is one."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UnreadableSet(f"{path}: {(error.strerror or str(error)).lower()}") from error
    items = _whole(data)
    if items is not None:
        yield from (_record(path, place, item) for place, item in enumerate(items, start=1))
        return
    for line, text in enumerate(data.split(b"\n"), start=1):
        if text.strip():
            yield _record(path, line, _decode_line(path, line, text))


def _whole(data: bytes) -> list[Any] | None:
    """The tools of a file that is one JSON list, or a `tools/list` result."""
    try:
        tools = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    if isinstance(tools, dict):
        inner = tools.get("result")
        tools = (inner if isinstance(inner, dict) else tools).get("tools")
    return tools if isinstance(tools, list) else None


def _decode_line(path: Path, line: int, text: bytes) -> Any:
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


QUERIES, TOOLS = "queries.jsonl", "tools.jsonl"  # of a set that is a directory
TOPICS = ("category", "field", "domain", "tags")  # fields read as tags
_QUOTE_CHARACTERS = 80  # characters of a quoted value in a message

Slots = tuple[frozenset[str], ...]


@dataclass(frozen=True, slots=True)
class CatalogTool:
    """A tool of a catalog."""

    id: str  # unique in the catalog
    name: str
    description: str
    input_schema: Mapping[str, Any]
    title: str | None = None
    server: str = ""  # empty: the tool has no server
    tags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class EvaluationRequest:
    """A request, and the tools that are relevant to it."""

    id: str
    query: str
    gold: tuple[str, ...]  # ids or names, as in the file
    slots: tuple[tuple[str, ...], ...]  # the same, grouped into alternatives

    @property
    def wanted_tools(self) -> tuple[str, ...]:
        """All tools that it names, without duplicates."""
        return tuple(dict.fromkeys([*self.gold, *(name for slot in self.slots for name in slot)]))


@dataclass(frozen=True, slots=True)
class RelevantTools:
    """The relevant tools of one request by their ids. Unknown tools stay: they count as missed."""

    gold: frozenset[str]
    slots: Slots


def read_requests(path: Path) -> list[EvaluationRequest]:
    rows = [_request(record) for record in records(path)]
    if not rows:
        raise UnreadableSet(
            f'{path} is empty; expected lines such as {{"query": "...", "gold": ["..."]}}'
        )
    return rows


def read_catalog(path: Path) -> list[CatalogTool]:
    tools, lines = [], dict[str, int]()
    for record in records(path):
        tool, line = _listed_tool(record), record.line
        if tool.id in lines:
            raise UnreadableSet(
                f"{path}:{line}: the id {_short(tool.id)} stands in line {lines[tool.id]} too"
            )
        lines[tool.id] = line
        tools.append(tool)
    if not tools:
        raise UnreadableSet(
            f'{path} is empty; expected lines such as {{"name": "...", "description": "..."}}'
        )
    return tools


class Index:
    """Index of tools by the names that requests use: id, server/name, or name."""

    def __init__(self, tools: Sequence[tuple[str, str, str]]) -> None:
        """`tools`: id, name and server of each."""
        self._ids = {id_ for id_, _, _ in tools}
        self._names: dict[str, set[str]] = defaultdict(set)
        for id_, name, server in tools:
            self._names[name].add(id_)
            self._names[f"{server}/{name}"].add(id_)

    def resolve(self, request: EvaluationRequest) -> RelevantTools:
        gold = frozenset[str]().union(*map(self._meant_tools, request.gold))
        slots = (frozenset[str]().union(*map(self._meant_tools, slot)) for slot in request.slots)
        return RelevantTools(gold, tuple(slots))

    def unknown(self, requests: Sequence[EvaluationRequest]) -> dict[str, list[str]]:
        """Unknown tools, with the ids of the requests that name them."""
        missing = defaultdict(list)
        for request in requests:
            for name in request.wanted_tools:
                if name not in self._ids and name not in self._names:
                    missing[name].append(request.id)
        return dict(missing)

    def _meant_tools(self, name: str) -> frozenset[str]:
        """The tools that a name refers to; those of one name are alternatives."""
        if name in self._ids:
            return frozenset([name])
        return frozenset(self._names.get(name, [name]))


def _request(row: Record) -> EvaluationRequest:
    query = row.text("query", needed=True)
    slots = row.value.get("gold_slots")
    if not isinstance(slots, list | None):
        raise row.bad(f"gold_slots is {kind_of(slots)}, expected a list of lists of tools")
    alternatives = tuple(row.texts("gold_slots", slot) for slot in slots or [])
    gold = row.texts("gold") or tuple(name for slot in alternatives for name in slot)
    if not gold or not all(alternatives):
        raise row.bad("gold names no tool; expected the tools that the request needs")
    unique = tuple(dict.fromkeys(gold))
    return EvaluationRequest(
        _id(row), query, unique, alternatives or tuple((name,) for name in unique)
    )


def _listed_tool(row: Record) -> CatalogTool:
    function = row.value.get("function")  # the format of OpenAI's API
    if isinstance(function, dict):
        row = Record(row.path, row.line, {**row.value, **function})
    name, server = row.text("name", needed=True), row.text("server")
    return CatalogTool(
        id=_id(row, f"{server}/{name}" if server else name),
        name=name,
        title=row.text("title") or None,
        description=row.text("description"),
        input_schema=row.schema(),
        server=server,
        tags=tuple(dict.fromkeys(_topics(row))),
    )


def _topics(row: Record) -> Iterator[str]:
    """ "A/B" is B, which is a part of A."""
    for key in TOPICS:
        for topic in row.texts(key):
            yield from filter(None, map(str.strip, topic.split("/")))


def _id(row: Record, otherwise: str = "") -> str:
    id_ = row.value.get("id")
    if isinstance(id_, str | int) and not isinstance(id_, bool) and str(id_):
        return str(id_)
    if id_ is not None:
        raise row.bad(f"id is {kind_of(id_)}, expected text")
    return otherwise or f"line {row.line}"


def _short(text: str) -> str:
    return repr(text if len(text) <= _QUOTE_CHARACTERS else text[:_QUOTE_CHARACTERS] + "…")
