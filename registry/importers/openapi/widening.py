"""Drops definitions from a schema so that the result accepts all that the whole one does. Pure."""

from collections.abc import Collection
from typing import Any

from registry.names.keywords import BY_NAME, VALUES

_PREFIX = "#/$defs/"
# Keywords that accept less when a schema in them, or beside them, accepts more.
_REVERSED = frozenset(
    ("not", "if", "then", "else", "maxContains", "unevaluatedItems", "unevaluatedProperties")
)


def widened(schema: dict[str, Any], dropped: Collection[str]) -> dict[str, Any]:
    """`schema` with references to the `dropped` definitions replaced by any value."""
    out: dict[str, Any] = {}
    for key, value in schema.items():
        if key in _REVERSED:
            continue
        if key == "$ref" and isinstance(value, str) and value.removeprefix(_PREFIX) in dropped:
            continue
        if key in ("oneOf", "anyOf"):  # values may match several branches of `oneOf` now
            _add_choice(out, [_member(one, dropped) for one in value])
        elif key in BY_NAME and isinstance(value, dict):
            out[key] = {name: _member(one, dropped) for name, one in value.items()}
        else:
            out[key] = value if key in VALUES else _member(value, dropped)
    return out


def _add_choice(out: dict[str, Any], branches: list[Any]) -> None:
    """Add `anyOf`, or one more where `anyOf` and `oneOf` are siblings."""
    if "anyOf" in out:
        out["allOf"] = [*out.get("allOf", ()), {"anyOf": branches}]
    else:
        out["anyOf"] = branches


def _member(value: Any, dropped: Collection[str]) -> Any:
    if isinstance(value, dict):
        return widened(value, dropped)
    if isinstance(value, list):
        return [_member(one, dropped) for one in value]
    return value
