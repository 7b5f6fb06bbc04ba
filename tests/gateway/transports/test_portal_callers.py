"""The portal paths: who may call what, what is listed, who is still a legacy client."""

import logging
from pathlib import Path
from typing import Any

import pytest

from config.settings import Settings
from tests.gateway.portal import (
    COMMAND,
    DATA,
    HOUR_AGO,
    INVALID,
    NOBODY,
    QUERY,
    RPC,
    legacy,
    portal,
    rpc,
    service,
    token,
    with_tokens,
)
from tests.servers import rules

pytestmark = pytest.mark.anyio


DELETE = legacy("deleteRule", data=DATA)


async def test_actions_require_their_scopes(secured_settings: Settings) -> None:
    reader, expired = (f"Bearer {token(scope='portal.r')}", f"Bearer {token(exp=HOUR_AGO)}")
    cases: list[tuple[dict[str, str | None], str | None]] = [
        ({"authorization": None}, "ERR10002"),
        ({"authorization": "Basic YTpi"}, "ERR10002"),
        ({"authorization": "Bearer x.y.z"}, "ERR10000"),
        ({"authorization": expired}, "ERR10001"),
        ({"authorization": reader}, "ERR10005"),
        ({"x_scope_token": "Bearer x.y.z"}, "ERR10003"),
        ({"x_scope_token": expired}, "ERR10004"),
        ({"x_scope_token": reader}, "ERR10006"),
        ({"authorization": reader, "x_scope_token": token()}, None),
        ({}, None),
    ]
    async with portal(secured_settings) as to:
        for sent, code in cases:
            old = await to.post(COMMAND, DELETE, **sent)
            new = await to.post(COMMAND, rpc("deleteRule", params=DATA), **sent)
            assert old.status == new.status
            told = new.json["error"]["data"]["code"] if code else None
            assert (old.json["code"] if code else None, told) == (code, code)
            assert (await to.post(COMMAND, legacy("public"), **sent)).status == 200
        assert len(rules.state.done) == 4


async def test_a_refusal_names_the_scopes(secured_settings: Settings) -> None:
    async with portal(secured_settings) as to:
        refused = await to.post(COMMAND, DELETE, authorization=f"Bearer {token(scope='portal.r')}")
    assert refused.status == 403
    assert refused.json["description"] == (
        "Scopes [portal.r] in authorization token and specification scopes [portal.w] are not "
        "matched"
    )


async def test_scopes_can_be_left_unchecked(settings: Settings, tmp_path: Path) -> None:
    lenient = with_tokens(settings, tmp_path, verify_scope=False)
    async with portal(lenient) as to:
        reader = {"authorization": f"Bearer {token(scope='portal.r')}"}
        assert (await to.post(COMMAND, DELETE, **reader)).brief == (200, "OK")
        assert (await to.post(COMMAND, DELETE, authorization=None)).status == 401


async def test_the_actions_are_listed_under_their_ids(secured_settings: Settings) -> None:
    request = {"jsonrpc": "2.0", "method": "tools/list", "id": 100}
    async with portal(secured_settings) as to:
        found = await to.post(COMMAND, request)
        listed = {tool["name"]: tool for tool in found.json["result"]["tools"]}
        assert list(listed) == sorted(listed)
        assert listed[service("deleteRule")] == {
            "name": service("deleteRule"),
            "description": "Deletes a rule.",
            "inputSchema": rules.KEYS,
        }
        assert "createPet" not in listed
        assert (await to.get(QUERY, request)).body == found.body
        stranger = await to.post(QUERY, request, authorization=None)
        assert stranger.brief == (401, (100, 401, NOBODY))
    async with portal(secured_settings, anonymous_list=True) as to:
        assert (await to.post(QUERY, request, authorization=None)).body == found.body


async def test_tools_call_takes_the_id_of_an_action(secured_settings: Settings) -> None:
    def call(action: str, arguments: Any) -> dict[str, Any]:
        params = {"name": service(action), "arguments": arguments}
        return {"jsonrpc": "2.0", "method": "tools/call", "id": 1, "params": params}

    async with portal(secured_settings) as to:
        done = await to.post(COMMAND, call("deleteRule", DATA))
        assert done.json["result"] == {"content": [{"type": "text", "text": "OK"}]}
        failed = (await to.post(COMMAND, call("updateRule", DATA))).json["result"]
        assert failed["isError"] is True
        assert "ERR10001" in failed["content"][0]["text"]
        assert (await to.post(COMMAND, call("deleteRule", {}))).brief == (400, (1, -32602, INVALID))
        assert (await to.post(COMMAND, call("getRules", {}))).brief[1][1] == -32602
        assert (await to.post(COMMAND, call("deleteRule", DATA), authorization=None)).status == 401
        opened = await to.post(COMMAND, call("public", {}), authorization=None)
        assert opened.status == 200
        listed = {"data": "ab"}  # as the schema in tools/list has it
        labelled = await to.post(COMMAND, call("label", listed))
        assert labelled.json["result"]["content"][0]["text"] == "AB"


async def test_strangers_learn_no_action_names_by_tools_call(secured_settings: Settings) -> None:
    def call(name: str) -> dict[str, Any]:
        params = {"name": name, "arguments": {}}
        return {"jsonrpc": "2.0", "method": "tools/call", "id": 1, "params": params}

    async with portal(secured_settings, auth_first=True) as to:
        for name in (service("deleteRule"), service("getRules"), service("nope"), "createPet"):
            stranger = await to.post(COMMAND, call(name), authorization=None)
            assert stranger.brief == (401, (1, 401, NOBODY)), name
        assert (await to.post(COMMAND, call(service("public")), authorization=None)).status == 200
        assert (await to.post(COMMAND, call(service("nope")))).brief[1][1] == -32602


async def test_the_legacy_payload_is_counted_and_told_once_for_each_client(
    secured_settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    async with portal(secured_settings) as to:
        for _ in range(3):
            await to.post(COMMAND, legacy("deleteRule", data=DATA))
        await to.get(QUERY, legacy("getRules"))
        await to.post(RPC, legacy("echo"))
        await to.post(COMMAND, rpc("deleteRule", params=DATA))
        grace = {"authorization": f"Bearer {token(sub='grace')}"}
        await to.post(COMMAND, legacy("deleteRule", data=DATA), **grace)
        async with to.client.http.get(to.client.url + "/metrics") as metrics:
            lines = (await metrics.text()).splitlines()
    told = [record for record in caplog.records if record.message == "legacy_payload_deprecated"]
    assert [record.__dict__["client"] for record in told] == ["ada", "grace"]
    assert told[0].levelno == logging.WARNING
    assert told[0].__dict__["method"] == service("deleteRule")
    counted = {line for line in lines if line.startswith("toolgate_legacy_requests_total")}
    assert counted == {
        'toolgate_legacy_requests_total{path="command"} 4.0',
        'toolgate_legacy_requests_total{path="query"} 1.0',
        'toolgate_legacy_requests_total{path="rpc"} 1.0',
    }
