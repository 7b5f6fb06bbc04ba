"""Import pipeline of GraphQL: load, name, select, map each field, report."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from msgspec import UNSET

from registry.importers.drafts import SCHEMAS_LIMIT_BYTES, ImportedDescription, join_notes
from registry.importers.graphql.introspection import load
from registry.importers.graphql.overlays import FieldMarks, GraphQLOverlay
from registry.importers.graphql.schema import Schema
from registry.importers.graphql.tool_drafts import OPERATIONS, GraphQLDrafts, Root
from registry.importers.openapi.document import SkipOperation
from registry.importers.openapi.schema_budgets import SizeBudget
from registry.names.tool_names import assign, legal, limit_for
from schemas.errors import ImportRejected
from schemas.globs import glob
from schemas.source import Outcome, OutcomeStatus
from schemas.tool import ToolDraft

FIELDS_LIMIT = 10_000  # as many as operations of an OpenAPI description

_SUBSCRIPTION = "a subscription answers for as long as it is open; a tool answers once"
_FEDERATION = ("_entities", "_service")  # Apollo Federation: between its router and subgraphs


@dataclass(frozen=True, slots=True)
class GraphQLChoice:
    """Globs (`fnmatch`) against the tool's name, the field or `Query.field`; `tag:mutation` matches
    all mutations. `include` empty: all. `exclude` wins."""

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    overlay: GraphQLOverlay = field(default_factory=GraphQLOverlay)
    only_marked: bool = False
    depth: int = 3
    cost: int = 60
    schemas_limit_bytes: int = SCHEMAS_LIMIT_BYTES


_EVERYTHING = GraphQLChoice()


def read(
    data: bytes, location: str, options: GraphQLChoice = _EVERYTHING, endpoint: str | None = None
) -> ImportedDescription:
    """`endpoint` is the URL that was introspected, if any. Raises ImportRejected only where no
    field could be read at all."""
    schema = load(data, location)
    roots = list(_roots(schema))
    if len(roots) > FIELDS_LIMIT:
        raise ImportRejected(f"{location} has more than {FIELDS_LIMIT:,} fields, the limit.")
    if not roots:
        raise ImportRejected(f"{location}: the schema has no type Query or Mutation with fields.")
    names = _names(roots, options)
    budget = SizeBudget(options.schemas_limit_bytes)
    tools = GraphQLDrafts(schema, budget, depth=options.depth, cost=options.cost)
    drafts, outcomes = [], []
    for root in roots:
        draft, outcome = _map(tools, root, names[root.key], options)
        outcomes.append(outcome)
        drafts.extend([draft] if draft else [])
    return ImportedDescription(
        title=None,
        version=None,
        servers=(endpoint,) if endpoint else (),
        drafts=tuple(drafts),
        outcomes=(*outcomes, *_subscriptions(schema, options)),
        notes=(*schema.notes, *_notes(schema, roots, names, options)),
    )


def _roots(schema: Schema) -> Iterator[Root]:
    for operation in OPERATIONS:
        if type_ := schema.root(operation):
            yield from (Root(operation, schema_field) for schema_field in type_.fields.values())


def _subscriptions(schema: Schema, options: GraphQLChoice) -> Iterator[Outcome]:
    """Subscriptions are never imported; those not excluded are reported as skipped."""
    for texts in _subscription_texts(schema):
        field, label = texts
        marks = options.overlay.of("Subscription", field)
        reason = _refusal("subscription", texts, marks, options)
        status: OutcomeStatus = "excluded" if reason else "skipped"
        yield Outcome(f"{label}@subscription", label, None, status, reason=reason or _SUBSCRIPTION)


def _subscription_texts(schema: Schema) -> list[tuple[str, str]]:
    type_ = schema.root("subscription")
    return [(name, f"Subscription.{name}") for name in type_.fields] if type_ else []


def _names(roots: list[Root], options: GraphQLChoice) -> dict[str, str]:
    """Names by field; a mutation with the name of a query gets a qualified one."""
    queries = {root.field.name.casefold() for root in roots if root.operation == "query"}
    candidates = {}
    for root in roots:
        name = root.field.name
        if root.operation == "mutation" and name.casefold() in queries:
            name = f"{name}_mutation"
        if marked_name := _marks(root, options).name:
            candidates[root.key] = (
                legal(marked_name, limit=limit_for(marked_name)),
                root.field.name,
            )
        else:
            candidates[root.key] = (legal(name), root.field.name)
    return assign(candidates)


def _marks(root: Root, options: GraphQLChoice) -> FieldMarks:
    return options.overlay.of(root.operation.capitalize(), root.field.name)


def _map(
    tools: GraphQLDrafts, root: Root, name: str, options: GraphQLChoice
) -> tuple[ToolDraft | None, Outcome]:
    marks = _marks(root, options)

    def without(status: OutcomeStatus, reason: str) -> tuple[None, Outcome]:
        return None, Outcome(root.key, root.label, None, status, reason=reason)

    if reason := _refusal(root.operation, _texts(root, name), marks, options):
        return without("excluded", reason)
    if root.operation == "query" and root.field.name in _FEDERATION:
        return without("excluded", "it serves the router of Apollo Federation, not callers")
    try:
        draft, notes = tools.draft(root, name, marks)
    except SkipOperation as skip:
        return without("skipped", str(skip))
    status: OutcomeStatus = "degraded" if notes else "imported"
    return draft, Outcome(root.key, root.label, name, status, reason=join_notes(notes))


def _refusal(
    operation: str, texts: tuple[str, ...], marks: FieldMarks, options: GraphQLChoice
) -> str | None:
    """Why the field is not selected; None when it is."""
    for pattern in options.exclude:
        if _matches(operation, texts, pattern):
            return f"excluded by {pattern!r}"
    if options.include and not any(
        _matches(operation, texts, pattern) for pattern in options.include
    ):
        return "not included"
    if marks.enabled is False:
        return "its marks do not enable it"
    if options.only_marked and marks.enabled is UNSET:
        return "it is not marked as enabled"
    return None


def _texts(root: Root, name: str) -> tuple[str, ...]:
    return name, root.field.name, root.label


def _matches(operation: str, texts: tuple[str, ...], pattern: str) -> bool:
    if pattern.startswith("tag:"):
        return glob(pattern.removeprefix("tag:")).match(operation)
    return glob(pattern).match_any(texts)


def _notes(
    schema: Schema, roots: list[Root], names: dict[str, str], options: GraphQLChoice
) -> Iterator[str]:
    deprecated = sum(root.field.deprecated is not None for root in roots)
    if deprecated:
        yield f"{deprecated} of {len(roots)} fields are deprecated, as their descriptions state"
    fields: list[tuple[str, tuple[str, ...]]] = [
        *((root.operation, _texts(root, names[root.key])) for root in roots),
        *(("subscription", texts) for texts in _subscription_texts(schema)),
    ]
    keys = {text for _, texts in fields for text in texts[-2:]}
    for key in options.overlay.operations:
        if key not in keys:
            yield f"the overlay's {key!r} matches no field"
    for pattern in (*options.include, *options.exclude):
        if not any(_matches(*names, pattern) for names in fields):
            yield f"the pattern {pattern!r} matches no field"
