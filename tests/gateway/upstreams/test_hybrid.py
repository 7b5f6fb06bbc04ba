"""What goes out to a hybrid service, and how often."""

import pytest

from tests.gateway.upstreams.conftest import open_client
from tests.gateway.upstreams.hybrid_calls import (
    DELETE,
    STATUS,
    Caller,
    caller,
    failure,
    known_caller,
    open_adjusted,
    value,
)
from tests.servers.hybrid import Failed, Hybrid
from tests.servers.rest import Flaky, Silent

pytestmark = pytest.mark.anyio

OURS = "HTTP 502 ERR18502 UPSTREAM_FAILED: "
D = {"hostId": "1234567", "ruleId": "ruleId"}
LETTER = {
    "idempotency_key": "key-1",
    "authorization": "Bearer caller",
    "scope_token": "Bearer app",
    "correlation_id": "c-1",
    "traceability_id": "t-1",
}


@pytest.mark.parametrize("dialect", ["jsonrpc", "legacy"])
@pytest.mark.parametrize(
    ("binding", "arguments", "data"),
    [
        ({}, D, D),
        ({}, {}, {}),
        ({"validated": False}, {}, None),
        ({"validated": False}, D, D),
        ({"validated": False}, [1], [1]),
        ({"validated": False}, [], []),
        ({"argument": "body"}, {"body": [1, 2**53 + 1]}, [1, 2**53 + 1]),
        ({"argument": "body"}, {}, None),
        ({"argument": "body"}, {"body": None}, None),
    ],
)
async def test_the_data_of_an_action_arrives(client, serve, dialect, binding, arguments, data):
    service = Hybrid()
    call = Caller.of(client, await serve(service), dialect=dialect)
    assert value(await call(arguments, **binding)) == {"echo": data}


async def test_a_call_goes_out_as_json_rpc(client, serve):
    service = Hybrid()
    call = Caller.of(client, await serve(service))
    await call(D)
    await call(validated=False)
    first, second = service.bodies
    assert first == {"jsonrpc": "2.0", "method": DELETE, "params": D, "id": first["id"]}
    assert second == {"jsonrpc": "2.0", "method": DELETE, "id": second["id"]}
    assert first["id"] != second["id"]
    assert service.seen[0].method == "POST"
    assert service.seen[0].all("content-type") == ["application/json"]


async def test_a_call_goes_out_as_the_legacy_payload(client, serve):
    service = Hybrid()
    call = Caller.of(client, await serve(service), dialect="legacy")
    await call(D)
    await call(validated=False)
    names = {"host": "lightapi.net", "service": "rule", "action": "deleteRule", "version": "0.1.0"}
    assert service.bodies == [names | {"data": D}, names]


@pytest.mark.parametrize(
    ("base", "side", "target"),
    [
        ("", None, "/portal/command"),
        ("", "command", "/portal/command"),
        ("", "query", "/portal/query"),
        ("/", "query", "/portal/query"),
        ("/api/json", "query", "/api/json"),
        ("/api/json", None, "/api/json"),
    ],
)
@pytest.mark.parametrize("dialect", ["jsonrpc", "legacy"])
async def test_the_side_is_the_path_unless_the_address_has_a_path(
    client, serve, base, side, target, dialect
):
    service = Hybrid()
    await Caller.of(client, await serve(service) + base, dialect=dialect)(D, side=side)
    assert [seen.target for seen in service.seen] == [target]


async def test_an_address_from_the_settings_counts_as_well(serve):
    service = Hybrid()
    async with open_adjusted(base_url=await serve(service) + "/api/json") as client:
        await Caller.of(client, "http://192.0.2.1")(D)
    assert [seen.target for seen in service.seen] == ["/api/json"]


async def test_an_id_of_other_than_four_parts_goes_as_json_rpc_only(client, serve):
    service = Hybrid()
    url = await serve(service)
    assert value(await Caller.of(client, url)(D, service="subtract")) == {"echo": D}
    shown, structure = failure(await Caller.of(client, url, dialect="legacy")(D, service="a/b/c"))
    assert shown.startswith(OURS + "a/b/c is not host/service/action/version")
    assert structure["status"] == 502
    assert len(service.seen) == 1


async def test_data_that_json_rpc_has_no_form_for_goes_as_legacy_only(client, serve):
    service = Hybrid()
    url = await serve(service)
    legacy = Caller.of(client, url, dialect="legacy")
    assert value(await legacy({"body": 5}, argument="body")) == {"echo": 5}
    shown, _ = failure(await Caller.of(client, url)({"body": 5}, argument="body"))
    assert "takes an object or an array in JSON-RPC (section 4.2), not a number" in shown
    assert len(service.seen) == 1


def sent_headers(service):
    """The headers of each request that a letter has to do with."""
    names = (
        "x-correlation-id", "x-traceability-id", "idempotency-key", "authorization",
        "x-scope-token",
    )  # fmt: skip
    return [{name: found for name in names if (found := seen.all(name))} for seen in service.seen]


@pytest.mark.parametrize("dialect", ["jsonrpc", "legacy"])
async def test_a_letter_goes_along_without_its_credentials(client, serve, dialect):
    service = Hybrid()
    call = Caller.of(client, await serve(service), dialect=dialect)
    await call(D, caller(**LETTER))
    await call(D, caller(**LETTER), side="query")  # which does nothing that could be done twice
    await call(D, caller("r-7"))
    traced = {"x-correlation-id": ["c-1"], "x-traceability-id": ["t-1"]}
    assert sent_headers(service) == [
        traced | {"idempotency-key": ["key-1"]},
        traced,
        {"x-correlation-id": ["r-7"]},
    ]


@pytest.mark.parametrize("batch", [1, 5])
async def test_credentials_go_along_where_the_settings_say_so(serve, batch):
    service = Hybrid()
    async with open_adjusted(base_url=await serve(service), forward_token=True) as client:
        call = Caller.of(client, None, batch=batch)
        await call(D, known_caller(**LETTER))
        await call(D, caller(**LETTER))  # nobody has verified these
    headers, unverified = sent_headers(service)
    assert headers["authorization"] == ["Bearer caller"]
    assert headers["x-scope-token"] == ["Bearer app"]
    assert not {"authorization", "x-scope-token"} & unverified.keys()


async def test_configured_headers_win_over_the_callers(serve):
    service = Hybrid()
    async with open_adjusted(
        base_url=await serve(service),
        headers={"authorization": "Bearer ours", "X-Correlation-ID": "fixed"},
    ) as client:
        await Caller.of(client, None)(D, known_caller(**LETTER))
    [headers] = sent_headers(service)
    assert headers["authorization"] == ["Bearer ours"]
    assert headers["x-correlation-id"] == ["fixed"]


async def test_credentials_do_not_go_where_only_a_description_leads(serve):
    service = Hybrid()
    async with open_adjusted(forward_token=True) as client:
        described = Caller.of(client, await serve(service)).at(base_url_trusted=False)
        shown, _ = failure(await described(D, known_caller(**LETTER)))
    assert shown == OURS + (
        "rules has forward_token, but only its description says where it is: "
        "set sources.rules.base_url"
    )
    assert service.seen == []


@pytest.mark.parametrize(
    ("side", "key", "attempts"), [("query", None, 3), ("command", None, 1), (None, "key", 1)]
)
@pytest.mark.parametrize("options", [{}, {"batch": 5}, {"dialect": "legacy"}])
async def test_only_a_query_is_tried_again(client, serve, side, key, attempts, options):
    service = Flaky([503])
    call = Caller.of(client, await serve(service), **options)
    await call(D, caller(idempotency_key=key), side=side)
    assert len(service.bodies) == attempts
    assert len(set(service.bodies)) == 1


async def test_a_call_that_cannot_be_made_says_why(client):
    upstream = Caller.of(client, None)
    assert failure(await upstream(D))[0].startswith(OURS + "rules has no address")
    gone = Caller(upstream.upstream, None)
    assert failure(await gone(D))[0] == OURS + "The source of deleteRule is gone"
    nobody = Caller.of(client, "http://127.0.0.1:1")
    assert failure(await nobody(D))[0].startswith(OURS + "rules could not be reached")


@pytest.mark.parametrize("options", [{}, {"batch": 5}, {"dialect": "legacy"}], ids=str)
async def test_a_service_that_is_too_slow_is_a_status_of_its_own(serve, options):
    url = await serve(Silent())
    async with open_client(timeout_s=0.05) as client:
        shown, structure = failure(await Caller.of(client, url, **options)(D))
    told = "rules did not answer within 0.05 s"
    assert shown == f"HTTP 504 ERR18504 UPSTREAM_TIMEOUT: {told}"
    assert structure == {
        "status": 504,
        "body": {
            "statusCode": 504,
            "code": "ERR18504",
            "message": "UPSTREAM_TIMEOUT",
            "description": told,
            "severity": "ERROR",
        },
    }


async def test_a_service_that_fails_is_a_failure_with_its_status(client, serve):
    def update(_data):
        raise Failed(400, STATUS)

    service = Hybrid({DELETE: update})
    url = await serve(service)
    for dialect in ("jsonrpc", "legacy"):
        shown, structure = failure(await Caller.of(client, url, dialect=dialect)(D))
        assert shown == (
            "HTTP 400 ERR10001 AUTH_TOKEN_EXPIRED: Jwt token in authorization header expired"
        )
        assert structure == {"status": 400, "body": STATUS}
