"""What one file of a description refers to, and by which names others can refer to its parts."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from registry.importers.openapi.file_names import joined
from registry.importers.openapi.pointers import escaped

# OpenAPI and JSON Schema: members that hold objects by names of their authors' choice ...
_NAMED = frozenset(
    {"properties", "patternProperties", "definitions", "$defs", "dependentSchemas", "schemas"}
    | {"parameters", "responses", "headers", "requestBodies", "paths", "webhooks", "callbacks"}
    | {"links", "securitySchemes", "securityDefinitions", "pathItems", "content", "encoding"}
    | {"variables", "mediaTypes", "additionalOperations"}
)
# ... and values of the service, in which `$ref` is no reference
_LITERAL = frozenset({"default", "example", "examples", "enum", "const", "value", "dataValue"})

_ALL_REFS = re.compile(rb"\$ref|\$id|\$self|\\u0024|\\x24")
_LOCAL_REFS = re.compile(rb"""\$ref["']?\s*:\s*["']?#(?:/|["'\s,}]|$)""")

_NAMES = frozenset({"$id", "$self", "$anchor", "$dynamicAnchor"})
_NAMES_LIMIT = 10_000  # in one file
ROOT = ""  # pointer of a whole file


@dataclass(frozen=True, slots=True)
class Reference:
    """An object with a `$ref`."""

    node: dict[str, Any]
    base: str  # pointer of the `$id` around it, in the same file
    literal: bool  # inside an example or a default: perhaps no reference


@dataclass(slots=True)
class Scan:
    """What one file refers to, and the names by which it can be referred to."""

    name: str
    tree: Any
    references: list[Reference] = field(default_factory=list)
    ids: dict[str, str] = field(default_factory=dict)  # pointer -> `$id`, `$self`; made absolute
    anchors: dict[str, str] = field(default_factory=dict)  # `$anchor` -> pointer


def stands_alone(data: bytes) -> bool:
    """Whether a file surely refers to no other one; False: it has to be parsed to know."""
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return False
    return len(_ALL_REFS.findall(data)) == len(_LOCAL_REFS.findall(data))


def scan(name: str, tree: Any) -> Scan:
    """One pass over a parsed file."""
    found = Scan(name, tree)
    seen: set[int] = set()  # what YAML aliases share is looked at once
    stack = [_At(tree, None, ROOT)]
    while stack:
        at = stack.pop()
        if id(at.node) not in seen:
            seen.add(id(at.node))
            stack.extend(_visit(found, at))
    return found


class _At(NamedTuple):
    """A container on the way through a file."""

    node: Any
    path: "_Path | None"
    base: str  # pointer of the `$id` around it
    named: bool = False  # its keys are names of somebody's choice
    literal: bool = False


# Not a pointer for each place: keys may be long, and the nesting deep.
_Path = tuple["_Path | None", str]


def _visit(found: Scan, at: _At) -> Iterator[_At]:
    """Note what is said in one container; the containers in it."""
    if isinstance(at.node, list):
        for index, child in enumerate(at.node):
            if isinstance(child, dict | list):
                yield _At(child, (at.path, str(index)), at.base, False, at.literal)
        return
    base = at.base
    if not at.named and not at.literal and not _NAMES.isdisjoint(at.node):
        base = _identify(found, at)
    if isinstance(at.node.get("$ref"), str):
        found.references.append(Reference(at.node, base, at.literal))
    for key, child in at.node.items():
        if isinstance(child, dict | list):
            # of a fragment's root anything may be a name
            literal = key in _LITERAL and not at.named and at.path is not None
            named = key in _NAMED and not at.named
            yield _At(child, (at.path, key), base, named, at.literal or literal)


def _identify(found: Scan, at: _At) -> str:
    """Note the names of a place; the pointer of the `$id` that holds for what is in it."""
    if len(found.anchors) + len(found.ids) >= _NAMES_LIMIT:
        return at.base
    pointer = _pointer(at.path)
    anchor = at.node.get("$anchor", at.node.get("$dynamicAnchor"))
    if isinstance(anchor, str):
        found.anchors.setdefault(anchor, pointer)
    stated = at.node.get("$self") if at.path is None else None
    stated = stated or at.node.get("$id")
    if not isinstance(stated, str) or stated.startswith("#"):
        return at.base
    found.ids[pointer] = joined(found.ids.get(at.base, found.name), stated)
    return pointer


def _pointer(path: "_Path | None") -> str:
    keys = []
    while path is not None:
        path, key = path
        keys.append(escaped(key))
    return "".join(f"/{key}" for key in reversed(keys))
