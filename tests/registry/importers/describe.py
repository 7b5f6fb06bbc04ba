"""Small OpenAPI documents for tests, and a look at the one tool that comes out."""

from dataclasses import dataclass
from typing import Any

import jsonschema
import jsonschema_rs

from registry.importers.openapi import ImportedDescription, read
from schemas.source import Outcome
from schemas.tool import ToolDraft


def document(paths: dict[str, Any], version: str = "3.0.3", **rest: Any) -> dict[str, Any]:
    return {"openapi": version, "info": {"title": "T", "version": "1"}, "paths": paths, **rest}


def describe(operation: dict[str, Any], endpoint: str = "POST /things", **rest: Any) -> dict:
    """A document with one operation."""
    method, _, path = endpoint.partition(" ")
    return document({path: {method.lower(): operation}}, **rest)


def components(**schemas: Any) -> dict[str, Any]:
    return {"schemas": schemas}


def json_body(schema: Any, **rest: Any) -> dict[str, Any]:
    return {"requestBody": {"content": {"application/json": {"schema": schema}}, **rest}}


def query(name: str, schema: Any = None, **rest: Any) -> dict[str, Any]:
    return {"name": name, "in": "query", "schema": schema or {"type": "string"}, **rest}


@dataclass(frozen=True)
class One:
    draft: ToolDraft
    outcome: Outcome

    @property
    def schema(self) -> dict[str, Any]:
        return self.draft.input_schema

    @property
    def properties(self) -> dict[str, Any]:
        return self.schema["properties"]

    @property
    def reason(self) -> str:
        return self.outcome.reason or ""

    def accepts(self, **arguments: Any) -> bool:
        """The verdict of both validators, which is one."""
        fast = jsonschema_rs.Draft202012Validator(self.schema).is_valid(arguments)
        slow = jsonschema.Draft202012Validator(self.schema).is_valid(arguments)
        assert fast == slow
        return fast


def import_description(description: dict[str, Any]) -> ImportedDescription:
    """What `read` gives, every input schema checked by both validators."""
    result = read(description)
    for draft in result.drafts:
        jsonschema_rs.validator_for(draft.input_schema)
        jsonschema.Draft202012Validator.check_schema(draft.input_schema)
    return result


def only(description: dict[str, Any]) -> One:
    """The one operation of `description`, which became a tool."""
    result = import_description(description)
    [draft], [outcome] = result.drafts, result.outcomes
    assert outcome.status == ("degraded" if outcome.reason else "imported")
    return One(draft, outcome)


def body_schema(schema: Any, version: str = "3.0.3", **schemas: Any) -> tuple[Any, One]:
    """What `schema` becomes as the item of a list, where nothing is hoisted."""
    body = {"type": "array", "items": schema}
    one = only(
        describe(json_body(body), version=version, components=components(**schemas)),
    )
    return one.properties["body"]["items"], one
