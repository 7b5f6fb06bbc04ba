"""Changes between two schemas of one tool: arguments and answers. Pure."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from registry.sources.compatibility.keyword_implication import (
    format_values,
    required_names,
    types_text,
)
from registry.sources.compatibility.prepared_schemas import (
    DEPTH,
    AcceptanceFinding,
    ComparisonTooLarge,
    Effect,
    Kind,
    RootedSchema,
    SchemaChange,
    canonical,
    comparison_budget,
    declared_properties,
    finite,
    gather,
    types,
    unions,
)
from registry.sources.compatibility.schema_acceptance import DocumentComparison
from schemas.untrusted_json import mapping

STEPS = 20_000

_KINDS: dict[str, Kind] = {
    "argument": "argument", "required": "required", "type": "type", "enum": "enum",
    "constraint": "constraint", "schema": "schema",
}  # fmt: skip


class AnswerComparison:
    """Comparison of two output schemas, path by path."""

    def __init__(self) -> None:
        self._compared_pairs: set[tuple[frozenset[int], frozenset[int]]] = set()

    def __call__(
        self,
        before: Sequence[RootedSchema],
        after: Sequence[RootedSchema],
        where: str = "",
        depth: int = DEPTH,
    ) -> Iterator[SchemaChange]:
        pair = (_ids(before), _ids(after))
        if pair in self._compared_pairs or depth == 0 or len(self._compared_pairs) >= STEPS:
            return
        self._compared_pairs.add(pair)
        was, now = _parts(before), _parts(after)
        old_types, new_types = types(was), types(now)
        if not new_types <= old_types:
            was_text, may_be_text = types_text(old_types), types_text(new_types)
            text = f"was {was_text}, may be {may_be_text}"
            yield SchemaChange("output", where, True, text)
            return
        yield from _values(was, now, where)
        yield from self._properties(was, now, where, depth)
        old_inner, new_inner = _below(was, "items"), _below(now, "items")
        if old_inner and new_inner:
            yield from self(old_inner, new_inner, f"{where}[]", depth - 1)

    def _properties(
        self, was: list[RootedSchema], now: list[RootedSchema], where: str, depth: int
    ) -> Iterator[SchemaChange]:
        before, after = declared_properties(was), declared_properties(now)
        for name in sorted(before - after):
            yield SchemaChange("output", _join(where, name), True, "is described no longer")
        for name in sorted(after - before):
            yield SchemaChange("output", _join(where, name), False, "is new")
        no_longer_required = required_names(part.schema for part in was) - required_names(
            part.schema for part in now
        )
        for name in sorted(no_longer_required & after):
            yield SchemaChange("output", _join(where, name), True, "may be missing now")
        for name in sorted(before & after):
            old_inner, new_inner = _named_parts(was, name), _named_parts(now, name)
            yield from self(old_inner, new_inner, _join(where, name), depth - 1)


def _values(was: list[RootedSchema], now: list[RootedSchema], where: str) -> Iterator[SchemaChange]:
    """Values that an answer may have now and could not have before."""
    before = [value for part in was for value in finite(part.schema) or ()]
    after = [value for part in now for value in finite(part.schema) or ()]
    earlier = {canonical(value) for value in before}
    if new := [value for value in after if canonical(value) not in earlier] if before else []:
        yield SchemaChange("output", where, False, f"may also be {format_values(new)}")


def _parts(schemas: Sequence[RootedSchema]) -> list[RootedSchema]:
    """The schemas that apply to a value, including those of all its alternatives."""
    parts: dict[int, RootedSchema] = {}
    pending = list(schemas)
    while pending:
        for part in gather([pending.pop()]).parts:
            if id(part.schema) not in parts:
                parts[id(part.schema)] = part
                pending += [branch for union in unions(part) for branch in union]
    return list(parts.values())


def _named_parts(parts: list[RootedSchema], name: str) -> list[RootedSchema]:
    all_ = ((part, mapping(part.schema.get("properties"))) for part in parts)
    return [part.of(properties[name]) for part, properties in all_ if name in properties]


def _below(parts: list[RootedSchema], keyword: str) -> list[RootedSchema]:
    return [part.of(part.schema[keyword]) for part in parts if keyword in part.schema]


def _ids(schemas: Sequence[RootedSchema]) -> frozenset[int]:
    return frozenset(id(schema.schema) for schema in schemas)


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


Schema = Mapping[str, Any]


def input_changes(before: Schema, after: Schema) -> list[SchemaChange]:
    """Changes from `before` to `after` that callers of the tool notice.

    If none is breaking, all values accepted before still are (as
    `registry.sources.compatibility.schema_acceptance` defines it).
    """
    return _compare_within_budget(
        lambda: _input_changes(RootedSchema(before, before), RootedSchema(after, after)), "schema"
    )


def _compare_within_budget(
    compare: Callable[[], list[SchemaChange]], kind: Kind
) -> list[SchemaChange]:
    """Findings of a comparison. In doubt the change is breaking; a comparison that takes too long
    is cut off."""
    try:
        with comparison_budget():
            return compare()
    except (ComparisonTooLarge, RecursionError):
        return [SchemaChange(kind, "", True, "too large to be compared")]


def _input_changes(was: RootedSchema, now: RootedSchema) -> list[SchemaChange]:
    narrowing, widening = DocumentComparison(), DocumentComparison()
    if narrowing.same(was, now):
        return []
    changes = _unique(
        _schema_change(finding, is_narrowing=True) for finding in narrowing([was], now)
    )
    reported = {(finding.kind, finding.where) for finding in changes}
    widened = _unique(
        _schema_change(finding, is_narrowing=False) for finding in widening([now], was)
    )
    changes += [
        change
        for change in widened
        if change.kind == "enum" or (change.kind, change.where) not in reported
    ]
    return [*changes, *_description_changes(narrowing, was, now, changes)]


def output_changes(before: Schema | None, after: Schema | None) -> list[SchemaChange]:
    """Changes that readers of the answers notice."""
    if before is None or after is None:
        if before == after:
            return []
        is_removed = after is None
        return [
            SchemaChange(
                "output",
                "",
                is_removed,
                "not described any more" if is_removed else "described now",
            )
        ]
    was, now = RootedSchema(before, before), RootedSchema(after, after)
    return _compare_within_budget(
        lambda: (
            [] if DocumentComparison().same(was, now) else _unique(AnswerComparison()([was], [now]))
        ),
        "output",
    )


def _schema_change(finding: AcceptanceFinding, *, is_narrowing: bool) -> SchemaChange:
    """A finding as a change. `is_narrowing`: values no longer accepted; else values newly
    accepted."""
    kind, text = _KINDS[finding.kind], ""
    new = finding.effect is Effect.NEW
    match finding.kind:
        case "argument":
            text = "new" if new or not is_narrowing else "removed"
        case "required":
            beside = f" beside {finding.after}" if finding.after else ""
            text = f"required now{beside}" if is_narrowing else f"no longer required{beside}"
        case "enum" if is_narrowing and finding.before:
            text = f"was {finding.before}, is one of {finding.after}"
        case "enum":
            text = f"no longer {finding.after}" if is_narrowing else f"may also be {finding.after}"
            if not is_narrowing and finding.before:
                text = f"was one of {finding.after}, is {finding.before}"
        case "schema":
            text = finding.after if is_narrowing else "accepts more"
        case _:
            values = finding.before, finding.after
            was, now = values if is_narrowing else values[::-1]
            text = f"was {was}, is {now}"
    return SchemaChange(kind, finding.where, is_narrowing and not new, text)


def _description_changes(
    narrowing: DocumentComparison, was: RootedSchema, now: RootedSchema, changes: list[SchemaChange]
) -> Iterator[SchemaChange]:
    """Arguments with the same schema and another description."""
    reported = {change.where.partition(".")[0].partition("[")[0] for change in changes}
    before, after = mapping(was.schema.get("properties")), mapping(now.schema.get("properties"))
    for name in before.keys() & after.keys() - reported:
        if not narrowing.same(was.of(before[name]), now.of(after[name])):
            yield SchemaChange("description", name, False, "described otherwise")


def _unique(changes: Iterable[SchemaChange]) -> list[SchemaChange]:
    return list(dict.fromkeys(changes))
