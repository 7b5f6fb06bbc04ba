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


def _operation(operation: Operation, schemas: _Schemas) -> Json:
    row: Json = {
        "operationId": operation.id,
        "summary": operation.summary,
        "tags": [operation.tag],
        "parameters": list(_parameters(operation)),
        "responses": dict(_responses(operation, schemas)),
        "security": [{"token": _scopes(operation)}, {"key": _scopes(operation)}],
    }
    if operation.body is not None:
        row["requestBody"] = {
            "required": not operation.optional_body,
            "content": {"application/json": {"schema": schemas.of(operation.body)}},
        }
    return row


def _scopes(operation: Operation) -> list[str]:
    return [operation.scope] if operation.scope else []


def _parameters(operation: Operation) -> Iterator[Json]:
    for name in operation.names:
        row = {
            "name": name,
            "in": "path",
            "required": True,
            "schema": _plain(operation.type_of(name)),
        }
        words = operation.text_of(name)
        yield row if words is None else {**row, "description": words.help, "example": words.example}
    for field in msgspec.structs.fields(operation.query):
        yield {"name": field.encode_name, "in": "query", "schema": _plain(field.type)}
    if operation.keeps_answers:
        schema = {"type": "string", "pattern": "^[!-~]{1,128}$"}
        text = "Requests with the same key are executed once."
        yield {"name": "Idempotency-Key", "in": "header", "schema": schema, "description": text}
    if operation.job is not None and not operation.job.always:
        text = f"{RESPOND_ASYNC}: run as a job, which is returned at once (RFC 7240)."
        schema = {"type": "string"}
        yield {"name": "Prefer", "in": "header", "schema": schema, "description": text}
    if operation.match or operation.method == "GET":
        tag = {"type": "string"}
        for name in ("If-Match", "If-None-Match") if operation.match else ("If-None-Match",):
            yield {"name": name, "in": "header", "schema": tag}


def _plain(kind: Any) -> Json:
    """The schema of a parameter, which may be absent, but never null."""
    return without_null(msgspec.json.schema_components((kind,), ref_template=REFS)[0][0])


def without_null(schema: Json) -> Json:
    """The one choice beside null, or `schema` if there is no such choice."""
    choices = [choice for choice in schema.get("anyOf", ()) if choice != {"type": "null"}]
    return choices[0] if len(choices) == 1 else schema


def _responses(operation: Operation, schemas: _Schemas) -> Iterator[tuple[str, Json]]:
    done: Json = {"description": TITLES[operation.status], "headers": _headers("X-Request-Id")}
    if operation.gives is not None:
        done["content"] = {"application/json": {"schema": schemas.of(operation.gives)}}
    if operation.method in {"GET", "PUT"}:
        done["headers"] |= _headers("ETag")
    if operation.status == 201:
        done["headers"] |= _headers("Location")
    if operation.job is not None:
        yield "202", _accepted_response(schemas)
    if operation.job is None or not operation.job.always:
        yield str(operation.status), done
    if operation.creates:
        yield "201", {**done, "description": TITLES[201]}
    if operation.method == "GET":
        yield "304", {"description": "Not modified.", "headers": _headers("X-Request-Id", "ETag")}
    for status in sorted({*_statuses(operation), *operation.problems}):
        yield str(status), reference_to(f"#/components/responses/{status}")


def _accepted_response(schemas: _Schemas) -> Json:
    headers = _headers("X-Request-Id", "Location", "Preference-Applied")
    content = {"application/json": {"schema": schemas.of(JobView)}}
    return {
        "description": "The operation runs as this job.",
        "headers": headers,
        "content": content,
    }


def _statuses(operation: Operation) -> Iterator[int]:
    yield from (400, 401, 403, 406, 413, 429, 503)
    if operation.names:
        yield 404
    if operation.body is not None:
        yield from (415, 422)
    if issubclass(operation.query, Paging) or hasattr(operation.query, "__post_init__"):
        yield 422  # a cursor, or parameters that contradict each other
    if operation.method == "POST":
        yield from (409, 422)
    if operation.match:
        yield from (412, 428) if operation.match == "required" else (412,)


def _headers(*names: str) -> Json:
    return {name: {"schema": {"type": "string"}, "required": True} for name in names}


def _problem(status: int, text: str) -> Json:
    content = {MEDIA_TYPE: {"schema": reference_to(REFS.format(name="ProblemDocument"))}}
    headers = _headers("X-Request-Id", *(["Retry-After"] if status in AGAIN else []))
    return {"description": text, "headers": headers, "content": content}
