"""Two schemas of one tool as a list of changes."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from registry.sources.compat.answers import AnswerComparison
from registry.sources.compat.change import Kind, SchemaChange
from registry.sources.compat.found import FoundChanges, Weight
from registry.sources.compat.narrowing import Narrowing
from registry.sources.compat.reading import At, TooMuch, bounded, members

Schema = Mapping[str, Any]


def input_changes(before: Schema, after: Schema) -> list[SchemaChange]:
    """What callers with arguments for `before` notice when it is `after`.

    If none is breaking, all that was accepted still is (as `registry.sources.compat.narrowing` has
    it).
    """
    return _compared(lambda: _input_changes(At(before, before), At(after, after)), "schema")


def _compared(compare: Callable[[], list[SchemaChange]], kind: Kind) -> list[SchemaChange]:
    """In doubt it is breaking; nothing that a description says keeps an operator waiting."""
    try:
        with bounded():
            return compare()
    except (TooMuch, RecursionError):
        return [SchemaChange(kind, "", True, "too large to be compared")]


def _input_changes(was: At, now: At) -> list[SchemaChange]:
    narrowing, widening = Narrowing(), Narrowing()
    if narrowing.same(was, now):
        return []
    found = _unique(_told(one, forth=True) for one in narrowing([was], now))
    told = {(one.kind, one.where) for one in found}
    back = _unique(_told(one, forth=False) for one in widening([now], was))
    found += [one for one in back if one.kind == "enum" or (one.kind, one.where) not in told]
    return [*found, *_described(narrowing, was, now, found)]


def output_changes(before: Schema | None, after: Schema | None) -> list[SchemaChange]:
    """What readers of the answers notice."""
    if before is None or after is None:
        if before == after:
            return []
        gone = after is None
        return [
            SchemaChange("output", "", gone, "not described any more" if gone else "described now")
        ]
    was, now = At(before, before), At(after, after)
    return _compared(
        lambda: [] if Narrowing().same(was, now) else _unique(AnswerComparison()([was], [now])),
        "output",
    )


def _told(found: FoundChanges, *, forth: bool) -> SchemaChange:
    """`forth`: of what is lost; else of what is accepted besides."""
    kind, text = _KINDS[found.kind], ""
    new = found.weight is Weight.NEW
    match found.kind:
        case "argument":
            text = "new" if new or not forth else "removed"
        case "required":
            beside = f" beside {found.after}" if found.after else ""
            text = f"required now{beside}" if forth else f"no longer required{beside}"
        case "enum" if forth and found.before:
            text = f"was {found.before}, is one of {found.after}"
        case "enum":
            text = f"no longer {found.after}" if forth else f"may also be {found.after}"
            if not forth and found.before:
                text = f"was one of {found.after}, is {found.before}"
        case "schema":
            text = found.after if forth else "accepts more"
        case _:
            was, now = (found.before, found.after) if forth else (found.after, found.before)
            text = f"was {was}, is {now}"
    return SchemaChange(kind, found.where, forth and not new, text)


_KINDS: dict[str, Kind] = {
    "argument": "argument", "required": "required", "type": "type", "enum": "enum",
    "constraint": "constraint", "schema": "schema",
}  # fmt: skip


def _described(
    narrowing: Narrowing, was: At, now: At, found: list[SchemaChange]
) -> Iterator[SchemaChange]:
    """Arguments that take the same and say something else of themselves."""
    told = {change.where.partition(".")[0].partition("[")[0] for change in found}
    before, after = members(was.schema, "properties"), members(now.schema, "properties")
    for name in before.keys() & after.keys() - told:
        if not narrowing.same(was.of(before[name]), now.of(after[name])):
            yield SchemaChange("description", name, False, "described otherwise")


def _unique(changes: Iterable[SchemaChange]) -> list[SchemaChange]:
    return list(dict.fromkeys(changes))
