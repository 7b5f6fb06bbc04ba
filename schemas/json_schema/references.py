"""References inside one schema: where they lead, and which definitions a part needs.

A reference is a URI whose fragment is a JSON Pointer (`#/$defs/Pet`), or the name of an anchor.
What lies outside the document is never looked for.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any
from urllib.parse import unquote

from schemas.json_schema.keywords import DEFINITION_KEYWORDS, REFERENCE_KEYWORDS, Json
from schemas.json_schema.pointers import ABSENT, escape_segment, segments, step
from schemas.json_schema.walk import nodes

_REFERENCE = re.compile(rb'"\$ref"\s*:')
_LONGEST = 4096  # characters of a reference
_BASES = 32  # places with an `$id` of their own that `#/...` may be meant from


def reference_of(schema: Any) -> str | None:
    """The `$ref` of a schema; None for one without, or with one that is no text."""
    reference = schema.get("$ref") if isinstance(schema, dict) else None
    return reference if isinstance(reference, str) else None


def is_bare_reference(schema: Json) -> bool:
    """Whether a schema is a reference and nothing else."""
    return schema.keys() == {"$ref"}


def siblings(schema: Json) -> Json:
    """The keywords of a schema beside its `$ref`."""
    return {keyword: value for keyword, value in schema.items() if keyword != "$ref"}


def refer_to(name: str) -> Json:
    """The schema that refers to the definition `name`."""
    return reference_to(f"#/$defs/{escape_segment(name)}")


def reference_to(pointer: str) -> Json:
    """The object that refers to a pointer; in OpenAPI and AsyncAPI not only to schemas."""
    return {"$ref": pointer}


def has_references(schema_json: bytes) -> bool:
    """Whether a schema, as JSON, may have a reference; False is certain."""
    return b'"$ref"' in schema_json and _REFERENCE.search(schema_json) is not None


def find(root: Any, reference: object) -> Any:
    """The target of a reference that is a pointer into the document `root`; ABSENT if there is
    none."""
    if not isinstance(reference, str) or (reference != "#" and not reference.startswith("#/")):
        return ABSENT
    if len(reference) > _LONGEST:
        return ABSENT
    node = root
    for segment in _pointer_segments(reference):
        node = step(node, segment)
        if node is ABSENT:
            break
    return node


@lru_cache(maxsize=1024)
def _pointer_segments(reference: str) -> tuple[str, ...]:
    return tuple(segments(unquote(reference)))


class SchemaDocument:
    """A schema whose parts have names beside their pointers: `$id` and anchors.

    An embedded `$id` changes what the references below it are relative to (JSON Schema 2020-12,
    section 8.2.1), so that `#/...` and relative URIs are looked up from each of these places: who
    asks for costs or marks sees every target that a validator may take.
    """

    def __init__(self, root: Any) -> None:
        self._root = root
        self._ids: dict[str, list[Json]] = {}
        self._anchors: dict[str, list[Json]] = {}
        self._targets: dict[str, list[Any]] = {}
        for node in nodes(root):
            if isinstance(node, dict):
                self._add_names(node)
        embedded = [node for same in self._ids.values() for node in same if node is not root]
        self.has_known_bases = len(embedded) <= _BASES
        self._bases = [root, *embedded[:_BASES]]

    def targets(self, schema: Json) -> Iterator[Any]:
        """All targets that the references of a schema may have; ABSENT for one that has none."""
        for keyword in REFERENCE_KEYWORDS:
            if isinstance(reference := schema.get(keyword), str):
                yield from self._targets_of(reference) or (ABSENT,)

    def _targets_of(self, reference: str) -> Sequence[Any]:
        if len(reference) > _LONGEST:
            return ()
        if (targets := self._targets.get(reference)) is None:
            targets = self._targets[reference] = list(self._look_up(reference))
        return targets

    def _look_up(self, reference: str) -> Iterator[Any]:
        base, _, fragment = reference.partition("#")
        if fragment and not fragment.startswith("/"):
            yield from self._anchors.get(unquote(fragment), ())
            return
        bases = self._ids.get(_last_segment(base), ()) if base else self._bases
        candidates = (find(node, f"#{fragment}") for node in bases)
        yield from {id(target): target for target in candidates if target is not ABSENT}.values()

    def _add_names(self, node: Json) -> None:
        if isinstance(name := node.get("$id"), str):
            self._ids.setdefault(_last_segment(name.rstrip("#")), []).append(node)
        for keyword in ("$anchor", "$dynamicAnchor"):
            if isinstance(name := node.get(keyword), str):
                self._anchors.setdefault(name, []).append(node)


def _last_segment(uri: str) -> str:
    """The part of a URI that stays, whatever base it is relative to."""
    return uri.rpartition("/")[2]


def definition_name(schema: Any) -> str:
    """`Pet` for a schema that refers to `#/$defs/Pet`; "" for any other."""
    keyword, name = _definition_place(reference_of(schema) or "")
    return name if keyword == "$defs" else ""


def dereference(schema: Json, definitions: Mapping[str, Any]) -> Any:
    """The definition that a schema refers to; the schema itself, if there is none."""
    name = definition_name(schema)
    return definitions[name] if name and name in definitions else schema


def _definition_place(reference: str) -> tuple[str, str]:
    """The keyword and the name of the definition that a reference leads into."""
    if not reference.startswith("#/"):
        return "", ""
    keyword, *steps = segments(unquote(reference))
    return (keyword, steps[0]) if steps and keyword in DEFINITION_KEYWORDS else ("", "")


def close(part: Json, root: Json) -> Json:
    """A part of the schema `root` with the definitions that it reaches, and no others."""
    needed: dict[str, set[str]] = {keyword: set() for keyword in DEFINITION_KEYWORDS}
    waiting: list[Any] = [part]
    while waiting:
        for node in nodes(waiting.pop()):
            keyword, name = _definition_place(reference_of(node) or "")
            if keyword and name not in needed[keyword]:
                needed[keyword].add(name)
                waiting.append(step(root.get(keyword), name))
    closed = dict(part)
    for keyword, names in needed.items():
        definitions = root.get(keyword)
        named_definitions = definitions.items() if names and isinstance(definitions, dict) else ()
        if members := {name: definition for name, definition in named_definitions if name in names}:
            closed[keyword] = members
    return closed
