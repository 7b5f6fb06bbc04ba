"""Tools of other MCP servers, called by way of call_tool: nothing that crosses is different."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from config.settings import Settings
from tests.fixtures_gateway import MODERN, Client
from tests.gateway.federation.conftest import Caller, Stream, caller, gateway_to
from tests.gateway.federation.tasks import KNOWS, LEGACY, OVER, begin_task, result, until
from tests.servers.everything_wire import Era

pytestmark = pytest.mark.anyio

SERVERS: tuple[Era, ...] = ("handshake", "stateless")
CLIENTS = ("2025-03-26", "2025-06-18", "2025-11-25", MODERN)
FORM = {"action": "accept", "content": {"username": "ada", "email": "ada@example.com"}}
ASKING = {"name": "test_elicitation", "arguments": {"message": "Who are you?"}}
SAYING = (
    "test_simple_text",
    "test_image_content",
    "test_multiple_content_types",
    "test_error_handling",
)


class Passing(Caller):
    """A client that calls no tool by its own name."""

    @asynccontextmanager
    async def send_request(
        self, method: str, params: Mapping[str, Any], meta: Mapping[str, Any] | None = None
    ) -> AsyncIterator[Stream]:
        if method == "tools/call":
            inside = {key: params[key] for key in ("name", "arguments") if key in params}
            params = {**params, "name": "call_tool", "arguments": inside}
        async with super().send_request(method, params, meta) as stream:
            yield stream


def passing(who: Caller) -> Passing:
    return Passing(who.client, who.session, who._capabilities)


async def test_answers_progress_and_questions_of_a_tool_are_forwarded(every: Client) -> None:
    for revision in CLIENTS:
        direct = await caller(every, revision)
        who = passing(direct)
        for name in SAYING:
            said = [(await one.result("tools/call", {"name": name})) for one in (direct, who)]
            assert said[0]["result"] == said[1]["result"]
        named = {"name": "test_tool_with_progress"}
        async with who.send_request("tools/call", named, {"progressToken": "mine"}) as stream:
            *told, answer = await stream.all()
        progress = [one["params"] for one in told if one["method"] == "notifications/progress"]
        assert [(one["progressToken"], one["progress"]) for one in progress] == [
            ("mine", 0),
            ("mine", 50),
            ("mine", 100),
        ]
        assert answer["result"]["content"][0]["text"] == "Progress was reported."


async def test_a_session_is_asked_while_its_call_runs(every: Client) -> None:
    who = passing(await caller(every, "2025-11-25"))
    async with who.send_request("tools/call", ASKING) as stream:
        asked = await stream.next()
        assert asked["params"]["message"] == "Who are you?"
        await who.answer(asked["id"], FORM)
        answer = await stream.next()
    assert "action=accept" in answer["result"]["content"][0]["text"]


async def test_a_stateless_client_sends_its_call_again_with_the_answers(every: Client) -> None:
    who = passing(await caller(every, MODERN))
    first = (await who.result("tools/call", ASKING))["result"]
    assert first["resultType"] == "input_required"
    again = {**ASKING, "inputResponses": dict.fromkeys(first["inputRequests"], FORM)}
    if "requestState" in first:
        again["requestState"] = first["requestState"]
    done = (await who.result("tools/call", again))["result"]
    assert "action=accept" in done["content"][0]["text"]


@pytest.mark.parametrize("revision", [LEGACY, MODERN])
async def test_a_call_becomes_a_task(bare: Settings, revision: str) -> None:
    async with gateway_to(bare, every="both") as client:
        who = passing(await caller(client, revision, KNOWS))
        task = await begin_task(who, "slow_compute", seconds=0.1, label="a sum")
        assert (await until(who, task, *OVER))["status"] == "completed"
        if revision == LEGACY:
            said = await result(who, "tasks/result", {"taskId": task})
            assert said["content"] == [{"type": "text", "text": "Computed a sum."}]


async def test_arguments_that_a_client_repeats_in_headers_need_not_be_repeated(
    bare: Settings,
) -> None:
    async with gateway_to(bare, every="stateless") as client:
        direct = await caller(client, MODERN)
        tools = (await result(direct, "tools/list", {}))["tools"]
        mirrored = [one for one in tools if "x-mcp-header" in str(one["inputSchema"])]
        assert mirrored, "the server has no such tool"
        name = mirrored[0]["name"]
        fields = mirrored[0]["inputSchema"]["properties"]
        kinds = {"string": "x", "integer": 1, "number": 1, "boolean": True}
        arguments = {key: kinds[one["type"]] for key, one in fields.items() if "type" in one}
        refused = await direct.result("tools/call", {"name": name, "arguments": arguments})
        assert refused["error"]["code"] == -32020
        done = await passing(direct).result("tools/call", {"name": name, "arguments": arguments})
        assert not done["result"].get("isError"), done
