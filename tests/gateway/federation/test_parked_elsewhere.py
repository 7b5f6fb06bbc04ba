"""A call that is parked on one gateway is taken up through another that shares its state."""

from collections.abc import AsyncIterator
from dataclasses import dataclass

import anyio
import pytest
from msgspec.structs import replace

from config.settings import Settings
from config.sources import SourceSettings
from tests.fixtures_gateway import MODERN, Client, running
from tests.fixtures_servers import serving
from tests.gateway.federation.conftest import Caller, caller
from tests.servers.everything import everything

pytestmark = pytest.mark.anyio

ASKING = {"name": "test_elicitation", "arguments": {"message": "Who are you?"}}
FORM = {"action": "accept", "content": {"username": "ada", "email": "ada@example.com"}}
TWO_STEPS = {"name": "test_input_required_result_multi_round"}


@dataclass(frozen=True)
class Nodes:
    a: Client
    b: Client
    at_a: Caller
    at_b: Caller


@pytest.fixture(params=["redis", "postgres"])
async def nodes(bare: Settings, request: pytest.FixtureRequest) -> AsyncIterator[Nodes]:
    url = request.getfixturevalue("redis_server").url if request.param == "redis" else ""
    state = replace(bare.state, backend=request.param, redis_url=url, change_wait_s=30)
    app, lifespan = everything("handshake")
    async with lifespan, serving(app) as server:
        sources = {"every": SourceSettings(mcp=f"{server}/mcp")}
        settings = replace(bare, state=state, sources=sources)
        async with running(settings) as a, running(settings) as b:
            with anyio.fail_after(20):
                for client in (a, b):
                    await client.gateway.shared.bus.following.wait()
            yield Nodes(a, b, await caller(a, MODERN), await caller(b, MODERN))


async def test_the_answer_may_come_to_the_other_node(nodes: Nodes) -> None:
    wants = (await nodes.at_a.result("tools/call", ASKING))["result"]
    [key] = wants["inputRequests"]
    again = {**ASKING, "inputResponses": {key: FORM}, "requestState": wants["requestState"]}
    result = (await nodes.at_b.result("tools/call", again))["result"]
    assert result["resultType"] == "complete"
    assert "ada" in result["content"][0]["text"]
    assert len(nodes.a.gateway.federation.parking) == 0
    again_twice = await nodes.at_b.result("tools/call", again)
    assert again_twice["error"]["code"] == -32602  # it has had its answer


async def test_a_call_of_several_rounds_may_change_nodes_each_time(nodes: Nodes) -> None:
    params = dict(TWO_STEPS)
    texts = []
    for who in (nodes.at_a, nodes.at_b, nodes.at_a):
        result = (await who.result("tools/call", params))["result"]
        if result["resultType"] == "complete":
            texts.append(result["content"][0]["text"])
            break
        [(key, question)] = result["inputRequests"].items()
        [field] = question["params"]["requestedSchema"]["required"]
        form = {"action": "accept", "content": {field: f"my {field}"}}
        params = {
            **TWO_STEPS,
            "inputResponses": {key: form},
            "requestState": result["requestState"],
        }
    [text] = texts
    assert "my name" in text
    assert "my color" in text


async def test_an_answer_that_is_none_leaves_the_call_waiting_at_its_node(nodes: Nodes) -> None:
    wants = (await nodes.at_a.result("tools/call", ASKING))["result"]
    again = {**ASKING, "inputResponses": {}, "requestState": wants["requestState"]}
    still = (await nodes.at_b.result("tools/call", again))["result"]
    assert still["resultType"] == "input_required"
    assert still["inputRequests"] == wants["inputRequests"]
    assert len(nodes.a.gateway.federation.parking) == 1


async def test_a_call_whose_node_died_is_told_of(nodes: Nodes) -> None:
    wants = (await nodes.at_a.result("tools/call", ASKING))["result"]
    shared = nodes.a.gateway.shared
    shared.bus._handlers.clear()  # it hears nothing more,
    await shared.stores.sessions.beat(shared.bus.node, 0.001)  # and gives no sign of life
    shared.stores.sessions.beat = _never  # type: ignore[method-assign]
    [key] = wants["inputRequests"]
    again = {**ASKING, "inputResponses": {key: FORM}, "requestState": wants["requestState"]}
    failed = await nodes.at_b.result("tools/call", again)
    assert failed["error"]["code"] == 1502
    assert "its outcome is unknown" in failed["error"]["message"]


async def _never(node: str, ttl_s: float) -> None: ...
