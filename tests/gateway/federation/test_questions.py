"""Questions of a 2026-07-28 server to a client of that revision, which must be able to answer."""

from contextlib import AsyncExitStack
from typing import Any

import pytest

from config.settings import Settings
from tests.fixtures_gateway import MODERN
from tests.gateway.federation.conftest import EVERYTHING, caller
from tests.gateway.federation.servers import fleet
from tests.servers.mcp_wire import Scripted, Turn, discovery_result

pytestmark = pytest.mark.anyio

FORM = {"mode": "form", "message": "Who?", "requestedSchema": {"type": "object", "properties": {}}}
URL = {"mode": "url", "message": "Log in", "url": "https://id.example", "elicitationId": "7"}
SAMPLE: dict[str, Any] = {"messages": [], "maxTokens": 9}
TOOLS = {**SAMPLE, "tools": []}
ASK, THINK = "elicitation/create", "sampling/createMessage"


def asking(**result: Any) -> Scripted:
    """A server of 2026-07-28 alone whose tool answers with this result."""

    async def discover(turn: Turn) -> None:
        await turn.result(**discovery_result())

    async def refuse(turn: Turn) -> None:
        await turn.error(-32022, status=400)

    async def tools(turn: Turn) -> None:
        tool = {"name": "ask", "inputSchema": {"type": "object"}}
        await turn.result(resultType="complete", tools=[tool], ttlMs=0, cacheScope="private")

    async def call(turn: Turn) -> None:
        await turn.result(**result)

    plays = {
        "server/discover": discover,
        "initialize": refuse,
        "tools/list": tools,
        "tools/call": call,
    }
    return Scripted(plays)


def require_input(method: str, params: Any, **members: Any) -> dict[str, Any]:
    return {
        "resultType": "input_required",
        "inputRequests": {"q": {"method": method, "params": params, "own": 1}},
        **members,
    }


async def call_asking_tool(settings: Settings, result: dict[str, Any], capabilities: Any) -> Any:
    servers = {"one": (asking(**result), AsyncExitStack())}
    async with fleet(settings, servers) as behind:
        who = await caller(behind.client, MODERN, capabilities)
        return await who.result("tools/call", {"name": "ask", "arguments": {}})


@pytest.mark.parametrize(
    ("method", "params", "capabilities", "missing"),
    [
        (ASK, FORM, {}, {"elicitation": {}}),
        (ASK, FORM, {"elicitation": {"url": {}}}, {"elicitation": {"form": {}}}),
        (ASK, URL, {"elicitation": {}}, {"elicitation": {"url": {}}}),
        (THINK, SAMPLE, {"elicitation": {}}, {"sampling": {}}),
        (THINK, TOOLS, {"sampling": {}}, {"sampling": {"tools": {}}}),
        ("roots/list", {}, {}, {"roots": {}}),
    ],
)
async def test_undeclared_questions_do_not_reach_the_client(
    bare: Settings, method: str, params: Any, capabilities: Any, missing: Any
) -> None:
    """The client's capabilities decide on questions of stateless servers, too (mending 17)."""
    answer = await call_asking_tool(bare, require_input(method, params), capabilities)
    assert answer["error"]["code"] == -32021
    assert answer["error"]["data"]["requiredCapabilities"] == missing


@pytest.mark.parametrize(
    ("result", "reason"),
    [
        ({"resultType": "input_required"}, "without saying which"),
        ({"resultType": "input_required", "inputRequests": {}}, "without saying which"),
        (require_input("files/delete", {}), "in a way that is not known: files/delete"),
        (require_input(ASK, [1]), "in an unknown form"),
        (require_input(ASK, FORM, requestState=7), "in an unknown form"),
        ({"resultType": "input_required", "inputRequests": [FORM]}, "in an unknown form"),
        (
            {"resultType": "complete", "content": [], **require_input("files/delete", {})},
            "in a way that is not known",
        ),
    ],
)
async def test_input_that_no_client_can_give_is_an_error_of_the_server(
    bare: Settings, result: Any, reason: str
) -> None:
    """A malformed `input_required` and unknown methods end the call (mending 17)."""
    answer = await call_asking_tool(bare, result, EVERYTHING)
    assert answer["error"]["code"] == 1502
    assert reason in answer["error"]["message"]


async def test_more_questions_than_the_limit_are_refused(bare: Settings) -> None:
    requests = {f"q{number}": {"method": "roots/list"} for number in range(17)}
    result = {"resultType": "input_required", "inputRequests": requests}
    answer = await call_asking_tool(bare, result, EVERYTHING)
    assert (
        "asks for more than 16 answers (upstream.mcp_client_requests)" in answer["error"]["message"]
    )


@pytest.mark.parametrize(
    ("result", "capabilities"),
    [
        (require_input(ASK, FORM, requestState="s"), EVERYTHING),
        (require_input(THINK, TOOLS), {"sampling": {"tools": {}}}),
        (require_input("roots/list", {}), EVERYTHING),
        ({"resultType": "input_required", "requestState": "s", "own": [1]}, {}),
    ],
)
async def test_declared_questions_are_forwarded_unchanged(
    bare: Settings, result: Any, capabilities: Any
) -> None:
    answer = await call_asking_tool(bare, result, capabilities)
    assert result.items() <= answer["result"].items()


def asking_in_a_session(type_: str) -> Scripted:
    """A server with sessions whose tool answers with a result of this type."""

    async def tools(turn: Turn) -> None:
        await turn.result(tools=[{"name": "ask", "inputSchema": {"type": "object"}}])

    async def call(turn: Turn) -> None:
        await turn.result(**{**require_input(ASK, FORM), "resultType": type_})

    return Scripted({"tools/list": tools, "tools/call": call}, capabilities={"tools": {}})


@pytest.mark.parametrize(
    ("server", "type_"),
    [
        (asking_in_a_session("input_required"), "input_required"),
        (asking_in_a_session("odd"), "odd"),
        (asking(resultType="odd", content=[]), "odd"),
    ],
)
async def test_a_result_of_an_unknown_type_is_an_error_of_the_server(
    bare: Settings, server: Scripted, type_: str
) -> None:
    async with fleet(bare, {"one": (server, AsyncExitStack())}) as behind:
        for revision in ("2025-11-25", MODERN):
            who = await caller(behind.client, revision, EVERYTHING)
            answer = await who.result("tools/call", {"name": "ask", "arguments": {}})
            assert answer["error"]["code"] == 1502
            assert f'type "{type_}"' in answer["error"]["message"]
        answer = await behind.client.rpc({"jsonrpc": "2.0", "id": 1, "method": "ask"})
        assert answer["error"]["code"] == 1502
