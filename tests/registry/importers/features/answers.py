"""Answers: what callers get of what the service says."""

import json
from typing import Any

from tests.registry.importers.features.case import Answer, Call, Case

FINE = '"200": {description: Fine}'


def answering(responses: str = FINE, parameters: str = "[]", rest: str = "") -> str:
    return f"""
paths:
  /x:
    get:
      operationId: THIS
      parameters: {parameters}
      responses:
        {responses}
{rest}"""


def of_json(schema: str) -> str:
    return f'"200": {{description: Fine, content: {{application/json: {{schema: {schema}}}}}}}'


def of_json_2(schema: str) -> str:
    return f'"200": {{description: Fine, schema: {schema}}}'


def both(name: str, row: str, *calls: Call) -> Case:
    """Nothing is said about the answer but that there is one."""
    return Case(name, row, calls, three=answering(), two=answering())


def text(words: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": words}]


STATUSES = [
    both(
        "answer_statuses",
        "status classes",
        Call({}, "GET /x", answer=Answer(b"", None, 204), content=text("204 No Content")),
        Call(
            {},
            "GET /x",
            answer=Answer(b'{"id":1}', status=201),
            content=text('{"id":1}'),
            structured={"id": 1},
        ),
        Call(
            {},
            "GET /x",
            answer=Answer(b'{"why":"gone"}', status=404),
            error='HTTP 404 Not Found\n{"why":"gone"}',
            structured={"status": 404, "body": {"why": "gone"}},
        ),
        Call({}, "GET /x", answer=Answer(b"no", "text/plain", 500), error="HTTP 500"),
        Call(
            {},
            "GET /x",
            answer=Answer(b"", None, 302, {"location": "http://127.0.0.1:1/"}),
            error="HTTP 302 Found",
        ),
    ),
    both(
        "answer_json",
        "JSON and text",
        Call({}, "GET /x", answer=Answer(b'[1.50, "\xc3\xa9"]'), structured=[1.5, "é"]),
        Call({}, "GET /x", answer=Answer(b"null"), content=text("null")),
        Call(
            {},
            "GET /x",
            answer=Answer(b'{"a":1}', "application/hal+json; charset=utf-8"),
            structured={"a": 1},
        ),
        Call({}, "GET /x", answer=Answer(b"{broken"), content=text("{broken")),
        Call(
            {},
            "GET /x",
            answer=Answer(b"a\xe9", "text/plain; charset=iso-8859-1"),
            content=text("aé"),
        ),
        Call({}, "GET /x", answer=Answer(b"<a/>", "application/xml"), content=text("<a/>")),
        Call(
            {},
            "GET /x",
            answer=Answer(b'{"a":1}\n{"a":2}\n', "application/x-ndjson"),
            content=text('{"a":1}\n{"a":2}\n'),
        ),
    ),
    both(
        "answer_media",
        "images, audio and other bytes",
        Call(
            {},
            "GET /x",
            answer=Answer(b"\x89PNG", "image/png"),
            content=[{"type": "image", "data": "iVBORw==", "mimeType": "image/png"}],
        ),
        Call(
            {},
            "GET /x",
            answer=Answer(b"RIFF", "audio/wav"),
            content=[{"type": "audio", "data": "UklGRg==", "mimeType": "audio/wav"}],
        ),
    ),
]

PET = "{type: object, required: [id], properties: {id: {type: integer}, name: {type: string}}}"
SCHEMA = {
    "type": "object",
    "required": ["id"],
    "properties": {"id": {"type": "integer"}, "name": {"type": "string"}},
}
SECRET = (
    "{type: object, required: [id, pin], properties: {id: {type: integer}, "
    "pin: {type: string, writeOnly: true}}}"
)
SCHEMAS = [
    Case(
        "answer_schema",
        "output schemas",
        [Call({}, "GET /x", answer=Answer(b'{"id":1}'), structured={"id": 1})],
        three=answering(of_json(PET)),
        two=answering(of_json_2(PET)),
        output=SCHEMA,
    ),
    Case(
        "answer_write_only",
        "writeOnly is no output",
        [Call({}, "GET /x", answer=Answer(b'{"id":1}'), structured={"id": 1})],
        three=answering(of_json(SECRET)),
        output={
            "type": "object",
            "required": ["id"],
            "properties": {"id": {"type": "integer"}},
        },
    ),
    Case(
        "answer_unfit",
        "answers are compared, and given all the same",
        [
            Call({}, "GET /x", answer=Answer(b'{"id":"1"}'), structured={"id": "1"}),
            Call({}, "GET /x", answer=Answer(b'{"id":1}'), structured={"id": 1}),
        ],
        three=answering(of_json(PET)),
        two=answering(of_json_2(PET)),
        settings={"validate_answers": "report"},
    ),
]


def following(arguments: dict[str, Any]) -> dict[str, Any]:
    return {"toolgate/next": {"arguments": arguments}}


PAGE = "[{name: page, in: query, schema: {type: integer}}, "
PAGE += "{name: per_page, in: query, schema: {type: integer}}]"
PAGE_2 = "[{name: page, in: query, type: integer}, {name: per_page, in: query, type: integer}]"
LINK = {
    "link": '<http://127.0.0.1:1/x?page=3&per_page=2>; rel="next", <http://a/?page=9>; rel="last"'
}
LINKED = '"200": {description: Fine, headers: {Link: {schema: {type: string}}}, content: '
LINKED += "{application/json: {schema: {type: array, items: {type: object}}}}}"
LINKED_2 = '"200": {description: Fine, headers: {Link: {type: string}}, '
LINKED_2 += "schema: {type: array, items: {type: object}}}"
CURSOR = "[{name: cursor, in: query, schema: {type: string}}]"
CURSOR_2 = "[{name: cursor, in: query, type: string}]"
CURSORS = "{type: object, properties: {items: {type: array, items: {type: object}}, "
CURSORS += "next_cursor: {type: string}}}"
OFFSET = "[{name: offset, in: query, schema: {type: integer, default: 0}}, "
OFFSET += "{name: limit, in: query, schema: {type: integer}}]"
OFFSET_2 = "[{name: offset, in: query, type: integer, default: 0}, "
OFFSET_2 += "{name: limit, in: query, type: integer}]"
OFFSETS = "{type: object, properties: {items: {type: array, items: {type: object}}, "
OFFSETS += "total: {type: integer}}}"
PAGES = [
    Case(
        "page_by_link",
        "pagination: Link",
        [
            Call(
                {"page": 2, "per_page": 2},
                "GET /x?page=2&per_page=2",
                answer=Answer(b"[{}, {}]", headers=LINK),
                meta=following({"page": 3, "per_page": 2}),
            ),
            Call(
                {"page": 3},
                "GET /x?page=3",
                answer=Answer(b"[{}]", headers={"link": '<http://a/?page=1>; rel="first"'}),
                meta={"toolgate/next": None},
            ),
        ],
        three=answering(LINKED, PAGE),
        two=answering(LINKED_2, PAGE_2),
    ),
    Case(
        "page_by_cursor",
        "pagination: cursor",
        [
            Call(
                {},
                "GET /x",
                answer=Answer(b'{"items": [{}], "next_cursor": "c=2"}'),
                meta=following({"cursor": "c=2"}),
            ),
            Call(
                {"cursor": "c=2"},
                "GET /x?cursor=c%3D2",
                answer=Answer(b'{"items": [{}], "next_cursor": ""}'),
                meta={"toolgate/next": None},
            ),
        ],
        three=answering(of_json(CURSORS), CURSOR),
        two=answering(of_json_2(CURSORS), CURSOR_2),
    ),
    Case(
        "page_by_offset",
        "pagination: offset",
        [
            Call(
                {"limit": 2},
                "GET /x?limit=2",
                answer=Answer(b'{"items": [{}, {}], "total": 3}'),
                meta=following({"limit": 2, "offset": 2}),
            ),
            Call(
                {"limit": 2, "offset": 2},
                "GET /x?offset=2&limit=2",
                answer=Answer(b'{"items": [{}], "total": 3}'),
                meta={"toolgate/next": None},
            ),
        ],
        three=answering(of_json(OFFSETS), OFFSET),
        two=answering(of_json_2(OFFSETS), OFFSET_2),
    ),
]

PEOPLE = {"items": [{"id": 1, "owner": {"login": "a", "mail": "b"}}], "total": 1}
FIELDS = both(
    "fields",
    "_fields",
    Call(
        {"_fields": ["items.id", "items.owner.login"]},
        "GET /x",
        answer=Answer(json.dumps(PEOPLE).encode()),
        structured={"items": [{"id": 1, "owner": {"login": "a"}}]},
    ),
    Call(
        {"_fields": "total"},
        "GET /x",
        answer=Answer(json.dumps(PEOPLE).encode()),
        structured={"total": 1},
    ),
)

CASES = [*STATUSES, *SCHEMAS, *PAGES, FIELDS]
