"""Descriptions in several files: file names, references, and assembly into one document.

The other files hang below the member `x-files` of the first one, and every reference between files
becomes a pointer into it: `../models/pet.yaml#/Cat` is `#/x-files/models~1pet.yaml/Cat`. Only this
module handles several files. Pure: it names the missing files, and callers read them.
"""

import posixpath
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from urllib.parse import unquote, urldefrag, urljoin

from schemas.json_schema.pointers import escape_segment, has, unescape

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")


def join(base: str, reference: str) -> str:
    """The name of the file that `reference` in the file `base` points at. A name outside the common
    directory begins with `../` or `/`."""
    if scheme(reference) or is_url(base):
        return join_urls(base, reference)
    path = unquote(reference.partition("?")[0])
    return posixpath.normpath(posixpath.join(posixpath.dirname(base), path))


def join_urls(base: str, reference: str) -> str:
    """Like `urljoin`, without the fragment; an invalid URL stays as it is."""
    try:
        return urldefrag(urljoin(base, reference)).url
    except ValueError:  # http://[
        return reference


def scheme(name: str) -> str:
    """The scheme of a URL; "" for a path."""
    match = _SCHEME.match(name)
    return match[1].lower() if match else ""


def is_url(name: str) -> bool:
    return name.startswith(("http://", "https://"))


# OpenAPI and JSON Schema: members that are maps with arbitrary keys ...
_NAMED_COMPONENTS = frozenset(
    {"properties", "patternProperties", "definitions", "$defs", "dependentSchemas", "schemas"}
    | {"parameters", "responses", "headers", "requestBodies", "paths", "webhooks", "callbacks"}
    | {"links", "securitySchemes", "securityDefinitions", "pathItems", "content", "encoding"}
    | {"variables", "mediaTypes", "additionalOperations"}
)
# ... and example or default values, in which `$ref` is no reference
_LITERAL = frozenset({"default", "example", "examples", "enum", "const", "value", "dataValue"})

_ALL_REFS = (b"$ref", b"$id", b"$self", rb"\u0024", rb"\x24")
_LOCAL_REFS = re.compile(rb"""\$ref["']?\s*:\s*["']?#(?:/|["'\s,}]|$)""")

_NAMES = frozenset({"$id", "$self", "$anchor", "$dynamicAnchor"})
_NAMES_LIMIT = 10_000  # per file
ROOT = ""  # pointer of a whole file


@dataclass(frozen=True, slots=True)
class Reference:
    """An object with a `$ref`."""

    node: dict[str, Any]
    base: str  # pointer of the `$id` around it, in the same file
    literal: bool  # inside an example or a default: perhaps no reference


@dataclass(slots=True)
class Scan:
    """The references of one file, and the names under which it can be referenced."""

    name: str
    tree: Any
    references: list[Reference] = field(default_factory=list)
    ids: dict[str, str] = field(default_factory=dict)  # pointer -> `$id`, `$self`; made absolute
    anchors: dict[str, str] = field(default_factory=dict)  # `$anchor` -> pointer


def stands_alone(data: bytes) -> bool:
    """Whether a file certainly has no references to others; False: only parsing decides."""
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return False
    local = sum(1 for _ in _LOCAL_REFS.finditer(data))  # other threads run between two matches
    return sum(map(data.count, _ALL_REFS)) == local


def scan(name: str, tree: Any) -> Scan:
    """Collect references and identifiers in one pass over a parsed file."""
    scan = Scan(name, tree)
    seen: set[int] = set()  # nodes shared by YAML aliases are visited once
    stack = [_At(tree, None, ROOT)]
    while stack:
        at = stack.pop()
        if id(at.node) not in seen:
            seen.add(id(at.node))
            stack.extend(_visit(scan, at))
    return scan


class _At(NamedTuple):
    """A container visited in a file."""

    node: Any
    path: "_Path | None"
    base: str  # pointer of the `$id` around it
    named: bool = False  # its keys are arbitrary names
    literal: bool = False


# Linked segments, not a pointer per node: keys may be long, and the nesting deep.
_Path = tuple["_Path | None", str]


def _visit(scan: Scan, at: _At) -> Iterator[_At]:
    """Record the references of one container; yields its child containers."""
    if isinstance(at.node, list):
        for index, child in enumerate(at.node):
            if isinstance(child, dict | list):
                yield _At(child, (at.path, str(index)), at.base, False, literal=at.literal)
        return
    base = at.base
    if not at.named and not at.literal and not _NAMES.isdisjoint(at.node):
        base = _identify(scan, at)
    if isinstance(at.node.get("$ref"), str):
        scan.references.append(Reference(at.node, base, at.literal))
    for key, child in at.node.items():
        if isinstance(child, dict | list):
            # at the root of a fragment any key may be a name
            literal = key in _LITERAL and not at.named and at.path is not None
            named = key in _NAMED_COMPONENTS and not at.named
            yield _At(child, (at.path, key), base, named, literal=at.literal or literal)


def _identify(scan: Scan, at: _At) -> str:
    """Record the identifiers of a node; returns the pointer of the `$id` that applies inside it."""
    if len(scan.anchors) + len(scan.ids) >= _NAMES_LIMIT:
        return at.base
    pointer = _pointer(at.path)
    anchor = at.node.get("$anchor", at.node.get("$dynamicAnchor"))
    if isinstance(anchor, str):
        scan.anchors.setdefault(anchor, pointer)
    stated = at.node.get("$self") if at.path is None else None
    stated = stated or at.node.get("$id")
    if not isinstance(stated, str) or stated.startswith("#"):
        return at.base
    scan.ids[pointer] = join_urls(scan.ids.get(at.base, scan.name), stated)
    return pointer


def _pointer(path: "_Path | None") -> str:
    keys = []
    while path is not None:
        path, key = path
        keys.append(escape_segment(key))
    return "".join(f"/{key}" for key in reversed(keys))


FILES = "x-files"


@dataclass(frozen=True, slots=True)
class MissingFile:
    """Placeholder of a file that could not be read."""

    reason: str


class Files:
    """The files of one description, added one by one."""

    def __init__(self, entry: str) -> None:
        self.entry = entry
        self._scans: dict[str, Scan] = {}
        self._unread: dict[str, MissingFile] = {}
        self._places: dict[str, tuple[str, str]] = {}  # `$id` -> file, pointer
        self._wanted: set[str] = set()
        self._self: str | None = None  # the root file's

    def add(self, scan: Scan) -> None:
        self._scans[scan.name] = scan
        for pointer, uri in scan.ids.items():
            self._places.setdefault(uri, (scan.name, pointer))
        if scan.name == self.entry:
            self._self = scan.ids.get(ROOT)
        self._wanted.discard(scan.name)
        for reference in scan.references:
            name = self._target(scan, reference)[0]
            if not (reference.literal or name in self._scans or name in self._unread):
                self._wanted.add(name)

    def miss(self, name: str, reason: str) -> None:
        self._unread[name] = MissingFile(reason)
        self._wanted.discard(name)

    def wanted_names(self) -> list[str]:
        """Names of files that are referenced but not added yet."""
        return sorted(self._wanted)

    def assemble(self) -> dict[str, Any]:
        """The root file with the others in it. Modifies the parsed files, so it works once."""
        root: dict[str, Any] = self._scans[self.entry].tree
        for scan in self._scans.values():
            for reference in scan.references:
                self._rewrite(scan, reference)
        others: dict[str, Any] = {
            name: scan.tree for name, scan in self._scans.items() if name != self.entry
        }
        if others or self._unread:
            root[FILES] = {**others, **self._unread}
        return root

    def _rewrite(self, scan: Scan, reference: Reference) -> None:
        name, base, fragment = self._target(scan, reference)
        if reference.literal and name not in self._scans:
            return
        pointer = self._place(name, base, fragment)
        prefix = "#" if name == self.entry else f"#/{FILES}/{escape_segment(name)}"
        reference.node["$ref"] = prefix + pointer

    def _place(self, name: str, base: str, fragment: str) -> str:
        """Pointer that `fragment` means in a file; `base`: the `$id` that it is relative to."""
        scan = self._scans.get(name)
        if fragment and not fragment.startswith("/"):
            return scan.anchors.get(fragment, f"/{fragment}") if scan else f"/{fragment}"
        # many declare an `$id` and still count from the root of the file
        if scan and base and has(scan.tree, base + fragment):
            return base + fragment
        return fragment

    def _target(self, scan: Scan, reference: Reference) -> tuple[str, str, str]:
        """Target of a reference: file, pointer of the base `$id` in it, fragment."""
        uri, _, fragment = reference.node["$ref"].partition("#")
        if not uri:
            return scan.name, reference.base, fragment
        if self._places:  # rarely any
            absolute = join_urls(scan.ids.get(reference.base, scan.name), uri)
            if absolute in self._places:
                return *self._places[absolute], fragment
            if beside := self._beside(absolute):
                return beside, ROOT, fragment
        return join(scan.name, uri), ROOT, fragment

    def _beside(self, absolute: str) -> str | None:
        """The file beside the root for a URL below the root's `$self`: files that moved together
        keep their relative positions."""
        base = self._self and join_urls(self._self, ".")
        if not base or not absolute.startswith(base):
            return None
        return join(self.entry, absolute.removeprefix(base))


def original_reference(ref: str) -> str:
    """A rewritten reference in its likely original form."""
    prefix = f"#/{FILES}/"
    if not ref.startswith(prefix):
        return ref
    name, _, rest = ref.removeprefix(prefix).partition("/")
    plain = unescape(unquote(name))
    return f"{plain}#/{rest}" if rest else plain
