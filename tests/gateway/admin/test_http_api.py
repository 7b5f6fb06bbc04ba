"""Who is served, and how requests are read: the same for all operations."""

from collections.abc import AsyncIterator

import aiohttp
import pytest
from msgspec.structs import replace

from gateway.admin.http_api import AdminAction
from gateway.app.admin import AdminParts, admin_api, operations_of
from gateway.operations.operation import Operation
from tests.fixtures_servers import serving
from tests.gateway.admin.client import ROOT, Admin, Answer, bearer, open_admin

pytestmark = pytest.mark.anyio

RULE = {"effect": "deny", "tools": ["x"]}


def problem_of(answer: Answer) -> tuple[int, str]:
    """Status and kind of a problem, which is one in every respect."""
    problem = answer.json
    assert answer.headers["content-type"] == "application/problem+json"
    assert problem["status"] == answer.status
    assert problem["instance"] == answer.headers["x-request-id"]
    assert {"title", "detail"} <= problem.keys()
    return answer.status, problem["type"].removeprefix("problems/")


async def test_nobody_is_served_without_a_good_token(api: Admin) -> None:
    for headers, challenge in [
        ({}, 'Bearer realm="toolgate"'),
        ({"Authorization": "Bearer x"}, 'Bearer realm="toolgate", error="invalid_token"'),
        (bearer(exp=1), 'Bearer realm="toolgate", error="invalid_token"'),
    ]:
        for method, path in [("GET", "/keys"), ("GET", "/openapi.json"), ("PUT", "/nothing")]:
            answer = await api.raw(method, path, None, headers)
            assert problem_of(answer) == (401, "unauthorized")
            assert (
                answer.headers["www-authenticate"].partition(", error_description")[0] == challenge
            )


async def test_credentials_that_cannot_be_verified_yet_are_not_refused(api: Admin) -> None:
    """A client would give its key up by 401. This gateway has read no keys."""
    for headers in ({"Authorization": "Bearer tgk_a_b"}, {"X-API-Key": "tgk_a_b"}):
        answer = await api.raw("GET", "/keys", None, headers)
        assert problem_of(answer) == (503, "unavailable")
        assert answer.headers["retry-after"] == "1"
        assert "www-authenticate" not in answer.headers


async def test_every_operation_takes_its_scope_and_no_other(api: Admin, parts: AdminParts) -> None:
    operations = operations_of(parts)
    scopes = {one.scope for one in operations} - {""}
    assert len(scopes) == 13
    for one in operations:
        assert one.scope or one.id in {"describe", "sumCosts"}
        path = one.path.replace("{approval}", "0").replace("{revocation}", "0")
        path = path.replace("{", "").replace("}", "")
        for scope in [*sorted(scopes), "admin:read", "admin:writ", "x"]:
            opens = scope == one.scope or (scope == "admin:read" and one.scope.endswith(":read"))
            if one.scope and not opens:
                answer = await api.raw(one.method, path, None, bearer(scope=f"a {scope}"))
                assert problem_of(answer) == (403, "insufficient-scope")
                challenge = answer.headers["www-authenticate"]
                assert challenge.endswith(f'error="insufficient_scope", scope="{one.scope}"')
        for scope in {one.scope, "admin"}:
            operator = bearer(scope=scope, roles=["operator"])  # what is about all tenants
            answer = await api.raw(one.method, path, None, operator)
            assert answer.status not in {401, 403, 405, 500}, one.id


async def test_there_is_none_while_everybody_is_let_in(parts: AdminParts) -> None:
    settings = replace(parts.settings, auth=replace(parts.settings.auth, mode="none"))
    app = admin_api(_with(parts, settings=settings))
    async with serving(app) as url, aiohttp.ClientSession() as http:
        for path in ("/keys", "/openapi.json", "/nothing"):
            async with http.get(url + ROOT + path, headers=bearer()) as response:
                assert response.status == 403
                assert "auth.mode" in (await response.json(content_type=None))["detail"]


def _with(parts: AdminParts, **changes: object) -> AdminParts:
    members = {name: getattr(parts, name) for name in AdminParts.__dataclass_fields__}
    return AdminParts(**{**members, **changes})  # type: ignore[arg-type]


@pytest.fixture
async def limited_api(parts: AdminParts) -> AsyncIterator[Admin]:
    """An API of three requests in a minute; its description was the first one of root."""
    admin = replace(parts.settings.admin, requests=3)
    app = admin_api(_with(parts, settings=replace(parts.settings, admin=admin)))
    async with serving(app) as url, aiohttp.ClientSession() as http:
        yield await open_admin(url, http)


async def test_a_principal_has_so_many_requests(
    limited_api: Admin, admin_actions: list[AdminAction]
) -> None:
    assert [(await limited_api("GET", "/keys")).status for _ in range(2)] == [200, 200]
    admin_actions.clear()
    answer = await limited_api("GET", "/keys")
    assert problem_of(answer) == (429, "too-many-requests")
    assert "at most 3 in 60 s (admin.requests)" in answer.json["detail"]
    assert 1 <= int(answer.headers["retry-after"]) <= 61
    assert admin_actions == []
    for headers, status in [(bearer("ada"), 200), (bearer(tenant="other"), 429)]:
        assert (await limited_api.raw("GET", "/keys", None, headers)).status == status


async def test_strangers_share_the_requests_of_their_address(limited_api: Admin) -> None:
    guesses = [{"X-API-Key": f"tg_{number}"} for number in range(3)]
    told_of = [problem_of(await limited_api.raw("GET", "/keys", None, guess)) for guess in guesses]
    assert told_of == [(401, "unauthorized")] * 3
    answer = await limited_api("GET", "/keys", Authorization="Bearer x")
    assert problem_of(answer) == (429, "too-many-requests")
    assert "retry-after" in answer.headers
    assert (
        await limited_api("GET", "/keys")
    ).status == 200  # who says who they are is none of them


async def test_unknown_paths_and_methods_are_refused_with_allow(api: Admin) -> None:
    nothing = await api.raw("GET", "/nothing", None, bearer())
    assert problem_of(nothing) == (404, "not-found")
    patched = await api.raw("PATCH", "/keys", None, bearer())
    assert problem_of(patched) == (405, "method-not-allowed")
    assert patched.headers["allow"] == "GET, HEAD, OPTIONS, POST"
    options = await api.raw("OPTIONS", "/policy/rules/a", None, bearer())
    assert (options.status, options.body) == (204, b"")
    assert options.headers["allow"] == "DELETE, GET, HEAD, OPTIONS, PUT"


async def test_head_is_get_without_the_body(api: Admin) -> None:
    got, head = await api("GET", "/keys"), await api.raw("HEAD", "/keys", None, bearer())
    assert (head.status, head.body) == (200, b"")
    for name in ("etag", "content-type", "content-length"):
        assert head.headers[name] == got.headers[name]


async def test_answers_are_for_nobody_to_keep_or_to_guess_about(api: Admin) -> None:
    for path in ("/keys", "/nothing"):
        headers = (await api.raw("GET", path, None, bearer())).headers
        assert headers["cache-control"] == "no-store"
        assert headers["x-content-type-options"] == "nosniff"
        assert "access-control-allow-origin" not in headers
        assert headers.keys() & {"server", "x-powered-by"} <= {"server"}


ANSWERS_ARE_JSON_OR_NONE = [
    ("application/json", 200),
    ("text/html, */*;q=0.1", 200),
    ("application/*", 200),
    ("text/html", 406),
    ("application/json;q=0, text/html", 406),
]


async def test_answers_are_json_or_none(api: Admin) -> None:
    for accept, status in ANSWERS_ARE_JSON_OR_NONE:
        assert (await api("GET", "/keys", Accept=accept)).status == status


A_QUERY_IS_WHAT_THE_OPERATION_TAKES = [
    ("limit=0", "limit"),
    ("limit=-1", "limit"),
    ("limit=many", "limit"),
    ("limit=1&limit=2", "limit"),
    ("limit=1.5", "limit"),
    ("more=1", "more"),
    ("after=%00", "after"),
    ("after=%C3%A9", "after"),
    ("%FF=1", None),
]


async def test_unknown_and_invalid_query_parameters_are_refused(api: Admin) -> None:
    for query, parameter in A_QUERY_IS_WHAT_THE_OPERATION_TAKES:
        answer = await api.raw("GET", f"/keys?{query}", None, bearer())
        assert problem_of(answer) == (400, "bad-request")
        errors = answer.json.get("errors", [{}])
        assert [one.get("parameter") for one in errors] == [parameter]


A_BODY_IS_READ_STRICTLY = [
    (b"", 400, None),
    (b"{", 400, None),
    (b"\xff", 400, None),
    (b'{"name": "a", "name": "b"}', 400, None),
    (b'{"name": "\\ud800"}', 400, None),
    (b"[" * 100_000, 400, None),
    (b"[]", 422, ""),
    (b'{"scopes": []}', 422, "/name"),
    (b'{"name": "a", "more": 1}', 422, "/more"),
    (b'{"name": "a", "a/~b": 1}', 422, "/a~1~0b"),
    (b'{"name": 1}', 422, "/name"),
    (b'{"name": "a\\u0000"}', 422, None),
    (b'{"name": "a", "scopes": ["b", "c d"]}', 422, "/scopes/1"),
    (b'{"name": "a", "expires": "2030-01-01"}', 422, "/expires"),
    (b'{"name": "a", "expires": "2030-01-01T00:00:00"}', 422, "/expires"),
    (b'{"name": "a", "expires": "2020-01-01T00:00:00Z"}', 422, None),
]


async def test_a_body_is_read_strictly(api: Admin) -> None:
    for body, status, pointer in A_BODY_IS_READ_STRICTLY:
        answer = await api("POST", "/keys", body)
        assert problem_of(answer)[0] == status
        errors = answer.json.get("errors", [{}])
        assert [one.get("pointer") for one in errors] == [pointer]
        assert (await api("GET", "/keys")).json == {"items": []}


A_BODY_SAYS_WHAT_IT_IS = [
    ("application/json", 201),
    ("Application/JSON; charset=UTF-8", 409),  # there is one by now
    ("application/json; charset=latin-1", 415),
    ("text/plain", 415),
    ("application/x-www-form-urlencoded", 415),
]


async def test_a_body_requires_a_json_media_type(api: Admin) -> None:
    for media_type, status in A_BODY_SAYS_WHAT_IT_IS:
        headers = {**bearer(), "Content-Type": media_type}
        answer = await api.raw("POST", "/keys", b'{"name": "a"}', headers)
        assert answer.status == status, media_type


async def test_a_body_has_an_end(api: Admin, parts: AdminParts) -> None:
    limit = parts.settings.admin.body_limit_bytes
    large = b'{"name": "%s"}' % (b"a" * limit)
    assert problem_of(await api("POST", "/keys", large)) == (413, "too-large")

    async def pieces() -> AsyncIterator[bytes]:
        for start in range(0, len(large), 65536):
            yield large[start : start + 65536]

    headers = {**bearer(), "Content-Type": "application/json"}
    async with api.http.post(f"{api.url}{ROOT}/keys", data=pieces(), headers=headers) as response:
        assert response.status == 413


async def test_operations_without_a_body_refuse_a_body(api: Admin) -> None:
    answer = await api.raw("POST", "/tools/a/disable", b"{}", bearer())
    assert problem_of(answer) == (400, "bad-request")


async def test_invalid_names_are_not_found(api: Admin) -> None:
    names = ["keys/%00", "keys/%ff", "keys/a%2Fb", "keys/" + "a" * 65, "approvals/1"]
    for path in [f"/{name}" for name in names]:
        assert problem_of(await api.raw("GET", path, None, bearer())) == (404, "not-found")


async def test_requests_and_refused_callers_are_audited(
    api: Admin, admin_actions: list[AdminAction]
) -> None:
    admin_actions.clear()
    made = await api("POST", "/keys", {"name": "a"})
    await api("POST", "/keys", {"name": "b"}, scope="admin:keys:read")
    await api("DELETE", f"/keys/{made.json['key']['id']}")
    assert [(one.operation, one.status, one.principal.id) for one in admin_actions] == [
        ("createKey", 201, "root"),
        ("createKey", 403, "root"),
        ("revokeKey", 204, "root"),
    ]
    assert admin_actions[0].request_id == made.headers["x-request-id"]
    assert admin_actions[2].names == {"key": made.json["key"]["id"]}


async def test_read_of_the_description_is_audited_only_when_refused(
    api: Admin, admin_actions: list[AdminAction]
) -> None:
    """Each command with --url begins with it."""
    admin_actions.clear()
    described = await api("GET", "/openapi.json")
    accepted = await api("GET", "/openapi.json", None, Accept="text/html")
    assert (described.status, accepted.status) == (200, 406)
    assert [(action.operation, action.status) for action in admin_actions] == [("describe", 406)]


async def test_a_database_that_is_away_is_no_crash(api: Admin, parts: AdminParts) -> None:
    async with (
        serving(admin_api(_with(parts, pool=lambda: None))) as url,
        aiohttp.ClientSession() as http,
    ):
        alone = Admin(url, http, api.api)
        assert problem_of(await alone("GET", "/keys")) == (503, "unavailable")
        key = {"Idempotency-Key": "a"}
        assert problem_of(await alone("POST", "/keys", {"name": "a"}, **key)) == (
            503,
            "unavailable",
        )


async def test_an_unexpected_error_is_internal_and_reveals_nothing(
    parts: AdminParts, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def raise_secret(_asked: object) -> None:
        raise ZeroDivisionError("secret")

    crash = Operation("crash", "GET", "/crash", "Crash.", "", raise_secret)
    monkeypatch.setattr("gateway.app.admin.operations_of", lambda _parts: (crash,))
    async with (
        serving(admin_api(parts)) as url,
        aiohttp.ClientSession() as http,
        http.get(f"{url}{ROOT}/crash", headers=bearer()) as response,
    ):
        text = await response.text()
    assert response.status == 500
    assert "secret" not in text
    assert any(one.message == "unexpected_error" for one in caplog.records)
