"""Conditions of searches and lists, in SQL. Pure.

Names of members of metadata and all values are parameters: nothing in them is syntax.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec
from msgspec import Struct
from psycopg import sql

from gateway.operations.problems import invalid
from gateway.wings.memory.memory_rows import time_of
from schemas.similar_names import did_you_mean

METADATA = "metadata."
TEXTS = {
    "kind": "m.kind",
    "slot": "m.slot",
    "trust": "m.trust",
    "agent": "m.agent",
    "speaker": "m.source ->> 'speaker'",
    "document": "m.source ->> 'document'",
    "entity": "m.source ->> 'entity'",
}
NUMBERS = {"importance": "m.importance", "confidence": "m.confidence"}
TIMES = {"created": "m.created_ts", "valid_from": "m.valid_from", "valid_to": "m.valid_to"}
FLAGS = {"pinned": "m.pinned"}
COLUMNS = {**TEXTS, **NUMBERS, **TIMES, **FLAGS}
ORDER = {"gt": ">", "gte": ">=", "lt": "<", "lte": "<="}
OPERATORS = (*ORDER, "in", "exists")
CONDITIONS = 32  # of one filter
VALUES = 100  # of one `in`

Condition = tuple[sql.Composable, dict[str, Any]]


class Times(Struct, frozen=True):
    """When what is wanted was believed and true; None: now."""

    as_of: datetime | None = None
    valid_at: datetime | None = None


NOW = Times()
EVERY: Condition = (sql.SQL("true"), {})

# What was believed at `as_of`, and true at `valid_at`. A value that another one of its slot
# followed was true until then, which nobody knew before it was retired.
IS_BELIEVED = sql.SQL("""(
    m.created_ts <= coalesce(%(as_of)s::timestamptz, now())
    AND (m.retired_ts IS NULL OR m.retired_by = 'slot'
        OR m.retired_ts > coalesce(%(as_of)s::timestamptz, now()))
    AND m.valid_from <= coalesce(%(valid_at)s::timestamptz, %(as_of)s::timestamptz, now())
    AND (m.valid_to IS NULL
        OR m.valid_to > coalesce(%(valid_at)s::timestamptz, %(as_of)s::timestamptz, now())
        OR (m.retired_by = 'slot' AND m.retired_ts > coalesce(%(as_of)s::timestamptz, now())))
    AND (m.expires_ts IS NULL OR m.expires_ts > now()))""")
READABLE = sql.SQL("(m.audience = '{}' OR %(agent)s::text = ANY (m.audience))")
_VISIBLE = sql.SQL("{believed} AND {readable}").format(believed=IS_BELIEVED, readable=READABLE)


def visible(times: Times, agent: str | None) -> Condition:
    """The condition that a memory of a permitted owner may be shown."""
    values = {"as_of": times.as_of, "valid_at": times.valid_at, "agent": agent}
    return _VISIBLE, values


def filter_condition(filter_: Mapping[str, Any] | None) -> Condition:
    """The condition of a filter: values by column or `metadata.NAME`, or objects of operators.
    Raises ProblemDetails."""
    if not filter_:
        return EVERY
    if len(filter_) > CONDITIONS:
        raise invalid(f"filter: expected at most {CONDITIONS} conditions")
    texts: list[sql.Composable] = []
    values: dict[str, Any] = {}
    for number, (name, operand) in enumerate(filter_.items()):
        for text, clause_values in _conditions(name, operand, f"f{number}"):
            texts.append(text)
            values |= clause_values
    return sql.SQL(" AND ").join(texts), values


def _conditions(name: str, operand: Any, key: str) -> Iterator[Condition]:
    if name not in COLUMNS and not name.startswith(METADATA):
        fields = [*COLUMNS, f"{METADATA}NAME"]
        text = f"filter: there is no {name[:60]!r}. {did_you_mean(name, fields)}".strip()
        raise invalid(f"{text} Expected {', '.join(fields)}")
    operators = operand if isinstance(operand, dict) else {"eq": operand}
    for number, (operator, value) in enumerate(operators.items()):
        if operator not in ("eq", *OPERATORS):
            raise invalid(
                f"filter: {name[:60]}: expected a value, or an object of {', '.join(OPERATORS)}; "
                f"found {operator[:60]!r}"
            )
        condition = _of_column if name in COLUMNS else _of_metadata
        yield condition(name, operator, value, f"{key}_{number}")


def _of_column(name: str, operator: str, value: Any, key: str) -> Condition:
    parts = {"column": sql.SQL(COLUMNS[name]), "value": sql.Placeholder(key)}
    if operator == "exists":
        text = sql.SQL("({column} IS NOT NULL) = {value}").format(**parts)
        return text, {key: _flag(name, value)}
    if operator == "in":
        values = [_typed_value(name, item) for item in _list(name, value)]
        return sql.SQL("{column} = ANY ({value})").format(**parts), {key: values}
    order = sql.SQL(ORDER.get(operator, "="))
    text = sql.SQL("{column} {order} {value}").format(**parts, order=order)
    return text, {key: _typed_value(name, value)}


def _typed_value(name: str, value: Any) -> Any:
    if name in TIMES and isinstance(value, str):
        return time_of(f"filter: {name}", value)[0]
    kinds: tuple[type, ...] = (str,)
    if name in NUMBERS:
        kinds = (int, float)
    if name in FLAGS:
        kinds = (bool,)
    if not isinstance(value, kinds) or (isinstance(value, bool) and name not in FLAGS):
        expected = " or ".join(kind.__name__ for kind in kinds)
        raise invalid(f"filter: {name}: expected {expected}")
    return value


_ORDERED_TEXT = sql.SQL(
    "jsonb_typeof(m.metadata -> {at}::text) = 'string'"
    ' AND (m.metadata ->> {at}::text) COLLATE "C" {order} {value}'
)
_ORDERED_NUMBER = sql.SQL(
    "CASE WHEN jsonb_typeof(m.metadata -> {at}::text) = 'number'"
    " THEN (m.metadata -> {at}::text)::numeric {order} {value} ELSE false END"
)


def _of_metadata(name: str, operator: str, value: Any, key: str) -> Condition:
    member = name.removeprefix(METADATA)
    values = {f"{key}_at": member}
    parts = {"at": sql.Placeholder(f"{key}_at"), "value": sql.Placeholder(key)}
    if operator == "exists":
        text = sql.SQL("(m.metadata -> {at}::text IS NOT NULL) = {value}").format(**parts)
        return text, {**values, key: _flag(name, value)}
    if operator == "eq":
        document = msgspec.json.encode({member: value}).decode()
        return sql.SQL("m.metadata @> {value}::jsonb").format(**parts), {key: document}
    if operator == "in":
        json_items = [msgspec.json.encode(item).decode() for item in _list(name, value)]
        text = sql.SQL("m.metadata -> {at}::text = ANY ({value}::jsonb[])").format(**parts)
        return text, {**values, key: json_items}
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise invalid(f"filter: {name[:60]}: {operator} takes a number or a text")
    template = _ORDERED_TEXT if isinstance(value, str) else _ORDERED_NUMBER
    return template.format(**parts, order=sql.SQL(ORDER[operator])), {**values, key: value}


def _list(name: str, value: Any) -> Sequence[Any]:
    if not isinstance(value, list) or not 1 <= len(value) <= VALUES:
        raise invalid(f"filter: {name[:60]}: `in` takes a list of 1 to {VALUES} values")
    return value


def _flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise invalid(f"filter: {name[:60]}: `exists` takes true or false")
    return value
