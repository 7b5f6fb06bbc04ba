"""A description of a hybrid service, in either form, to its actions and what became of each."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from registry.importers.hybrid.closing import UnusableSchema, closed, closed_named
from registry.importers.hybrid.items import WrittenAction, WrittenService, kind, text, written
from registry.importers.openapi import parse
from schemas.errors import ImportRejected
from schemas.hybrid import Action
from schemas.source import Outcome, OutcomeStatus

_FILE = "expected the spec.yaml or schema.json of a hybrid service, a YAML or JSON object"
_INLINE = "its schema stands inline, where light-hybrid-4j does not look: here it is checked"
_NOTES_LIMIT = 5  # in one outcome; a person reads no more


@dataclass(frozen=True, slots=True)
class ServiceDescription:
    """The actions of a description, their ids all different, and one outcome for each item."""

    title: str | None  # host/service, if there is but one
    actions: tuple[Action, ...]
    outcomes: tuple[Outcome, ...]
    notes: tuple[str, ...] = ()  # on the description as a whole


def key_of(id_: str) -> str:
    """What identifies an action inside its source across imports."""
    return f"{id_}@call"


def title_of(ids: list[str]) -> str | None:
    services = {tuple(parts[:2]) for id_ in ids if len(parts := id_.split("/")) == 4}
    return "/".join(services.pop()) if len(services) == 1 else None


def described(actions: Sequence[Action]) -> ServiceDescription:
    """Actions that need no description: their decorators say it all. Their ids are different."""
    outcomes = tuple(_outcome(action.id, []) for action in actions)
    return ServiceDescription(title_of([action.id for action in actions]), tuple(actions), outcomes)


def read_file(data: bytes, location: str) -> ServiceDescription:
    """The service that `data` describes, a spec.yaml or a schema.json. Raises ImportRejected, also
    for a key that stands twice: two readers may believe two different values."""
    document = parse(data, location, _FILE, unique=True)
    try:
        return read_spec(document)
    except ImportRejected as error:
        raise ImportRejected(f"{location}: {error}") from error


def read_spec(document: Any) -> ServiceDescription:
    """The service in `document`, a parsed spec.yaml or schema.json.

    Raises ImportRejected when it is neither, or has no action. What is wrong with one action is
    in its outcome.
    """
    found = written(document)
    if not found.items:
        raise ImportRejected("there are no actions in it: the list `action` is empty")
    return _described(found)


def _described(found: WrittenService) -> ServiceDescription:
    actions: dict[str, Action] = {}
    outcomes = []
    for item in found.items:
        problem = item.problem
        if problem is None and item.label in actions:
            problem = "an action before it has the same id"
        if problem is not None:
            outcomes.append(_outcome(item.label, [problem], skipped=True))
            continue
        notes = list(item.notes)
        actions[item.label] = _action(item, found.shared, notes)
        outcomes.append(_outcome(item.label, notes))
    return ServiceDescription(
        title_of(list(actions)), tuple(actions.values()), tuple(outcomes), found.notes
    )


def _outcome(label: str, notes: list[str], skipped: bool = False) -> Outcome:
    status: OutcomeStatus = "skipped" if skipped else "degraded" if notes else "imported"
    more = len(notes) - _NOTES_LIMIT
    reason = "; ".join(notes[:_NOTES_LIMIT]) + (f"; and {more} more" if more > 0 else "")
    return Outcome(key_of(label), label, None, status, reason or None)


def _action(item: WrittenAction, shared: Mapping[str, Any], notes: list[str]) -> Action:
    request = _request(item, shared, notes)
    skip_auth = item.node.get("skipAuth", False)
    if not isinstance(skip_auth, bool):
        notes.append(f"skipAuth is {kind(skip_auth)}, neither true nor false: taken as false")
    return Action(
        item.label,
        _description(item, request),
        request,
        _response(item, shared),
        _scope(item.node.get("scope")),
        skip_auth is True,
    )


def _request(
    item: WrittenAction, shared: Mapping[str, Any], notes: list[str]
) -> dict[str, Any] | None:
    schema = item.request
    if schema is None:
        return None
    try:
        if not item.inline:
            return closed(schema)
        if isinstance(schema, dict) and "$ref" in schema:
            return closed_named(_referred(schema["$ref"]), shared)
        inline = closed(schema, shared)
    except UnusableSchema as problem:
        notes.append(f"its data is not checked, because of its schema: {problem}")
        return None
    notes.append(_INLINE)
    return inline


def _response(item: WrittenAction, shared: Mapping[str, Any]) -> dict[str, Any] | None:
    """Nobody enforces it, so nobody is told either when it cannot be read."""
    response = item.node.get("response")
    schema = response.get("schema") if isinstance(response, dict) else None
    if not isinstance(schema, dict):
        return None
    try:
        if "$ref" in schema:
            return closed_named(_referred(schema["$ref"]), shared)
        return closed(schema, shared)
    except UnusableSchema:
        return None


def _referred(reference: Any) -> str:
    """The text after the last slash, as light-hybrid-4j takes it."""
    return str(reference).rpartition("/")[2]


def _description(item: WrittenAction, request: dict[str, Any] | None) -> str:
    schema = request or {}
    said = (item.node.get("description"), schema.get("description"), schema.get("title"))
    return next((words for one in said if (words := text(one))), f"Service {item.label}")


def _scope(value: Any) -> str | None:
    if isinstance(value, list):
        return " ".join(filter(None, map(text, value))) or None
    return text(value) or None
