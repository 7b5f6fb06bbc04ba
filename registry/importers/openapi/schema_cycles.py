"""Cycles of references between components.

`Node -> properties -> children -> Node` ends with the data. `Pet -> oneOf -> Cat -> allOf
-> Pet`, the usual way to write a base class with a discriminator, never ends: jsonschema overflows
its stack there. Components and the references *in place* between them form a graph; a reference
inside a strongly connected component of it is cyclic.
"""

from collections.abc import Callable, Collection, Iterator
from typing import Any, Literal

from registry.importers.openapi.document import OpenApiDocument, SkipOperation, canonical
from registry.importers.openapi.old_keywords import modernise
from schemas.json_schema.keywords import COMPOSITIONS, CONDITIONS, UNIONS
from schemas.json_schema.references import reference_of
from schemas.json_schema.walk import subschemas
from schemas.untrusted_json import mapping

# How a subschema applies to the same value: always, or as one of several choices.
Place = Literal["always", "choice"]
Turn = Literal["follow", "without_choices", "cut"]

IN_PLACE = (*COMPOSITIONS, "not", *CONDITIONS, "dependentSchemas")


class Cycles:
    """Decides for each reference between components how to follow it, so that validation
    terminates."""

    def __init__(self, document: OpenApiDocument) -> None:
        self._document = document
        self._edges: dict[str, tuple[tuple[str, Place], ...]] = {}
        self._any = Groups(lambda node: [to for to, _ in self._references(node)])
        self._always = Groups(lambda node: self._to(node, "always"))
        self._choice = Groups(lambda node: self._to(node, "choice"))

    def turn(self, origin: str, target: str, place: Place) -> Turn:
        """A child that includes its base (`allOf`) needs the base without its choice of children.
        References that still form a cycle, by inclusion only or by choice only, add no constraint:
        cut."""
        if origin == target:
            return "cut"
        if place == "choice":
            return "cut" if self._choice.together(origin, target) else "follow"
        if self._always.together(origin, target):
            return "cut"
        return "without_choices" if self._any.together(origin, target) else "follow"

    def _to(self, node: str, kind: Place) -> list[str]:
        return [target for target, place in self._references(node) if place == kind]

    def _references(self, pointer: str) -> tuple[tuple[str, Place], ...]:
        if pointer not in self._edges:
            try:
                schema = self._document.find(pointer)
            except SkipOperation:
                schema = None  # reported by the conversion of the reference
            self._edges[pointer] = tuple(_in_place(schema, "always", 0))
        return self._edges[pointer]


def _in_place(raw: object, place: Place, depth: int) -> Iterator[tuple[str, Place]]:
    if depth > DEPTH_LIMIT:
        return
    schema = modernise(mapping(raw))
    ref = reference_of(schema)
    if ref is not None and ref.startswith("#"):
        yield canonical(ref), place
    for keyword, branch in _branches(schema):
        chosen = keyword in UNIONS
        yield from _in_place(branch, "choice" if chosen else place, depth + 1)


def _branches(schema: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    for keyword in IN_PLACE:
        for branch in subschemas(schema, [keyword]):
            yield keyword, branch


class Groups:
    """Strongly connected components of a graph, computed lazily (Tarjan, SIAM J. Comput. 1972).
    Iterative; all queries together cost one pass over the graph."""

    def __init__(self, successors: Callable[[str], Collection[str]]) -> None:
        self._successors = successors
        self._number: dict[str, int] = {}  # order of discovery
        self._low: dict[str, int] = {}  # lowest number reachable
        self._group: dict[str, int] = {}
        self._open: list[str] = []  # discovered, component unknown yet

    def together(self, origin: str, target: str) -> bool:
        """Whether both are in the same component."""
        for node in (origin, target):
            if node not in self._group:
                self._explore(node)
        return self._group[origin] == self._group[target]

    def _explore(self, root: str) -> None:
        path = [(root, self._enter(root))]
        while path:
            node, successors = path[-1]
            for successor in successors:
                if successor not in self._number:
                    path.append((successor, self._enter(successor)))
                    break
                if successor not in self._group:
                    self._low[node] = min(self._low[node], self._number[successor])
            else:
                path.pop()
                self._leave(node, path[-1][0] if path else None)

    def _enter(self, node: str) -> Iterator[str]:
        self._number[node] = self._low[node] = len(self._number)
        self._open.append(node)
        return iter(self._successors(node))

    def _leave(self, node: str, parent: str | None) -> None:
        if parent is not None:
            self._low[parent] = min(self._low[parent], self._low[node])
        if self._low[node] == self._number[node]:
            while self._open and node not in self._group:
                self._group[self._open.pop()] = self._number[node]


DEPTH_LIMIT = 64  # levels; operations with deeper schemas are rejected
