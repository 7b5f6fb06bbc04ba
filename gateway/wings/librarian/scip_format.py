"""Indexes in SCIP, which compilers and language servers write: definitions and references as they
resolve them. Pure; runs in a thread.

An index is a message of Protocol Buffers. It is read field by field, as a parser of whole messages
builds all of one before anything of it can be counted.

Source: github.com/sourcegraph/scip, scip.proto.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Literal

from config.librarian import IndexLimits
from gateway.wings.document_library import IndexedFile, IndexedName
from schemas.errors import ToolgateError

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
RELATIONSHIPS = 100  # of a symbol, that are looked at
RELATION_FIELDS = 10  # fields of a relationship: the format has 5
CHECK_INTERVAL = 10_000  # fields between two checks whether the index is still wanted
DEFINITION, IMPORT = 0x1, 0x2  # roles of an occurrence
UNITS: dict[int, Literal["utf-8", "utf-16", "utf-32"]] = {1: "utf-8", 2: "utf-16"}
_KINDS = {  # SymbolInformation.Kind
    7: "class", 8: "constant", 9: "constructor", 11: "enum", 12: "constant", 15: "field",
    17: "function", 21: "interface", 25: "macro", 26: "method", 29: "module", 30: "namespace",
    41: "property", 49: "struct", 53: "trait", 54: "type", 61: "variable",
    66: "method", 67: "method", 80: "method",
}  # fmt: skip
_SUFFIXES = {"#": "class", ".": "variable", "!": "macro"}
_DESCRIPTOR = re.compile(
    r"(?:`((?:[^`]|``)+)`|([\w+$-]+))(/|#|\.|:|!|\([\w+$-]*\)\.)"
    r"|[\[(](?:`(?:[^`]|``)+`|[\w+$-]+)[\])]"
)

Field = tuple[int, int | bytes]


class ScipRefused(ToolgateError):
    """Bytes that are no index, or one beyond a limit."""


@dataclass(frozen=True, slots=True)
class ScipSymbol:
    """A global symbol: the names of its modules, and those of its scopes and itself."""

    modules: tuple[str, ...]
    names: tuple[str, ...]
    suffix: str

    @property
    def symbol(self) -> str:
        return ".".join(self.names)

    @property
    def whole(self) -> str:
        return ".".join(self.modules + self.names)

    @property
    def kind(self) -> str:
        if self.suffix.startswith("("):
            return "method" if len(self.names) > 1 else "function"
        return _SUFFIXES.get(self.suffix, "")


@dataclass(slots=True)
class _SymbolFacts:
    """Facts of a symbol in a document."""

    kind: str = ""
    bases: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Occurrence:
    symbol: str
    place: Sequence[int]  # line, first character, (last line,) end: from 0
    whole: Sequence[int]  # of the definition around it; empty: not known
    roles: int


class IndexPass:
    """One pass over an index: its limits, and how many fields are left to be read."""

    def __init__(self, limits: IndexLimits, check: Callable[[], object]) -> None:
        self.limits = limits
        self._left = limits.fields
        self._check = check

    def take_field(self) -> None:
        """Count a field, known or not: two bytes make one. Raises ScipRefused beyond the limit, and
        what `check` raises."""
        self._left -= 1
        if self._left < 0:
            raise ScipRefused(
                f"the index has more than {self.limits.fields} fields (librarian.index.fields)"
            )
        if self._left % CHECK_INTERVAL == 0:
            self._check()


def fields(data: bytes, reading: IndexPass) -> Iterator[Field]:
    """The fields of a message: numbers and values. Raises ScipRefused, and what the check of
    `reading` raises."""
    at = 0
    while at < len(data):
        reading.take_field()
        key, at = _varint(data, at)
        wire = key & 7
        if wire == VARINT:
            value, at = _varint(data, at)
            yield key >> 3, value
            continue
        length, at = _varint(data, at) if wire == BYTES else (_fixed_width(wire), at)
        if at + length > len(data):
            raise ScipRefused("the index ends within a field")
        if wire == BYTES:
            yield key >> 3, data[at : at + length]
        at += length


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(data):
            break
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise ScipRefused("the index has a number that does not end")


def _fixed_width(wire: int) -> int:
    if wire not in (FIXED32, FIXED64):
        raise ScipRefused(f"the index has a field of the unknown wire type {wire}")
    return 8 if wire == FIXED64 else 4


def read_index(
    data: bytes, limits: IndexLimits, check: Callable[[], object] = lambda: None
) -> Iterator[IndexedFile]:
    """The files of an index, one at a time. Raises ScipRefused, also for what is beyond a limit.
    `check` is called again and again while a file is read, and raises to end that."""
    reading = IndexPass(limits, check)
    files, most = 0, limits.occurrences
    for number, value in fields(data, reading):
        if number == 2 and isinstance(value, bytes):  # Index.documents
            files += 1
            if files > limits.files:
                raise ScipRefused(
                    f"the index has more than {limits.files} documents (librarian.index.files)"
                )
            document, count = _document(value, most, reading)
            most -= count
            if document is not None:
                yield document
    if not files:
        raise ScipRefused("the index has no documents: expected one in SCIP")


def _document(data: bytes, most: int, reading: IndexPass) -> tuple[IndexedFile | None, int]:
    """A file, None without a path, and how many occurrences it has."""
    path, unit = "", 0
    occurrences: list[_Occurrence] = []
    facts: dict[str, _SymbolFacts] = {}
    for number, value in fields(data, reading):
        if number == 1 and isinstance(value, bytes):
            path = _text(value, reading.limits)
        elif number == 2 and isinstance(value, bytes):
            if len(occurrences) >= min(most, reading.limits.names):
                text = "(librarian.index.names), or the index (librarian.index.occurrences)"
                raise ScipRefused(f"{path[:100]} has too many occurrences {text}")
            occurrences.append(_occurrence(value, reading))
        elif number == 3 and isinstance(value, bytes):
            name, facts_of_symbol = _information(value, reading)
            facts[name] = facts_of_symbol
            if len(facts) > reading.limits.names:
                text = f"tells of more than {reading.limits.names} symbols (librarian.index.names)"
                raise ScipRefused(f"{path[:100]} {text}")
        elif number == 6 and isinstance(value, int):
            unit = value
    names = [indexed for each in occurrences if (indexed := _indexed_name(each, facts)) is not None]
    file = IndexedFile(path=path, unit=UNITS.get(unit, "utf-32"), names=names) if path else None
    return file, len(occurrences)


def _occurrence(data: bytes, reading: IndexPass) -> _Occurrence:
    symbol, roles = "", 0
    places: dict[int, list[int]] = {1: [], 7: []}
    for number, value in fields(data, reading):
        if number in places:
            places[number] += [value] if isinstance(value, int) else _unpack_integers(value)
            if len(places[number]) > 4:
                raise ScipRefused("the index has a range of more than 4 numbers")
        elif number == 2 and isinstance(value, bytes):
            symbol = _text(value, reading.limits)
        elif number == 3 and isinstance(value, int):
            roles = value
    return _Occurrence(symbol, places[1], places[7], roles)


def _unpack_integers(data: bytes) -> list[int]:
    values: list[int] = []
    at = 0
    while at < len(data) and len(values) <= 4:
        value, at = _varint(data, at)
        values.append(value)
    return values


def _information(data: bytes, reading: IndexPass) -> tuple[str, _SymbolFacts]:
    symbol, facts = "", _SymbolFacts()
    related_most = RELATIONSHIPS
    for number, value in fields(data, reading):
        if number == 1 and isinstance(value, bytes):
            symbol = _text(value, reading.limits)
        elif number == 5 and isinstance(value, int):
            facts.kind = _KINDS.get(value, "")
        elif number == 4 and isinstance(value, bytes) and related_most:
            related_most -= 1
            related = dict(islice(fields(value, reading), RELATION_FIELDS))
            base = symbol_of(_text(related.get(1, b""), reading.limits))
            if base is not None and related.get(3):  # is_implementation
                facts.bases.append(base.names[-1])
    return symbol, facts


def _text(value: int | bytes, limits: IndexLimits) -> str:
    """ "": it is too long, or no text."""
    if not isinstance(value, bytes) or len(value) > limits.name_bytes:
        return ""
    text = value.decode(errors="replace")
    return "" if "\0" in text or "\ufffd" in text else text


def symbol_of(text: str) -> ScipSymbol | None:
    """None: it is local, or none that others name."""
    parts = text.replace("  ", "\0").split(" ", 4)
    if text.startswith("local ") or len(parts) < 5:
        return None
    descriptors, at = parts[4].replace("\0", " "), 0
    modules: list[str] = []
    names: list[str] = []
    suffix = ""
    while at < len(descriptors):
        match = _DESCRIPTOR.match(descriptors, at)
        if match is None or (suffix := match[3] or "") in ("", ":"):
            return None  # a parameter, or a fact about a module
        name = (match[1] or match[2]).replace("``", "`")
        (modules if suffix == "/" else names).append(name)
        at = match.end()
    return ScipSymbol(tuple(modules), tuple(names), suffix) if names else None


def _indexed_name(occurrence: _Occurrence, facts: dict[str, _SymbolFacts]) -> IndexedName | None:
    symbol = symbol_of(occurrence.symbol)
    if symbol is None or len(occurrence.place) < 3 or max(occurrence.place) >= 2**31:
        return None
    line, start, end = occurrence.place[0], occurrence.place[1], occurrence.place[-1]
    if len(occurrence.place) == 4 and occurrence.place[2] != line:
        return None
    defines = bool(occurrence.roles & DEFINITION)
    symbol_facts = facts.get(occurrence.symbol, _SymbolFacts())
    last = occurrence.whole[2] if len(occurrence.whole) == 4 else line
    return IndexedName(
        symbol=symbol.symbol,
        whole=symbol.whole,
        name=symbol.names[-1],
        role="define" if defines else "import" if occurrence.roles & IMPORT else "call",
        kind=symbol_facts.kind or symbol.kind,
        line=line,
        start=start,
        end=end,
        last=min(max(last, line), 2**31 - 2),
        bases=symbol_facts.bases if defines else (),
    )
