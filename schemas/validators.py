"""Validators of `jsonschema_rs`, which are made here and nowhere else: import-linter sees to that.

The library, left to itself, fetches what `$schema`, `$ref` and `$id` lead to, follows redirects,
and holds the interpreter until an answer has come. Here nothing is ever fetched: the metaschemas of
the drafts 4 to 2020-12 are built in, and any other reference that leads out of a schema is an
error.
"""

from collections.abc import Mapping
from typing import Any

from jsonschema_rs import (
    Draft202012Validator,
    ReferencingError,
    Registry,
    ValidationError,
    ValidationErrorKind,
    Validator,
    meta,
    validator_cls_for,
)

__all__ = ["ValidationError", "ValidationErrorKind", "Validator"]

DIALECTS = frozenset(
    {
        *("json-schema.org/draft-04/schema", "json-schema.org/draft-06/schema"),
        *("json-schema.org/draft-07/schema", "json-schema.org/draft/2019-09/schema"),
        *("json-schema.org/draft/2020-12/schema", "json-schema.org/schema"),
    }
)
# 2020-12 with four keywords that say nothing of values; its metaschema is not built in.
OPENAPI_DIALECT = "spec.openapis.org/oas/3.1/dialect/base"


def compiled(schema: Mapping[str, Any] | bool) -> Validator:
    """A validator by the dialect that `$schema` names; without one, or with one that is not known,
    by 2020-12. `format` is an annotation. Raises ValueError for what is no JSON Schema, or refers
    to something outside itself."""
    read = _readable(schema)
    return validator_cls_for(read)(read, validate_formats=False, retriever=_refuse)


def compiled_as_2020(schema: Mapping[str, Any] | bool) -> Validator:
    """The same, by 2020-12 whatever `$schema` names."""
    return Draft202012Validator(_readable(schema), validate_formats=False, retriever=_refuse)


def check_by_metaschema(schema: Mapping[str, Any]) -> None:
    """Raises ValueError for what the metaschema of its dialect does not accept; what references
    lead to is not looked at."""
    try:
        meta.validate(_readable(schema), _NOTHING_ELSE)
    except ReferencingError as error:
        raise ValueError(str(error)) from error


def unknown_dialect(schema: Mapping[str, Any]) -> str | None:
    """What `$schema` names, where it is no dialect that is known: the schema is read as 2020-12."""
    named = schema.get("$schema")
    if not isinstance(named, str) or _plain(named) in {*DIALECTS, OPENAPI_DIALECT}:
        return None
    return named


def _readable(schema: Mapping[str, Any] | bool) -> dict[str, Any] | bool:
    """`schema` without a `$schema` whose metaschema is not built in."""
    if isinstance(schema, bool):
        return schema
    named = schema.get("$schema")
    if isinstance(named, str) and _plain(named) not in DIALECTS:
        return {keyword: value for keyword, value in schema.items() if keyword != "$schema"}
    return dict(schema)


def _plain(named: str) -> str:
    return named.removesuffix("#").removeprefix("https://").removeprefix("http://")


def _refuse(uri: str) -> Any:
    raise LookupError(f"{uri[:200]} is outside the schema, and schemas are self-contained")


_NOTHING_ELSE = Registry([], retriever=_refuse)
