"""The texts inside a schema that fits: shorter, and nothing else changed. Pure."""

from typing import Any

from registry.display.references import NOTES
from registry.display.sentences import shorten
from registry.names.keywords import BY_NAME, VALUES

DROPPED_BELOW = 160  # characters of a description that are left: then other notes go

_VALUES = VALUES | {"dependentRequired"}  # whose names are no keywords either

Json = dict[str, Any]


def trimmed(schema: Json, text: int) -> Json:
    """`schema` with descriptions of at most `text` characters."""
    notes = NOTES if text <= DROPPED_BELOW else ()
    return {key: _of(key, one, text) for key, one in schema.items() if key not in notes}


def _of(keyword: str, value: Any, text: int) -> Any:
    if keyword == "description" and isinstance(value, str):
        return shorten(value, text)
    if keyword in _VALUES:
        return value
    if keyword in BY_NAME and isinstance(value, dict):
        return {name: _schema(one, text) for name, one in value.items()}
    return (
        [_schema(one, text) for one in value] if isinstance(value, list) else _schema(value, text)
    )


def _schema(value: Any, text: int) -> Any:
    return trimmed(value, text) if isinstance(value, dict) else value
