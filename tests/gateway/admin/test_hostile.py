"""Requests with values that some layer cannot hold: each is refused, and none breaks anything."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from gateway.app.admin import AdminParts, operations_of
from tests.fixtures_gateway import pets
from tests.gateway.admin.client import Admin, Answer, bearer
from tests.properties import pairs, sample

pytestmark = pytest.mark.anyio

UNKNOWN = "00000000-0000-0000-0000-00000000000a"
SOON, LATER = "2090-01-01T00:00:00Z", "2091-01-01T00:00:00Z"
JSON = {"Content-Type": "application/json"}

# A server of a registry: none is in the settings, so that nobody is asked.
PLAN = {
    "name": "io.github.ada/weather",
    "registry": "own",
    "version": "1.0.0",
    "choice": "remote",
    "inputs": {"CITY": "Rome"},
    "allow": ["--network"],
    "unpinned": True,
}
UPDATE = {"version": "1.0.1", "inputs": {"CITY": "Rome"}, "allow": ["--network"], "tools": True}
# What each operation takes: all members that there are, each with a value that is good.
TOOLSET = {
    "sources": ["pets"],
    "include": ["get*", "tag:a"],
    "exclude": ["domain:b"],
    "roles": ["staff"],
    "instructions": "Read.",
    "mode": "search",
    "code": "off",
    "signatures": "python",
    "tool_tokens": 100,
    "description": "Reads",
}
BODIES: dict[str, tuple[Any, ...]] = {
    "importSource": (
        {
            "kind": "openapi",
            "name": "new",
            "url": "https://127.0.0.1/x",
            "base_url": "https://127.0.0.1",
            "include": ["a"],
            "media_types": ["a/b"],
        },
        {"kind": "openapi", "name": "new", "document": "openapi: 3.1.0"},
        {"kind": "graphql", "name": "new", "url": "https://127.0.0.1", "depth": 3, "cost": 9},
        {"kind": "hybrid", "name": "new", "document": "a: 1", "side": "query", "batch": 1},
        {"kind": "mcp", "name": "new", "url": "https://127.0.0.1/mcp", "prefix": "always"},
    ),
    "erasePerson": ({"person": "nobody", "confirm": "nobody", "dry_run": True},),
    "previewImport": ({"kind": "openapi", "name": "new", "document": "openapi: 3.1.0"},),
    "uploadDocument": ({"document": json.dumps(pets())},),
    "rollBack": ({"to": 1},),
    "compareSource": ({},),
    "planServer": (PLAN,),
    "addServer": ({**PLAN, "source": "new", "sha256": "0" * 64, "secrets": {"X-Key": "s"}},),
    "planUpdate": (UPDATE,),
    "updateServer": ({**UPDATE, "sha256": "0" * 64, "secrets": {"X-Key": "s"}},),
    "putSecret": (
        {
            "client_id": "a",
            "client_secret": "b",
            "token_url": "https://t.example/t",
            "scopes": ["a"],
        },
        {"value": "v"},
        {"token": "t"},
        {"username": "u", "password": "p"},
    ),
    "putToolset": (TOOLSET,),
    "previewToolset": ({"toolset": TOOLSET, "name": "new", "limit": 1},),
    "describeTool": ({"text": "A pet."},),
    "changeMetadata": (
        {
            "domain": "d",
            "namespace": "n",
            "tier": "internal",
            "weight": 1.5,
            "lifecycle": "active",
            "personas": "p",
            "keywords": ["k"],
            "cost": "low",
        },
    ),
    "createTool": (
        {
            "name": "made",
            "description": "d",
            "title": "t",
            "rest": "GET https://a.example/{id}?q={q}",
            "input_schema": {
                "type": "object",
                "properties": {"id": {"type": "string"}, "q": {"type": "string"}},
            },
            "output_schema": {"type": "object"},
            "annotations": {"readOnlyHint": True},
            "tags": ["t"],
            "toolsets": ["some"],
            "examples": [{"id": "1"}],
            "keywords": ["k"],
            "domain": "d",
            "namespace": "n",
            "tier": "internal",
            "weight": 1.5,
            "lifecycle": "active",
            "personas": "p",
            "cost": "low",
        },
        {
            "name": "asked",
            "description": "d",
            "graphql": "query ($id: ID!) { pet(id: $id) { name } }",
            "url": "https://a.example/graphql",
            "source": "of-its-own",
        },
        {
            "name": "acted",
            "description": "d",
            "hybrid": "h/s/a/1",
            "url": "https://a.example",
            "scope": "s",
            "side": "query",
            "dialect": "legacy",
        },
    ),
    "createTools": (
        {
            "tools": [
                {"name": "several", "description": "d", "rest": "GET https://a.example/several"}
            ],
            "dry_run": True,
        },
    ),
    "editTool": (
        {
            "description": "d",
            "title": "t",
            "input_schema": {"type": "object"},
            "examples": [{"id": "1"}],
            "tags": ["t"],
        },
    ),
    "searchTools": (
        {
            "query": "pet",
            "limit": 9,
            "words": True,
            "source": "pets",
            "domain": "d",
            "namespace": "n",
            "tier": "internal",
            "protocol": "openapi",
        },
    ),
    "evaluateSearch": (
        {"requests": [{"query": "pet", "gold": ["getPet"]}], "from_usage": False, "limit": 9},
    ),
    "explainSearch": (
        {"query": "pet", "mode": "hybrid", "limit": 5, "source": "pets", "domains": ["d"]},
    ),
    "refreshEmbeddings": ({"tools": ["getPet"], "force": True},),
    "retryEmbeddings": ({"tools": ["getPet"]},),
    "importSkills": (
        {
            "skills": [
                {
                    "document": "---\nname: care\ndescription: Care.\n---\nCare.",
                    "files": [{"path": "a/b.md", "content": "YQ=="}],
                }
            ],
            "strict": True,
            "dry_run": True,
        },
    ),
    "generateSkills": ({"source": "pets", "tags": ["t"], "dry_run": True},),
    "linkTools": ({"tools": ["getPet"], "access": "read"},),
    "dependSkill": ({"required": True},),
    "rollBackSkill": ({"to": 1},),
    "putAgent": (
        {
            "description": "d",
            "model_provider": "p",
            "model_name": "n",
            "temperature": 0.5,
            "max_tokens": 9,
        },
    ),
    "grantSkills": ({"skills": ["care"], "priority": 1, "sequence": 1},),
    "createKey": (
        {"name": "n", "principal": "p", "scopes": ["a"], "roles": ["r"], "expires": SOON},
    ),
    "rotateKey": ({"overlap_s": 60, "expires": SOON},),
    "revokeTokens": (
        {"expires": LATER, "jti": "j", "reason": "r"},
        {"expires": LATER, "subject": "s", "issued_before": SOON, "reason": "r"},
    ),
    "putRule": (
        {
            "effect": "deny",
            "roles": ["r"],
            "scopes": ["s"],
            "tools": ["t*"],
            "sources": ["s"],
            "reason": "r",
            "when": "args.x == 1",
        },
    ),
    "matchTools": ({"tools": ["t*"], "exclude": ["x*"], "when": "args.x == 1"},),
    "tryRule": ({"rule": {"effect": "deny", "tools": ["t*"], "when": "args.x == 1"}},),
    "explain": (
        {
            "tool": "getPet",
            "principal": "p",
            "roles": ["r"],
            "scopes": ["s"],
            "claims": {"a": 1},
            "toolset": "some",
            "arguments": {"id": 1},
        },
    ),
    "decide": ({"approve": True},),
}
HEADERS = {"putRule": {"If-None-Match": "*"}}
NAMES = {"source": "pets", "tool": "getPet", "toolset": "some", "scheme": "oauth", "rule": "r"}
NAMES |= {"skill": "care", "dependency": "care", "agent": "helper", "version": "1"}

DIGITS = "9" * 5000
VALUES = [  # as they stand in JSON
    *("1" * 4299, "9" * 4300, "9" * 4301, DIGITS, f"-{DIGITS}", f"{DIGITS}.5"),
    *("1e400", "-1e400", "1e308", "NaN", "Infinity"),
    *(str(2**31), str(2**63), str(2**64), str(-(2**63) - 1), "0", "-1", "1.5", "null", "true"),
    *('""', '" "', '"\\u0000"', '"a\\u0000b"', '"\\ud800"', '"a\\udc00b"', '"\\ud83d\\ude00"'),
    *('"\xff"', '"\\u202e"', '"\\ufeff"', '"\\n"', '"\\u2028"', '"' + "x" * 70_000 + '"'),
    *('"http://xn--/"', '"https://xn--a"', '"http://[x"', '"http://[::1"', '"http://a:99999/"'),
    *('"http://a:b/"', '"http://%/"', '"http://\u2488com/"', '"http://a..b/"', '"http://."'),
    *('"http://' + "a" * 300 + '.com/"', '"https://\\u0130.example"', '"https://xn--zz--9.example"'),
    *('"0001-01-01T00:00:00+14:00"', '"9999-12-31T23:59:59-14:00"', '"0000-01-01T00:00:00Z"'),
    *('"2090-02-30T00:00:00Z"', '"2090-01-01T00:00:00"', '"2090-01-01T24:00:00Z"'),
    *("[]", "{}", "[[]]", "[null]", '{"a": 1}', "[" * 400 + "]" * 400),
    '{"a":' * 400 + "1" + "}" * 400,
]  # fmt: skip
SOME = [DIGITS, "9" * 4300, "1e400", '"\\ud800"', '"\\u0000"', "-1", "[]", '"' + "x" * 70_000 + '"']
MARK = "\ue000"
VALUES_OF_A_PLACE = 2  # that are tried there in one run
QUERIES = [DIGITS, "1e400", "nan", "-1", "0", "1.5", "", "%00", "%ff", "%ed%a0%80", "x" * 7000]
QUERIES += ["0001-01-01T00:00:00%2B14:00", "9999-12-31T23:59:59-14:00", "AAAA", "%5b", "%25"]


def replace_each(body: Any) -> Iterator[Any]:
    """The body with a mark in the place of each of its values in turn."""
    yield MARK
    if isinstance(body, dict):
        for name, value in body.items():
            yield from ({**body, name: inner} for inner in replace_each(value))
        yield {**body, MARK: 1}
    if isinstance(body, list):
        for at, value in enumerate(body):
            yield from ([*body[:at], inner, *body[at + 1 :]] for inner in replace_each(value))


def encode_bodies(template: str, value: str) -> Iterator[bytes]:
    """The body with the value in the place of the mark, where it can stand."""
    mark = json.dumps(MARK)
    if f"{mark}: " in template and not value.startswith('"'):
        return
    text = template.replace(mark, value)
    yield text.encode("utf-8", "surrogatepass")
    if "\xff" in value:
        yield text.encode("latin-1", "replace")


def path_of(path: str) -> str:
    return re.sub(r"\{(\w+)\}", lambda found: NAMES.get(found[1], UNKNOWN), path)


def check(answer: Answer, what: str, data: bytes | str) -> None:
    assert answer.status < 500, f"{what}: {answer.status} for {data[:300]!r}"
    if answer.status >= 400 and answer.status != 404:
        assert answer.json["detail"], what


@pytest.mark.parametrize(
    ("operation", "body", "told"),
    [
        ("POST /sources", b'{"kind":"mcp","name":"n","url":"http://xn--/"}', "url: expected a URL"),
        ("PUT /secrets/a/b?force=true", b'{"value":"%s"}' % (b"x" * 70_000), "at most 60000 bytes"),
        (
            "PUT /secrets/a/b?force=true",
            b'{"client_id":"a","client_secret":"b","token_url":"http://xn--/"}',
            "token_url: expected a URL",
        ),
        ("POST /sources/pets/rollback", b'{"to":%s}' % DIGITS.encode(), "value out of range"),
    ],
    ids=["host", "long", "token_url", "digits"],
)
async def test_the_mistake_is_named(api: Admin, operation: str, body: bytes, told: str) -> None:
    method, path = operation.split()
    answer = await api.raw(method, path, body, {**bearer(), **JSON})
    assert answer.status in {400, 422}
    assert told in answer.body.decode()


@pytest.fixture
async def api_with_pets(api: Admin) -> Admin:
    wanted = {"kind": "openapi", "name": "pets", "document": json.dumps(pets())}
    assert (await api("POST", "/sources", wanted)).status == 201
    care = json.dumps(BODIES["importSkills"][0] | {"dry_run": False}).encode()
    assert (await api.raw("POST", "/skills", care, {**bearer(), **JSON})).status == 200
    return api


async def test_every_operation_with_a_body_has_one_here(parts: AdminParts) -> None:
    assert set(BODIES) == {one.id for one in operations_of(parts) if one.body is not None}


@pytest.mark.timeout(600)  # up to fifteen thousand requests before a release
async def test_no_body_is_an_error_of_the_gateway(api_with_pets: Admin, parts: AdminParts) -> None:
    operations = {one.id: one for one in operations_of(parts)}
    places = [
        (id_, json.dumps(body))
        for id_, bodies in BODIES.items()
        for whole in bodies
        for body in replace_each(whole)
    ]
    for (id_, template), value in pairs(places, VALUES, VALUES_OF_A_PLACE):
        operation = operations[id_]
        headers = {**bearer(), **JSON, **HEADERS.get(id_, {})}
        for data in encode_bodies(template, value):
            path = path_of(operation.path)
            check(await api_with_pets.raw(operation.method, path, data, headers), id_, data)


PETS = {
    "openapi": "3.1.0",
    "info": {"title": "t", "version": "1"},
    "servers": [{"url": "https://pets.example"}],
    "paths": {
        "/a/{b}": {
            "get": {
                "operationId": "g",
                "parameters": [
                    {
                        "name": "b",
                        "in": "path",
                        "required": True,
                        "schema": {"type": "integer", "maximum": 9, "default": 1, "enum": [1]},
                    }
                ],
                "responses": {"200": {"description": "ok"}},
            }
        }
    },
}
HYBRID = {
    "host": "h.example",
    "service": "s",
    "action": [{"name": "a", "version": "1", "handler": "H", "schema": {"type": "object"}}],
}
SDL = 'type Query { a(b: Int = 1, c: String = "x"): Int }'


def documents() -> Iterator[tuple[str, str]]:
    for kind, good in (("openapi", PETS), ("hybrid", HYBRID)):
        for one in replace_each(good):
            template = json.dumps(one)
            for value in SOME:
                yield kind, template.replace(json.dumps(MARK), value)
    for value in SOME:
        yield "openapi", f"openapi: 3.1.0\ninfo: {{title: t, version: {value}}}\npaths: {{}}"
        yield "hybrid", f"host: h\nservice: s\naction: {value}"
        yield "graphql", SDL.replace("= 1", f"= {value}")
        yield "graphql", SDL.replace("a(", f'"""{value[:9000]}""" a(')


async def test_no_document_is_an_error_of_the_gateway(api: Admin) -> None:
    for kind, document in sample(documents()):
        body = {"kind": kind, "name": "new", "base_url": "https://x.example", "document": document}
        data = json.dumps(body).encode()
        check(await api.raw("POST", "/sources", data, {**bearer(), **JSON}), kind, document)
        await api.raw("DELETE", "/sources/new", None, bearer())


async def test_no_query_is_an_error_of_the_gateway(api_with_pets: Admin, parts: AdminParts) -> None:
    places = [
        (operation, name)
        for operation in operations_of(parts)
        for name in operation.query.__struct_fields__
        if operation.method == "GET"
    ]
    for (operation, name), value in pairs(places, QUERIES, VALUES_OF_A_PLACE):
        path = f"{path_of(operation.path)}?{name}={value}"
        answer = await api_with_pets.raw("GET", path, None, bearer())
        check(answer, operation.id, f"{name}={value}")


async def test_no_name_is_an_error_of_the_gateway(api_with_pets: Admin, parts: AdminParts) -> None:
    named = [operation for operation in operations_of(parts) if "{" in operation.path]
    for operation, value in pairs(named, QUERIES, VALUES_OF_A_PLACE):
        head, _, tail = operation.path.partition("{")
        path = f"{head}{value}{path_of(tail.partition('}')[2])}"
        body = json.dumps(BODIES[operation.id][0]).encode() if operation.body else None
        headers = {**bearer(), **(JSON if body else {})}
        check(await api_with_pets.raw(operation.method, path, body, headers), operation.id, path)


async def test_no_header_is_an_error_of_the_gateway(api_with_pets: Admin) -> None:
    body = json.dumps({"name": "n"}).encode()
    for name in ("If-Match", "If-None-Match", "Idempotency-Key", "Accept", "Content-Type"):
        for value in ('"\xff"', "\xff", "x" * 5000, '"' * 99, ",", "*, *", "W/", '"\t"', "q=0;q=x"):
            headers = {**bearer(), **JSON, name: value}
            check(await api_with_pets.raw("POST", "/keys", body, headers), name, value)
            check(await api_with_pets.raw("PUT", "/policy/rules/r", body, headers), name, value)
