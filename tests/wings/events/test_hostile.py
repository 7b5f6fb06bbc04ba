"""Results of servers that mean no good: each ends its own invocation, and nothing else."""

import base64
import hashlib
import time
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from msgspec import Raw
from msgspec.structs import replace

from config.events import EventInbound
from config.load import load
from config.settings import Settings
from config.sources import SourceSettings
from gateway.context import Context, Identity, Principal
from gateway.http_client.webhooks import sign
from gateway.wings.events import delivery_execution
from schemas.jsonrpc import decode_json
from schemas.mcp.revisions import JSON_RPC
from tests.fixtures_database import HOST
from tests.fixtures_gateway import Client, running
from tests.fixtures_servers import serving
from tests.servers.mcp_wire import Scripted, Turn
from tests.wings.events.drafts import OTHER
from tests.wings.events.rig import (
    EVENT,
    ROOT,
    STRUCTURED,
    got,
    invoke_skill,
    wait_for_end,
    with_events,
)

pytestmark = pytest.mark.anyio

SOMEBODY = "00000000-0000-0000-0000-0000000000aa"


async def _list(turn: Turn) -> None:
    await turn.result(tools=[{"name": "say", "inputSchema": {"type": "object"}}])


async def _say(turn: Turn) -> None:
    """Answers what the call asks for, with NUL for `NUL`."""
    asked = turn.message["params"]["arguments"]
    text = asked.pop("text", "no").replace("NUL", "\0")
    await turn.result(content=[{"type": "text", "text": text}], **asked)


def refusal(**members: Any) -> dict[str, Any]:
    return {"isError": True, **members}


def approval(value: Any) -> dict[str, Any]:
    return refusal(_meta={"toolgate/approval": value})


async def test_a_result_ends_its_own_invocation_alone(settings: Settings) -> None:
    server = Scripted({"tools/call": _say, "tools/list": _list}, capabilities={"tools": {}})
    async with serving(server) as url:
        source = SourceSettings(mcp=f"{url}/mcp")
        settings = replace(settings, sources={"bad": source})
        async with running(with_events(settings)) as client:
            asked = [
                ({"text": "a NUL"}, "cannot be stored"),
                (refusal(text="a NUL"), "cannot be stored"),
                (approval({"approval": "x"}), "no"),
                (approval({"approval": {"a": 1}}), "no"),
                (approval({"approval": SOMEBODY}), "no"),
                (approval([1]), "no"),
                *(
                    (refusal(structuredContent={"retryAfter": one}), "no")
                    for one in (1e300, "inf", True, None)
                ),
            ]
            sent = [
                await invoke_skill(client, "say", arguments, retry="never")
                for arguments, _ in asked
            ]
            for one, (arguments, message) in zip(sent, asked, strict=True):
                over = await wait_for_end(client, one["id"])
                assert (over["status"], over["reason"]) == ("FAILED", "error"), arguments
                assert message in over["error"]["message"], arguments
            told = {"status": 503, "retryAfter": "soon"}
            again = await invoke_skill(
                client, "say", refusal(structuredContent=told), retry="always"
            )
            over = await wait_for_end(client, again["id"])
            assert (over["status"], over["reason"], over["attempt"] > 1) == (
                "FAILED",
                "attempts",
                True,
            )
            good = await invoke_skill(client, "say", {"text": "yes"})
            assert (await wait_for_end(client, good["id"]))["status"] == "ACKED"


def test_the_delay_doubles_with_full_jitter_up_to_its_limit() -> None:
    """The delay doubles with full jitter up to its limit (V09)."""
    settings = replace(load(None, {}).events, backoff_s=2.0, backoff_max_s=10.0)
    for attempt, most in ((1, 2.0), (2, 4.0), (3, 8.0), (4, 10.0), (100, 10.0)):
        delays = [delivery_execution.backoff(attempt, settings) for _ in range(200)]
        assert min(delays) >= 0
        assert most / 2 < max(delays) <= most


@pytest.mark.parametrize(
    ("told", "wait_s"),
    [
        ({"retryAfter": 7, "limit": "limits.principal_calls"}, 7.0),
        ({"retryAfter": -5}, 1.0),
        ({"retryAfter": 10**400}, 3600.0),
        ({"retryAfter": 1e300}, None),
        ({"retryAfter": 7, "status": 503}, None),
        ({}, None),
    ],
)
def test_the_delay_for_a_limit_is_bounded(told: dict[str, Any], wait_s: float | None) -> None:
    assert delivery_execution.wait_of(told) == wait_s


@pytest.mark.parametrize(
    ("asked", "wait_s"),
    [(7, 7.0), (0.5, 0.5), (-5, 0.0), (10**400, 3600.0), (1e300, 3600.0), (True, 0.0), ("7", 0.0)],
)
def test_the_delay_that_a_service_asks_for_is_bounded(asked: Any, wait_s: float) -> None:
    assert delivery_execution.asked_wait_s({"retryAfter": asked, "status": 503}) == wait_s


PAID = f"whsec_{base64.b64encode(bytes(32)).decode()}"


def caller(name: str, *scopes: str) -> Context:
    granted = frozenset({"events:invoke", "events:read", *scopes})
    return Context(Identity(Principal(name, HOST, scopes=granted), verified=True), JSON_RPC, "1")


async def call_operation(client: Client, context: Context, name: str, **arguments: Any) -> Any:
    assert client.gateway.wings is not None
    [wing] = [one for one in client.gateway.wings._served if one.name == "events"]
    result = await (await wing.parts()).call(context, name, arguments)
    assert isinstance(result.structured_content, Raw), result
    return decode_json(bytes(result.structured_content))


async def test_an_id_that_another_caller_has_chosen_takes_nothing_from_its_owner(
    settings: Settings,
) -> None:
    """Of signed webhooks, of CloudEvents, and of callers (mending 8)."""
    paid = EventInbound(skill="getPet", secret=PAID, principal="shop", arguments='{"id": body.pet}')
    async with running(with_events(settings, inbound={"paid": paid})) as client:
        eve = caller("eve")
        of_hook = "paid:" + hashlib.sha256(b"msg-1").hexdigest()[:40]
        of_event = "ce-" + hashlib.sha256(b'["/shop","e-1"]').hexdigest()[:48]
        for id_ in (of_hook, of_event, "pet-7"):
            taken = {"skillName": "getPet", "arguments": {"id": 404}, "correlationId": id_}
            assert (await call_operation(client, eve, "events_invoke", **taken))[
                "principal"
            ] == "eve"
        body = b'{"pet": 7}'
        headers = sign("msg-1", int(time.time()), body, [PAID])
        status, hooked = await post_body(client, "/events/hooks/paid", body, headers)
        assert (status, hooked["principal"], hooked["correlationId"]) == (202, "shop", of_hook)
        event = msgspec.json.encode(EVENT)
        kind = {"Content-Type": STRUCTURED}
        status, produced = await post_body(client, "/events/cloudevents", event, kind)
        assert (status, produced["correlationId"]) == (202, of_event)
        mine = await invoke_skill(client, "getPet", {"id": 7}, correlationId="pet-7")
        status, found = await got(client, f"{ROOT}/pet-7")
        assert (status, found["id"]) == (200, mine["id"])
        for one in (hooked, produced, mine):
            assert (await wait_for_end(client, one["id"]))["status"] == "ACKED"
        ann = caller("ann")
        assert (await call_operation(client, ann, "events_get", invocation="pet-7"))[
            "status"
        ] == 404
        ops = caller("ops", "events:admin")  # no two callers' ids are taken for one
        assert (await call_operation(client, ops, "events_get", invocation="pet-7"))[
            "status"
        ] == 404
        seen = await call_operation(client, ops, "events_get", invocation=mine["id"])
        assert seen["id"] == mine["id"]


async def test_statistics_are_of_the_tenant_alone(settings: Settings) -> None:
    """Sums of all tenants were shown to each (mending 9)."""
    async with running(with_events(settings)) as client:
        await wait_for_end(client, (await invoke_skill(client, "getPet", {"id": 7}))["id"])
        mine = await call_operation(client, caller("ops", "events:admin"), "events_stats")
        assert mine["outcomes"] == {"acked": 1}
        stranger = Principal("eve", OTHER, scopes=frozenset({"events:admin"}))
        context = Context(Identity(stranger, verified=True), JSON_RPC, "1")
        theirs = await call_operation(client, context, "events_stats")
        assert (theirs["outcomes"], theirs["swept"], theirs["running"]) == ({}, {}, 0)
        assert theirs["acked"] == 0


async def post_body(
    client: Client, path: str, body: bytes, headers: Mapping[str, str]
) -> tuple[int, Any]:
    async with client.http.post(client.url + path, data=body, headers=headers) as response:
        return response.status, await response.json(content_type=None)
