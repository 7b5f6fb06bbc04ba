"""OpenAPI 3.1 description of the API, generated from the declarations that serve it."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, get_args

import msgspec

from gateway.operations.job_declarations import RESPOND_ASYNC, JobView
from gateway.operations.operation import Operation
from gateway.operations.paging import Paging
from gateway.operations.problems import MEDIA_TYPE, ProblemDocument
from schemas.json_schema.references import reference_to

Json = dict[str, Any]

REFS = "#/components/schemas/{name}"
PROBLEMS = {
    400: "The request is malformed.",
    401: "Authentication is required, or the credentials are invalid.",
    403: "The caller lacks the permission.",
    404: "The resource does not exist.",
    406: "The response can only be application/json.",
    409: "The request conflicts with the current state, or with the same request in progress.",
    412: "A precondition failed: the resource has changed.",
    413: "The request body is too large.",
    415: "The request body must be application/json.",
    422: "The request is invalid.",
    428: "The request needs a precondition (If-Match or If-None-Match).",
    429: "Too many requests; try again later.",
    503: "The service is unavailable; try again later.",
}
AGAIN = frozenset({429, 503})  # with Retry-After
TITLES = {200: "Success.", 201: "Created.", 202: "Accepted.", 204: "Success, without a body."}
SCOPES = (
    "Each operation names the scope that it requires; `admin` permits all operations, `admin:read` "
    "all that read."
)


def describe(
    operations: Sequence[Operation],
    root: str,
    version: str,
    *,
    title: str = "Toolgate admin API",
    about: str = SCOPES,
) -> Json:
    """`root` is the path of the API."""
    schemas = _Schemas(operations)
    paths: Json = {}
    for operation in operations:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _operation(
            operation, schemas
        )
    components = {
        "schemas": schemas.components,
        "responses": {str(status): _problem(status, text) for status, text in PROBLEMS.items()},
        "securitySchemes": {
            "token": {"type": "http", "scheme": "bearer"},
            "key": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
        },
    }
    return {
        "openapi": "3.1.0",
        "info": {"title": title, "version": version, "description": about},
        "servers": [{"url": root}],
        "security": [{"token": []}, {"key": []}],
        "tags": [
            {"name": name} for name in dict.fromkeys(operation.tag for operation in operations)
        ],
        "paths": paths,
        "components": components,
    }


class _Schemas:
    """The JSON Schemas of all types that operations name, each made once."""

    def __init__(self, operations: Sequence[Operation]) -> None:
        types: list[Any] = [ProblemDocument]
        for operation in operations:
            types += [kind for kind in (operation.gives, operation.body) if kind is not None]
            types += [JobView] if operation.job else []
        schemas, self.components = msgspec.json.schema_components(types, ref_template=REFS)
        for operation in operations:
            for kind in get_args(operation.body) or (operation.body,):
                _add_texts(self.components.get(getattr(kind, "__name__", ""), {}), operation)
        self._found = {repr(kind): schema for kind, schema in zip(types, schemas, strict=True)}

    def of(self, kind: Any) -> Any:
        return self._found[repr(kind)]


def _add_texts(component: Json, operation: Operation) -> None:
    """Add the words for people to the members of a body."""
    for name, schema in component.get("properties", {}).items():
        if text := operation.members.get(name):
            schema |= {"title": text.title, "description": text.help}
            examples = list(_examples(schema, text.example))
            schema |= {"examples": examples} if examples else {}


def _examples(schema: Json, text: str) -> Iterator[Any]:
    """The example as a value of the schema."""
    types = {part.get("type") for part in (schema, *schema.get("anyOf", ()))}
    if not text:
        return
    if "string" in types:
        yield text
    elif "array" in types and not text.startswith("["):
        yield text.split("\n")
    else:
        with suppress(msgspec.DecodeError):
            yield msgspec.json.decode(text)


def _operation(one: Operation, schemas: _Schemas) -> Json:
    row: Json = {
        "operationId": one.id,
        "summary": one.summary,
        "tags": [one.tag],
        "parameters": list(_parameters(one)),
        "responses": dict(_responses(one, schemas)),
        "security": [{"token": _scopes(one)}, {"key": _scopes(one)}],
    }
    if one.body is not None:
        row["requestBody"] = {
            "required": not one.optional_body,
            "content": {"application/json": {"schema": schemas.of(one.body)}},
        }
    return row


def _scopes(one: Operation) -> list[str]:
    return [one.scope] if one.scope else []


def _parameters(one: Operation) -> Iterator[Json]:
    for name in one.names:
        row = {"name": name, "in": "path", "required": True, "schema": _plain(one.type_of(name))}
        words = one.text_of(name)
        yield row if words is None else {**row, "description": words.help, "example": words.example}
    for field in msgspec.structs.fields(one.query):
        yield {"name": field.encode_name, "in": "query", "schema": _plain(field.type)}
    if one.keeps_answers:
        schema = {"type": "string", "pattern": "^[!-~]{1,128}$"}
        text = "Requests with the same key are executed once."
        yield {"name": "Idempotency-Key", "in": "header", "schema": schema, "description": text}
    if one.job is not None and not one.job.always:
        text = f"{RESPOND_ASYNC}: run as a job, which is returned at once (RFC 7240)."
        schema = {"type": "string"}
        yield {"name": "Prefer", "in": "header", "schema": schema, "description": text}
    if one.match or one.method == "GET":
        tag = {"type": "string"}
        for name in ("If-Match", "If-None-Match") if one.match else ("If-None-Match",):
            yield {"name": name, "in": "header", "schema": tag}


def _plain(kind: Any) -> Json:
    """The schema of a parameter, which may be absent, but never null."""
    return without_null(msgspec.json.schema_components((kind,), ref_template=REFS)[0][0])


def without_null(schema: Json) -> Json:
    """The one choice beside null, or `schema` if there is no such choice."""
    choices = [choice for choice in schema.get("anyOf", ()) if choice != {"type": "null"}]
    return choices[0] if len(choices) == 1 else schema


def _responses(one: Operation, schemas: _Schemas) -> Iterator[tuple[str, Json]]:
    done: Json = {"description": TITLES[one.status], "headers": _headers("X-Request-Id")}
    if one.gives is not None:
        done["content"] = {"application/json": {"schema": schemas.of(one.gives)}}
    if one.method in {"GET", "PUT"}:
        done["headers"] |= _headers("ETag")
    if one.status == 201:
        done["headers"] |= _headers("Location")
    if one.job is not None:
        yield "202", _accepted_response(schemas)
    if one.job is None or not one.job.always:
        yield str(one.status), done
    if one.creates:
        yield "201", {**done, "description": TITLES[201]}
    if one.method == "GET":
        yield "304", {"description": "Not modified.", "headers": _headers("X-Request-Id", "ETag")}
    for status in sorted({*_statuses(one), *one.problems}):
        yield str(status), reference_to(f"#/components/responses/{status}")


def _accepted_response(schemas: _Schemas) -> Json:
    headers = _headers("X-Request-Id", "Location", "Preference-Applied")
    content = {"application/json": {"schema": schemas.of(JobView)}}
    return {
        "description": "The operation runs as this job.",
        "headers": headers,
        "content": content,
    }


def _statuses(one: Operation) -> Iterator[int]:
    yield from (400, 401, 403, 406, 413, 429, 503)
    if one.names:
        yield 404
    if one.body is not None:
        yield from (415, 422)
    if issubclass(one.query, Paging) or hasattr(one.query, "__post_init__"):
        yield 422  # a cursor, or parameters that contradict each other
    if one.method == "POST":
        yield from (409, 422)
    if one.match:
        yield from (412, 428) if one.match == "required" else (412,)


def _headers(*names: str) -> Json:
    return {name: {"schema": {"type": "string"}, "required": True} for name in names}


def _problem(status: int, text: str) -> Json:
    content = {MEDIA_TYPE: {"schema": reference_to(REFS.format(name="ProblemDocument"))}}
    headers = _headers("X-Request-Id", *(["Retry-After"] if status in AGAIN else []))
    return {"description": text, "headers": headers, "content": content}
