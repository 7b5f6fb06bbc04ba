"""Any client in front of any server: what crosses, in every cell of the matrix."""

from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest
from msgspec.structs import replace

from config.settings import Settings
from tests.fixtures_gateway import MODERN, Client, with_mcp
from tests.gateway.federation.conftest import SERVERS, Caller, Stream, caller, gateway_to
from tests.servers.everything_call import Call, text
from tests.servers.everything_tools import tool
from tests.servers.everything_wire import Era

pytestmark = pytest.mark.anyio

CLIENTS = ("2025-03-26", "2025-06-18", "2025-11-25", MODERN)


class Waits:
    """What became of the calls of `test_wait`."""

    def __init__(self) -> None:
        self.begun = anyio.Event()
        self.cancelled = anyio.Event()


waits = Waits()


@tool("test_wait")
async def wait(call: Call) -> Any:
    """Never ends by itself."""
    waits.begun.set()
    try:
        await anyio.sleep_forever()
    except anyio.get_cancelled_exc_class():
        waits.cancelled.set()
        raise
    return text(str(call))


def renew_waits() -> None:
    global waits
    waits = Waits()


Test = Callable[[Caller, str], Awaitable[None]]


def in_every_cell(test: Test) -> Any:
    """A test of a caller and its revision, for each server: one gateway for all revisions."""

    async def in_cells(every: Client) -> None:
        for revision in CLIENTS:
            renew_waits()
            try:
                await test(await caller(every, revision), revision)
            except BaseException as error:
                error.add_note(f"with a client of {revision}")
                raise

    in_cells.__name__, in_cells.__doc__ = test.__name__, test.__doc__
    return in_cells


@in_every_cell
async def test_progress_comes_under_the_clients_own_token(who: Caller, revision: str) -> None:
    for token in ("mine", 7):
        named = {"name": "test_tool_with_progress"}
        async with who.send_request("tools/call", named, {"progressToken": token}) as stream:
            *told, answer = await stream.all()
        said = [one["params"] for one in told if one["method"] == "notifications/progress"]
        assert [(one["progressToken"], one["progress"]) for one in said] == [
            (token, 0),
            (token, 50),
            (token, 100),
        ]
        assert answer["result"]["content"][0]["text"] == "Progress was reported."


@in_every_cell
async def test_without_a_token_nothing_is_told(who: Caller, revision: str) -> None:
    async with who.send_request("tools/call", {"name": "test_tool_with_progress"}) as stream:
        assert len(await stream.all()) == 1


@in_every_cell
async def test_log_messages_are_sent_to_requesting_clients(who: Caller, revision: str) -> None:
    wanted = {"io.modelcontextprotocol/logLevel": "info"} if revision == MODERN else {}
    if who.session is not None:
        await who.session.call("logging/setLevel", {"level": "info"})
    async with who.send_request("tools/call", {"name": "test_tool_with_logging"}, wanted) as stream:
        *told, answer = await stream.all()
    assert [one["method"] for one in told] == ["notifications/message"] * 3
    assert answer["result"]["content"][0]["text"] == "Messages were logged."


@in_every_cell
async def test_log_messages_below_the_level_are_kept_back(who: Caller, revision: str) -> None:
    wanted = {"io.modelcontextprotocol/logLevel": "error"} if revision == MODERN else {}
    if who.session is not None:
        await who.session.call("logging/setLevel", {"level": "error"})
    async with who.send_request("tools/call", {"name": "test_tool_with_logging"}, wanted) as stream:
        assert len(await stream.all()) == 1


@in_every_cell
async def test_a_cancelled_call_is_cancelled_at_the_server(who: Caller, revision: str) -> None:
    async with anyio.create_task_group() as tasks:

        async def call() -> None:
            await who.result("tools/call", {"name": "test_wait"})

        with anyio.fail_after(20):
            if who.session is None:
                scope = anyio.CancelScope()

                async def leave() -> None:
                    with scope:
                        await call()

                tasks.start_soon(leave)
                await waits.begun.wait()
                scope.cancel()
            else:
                cancelled = {"requestId": 100, "reason": "enough"}
                note = {"jsonrpc": "2.0", "method": "notifications/cancelled"}
                tasks.start_soon(_ends_without_an_answer, who)
                await waits.begun.wait()
                await who.session.post({**note, "params": cancelled})
            await waits.cancelled.wait()


async def _ends_without_an_answer(who: Caller) -> None:
    async with who.send_request("tools/call", {"name": "test_wait"}) as stream:
        assert stream.status == 202 or await stream.all() == []


FORM = {
    "action": "accept",
    "content": {"username": "ada", "email": "ada@example.com"},
}
ASKING = {"name": "test_elicitation", "arguments": {"message": "Who are you?"}}


@pytest.mark.parametrize("revision", ["2025-06-18", "2025-11-25"])
async def test_a_session_is_asked_while_its_call_runs(every: Client, revision: str) -> None:
    who = await caller(every, revision)
    async with who.send_request("tools/call", ASKING) as stream:
        asked = await stream.next()
        assert asked["method"] == "elicitation/create"
        assert asked["params"]["message"] == "Who are you?"
        await who.answer(asked["id"], FORM)
        answer = await stream.next()
    assert "action=accept" in answer["result"]["content"][0]["text"]
    assert "ada" in answer["result"]["content"][0]["text"]


async def test_a_session_is_asked_in_every_round_of_a_call(every: Client) -> None:
    who = await caller(every, "2025-11-25")
    name = {"name": "test_input_required_result_multi_round"}
    async with who.send_request("tools/call", name) as stream:
        for _ in range(2):
            asked = await stream.next()
            [field] = asked["params"]["requestedSchema"]["required"]
            form = {"action": "accept", "content": {field: f"my {field}"}}
            await who.answer(asked["id"], form)
        text = (await stream.next())["result"]["content"][0]["text"]
    assert "my name" in text
    assert "my color" in text


async def test_a_server_that_asks_without_end_is_given_up(bare: Settings) -> None:
    few = replace(bare, upstream=replace(bare.upstream, mcp_client_requests=2))
    async with gateway_to(few, every="stateless") as client:
        who = await caller(client, "2025-11-25")
        name = {"name": "test_input_required_result_multiple_inputs"}
        refused = await who.result("tools/call", name)
        assert refused["error"]["code"] == 1502
        assert "more than 2 answers" in refused["error"]["message"]


@pytest.mark.parametrize("server", SERVERS)
async def test_questions_of_several_servers_name_their_server(bare: Settings, server: Era) -> None:
    async with gateway_to(bare, every=server, other="both") as client:
        for revision in ("2025-11-25", MODERN):
            who = await caller(client, revision)
            async with who.send_request("tools/call", ASKING) as stream:
                asked = await stream.next()
            if "method" not in asked:
                [asked] = asked["result"]["inputRequests"].values()
            assert asked["params"]["message"] == "every: Who are you?"


async def input_required(who: Caller, params: Any) -> Any:
    result = (await who.result("tools/call", params))["result"]
    assert result["resultType"] == "input_required", result
    return result


async def test_a_stateless_client_answers_by_its_next_request(every: Client) -> None:
    who = await caller(every, MODERN)
    wants = await input_required(who, ASKING)
    [(key, question)] = wants["inputRequests"].items()
    assert question["method"] == "elicitation/create"
    assert question["params"]["message"] == "Who are you?"
    state = {name: wants[name] for name in ("requestState",) if name in wants}
    again = {**ASKING, "inputResponses": {key: FORM}, **state}
    result = (await who.result("tools/call", again))["result"]
    assert result["resultType"] == "complete"
    assert "ada" in result["content"][0]["text"]


async def test_several_questions_are_asked_in_one_go(every: Client) -> None:
    who = await caller(every, MODERN)
    wants = await input_required(who, {"name": "test_input_required_result_multiple_inputs"})
    methods = sorted(one["method"] for one in wants["inputRequests"].values())
    assert methods == ["elicitation/create", "roots/list", "sampling/createMessage"]


async def test_an_answer_that_is_none_is_asked_for_again(bare: Settings) -> None:
    async with gateway_to(bare, every="handshake") as client:
        who = await caller(client, MODERN)
        wants = await input_required(who, ASKING)
        [key] = wants["inputRequests"]
        for answers in ({}, {"other": FORM}, {key: 12345}, {key: {"action": "maybe"}}):
            again = {
                **ASKING,
                "inputResponses": answers,
                "requestState": wants["requestState"],
            }
            wants = await input_required(who, again)
            assert [*wants["inputRequests"]] == [key]
        assert len(client.gateway.federation.parking) == 1


async def test_a_request_state_is_good_for_its_own_request_alone(bare: Settings) -> None:
    async with gateway_to(bare, every="handshake") as client:
        who = await caller(client, MODERN)
        state = (await input_required(who, ASKING))["requestState"]
        other = {"name": "test_elicitation", "arguments": {"message": "Other"}}
        for params in (
            {**other, "requestState": state},
            {**ASKING, "requestState": state[:-1] + ("A" if state[-1] != "A" else "B")},
            {**ASKING, "requestState": "nonsense"},
            {**ASKING, "requestState": 5},
        ):
            refused = await who.result("tools/call", params)
            assert refused["error"]["code"] == -32602, params
        assert len(client.gateway.federation.parking) == 1  # none of them touched it


async def test_a_call_that_nobody_comes_back_to_ends(bare: Settings) -> None:
    hasty = with_mcp(bare, parked_s=0.05)
    async with gateway_to(hasty, every="handshake") as client:
        who = await caller(client, MODERN)
        state = (await input_required(who, ASKING))["requestState"]
        with anyio.fail_after(20):
            while len(client.gateway.federation.parking):  # noqa: ASYNC110 - it tells nobody
                await anyio.sleep(0.01)
        refused = await who.result("tools/call", {**ASKING, "requestState": state})
        assert refused["error"]["code"] == -32602
        assert "requestState" in refused["error"]["message"]


async def test_a_server_cannot_ask_while_too_many_calls_wait(
    bare: Settings,
) -> None:
    async with gateway_to(with_mcp(bare, parked_calls=1), every="handshake") as client:
        who = await caller(client, MODERN)
        await input_required(who, ASKING)
        refused = await who.result("tools/call", ASKING)
        assert refused["error"]["code"] == -32021
        assert refused["error"]["data"]["requiredCapabilities"] == {"elicitation": {}}


async def test_undeclared_capabilities_are_not_used_for_questions(every: Client) -> None:
    who = await caller(every, MODERN, {"sampling": {}})
    refused = await who.result("tools/call", ASKING)
    assert refused["error"]["code"] == -32021
    assert refused["error"]["data"]["requiredCapabilities"] == {"elicitation": {}}


async def test_a_session_unable_to_answer_is_told_in_the_result(every: Client) -> None:
    who = await caller(every, "2025-11-25", {})
    answer = await who.result("tools/call", ASKING)
    told = answer["result"]["isError"] if "result" in answer else answer["error"]["message"]
    assert told, answer
    assert "requiredCapabilities" not in str(answer)


async def test_a_2024_11_05_client_uses_tools_resources_and_prompts(every: Client) -> None:
    listed = await every.rpc({"jsonrpc": "2.0", "id": 1, "method": "tools/list"})
    assert len(listed["result"]["tools"]) > 20
    called = await every.rpc(
        {"jsonrpc": "2.0", "id": 1, "method": "test_simple_text", "params": {}}
    )
    assert called["result"] == "This is a simple text response for testing."
    asked = await every.rpc(
        {"jsonrpc": "2.0", "id": 1, "method": "test_elicitation", "params": {"message": "x"}}
    )
    assert "error" in asked  # nobody can be asked on this endpoint


__all__ = ["Stream"]
