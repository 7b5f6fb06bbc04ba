"""Validates the arguments of the action decorator: a typo fails on import."""

from collections.abc import Mapping, Sequence
from typing import Any, get_args

from registry.importers.hybrid import ID_LIMIT, UnusableSchema, closed, size_of
from schemas.hybrid import Action, Side

_SIDES = get_args(Side)
_ID = 'an id such as "lightapi.net/rule/deleteRule/0.1.0"'
_SCHEMA = 'a JSON Schema such as {"type": "object", "required": ["ruleId"]}'


def declared(
    id_: Any,
    *,
    description: Any,
    schema: Any,
    scope: Any,
    skip_auth: Any,
    side: Any,
    positional: Any,
    rest: Any,
) -> Action:
    """Raises TypeError and ValueError, which name what was expected."""
    checked = _id(id_)
    _expect(checked, "side", side is None or side in _SIDES, f"None or one of {_SIDES}", side)
    _expect(checked, "skip_auth", isinstance(skip_auth, bool), "True or False", skip_auth)
    _expect(checked, "description", isinstance(description, str), "text", description)
    _expect(checked, "rest", rest is None or isinstance(rest, str), "None or a name", rest)
    return Action(
        checked,
        description,
        _schema(checked, schema),
        scope=_scope(checked, scope),
        skip_auth=skip_auth,
        side=side,
        positional=_names(checked, positional),
        rest=rest,
    )


def _id(id_: Any) -> str:
    if callable(id_):
        raise TypeError(
            f"@hybrid.action stands without its id: write @hybrid.action(...) with {_ID}"
        )
    if not isinstance(id_, str):
        raise TypeError(f"expected {_ID}, found {_shown(id_)}")
    if not id_.strip() or not id_.isprintable() or size_of(id_) > ID_LIMIT:
        raise ValueError(f"expected {_ID} of 1 to {ID_LIMIT} bytes, found {_shown(id_)}")
    return id_


def _scope(id_: str, scope: Any) -> str | None:
    """A blank scope is an error: it would leave the action open."""
    given = isinstance(scope, str) and bool(scope.strip())
    _expect(id_, "scope", scope is None or given, "None or scopes separated by blanks", scope)
    return scope  # type: ignore[no-any-return]  # checked above


def _names(id_: str, positional: Any) -> tuple[str, ...]:
    listed = isinstance(positional, Sequence) and not isinstance(positional, str)
    fits = listed and all(isinstance(name, str) for name in positional)
    _expect(id_, "positional", fits, "a list of names", positional)
    return tuple(positional)


def _schema(id_: str, schema: Any) -> dict[str, Any] | None:
    if schema is None:
        return None
    if schema == {...}:
        raise TypeError(f"{id_}: schema={{...}} is a placeholder: write {_SCHEMA} in its place")
    _expect(id_, "schema", isinstance(schema, Mapping), f"None or {_SCHEMA}", schema)
    try:
        closed(dict(schema))
    except UnusableSchema as problem:
        raise ValueError(f"{id_}: schema: {problem}") from problem
    return dict(schema)


def _expect(id_: str, name: str, fits: bool, expected: str, found: Any) -> None:
    if not fits:
        raise TypeError(f"{id_}: {name}: expected {expected}, found {_shown(found)}")


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:59]}…"
