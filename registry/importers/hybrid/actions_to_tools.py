"""A description of a hybrid service to actions, and actions to tool drafts.

References are not expanded, so cycles stay cycles, and only reachable schemas are included. Inside
a schema, `#/schemas/X` means the shared schema X of the document; any other pointer is relative to
the schema that contains it.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple
from urllib.parse import unquote

import msgspec

from registry.documents.yaml_and_json import parse
from registry.importers.drafts import (
    ImportedDescription,
    join_notes,
    plain_description,
    with_plain_descriptions,
)
from registry.importers.generated_descriptions import action_description
from registry.importers.hybrid.written_actions import (
    ID_LIMIT,
    WrittenAction,
    WrittenService,
    kind,
    read_document,
    size_of,
    text,
)
from registry.names.tool_names import add_suffix, assign, legal
from schemas.binding import HybridBinding, PythonBinding
from schemas.errors import ImportRejected
from schemas.globs import glob
from schemas.hybrid import Action, Side, split
from schemas.json_schema.checker import Checker
from schemas.json_schema.keywords import (
    DEFINITION_KEYWORDS,
    LIST_KEYWORDS,
    MAP_KEYWORDS,
    REFERENCE_KEYWORDS,
    SINGLE_KEYWORDS,
)
from schemas.json_schema.pointers import ABSENT, segments, step
from schemas.source import Outcome, OutcomeStatus
from schemas.tool import Annotations, ToolDraft

DEFINITIONS_LIMIT = 2_000  # as for OpenAPI; no model reads more

# Reachable definitions are included anyway. Identifiers would change the meaning of `#` below them,
# and duplicate anchors do not compile.
_DROPPED_KEYWORDS = frozenset(
    (*DEFINITION_KEYWORDS, "$schema", "$id", "$anchor", "$dynamicAnchor", "$recursiveAnchor")
)
_REMARKS = _DROPPED_KEYWORDS | {"$ref", "$comment", "title", "description"}


class UnusableSchema(Exception):
    """A schema that cannot validate any data; `str()` is the reason."""


class _Place(NamedTuple):
    resource: str | None  # name of a shared schema; None: the one being closed
    path: tuple[str, ...]  # inside it


def close_schema(schema: Any, definitions: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """`schema` bundled with everything that it refers to; compiled once, so known to be valid.

    Raises UnusableSchema.
    """
    return _close_and_check(schema, None, definitions or {})


def closed_named(name: str, definitions: Mapping[str, Any]) -> dict[str, Any]:
    """The same of the shared schema `name`."""
    if name not in definitions:
        raise UnusableSchema(f"no schema is called {name!r}")
    return _close_and_check(definitions[name], name, definitions)


def _close_and_check(
    schema: Any, name: str | None, definitions: Mapping[str, Any]
) -> dict[str, Any]:
    try:
        closed = _Closing(schema, definitions).run(_Place(name, ()))
        Checker(msgspec.json.encode(closed))
    except RecursionError as error:
        raise UnusableSchema("it is nested too deeply") from error
    except (ValueError, TypeError) as error:
        reason = str(error).partition("\n")[0]
        raise UnusableSchema(f"it is no valid JSON Schema: {reason[:300]}") from error
    return closed


class _Closing:
    """Bundles one schema with its dependencies."""

    def __init__(self, schema: Any, definitions: Mapping[str, Any]) -> None:
        self._schema = schema
        self._shared = definitions
        self._names: dict[_Place, str] = {}
        self._waiting: list[_Place] = []

    def run(self, place: _Place) -> dict[str, Any]:
        remarks, place = self._follow_references(place)
        target = self._target(place)
        rewritten = self._rewritten(target, place.resource)
        if not isinstance(rewritten, dict):
            rewritten = {} if rewritten else {"not": {}}
        dialect = target.get("$schema") if isinstance(target, dict) else None
        head = {"$schema": dialect} if isinstance(dialect, str) else {}
        definitions = self._definitions()
        return {**head, **rewritten, **remarks, **({"$defs": definitions} if definitions else {})}

    def _follow_references(self, place: _Place) -> tuple[dict[str, Any], _Place]:
        """The annotations beside a chain of bare references, and the place that it leads to."""
        remarks: dict[str, Any] = {}
        seen = {place}
        while isinstance(target := self._target(place), dict) and target.keys() <= _REMARKS:
            if "$ref" not in target:
                break
            texts = {name: target[name] for name in ("title", "description") if name in target}
            remarks = texts | remarks
            place = self._place(target["$ref"], place.resource)
            if place in seen:
                raise UnusableSchema(f"the reference {target['$ref']} leads to itself")
            seen.add(place)
        return remarks, place

    def _definitions(self) -> dict[str, Any]:
        definitions: dict[str, Any] = {}
        while self._waiting:
            if len(definitions) > DEFINITIONS_LIMIT:
                raise UnusableSchema(f"it needs more than {DEFINITIONS_LIMIT:,} others")
            place = self._waiting.pop()
            rewritten = self._rewritten(self._target(place), place.resource)
            definitions[self._names[place]] = rewritten
        return {name: definitions[name] for name in sorted(definitions)}

    def _rewritten(self, schema: Any, resource: str | None) -> Any:
        if isinstance(schema, list):
            return [self._rewritten(item, resource) for item in schema]
        if not isinstance(schema, dict):
            return schema
        return {
            str(keyword): self._value(keyword, value, resource)
            for keyword, value in schema.items()
            if keyword not in _DROPPED_KEYWORDS and not (keyword == "id" and isinstance(value, str))
        }

    def _value(self, keyword: Any, value: Any, resource: str | None) -> Any:
        if keyword in MAP_KEYWORDS and isinstance(value, dict):
            return {str(name): self._rewritten(member, resource) for name, member in value.items()}
        if keyword in SINGLE_KEYWORDS or keyword in LIST_KEYWORDS:
            return self._rewritten(value, resource)
        if keyword == "$ref":
            return f"#/$defs/{self._name(self._place(value, resource))}"
        if keyword in REFERENCE_KEYWORDS:
            raise UnusableSchema(f"{keyword} is not understood")
        return value

    def _place(self, reference: Any, resource: str | None) -> _Place:
        if not isinstance(reference, str) or not reference.startswith("#"):
            raise UnusableSchema(f"the reference {reference!r} leads out of the document")
        pointer = unquote(reference)
        if pointer != "#" and not pointer.startswith("#/"):
            raise UnusableSchema(f"the reference {reference} is no path such as #/schemas/Name")
        path = tuple(segments(pointer))
        if path[:1] == ("schemas",) and len(path) > 1:
            if path[1] not in self._shared:
                raise UnusableSchema(f"no schema is called {path[1]!r}")
            return _Place(path[1], path[2:])
        return _Place(resource, path)

    def _target(self, place: _Place) -> Any:
        target = self._schema if place.resource is None else self._shared[place.resource]
        for segment in place.path:
            target = step(target, segment)
        if target is ABSENT:
            raise UnusableSchema(f"the reference #/{'/'.join(place.path)} leads nowhere")
        if not isinstance(target, dict | bool):
            raise UnusableSchema(f"a schema is a mapping, not {type(target).__name__}")
        return target

    def _name(self, place: _Place) -> str:
        if place not in self._names:
            last = place.path[-1] if place.path else place.resource or "Data"
            name = legal(last) or "Schema"
            if name in self._names.values():
                name = add_suffix(name, repr(place))
            self._names[place] = name
            self._waiting.append(place)
        return self._names[place]


_FILE = "expected the spec.yaml or schema.json of a hybrid service, a YAML or JSON object"
_INLINE = "its schema stands inline, where light-hybrid-4j does not look: here it is checked"


@dataclass(frozen=True, slots=True)
class ServiceDescription:
    """The actions of a description, with unique ids, and one outcome for each item."""

    title: str | None  # host/service, if unique
    actions: tuple[Action, ...]
    outcomes: tuple[Outcome, ...]
    notes: tuple[str, ...] = ()  # on the description as a whole


def key_of(id_: str) -> str:
    """Key of an action inside its source, stable across imports."""
    return f"{id_}@call"


def title_of(ids: list[str]) -> str | None:
    services = {tuple(parts[:2]) for id_ in ids if len(parts := id_.split("/")) == 4}
    return "/".join(services.pop()) if len(services) == 1 else None


def describe_actions(actions: Sequence[Action]) -> ServiceDescription:
    """Actions declared in code, by decorators: they need no description. Their ids are unique."""
    outcomes = tuple(_outcome(action.id, []) for action in actions)
    return ServiceDescription(title_of([action.id for action in actions]), tuple(actions), outcomes)


def read_file(data: bytes, location: str) -> ServiceDescription:
    """The service described by `data`, a spec.yaml or a schema.json. Raises ImportRejected, also
    for a duplicate key: two parsers may take different values."""
    document = parse(data, location, _FILE, unique=True)
    try:
        return read_spec(document)
    except ImportRejected as error:
        raise ImportRejected(f"{location}: {error}") from error


def read_spec(document: Any) -> ServiceDescription:
    """The service in `document`, a parsed spec.yaml or schema.json.

    Raises ImportRejected when it is neither, or has no action. Errors in one action are in its
    outcome.
    """
    service = read_document(document)
    if not service.items:
        raise ImportRejected("there are no actions in it: the list `action` is empty")
    return _describe_service(service)


def _describe_service(service: WrittenService) -> ServiceDescription:
    actions: dict[str, Action] = {}
    outcomes = []
    for item in service.items:
        problem = item.problem
        if problem is None and item.label in actions:
            problem = "an action before it has the same id"
        if problem is not None:
            outcomes.append(_outcome(item.label, [problem], skipped=True))
            continue
        notes = list(item.notes)
        actions[item.label] = _action(item, service.shared, notes)
        outcomes.append(_outcome(item.label, notes))
    return ServiceDescription(
        title_of(list(actions)), tuple(actions.values()), tuple(outcomes), service.notes
    )


def _outcome(label: str, notes: list[str], skipped: bool = False) -> Outcome:
    status: OutcomeStatus = "skipped" if skipped else "degraded" if notes else "imported"
    return Outcome(key_of(label), label, None, status, reason=join_notes(notes))


def _action(item: WrittenAction, definitions: Mapping[str, Any], notes: list[str]) -> Action:
    request = _request(item, definitions, notes)
    skip_auth = item.node.get("skipAuth", False)
    if not isinstance(skip_auth, bool):
        notes.append(f"skipAuth is {kind(skip_auth)}, neither true nor false: taken as false")
    return Action(
        item.label,
        _description(item, request),
        request,
        _response(item, definitions),
        scope=_scope(item.node.get("scope")),
        skip_auth=skip_auth is True,
    )


def _request(
    item: WrittenAction, definitions: Mapping[str, Any], notes: list[str]
) -> dict[str, Any] | None:
    schema = item.request
    if schema is None:
        return None
    try:
        if not item.inline:
            return close_schema(schema)
        if isinstance(schema, dict) and "$ref" in schema:
            return closed_named(_referenced_name(schema["$ref"]), definitions)
        inline = close_schema(schema, definitions)
    except UnusableSchema as problem:
        notes.append(f"its data is not checked, because of its schema: {problem}")
        return None
    notes.append(_INLINE)
    return inline


def _response(item: WrittenAction, definitions: Mapping[str, Any]) -> dict[str, Any] | None:
    """The response schema; it is never enforced, so an unreadable one is dropped without a note."""
    response = item.node.get("response")
    schema = response.get("schema") if isinstance(response, dict) else None
    if not isinstance(schema, dict):
        return None
    try:
        if "$ref" in schema:
            return closed_named(_referenced_name(schema["$ref"]), definitions)
        return close_schema(schema, definitions)
    except UnusableSchema:
        return None


def _referenced_name(reference: Any) -> str:
    """The text after the last slash, which is what light-hybrid-4j uses."""
    return str(reference).rpartition("/")[2]


def _description(item: WrittenAction, request: dict[str, Any] | None) -> str:
    schema = request or {}
    texts = (item.node.get("description"), schema.get("description"), schema.get("title"))
    return next(
        (words for candidate in texts if (words := text(candidate))), f"Service {item.label}"
    )


def _scope(value: Any) -> str | None:
    if isinstance(value, list):
        return " ".join(filter(None, map(text, value))) or None
    return text(value) or None


Kind = Literal["hybrid", "python"]

ARGUMENT = "data"  # of a tool whose action takes a value other than an object

_ABOUT_OBJECTS = frozenset(("properties", "required", "additionalProperties", "patternProperties"))
_OF_THE_WHOLE = frozenset(("$schema", "$defs"))


def drafts(actions: Sequence[Action], kind: Kind, side: Side | None = None) -> list[ToolDraft]:
    """One draft for each action, in their order; `side` is the default for actions that name none.

    Raises ImportRejected for a request schema that cannot be compiled; `read_spec` returns none.
    """
    names = _names([action.id for action in actions])
    return [_draft(action, names[action.id], kind, action.side or side) for action in actions]


def _names(ids: Sequence[str]) -> dict[str, str]:
    """`rule_deleteRule`; where that is ambiguous, also the version and then the host."""
    forms = {id_: _forms(id_) for id_ in ids}
    lengths = dict.fromkeys(ids, 0)
    for longer in (1, 2):
        claims = Counter(forms[id_][lengths[id_]].casefold() for id_ in ids)
        for id_ in ids:
            if claims[forms[id_][lengths[id_]].casefold()] > 1:
                lengths[id_] = longer
    return assign({id_: (forms[id_][lengths[id_]], None) for id_ in ids})


def _forms(id_: str) -> tuple[str, str, str]:
    """Candidate names of an action, best first."""
    parts = split(id_)
    if parts is None:
        name = _legal(id_)
        return name, name, name
    short = f"{parts['service']}_{parts['action']}"
    medium = f"{short}_{parts['version']}"
    return _legal(short), _legal(medium), _legal(f"{parts['host']}_{medium}")


def _legal(text: str) -> str:
    return legal(text) or add_suffix("call", text)


def _draft(action: Action, name: str, kind: Kind, side: Side | None) -> ToolDraft:
    if not 1 <= size_of(action.id) <= ID_LIMIT:
        raise ImportRejected(f"{action.id[:60]!r}: an id has 1 to {ID_LIMIT} bytes")
    schema, argument = _input(action)
    parts = split(action.id)
    return ToolDraft(
        key=key_of(action.id),
        name=name,
        description=plain_description(action.description)
        or _generated_description(action.id, schema),
        input_schema=schema,
        binding=_binding(action, kind, side, argument),
        annotations=Annotations(read_only_hint=True) if side == "query" else Annotations(),
        tags=(parts["service"],) if parts else (),
    )


def _generated_description(id_: str, schema: dict[str, Any]) -> str:
    parts = split(id_) or {"service": "", "action": id_}
    return f"{action_description(parts['service'], parts['action'], schema)} Service {id_}"


def _input(action: Action) -> tuple[dict[str, Any], str | None]:
    """The input schema of the tool, and the name of the argument that holds all data, if any."""
    if action.request_schema is None:
        return {"type": "object"}, None
    try:
        schema = with_plain_descriptions(close_schema(action.request_schema))
    except UnusableSchema as problem:
        raise ImportRejected(f"the schema of {action.id}: {problem}") from problem
    if schema.get("type") == "object":
        return schema, None
    if "type" not in schema and schema.keys() & _ABOUT_OBJECTS:
        return {"type": "object", **schema}, None
    root_keywords = {keyword: schema[keyword] for keyword in schema.keys() & _OF_THE_WHOLE}
    data = {keyword: value for keyword, value in schema.items() if keyword not in root_keywords}
    return {
        "type": "object",
        "required": [ARGUMENT],
        "properties": {ARGUMENT: data},
        **dict(sorted(root_keywords.items())),
    }, ARGUMENT


def _binding(
    action: Action, kind: Kind, side: Side | None, argument: str | None
) -> HybridBinding | PythonBinding:
    validated = action.request_schema is not None
    shared = (action.id, action.scope, action.skip_auth, side, validated, argument)
    if kind == "hybrid":
        return HybridBinding(*shared)
    return PythonBinding(*shared, positional=action.positional, rest=action.rest)


def select(
    service: ServiceDescription,
    kind: Kind,
    side: Side | None,
    include: tuple[str, ...] = (),
    *,
    exclude: tuple[str, ...] = (),
) -> ImportedDescription:
    """The tools of the selected actions: globs (`*` crosses `/`) over ids and names.

    `include` empty: all. `exclude` wins. Raises ImportRejected, as `drafts` does.
    """
    # assigned before the selection, which must not rename the others
    by_key = {draft.key: draft for draft in drafts(service.actions, kind, side)}
    outcomes = []
    for outcome in service.outcomes:
        draft = None if outcome.status == "skipped" else by_key[outcome.key]
        outcomes.append(_select_outcome(outcome, draft, include, exclude) if draft else outcome)
    selected_keys = {outcome.key for outcome in outcomes if outcome.name is not None}
    return ImportedDescription(
        title=service.title,
        version=None,
        servers=(),
        drafts=tuple(draft for key, draft in by_key.items() if key in selected_keys),
        outcomes=tuple(outcomes),
        notes=(*service.notes, *_idle(service.outcomes, by_key, (*include, *exclude))),
    )


def _select_outcome(
    outcome: Outcome, draft: ToolDraft, include: tuple[str, ...], exclude: tuple[str, ...]
) -> Outcome:
    for pattern in exclude:
        if _matches(outcome, draft, pattern):
            return replace(outcome, status="excluded", reason=f"excluded by {pattern!r}")
    if include and not any(_matches(outcome, draft, pattern) for pattern in include):
        return replace(outcome, status="excluded", reason="not included")
    return replace(outcome, name=draft.name)


def _matches(outcome: Outcome, draft: ToolDraft, pattern: str) -> bool:
    return glob(pattern).match_any((outcome.operation, draft.name))


def _idle(
    outcomes: tuple[Outcome, ...], by_key: dict[str, ToolDraft], patterns: tuple[str, ...]
) -> list[str]:
    considered = [
        (outcome, by_key[outcome.key]) for outcome in outcomes if outcome.status != "skipped"
    ]
    return [
        f"the pattern {pattern!r} matches no action"
        for pattern in patterns
        if not any(_matches(outcome, draft, pattern) for outcome, draft in considered)
    ]
