"""The portal paths: what the settings make of the answers."""

from typing import Any

import pytest
from msgspec.structs import replace

from config.settings import Settings
from tests.gateway.portal import (
    COMMAND,
    DATA,
    INVALID,
    NOBODY,
    QUERY,
    RPC,
    UNKNOWN,
    Portal,
    legacy,
    portal,
    rpc,
    silent,
)

pytestmark = pytest.mark.anyio

GOOD = {"data": DATA}
BAD = {"data": {"hostId": "h"}}
WRAPPED = {  # name of a request -> what a JSON-RPC client gets for it, strictly
    "result": (200, (1, "OK")),
    "failure": (400, (1, 401, "ERR10001")),
    "text failure": (503, (1, 503, None)),
    "nothing": (200, (1, None)),
    "no method": (400, (1, -32600, UNKNOWN)),
    "unknown": (400, (1, -32601, UNKNOWN)),
    "other side": (400, (1, -32601, UNKNOWN)),
    "invalid": (400, (1, -32602, INVALID)),
    "no params": (400, (1, -32602, INVALID)),
    "scalar params": (400, (1, -32602, INVALID)),
    "array params": (400, (1, -32602, INVALID)),
    "no token": (401, (1, 401, NOBODY)),
    "mixed": (400, (1, -32600, "ERR10010")),
    "method 5": (400, (1, -32600, "ERR10010")),
    "odd id": (200, ({"a": 1}, "OK")),
    "null id": (204, None),
    "notification": (204, None),
    "silent failure": (204, None),
    "silent violation": (204, None),
    "jsonrpc 2.0": (400, "ERR11200 400"),
    "no json": (400, "ERR10010 400"),
    "twice": (400, (None, -32600, "ERR10010")),
    "scalar": (400, "ERR10010 400"),
}
BY_SPECIFICATION = {
    **{name: (200, outcome) for name, (status, outcome) in WRAPPED.items() if status != 204},
    "no token": (401, (1, 401, NOBODY)),
    "notification": (204, None),
    "silent failure": (204, None),
    "silent violation": (204, None),
    "null id": (200, (None, "OK")),
    "odd id": (200, (None, -32600, "ERR10010")),
    "scalar params": (200, (1, -32600, "ERR10010")),
    "no method": (200, (1, -32600, "ERR10010")),
    "jsonrpc 2.0": (200, (1, -32600, "ERR10010")),
    "no json": (200, (None, -32700, "ERR10010")),
    "twice": (200, (None, -32600, "ERR10010")),
    "scalar": (200, (None, -32600, "ERR10010")),
}
RAW = {  # where light-hybrid-4j sends the Status itself
    "no method": (400, "ERR11200 400"),
    "unknown": (400, "ERR11200 400"),
    "other side": (400, "ERR11200 400"),
    "invalid": (400, "ERR11004 400"),
    "no params": (400, "ERR11004 400"),
    "scalar params": (400, "ERR11004 400"),
    "no token": (401, "ERR10002 401"),
    "mixed": (400, "ERR10010 400"),
    "method 5": (400, "ERR10010 400"),
    "odd id": (400, "ERR10010 400"),
    "jsonrpc 2.0": (400, "ERR10010 400"),
    "no json": (400, "ERR10010 400"),
    "twice": (400, "ERR10010 400"),
    "scalar": (400, "ERR10010 400"),
}
LEGACY = {
    "legacy": (200, "OK"),
    "legacy failure": (400, "ERR10001 401"),
    "legacy text failure": (503, "Try later"),
    "legacy nothing": (200, None),
    "legacy nobody": (401, "ERR10002 401"),
    "legacy invalid": (400, "ERR11004 400"),
    "legacy unknown": (400, "ERR11200 400"),
    "legacy invalid nobody": (400, "ERR11004 400"),
    "legacy unknown nobody": (400, "ERR11200 400"),
    "empty object": (400, "ERR11200 400"),
}
BAD_PARAMS = {"params": BAD["data"]}


REQUESTS: dict[str, Any] = {
    "result": rpc("deleteRule", params=DATA),
    "failure": rpc("updateRule", params=DATA),
    "text failure": rpc("busy"),
    "nothing": rpc("void"),
    "no method": {"jsonrpc": "2.0", "id": 1, "params": DATA},
    "unknown": rpc("nope"),
    "other side": rpc("getRules"),
    "invalid": rpc("deleteRule", **BAD_PARAMS),
    "no params": rpc("deleteRule"),
    "scalar params": rpc("deleteRule", params="x"),
    "array params": rpc("deleteRule", params=["h", "r"]),
    "no token": rpc("deleteRule", params=DATA),
    "mixed": {**rpc("deleteRule", params=DATA), **legacy("deleteRule")},
    "method 5": {**rpc("deleteRule"), "method": 5},
    "odd id": rpc("deleteRule", {"a": 1}, params=DATA),
    "null id": rpc("deleteRule", None, params=DATA),
    "notification": silent("deleteRule", params=DATA),
    "silent failure": silent("updateRule", params=DATA),
    "silent violation": silent("deleteRule", **BAD_PARAMS),
    "jsonrpc 2.0": {**rpc("deleteRule"), "jsonrpc": 2.0},
    "no json": b"{not json",
    "twice": b'{"jsonrpc":"2.0","method":"x","id":1,"id":2}',
    "scalar": b'"text"',
    "legacy": legacy("deleteRule", title="ignored", success="/x", **GOOD),
    "legacy failure": legacy("updateRule", **GOOD),
    "legacy text failure": legacy("busy"),
    "legacy nothing": legacy("void"),
    "legacy nobody": legacy("deleteRule", **GOOD),
    "legacy invalid": legacy("deleteRule", **BAD),
    "legacy unknown": legacy("nope"),
    "legacy invalid nobody": legacy("deleteRule", **BAD),
    "legacy unknown nobody": legacy("nope"),
    "empty object": {},
}


def headers(name: str) -> dict[str, str | None]:
    return {"authorization": None} if "nobody" in name or name == "no token" else {}


async def answers(to: Portal, path: str, names: Any) -> dict[str, tuple[int, Any]]:
    return {name: (await to.post(path, REQUESTS[name], **headers(name))).brief for name in names}


SPEC_EMPTY = {"empty object": (200, (None, -32600, "ERR10010"))}
RAW_SPEC = BY_SPECIFICATION | RAW | LEGACY
RAW_SPEC |= dict.fromkeys(("no method", "scalar params", "empty object"), (400, "ERR10010 400"))
RAW_STRICT = WRAPPED | RAW | LEGACY
RAW_STRICT |= {name: (WRAPPED | LEGACY)[name] for name in ("jsonrpc 2.0", "odd id")}
STRANGERS = dict.fromkeys(("legacy invalid nobody", "legacy unknown nobody"), (401, "ERR10002 401"))
SWITCHED_OFF: dict[str, Any] = dict.fromkeys(LEGACY, (400, "ERR18410 400"))
SWITCHED_OFF["jsonrpc 2.0"] = (400, (None, -32600, "ERR18410"))


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, WRAPPED | LEGACY),
        ({"pre_handler_errors": "raw"}, RAW_STRICT),
        ({"compat": "spec"}, BY_SPECIFICATION | LEGACY | SPEC_EMPTY),
        ({"compat": "spec", "pre_handler_errors": "raw"}, RAW_SPEC),
        ({"auth_first": True}, WRAPPED | LEGACY | STRANGERS),
        ({"void_body": "object"}, WRAPPED | LEGACY | {"legacy nothing": (200, {})}),
        ({"command_legacy": False}, WRAPPED | SWITCHED_OFF),
    ],
    ids=["strict", "raw", "spec", "spec raw", "auth first", "void", "no legacy"],
)
async def test_the_settings_decide_the_shape_of_answers(
    secured_settings: Settings, changes: dict[str, Any], expected: dict[str, Any]
) -> None:
    async with portal(secured_settings, **changes) as to:
        assert await answers(to, COMMAND, expected) == expected


async def test_by_get_the_answers_are_the_same(secured_settings: Settings) -> None:
    expected = WRAPPED | LEGACY
    async with portal(secured_settings) as to:
        found = {}
        for name in expected:
            body = REQUESTS[name]
            text = body.decode() if isinstance(body, bytes) else body
            found[name] = (await to.get(COMMAND, text, **headers(name))).brief
    assert found == expected


RPC_ANSWERS: dict[str, Any] = {  # what is wrong with the request itself has no Status here
    **BY_SPECIFICATION,
    **LEGACY,
    **dict.fromkeys(("no method", "mixed", "method 5", "jsonrpc 2.0"), (200, (1, -32600, None))),
    "scalar params": (200, (1, -32600, None)),
    "array params": (200, (1, -32602, None)),
    "odd id": (200, (None, -32600, None)),
    "no json": (200, (None, -32700, None)),
    "twice": (200, (None, -32600, None)),
    "scalar": (200, (None, -32600, None)),
    "empty object": (200, (None, -32600, None)),
    **STRANGERS,
}
del RPC_ANSWERS["other side"]  # it has none


@pytest.mark.parametrize("changes", [{}, {"pre_handler_errors": "raw", "enabled": False}], ids=str)
async def test_rpc_is_the_specification_whatever_the_portal_is(
    secured_settings: Settings, changes: dict[str, Any]
) -> None:
    async with portal(secured_settings, **changes) as to:
        assert await answers(to, RPC, RPC_ANSWERS) == RPC_ANSWERS
        for action in ("getRules", "deleteRule", "echo"):
            assert (await to.post(RPC, rpc(action, params=DATA))).status == 200


async def test_rpc_can_refuse_the_legacy_payload(settings: Settings) -> None:
    async with portal(replace(settings, rpc=replace(settings.rpc, legacy=False))) as to:
        refused = await to.post(RPC, legacy("echo"))
        assert (refused.status, refused.json["error"]["code"]) == (200, -32600)
        assert refused.json["error"]["data"]["code"] == "ERR18410"
        assert (await to.post(COMMAND, legacy("echo", data=1))).brief == (200, 1)


async def test_each_portal_path_has_a_switch_of_its_own(settings: Settings) -> None:
    async with portal(settings, query_legacy=False) as to:
        assert (await to.post(QUERY, legacy("echo", data=1))).brief == (400, "ERR18410 400")
        assert (await to.get(QUERY, legacy("echo", data=1))).brief == (400, "ERR18410 400")
        assert (await to.post(COMMAND, legacy("echo", data=1))).brief == (200, 1)
        assert (await to.post(QUERY, rpc("echo", params={}))).brief == (200, (1, {}))


async def test_portal_paths_are_missing_without_a_portal(settings: Settings) -> None:
    async with portal(settings, enabled=False) as to:
        assert (await to.post(QUERY, legacy("echo"))).status == 404
        assert (await to.get(COMMAND, legacy("echo"))).status == 404
        async with to.client.http.get(to.client.url + "/") as index:
            assert "portal-query" not in (await index.json())["endpoints"]


async def test_the_portal_has_the_paths_of_the_settings(settings: Settings) -> None:
    async with portal(settings, query_path="/q", command_path="/api/json") as to:
        assert (await to.post("/q", legacy("getRules"))).status == 200
        assert (await to.post("/api/json", legacy("deleteRule", data=DATA))).brief == (200, "OK")
        assert (await to.post(COMMAND, legacy("deleteRule", data=DATA))).status == 404


async def test_answers_to_legacy_payloads_announce_their_end(settings: Settings) -> None:
    dates = {
        "legacy_deprecated": "2027-01-01",
        "legacy_sunset": "2027-06-30",
        "legacy_link": "https://portal.example.com/json-rpc",
    }
    announced = {
        "deprecation": "@1798761600",
        "sunset": "Wed, 30 Jun 2027 00:00:00 GMT",
        "link": '<https://portal.example.com/json-rpc>; rel="deprecation"',
    }
    async with portal(settings, **dates) as to:
        for answer in (
            await to.post(COMMAND, legacy("deleteRule", **GOOD)),
            await to.get(QUERY, legacy("getRules", data={"x": 1})),
            await to.post(RPC, legacy("deleteRule", **GOOD)),
            await to.post(COMMAND, legacy("deleteRule", **BAD)),
            await to.post(COMMAND, legacy("reviewRule")),
        ):
            assert announced.items() <= answer.headers.items(), answer
        modern = await to.post(COMMAND, rpc("deleteRule", **GOOD))
        assert not announced.keys() & modern.headers.keys()


async def test_answers_announce_nothing_by_default(settings: Settings) -> None:
    async with portal(settings) as to:
        answer = await to.post(COMMAND, legacy("deleteRule", **GOOD))
        assert not {"deprecation", "sunset", "link"} & answer.headers.keys()
