"""The portal paths: actions, their data, their results, batches."""

from typing import Any

import anyio
import pytest
from msgspec.structs import replace

from config.settings import Settings
from tests.gateway.portal import (
    COMMAND,
    DATA,
    INVALID,
    QUERY,
    RPC,
    UNKNOWN,
    Portal,
    legacy,
    portal,
    rpc,
    service,
    silent,
)
from tests.gateway.shared import anyio_backend, open_portal, shared_portal
from tests.servers import rules

__all__ = ["anyio_backend", "open_portal", "shared_portal"]
pytestmark = pytest.mark.anyio


async def test_text_that_is_json_counts_as_json(open_portal: Portal) -> None:
    exact = b'{"n": 9007199254740993}'
    raw = await open_portal.post(QUERY, legacy("jsonText"))
    assert (raw.body, raw.kind) == (exact, "application/json")
    wrapped = await open_portal.post(QUERY, rpc("jsonText"))
    assert wrapped.body == b'{"jsonrpc":"2.0","id":1,"result":' + exact + b"}"
    plain = await open_portal.post(QUERY, legacy("text"))
    assert (plain.body, plain.kind) == (b'a "text"', "text/plain; charset=utf-8")
    assert (await open_portal.post(QUERY, rpc("text"))).json["result"] == 'a "text"'


async def test_a_status_is_valid_json_for_any_text(open_portal: Portal) -> None:
    found = await open_portal.post(QUERY, legacy('no"\\\n'))
    assert found.json["description"] == (
        'Handler for service lightapi.net/rule/no"\\\n/0.1.0 cannot be found.'
    )
    assert list(found.json) == ["statusCode", "code", "message", "description", "severity"]


async def test_an_action_that_crashes_says_nothing_but_that(
    open_portal: Portal, caplog: pytest.LogCaptureFixture
) -> None:
    for path in (QUERY, COMMAND, RPC):
        for body in (legacy("crash"), rpc("crash"), [rpc("crash")]):
            found = await open_portal.post(path, body)
            assert b"secret" not in found.body
            assert b"rules.py" not in found.body
    status = await open_portal.post(QUERY, legacy("crash"))
    assert status.brief == (500, "ERR10010 500")
    assert any(record.message == "action_crashed" for record in caplog.records)


async def test_an_action_gets_its_data_and_context(secured_settings: Settings) -> None:
    async with portal(secured_settings) as to:
        await to.post(COMMAND, legacy("deleteRule", data=DATA), x_correlation_id="c-1")
        call = rules.state.calls[0]
        assert (call.principal.id, call.service) == ("ada", service("deleteRule"))
        assert (call.correlation_id, call.idempotency_key) == ("c-1", None)
        again = await to.post(COMMAND, rpc("deleteRule", params=DATA), idempotency_key="k")
        second = rules.state.calls[1]
        assert (second.correlation_id, second.idempotency_key) == (None, "k")
        assert again.headers["x-request-id"] == second.request_id


async def test_data_that_is_no_object_is_checked_and_passed_on(open_portal: Portal) -> None:
    assert (await open_portal.post(QUERY, legacy("label", data="ab"))).brief == (200, "AB")
    short = await open_portal.post(QUERY, legacy("label", data="a"))
    text = "Schema Validation Error - $: must be at least 2 characters long"
    assert (short.status, short.json["description"]) == (400, text)
    missing = await open_portal.post(QUERY, legacy("label"))
    assert missing.json["description"].endswith("$: null found, string expected")


async def test_a_violation_is_reported_like_light_hybrid_4j(open_portal: Portal) -> None:
    found = await open_portal.post(COMMAND, legacy("deleteRule", data={"hostId": "h"}))
    text = "Schema Validation Error - $: required property 'ruleId' not found"
    assert found.json["description"] == text
    wrapped = await open_portal.post(COMMAND, rpc("deleteRule", params={"hostId": "h"}))
    assert wrapped.json["error"]["data"] == found.json
    assert wrapped.json["error"]["message"] == text
    assert rules.state.done == []


async def test_deep_data_is_the_clients_mistake(open_portal: Portal) -> None:
    begin = b'{"jsonrpc":"2.0","id":1,"method":"%b","params":' % service("deleteRule").encode()
    for depth in (100, 500, 900, 5000):
        deep = b'{"hostId":' * depth + b"1" + b"}" * depth
        found = await open_portal.post(COMMAND, begin + deep + b"}")
        code = found.json.get("error", {}).get("code", -32700)
        assert (found.status, code) == (400, -32602 if depth < 200 else -32700)


async def test_positional_params_require_a_supporting_action(open_portal: Portal) -> None:
    async def by_position(method: str, params: list[Any]) -> Any:
        answer = (await open_portal.post(RPC, rpc(method, params=params))).json
        return answer.get("result", answer.get("error", {}).get("message"))

    assert await by_position("subtract", [42, 23]) == 19
    assert await by_position("sum", [1, 2, 4]) == 7
    assert await by_position("sum", []) == 0
    assert "required property 'subtrahend'" in await by_position("subtract", [42])
    assert await by_position("subtract", [1, 2, 3]) == (
        "Invalid params: at most 2 by position (minuend, subtrahend), not 3"
    )
    for action in ("deleteRule", "echo"):  # whether it checks its data or not
        assert await by_position(service(action), ["h", "r"]) == (
            "Invalid params: positional array params are not supported"
        )


async def test_params_that_are_neither_object_nor_array_reach_no_action(
    open_portal: Portal,
) -> None:
    """Silently: who expects an answer is refused before."""
    for params in ("x", 5, True):
        assert (await open_portal.post(QUERY, silent("getRules", params=params))).status == 204
    assert (await open_portal.post(QUERY, silent("getRules", params={"x": 1}))).status == 204
    assert rules.state.done == [{"x": 1}]


async def test_a_batch_answers_in_order_and_each_member_fails_alone(
    secured_settings: Settings,
) -> None:
    batch = [
        rpc("deleteRule", 1, params=DATA),
        silent("deleteRule", params=DATA),
        rpc("updateRule", 2, params=DATA),
        rpc("getRules", 3),
        legacy("deleteRule", data=DATA),
        {**rpc("deleteRule", 4, params=DATA), "host": "x"},
        [],
        rpc("public", 5),
        rpc("deleteRule", 6, params={}),
    ]
    codes = [(1, "OK"), (2, 401, "ERR10001"), (3, -32601, UNKNOWN), (None, -32600, "ERR10010"),
             (4, -32600, "ERR10010"), (None, -32600, "ERR10010"), (5, {"open": True}),
             (6, -32602, INVALID)]  # fmt: skip
    async with portal(secured_settings) as to:
        assert (await to.post(COMMAND, batch)).brief == (200, codes)
        assert len(rules.state.done) == 3
        stranger = await to.post(COMMAND, batch, authorization=None)
        assert stranger.brief[1][0][:2] == (1, 401)
        assert (5, {"open": True}) in stranger.brief[1]
        assert len(rules.state.done) == 3
        assert (await to.get(COMMAND, batch)).brief == (200, codes)
        assert (await to.post(COMMAND, [silent("updateRule")])).brief == (204, None)
        assert (await to.post(COMMAND, [])).brief == (400, (None, -32600, "ERR10010"))


async def test_a_batch_cannot_have_an_idempotency_key(open_portal: Portal) -> None:
    for path, status in ((COMMAND, 400), (RPC, 200)):
        found = await open_portal.post(path, [rpc("deleteRule", params=DATA)], idempotency_key="k")
        assert (found.status, found.json["error"]["code"]) == (status, -32600)
        assert "Idempotency-Key" in found.json["error"]["message"]
    assert rules.state.done == []


async def test_a_batch_beyond_the_limit_is_refused_whole(open_portal: Portal) -> None:
    batch = [rpc("deleteRule", params=DATA)] * 1001
    assert (await open_portal.post(COMMAND, batch)).status == 400
    assert (await open_portal.post(RPC, batch)).json["error"]["data"]["limit"] == 1000
    assert rules.state.done == []


async def test_members_that_come_too_late_have_a_status_as_well(settings: Settings) -> None:
    hasty = replace(settings, rpc=replace(settings.rpc, batch_timeout_s=0.05))
    async with portal(hasty) as to:
        with anyio.fail_after(30):
            found = await to.post(COMMAND, [rpc("hold", 1), silent("hold"), rpc("hold", 2)])
        assert found.brief == (200, [(1, 1503, "ERR18503"), (2, 1503, "ERR18503")])


async def test_members_for_whose_answers_there_is_no_room_have_a_status_too(
    settings: Settings,
) -> None:
    rpc_settings = replace(settings.rpc, batch_answer_limit_bytes=50, batch_concurrency=1)
    async with portal(replace(settings, rpc=rpc_settings)) as to:
        batch = [rpc("echo", n, params=["x" * 50]) for n in range(3)]
        batch.insert(2, silent("deleteRule", params=DATA))
        found = await to.post(COMMAND, batch)
    assert found.brief[1][1:] == [(1, 1503, "ERR18503"), (2, 1503, "ERR18503")]
    assert rules.state.done == []  # nobody is told that, and nothing is done


async def test_an_action_that_is_too_slow_is_told_so(settings: Settings) -> None:
    async with portal(settings) as to:
        source = replace(to.client.gateway.settings.sources["rules"], timeout_s=0.05)
        gateway = to.client.gateway
        await gateway.reconfigure(replace(gateway.settings, sources={"rules": source}))
        with anyio.fail_after(30):
            assert (await to.post(COMMAND, legacy("hold"))).brief == (504, "ERR18504 504")
            found = await to.post(COMMAND, rpc("hold"))
        assert found.brief == (504, (1, 504, "ERR18504"))
        assert rules.state.stopped


async def test_codes_of_services_create_no_metric_series(open_portal: Portal) -> None:
    await open_portal.post(COMMAND, rpc("updateRule", params=DATA))
    await open_portal.post(COMMAND, legacy("busy"))
    found = await open_portal.send("GET", "/metrics", b"", {})
    assert b'outcome="service_4xx"' in found.body
    assert b'outcome="service_5xx"' in found.body
    assert b'outcome="401"' not in found.body
