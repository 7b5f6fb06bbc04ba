"""Differences of an import: tools added, changed and removed by another description. Pure."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal

import msgspec
from msgspec import Raw, Struct

from registry.sources.compat import (
    READ_IN_ALL,
    SchemaChange,
    bounded,
    input_changes,
    output_changes,
)
from registry.sources.plan import Changes, Row
from registry.sources.store import Served
from schemas.binding import (
    Binding,
    Credential,
    GraphQLBinding,
    HybridBinding,
    OpenAPIBinding,
    PythonBinding,
    ServiceBinding,
)
from schemas.tool import Tool


def request_changes(before: Binding, after: Binding) -> Iterator[SchemaChange]:
    """Changes of an operation's request: argument locations and required credentials."""
    compare = COMPARISONS.get(type(before))
    if compare is not None and compare is COMPARISONS.get(type(after)):
        yield from compare(before, after)
    elif type(before) is not type(after):
        yield SchemaChange("wire", "", False, "called by another protocol")


def _openapi(before: OpenAPIBinding, after: OpenAPIBinding) -> Iterator[SchemaChange]:
    yield from _moved(_places(before), _places(after))
    yield from _media_types(before, after)
    yield from _security(before.security, after.security)
    if before.server != after.server:
        servers = (one.server or "the source's" for one in (before, after))
        yield SchemaChange("wire", "", False, "server was {}, is {}".format(*servers))


def _graphql(before: GraphQLBinding, after: GraphQLBinding) -> Iterator[SchemaChange]:
    if before.selection != after.selection:
        yield SchemaChange("wire", "", False, "other fields are selected")


def _places(binding: OpenAPIBinding) -> dict[str, str]:
    """The location of each argument, in words."""
    found = {one.argument: f"{one.location} {one.name}" for one in binding.parameters}
    if binding.body:
        found |= {name: f"body {property_}" for name, property_ in binding.body.properties or ()}
        if binding.body.argument:
            found[binding.body.argument] = "body"
    return found


def _moved(before: dict[str, str], after: dict[str, str]) -> Iterator[SchemaChange]:
    for name in sorted(before.keys() & after.keys() - {""}):
        if before[name] != after[name]:
            yield SchemaChange("wire", name, False, f"was {before[name]}, is {after[name]}")


def _media_types(before: OpenAPIBinding, after: OpenAPIBinding) -> Iterator[SchemaChange]:
    was, is_ = (one.body.media_type if one.body else None for one in (before, after))
    if was != is_ and was and is_:
        yield SchemaChange("wire", "", False, f"body was {was}, is {is_}")


Alternatives = tuple[tuple[Credential, ...], ...]


def _security(before: Alternatives, after: Alternatives) -> Iterator[SchemaChange]:
    """Breaking if a caller that satisfied one of the old alternatives now satisfies none."""
    was, now = _needs(before), _needs(after)
    if was == now:
        return
    narrower = not all(any(need <= had for need in now) for had in was)
    yield SchemaChange("security", "", narrower, f"needed {_told(was)}, needs {_told(now)}")


def _needs(alternatives: Alternatives) -> list[frozenset[tuple[str, str]]]:
    """The requirements of each alternative: schemes, and their scopes."""
    return [
        frozenset((one.scheme, scope) for one in needed for scope in ("", *one.scopes))
        for needed in alternatives or ((),)
    ]


def _told(alternatives: list[frozenset[tuple[str, str]]]) -> str:
    texts = [
        " and ".join(f"{scheme} {scope}".strip() for scheme, scope in sorted(needed))
        for needed in alternatives
    ]
    return " or ".join(text or "nothing" for text in texts)


def _service(before: ServiceBinding, after: ServiceBinding) -> Iterator[SchemaChange]:
    """Breaking unless every caller that was allowed still is; any one of the scopes suffices."""
    was, now = _scopes(before), _scopes(after)
    if was != now:
        wider = now is None or (was is not None and (not now or (was and was <= now)))
        text = f"was for {_callers(was)}, is for {_callers(now)}"
        yield SchemaChange("security", "", not wider, text)


def _scopes(binding: ServiceBinding) -> frozenset[str] | None:
    """The scopes of which callers need one; empty: of none. None: not even a token is required."""
    return None if binding.skip_auth else frozenset((binding.scope or "").split())


def _callers(scopes: frozenset[str] | None) -> str:
    if scopes is None:
        return "all"
    return f"the scope {' or '.join(sorted(scopes))}" if scopes else "all with a token"


COMPARISONS: dict[type[Binding], Callable[[Any, Any], Iterator[SchemaChange]]] = {
    OpenAPIBinding: _openapi,
    GraphQLBinding: _graphql,
    HybridBinding: _service,
    PythonBinding: _service,
}
"""What compares two bindings of a kind; of a kind that is not here, nothing is told."""


Fate = Literal["added", "changed", "removed"]


class ToolChange(Struct, frozen=True):
    """The change of one tool."""

    fate: Fate
    name: str  # its new name; of a removed tool, its last one
    operation: str  # its key: /pets/{id}@get
    breaking: bool
    changes: tuple[SchemaChange, ...]


class Difference(Struct, frozen=True):
    """The changes of a whole source, the breaking ones first."""

    source: str
    tools: tuple[ToolChange, ...]
    unchanged: int

    @property
    def breaking(self) -> bool:
        return any(tool.breaking for tool in self.tools)


def difference(source: str, before: Sequence[Served], changes: Changes) -> Difference:
    """The difference of `changes` from the tools served `before`."""
    known = {one.tool.id: one for one in before}
    with bounded(READ_IN_ALL):
        found = [*_removed(before, changes), *_written(known, changes)]
    order = {"removed": 0, "changed": 1, "added": 2}
    found.sort(key=lambda one: (not one.breaking, order[one.fate], one.name))
    added = sum(one.fate == "added" for one in found)
    changed = sum(one.fate == "changed" for one in found)
    return Difference(source, tuple(found), len(changes.saved.names) - added - changed)


def _removed(before: Sequence[Served], changes: Changes) -> Iterator[ToolChange]:
    gone = set(changes.gone)
    for one in before:
        if one.endpoint_id in gone:
            what = SchemaChange("operation", "", True, "removed")
            yield ToolChange("removed", one.tool.name, one.key, True, (what,))


def _written(known: Mapping[str, Served], changes: Changes) -> Iterator[ToolChange]:
    for row in changes.rows:
        was = known.get(row.tool_id)
        if was is None:
            yield ToolChange("added", row.name, row.endpoint, False, ())
        elif found := tuple(_changes(was, row, changes)):
            breaking = any(change.breaking for change in found)
            yield ToolChange("changed", row.name, row.endpoint, breaking, found)


def _changes(was: Served, row: Row, changes: Changes) -> Iterator[SchemaChange]:
    tool = was.tool
    yield from _renamed(tool, row, changes)
    if was.key != row.endpoint:
        yield SchemaChange("wire", "", False, f"was {was.key}, is {row.endpoint}")
    yield from input_changes(_object(tool.input_schema), _as_stored(row.input_schema))
    yield from request_changes(tool.binding, row.binding)
    before = None if tool.output_schema is None else _object(tool.output_schema)
    yield from output_changes(before, _as_stored(row.output_schema))
    yield from _hints(tool, row)
    if (tool.title, tool.description) != (row.title, row.description):
        yield SchemaChange("description", "", False, "described otherwise")
    if tool.toolsets != row.toolsets:
        told = [", ".join(names) or "none" for names in (tool.toolsets, row.toolsets)]
        yield SchemaChange("annotation", "", False, f"toolsets were {told[0]}, are {told[1]}")


def _renamed(tool: Tool, row: Row, changes: Changes) -> Iterator[SchemaChange]:
    if tool.name == row.name:
        return
    if tool.name in changes.aliases:
        yield SchemaChange("name", "", False, f"was {tool.name}, which still calls it")
    else:
        yield SchemaChange("name", "", True, f"was {tool.name}, which no longer calls it")


def _hints(tool: Tool, row: Row) -> Iterator[SchemaChange]:
    before = msgspec.to_builtins(tool.annotations)
    after = msgspec.to_builtins(row.annotations)
    for hint in sorted(before.keys() | after.keys()):
        if before.get(hint) != after.get(hint):
            told = [msgspec.json.encode(one.get(hint)).decode() for one in (before, after)]
            yield SchemaChange("annotation", hint, False, f"was {told[0]}, is {told[1]}")


def _object(raw: Raw) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.json.decode(raw)
    return found


def _as_stored(schema: Any) -> Any:
    """`value` as JSON stores it: a tuple becomes a list."""
    return msgspec.json.decode(msgspec.json.encode(schema))
