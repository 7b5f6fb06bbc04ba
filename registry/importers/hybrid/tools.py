"""Actions to tool drafts: selection, names, input schemas, bindings."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

from registry.importers.hybrid.items import ID_LIMIT, size_of
from registry.importers.hybrid.read import ServiceDescription, UnusableSchema, closed, key_of
from registry.importers.imported import Imported, said, said_in
from registry.importers.untold import of_action
from registry.names.tool_names import assign, legal, suffixed
from schemas.binding import HybridBinding, PythonBinding
from schemas.errors import ImportRejected
from schemas.globs import glob
from schemas.hybrid import Action, Side, split
from schemas.source import Outcome
from schemas.tool import Annotations, ToolDraft

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
    return legal(text) or suffixed("call", text)


def _draft(action: Action, name: str, kind: Kind, side: Side | None) -> ToolDraft:
    if not 1 <= size_of(action.id) <= ID_LIMIT:
        raise ImportRejected(f"{action.id[:60]!r}: an id has 1 to {ID_LIMIT} bytes")
    schema, argument = _input(action)
    parts = split(action.id)
    return ToolDraft(
        key=key_of(action.id),
        name=name,
        description=said(action.description) or _untold(action.id, schema),
        input_schema=schema,
        binding=_binding(action, kind, side, argument),
        annotations=Annotations(read_only_hint=True) if side == "query" else Annotations(),
        tags=(parts["service"],) if parts else (),
    )


def _untold(id_: str, schema: dict[str, Any]) -> str:
    parts = split(id_) or {"service": "", "action": id_}
    return f"{of_action(parts['service'], parts['action'], schema)} Service {id_}"


def _input(action: Action) -> tuple[dict[str, Any], str | None]:
    """The input schema of the tool, and the name of the argument that holds all data, if any."""
    if action.request_schema is None:
        return {"type": "object"}, None
    try:
        schema = said_in(closed(action.request_schema))
    except UnusableSchema as problem:
        raise ImportRejected(f"the schema of {action.id}: {problem}") from problem
    if schema.get("type") == "object":
        return schema, None
    if "type" not in schema and schema.keys() & _ABOUT_OBJECTS:
        return {"type": "object", **schema}, None
    whole = {keyword: schema[keyword] for keyword in schema.keys() & _OF_THE_WHOLE}
    data = {keyword: value for keyword, value in schema.items() if keyword not in whole}
    return {
        "type": "object",
        "required": [ARGUMENT],
        "properties": {ARGUMENT: data},
        **dict(sorted(whole.items())),
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
    described: ServiceDescription,
    kind: Kind,
    side: Side | None,
    include: tuple[str, ...] = (),
    exclude: tuple[str, ...] = (),
) -> Imported:
    """The tools of the selected actions: globs (`*` crosses `/`) over ids and names.

    `include` empty: all. `exclude` wins. Raises ImportRejected, as `drafts` does.
    """
    # assigned before the selection, which must not rename the others
    made = {draft.key: draft for draft in drafts(described.actions, kind, side)}
    outcomes = []
    for outcome in described.outcomes:
        draft = None if outcome.status == "skipped" else made[outcome.key]
        outcomes.append(_judged(outcome, draft, include, exclude) if draft else outcome)
    wanted = {outcome.key for outcome in outcomes if outcome.name is not None}
    return Imported(
        title=described.title,
        version=None,
        servers=(),
        drafts=tuple(draft for key, draft in made.items() if key in wanted),
        outcomes=tuple(outcomes),
        notes=(*described.notes, *_idle(described.outcomes, made, (*include, *exclude))),
    )


def _judged(
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
    outcomes: tuple[Outcome, ...], made: dict[str, ToolDraft], patterns: tuple[str, ...]
) -> list[str]:
    there = [(one, made[one.key]) for one in outcomes if one.status != "skipped"]
    return [
        f"the pattern {pattern!r} matches no action"
        for pattern in patterns
        if not any(_matches(outcome, draft, pattern) for outcome, draft in there)
    ]
