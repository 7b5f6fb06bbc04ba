"""Agents (A2A) as tools: one call through a gateway, at agents of both versions and transports."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, cast

import anyio
import pytest
from msgspec.structs import replace

from config.settings import DatabaseSettings, Settings
from config.sources import SourceSettings
from gateway.context import Context, Identity, Principal
from gateway.upstreams.a2a.card_watch import CardWatch
from schemas.binding import A2aBinding
from schemas.errors import InvalidParams, Unavailable
from schemas.mcp.messages import PROGRESS
from schemas.mcp.revisions import V2025_11_25
from schemas.tool import TextContent, ToolResult
from tests.fixtures_database import HOST
from tests.fixtures_gateway import DEADLINE_S, META, MODERN, Client, running, wordless
from tests.fixtures_servers import serving
from tests.servers.agent import ScriptedAgent
from tests.wings.events.rig import EXTENSION, with_events

pytestmark = pytest.mark.anyio

CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
SKILLS = [("trains", "Night trains"), ("a b", "First"), ("a/b", "Second")]
INTERFACES = ["rpc", "rest", "old"]
Open = Callable[..., AbstractAsyncContextManager[tuple[Client, ScriptedAgent]]]


def with_agent(database: DatabaseSettings, agent: ScriptedAgent, **changes: Any) -> Settings:
    settings = wordless()
    upstream = replace(settings.upstream, a2a_poll_s=0.01, a2a_poll_max_s=0.02)
    source = SourceSettings(a2a=agent.base, **changes)
    return replace(settings, database=database, upstream=upstream, sources={"trips": source})


@pytest.fixture
def open_gateway(database_settings: DatabaseSettings) -> Open:
    @asynccontextmanager
    async def open_(
        agent: ScriptedAgent, **changes: Any
    ) -> AsyncIterator[tuple[Client, ScriptedAgent]]:
        async with serving(agent.app) as agent.base:
            try:
                async with running(with_agent(database_settings, agent, **changes)) as client:
                    yield client, agent
            finally:
                agent.release.set()

    return open_


async def ask(client: Client, **arguments: Any) -> dict[str, Any]:
    _, answer = await client.modern("tools/call", {"name": "trips", "arguments": arguments})
    assert "result" in answer, answer
    result: dict[str, Any] = answer["result"]
    return result


def text_of(result: dict[str, Any]) -> str:
    return "\n".join(item["text"] for item in result["content"] if item["type"] == "text")


def facts_of(result: dict[str, Any]) -> dict[str, str]:
    facts: dict[str, str] = result["_meta"]["toolgate/a2a"]
    return facts


async def test_an_agent_is_one_tool_whose_description_tells_its_skills(open_gateway: Open) -> None:
    async with open_gateway(ScriptedAgent()) as (client, _):
        _, listed = await client.modern("tools/list")
        [tool] = listed["result"]["tools"]
        assert tool["name"] == "trips"
        assert "Trips: Plans trips" in tool["description"]
        assert set(tool["inputSchema"]["properties"]) >= {"message", "data", "context", "task"}


async def test_a_skill_is_a_tool_whose_messages_begin_with_its_name(open_gateway: Open) -> None:
    skills = [{"id": i, "name": n, "description": "Plans", "tags": []} for i, n in SKILLS]
    async with open_gateway(ScriptedAgent(card_changes={"skills": skills}), per_skill=True) as (
        client,
        agent,
    ):
        names = await list_names(client)
        assert len(names) == 4  # names that are equal in ASCII are told apart
        assert names >= {"trips", "trips_trains"}
        arguments = {"message": "to Rome", "data": {"day": 1}}
        _, answer = await client.modern(
            "tools/call", {"name": "trips_trains", "arguments": arguments}
        )
        task = facts_of(answer["result"])
        assert task["state"] == "completed"
        text, data = agent.heard[0]["params"]["message"]["parts"]
        assert (text["text"], data["data"]) == ("Use your skill Night trains. to Rome", {"day": 1})
        _, answer = await client.modern("tools/call", {"name": "trips_trains", "arguments": {}})
        assert "message: expected a text" in text_of(answer["result"])


@pytest.mark.parametrize("interface", INTERFACES)
@pytest.mark.parametrize("streams", [True, False])
async def test_work_of_an_agent_is_the_result(
    open_gateway: Open, interface: str, streams: bool
) -> None:
    streams = streams and interface != "old"
    async with open_gateway(ScriptedAgent(interfaces=(interface,), streams=streams)) as (
        client,
        agent,
    ):
        result = await ask(client, message="work hard")
        assert (text_of(result), "isError" in result) == ("one two", False)
        assert facts_of(result)["state"] == "completed"
        assert agent.heard[0]["operation"] == ("stream" if streams else "send")
        version = "0.3" if interface == "old" else "1.0"
        assert {each["headers"]["a2a-version"] for each in agent.heard} == {version}


async def test_a_message_of_an_agent_is_text_and_its_context_goes_on(open_gateway: Open) -> None:
    async with open_gateway(ScriptedAgent()) as (client, agent):
        first = await ask(client, message="say hello")
        assert text_of(first) == "hello"
        context = facts_of(first)["context"]
        assert context != "c-new"  # ids of the agent are sealed
        await ask(client, message="say more", context=context)
        assert agent.heard[-1]["params"]["message"]["contextId"] == "c-new"


async def test_parts_become_texts_links_images_and_structure(open_gateway: Open) -> None:
    async with open_gateway(ScriptedAgent()) as (client, _):
        result = await ask(client, message="data")
    kinds = [item["type"] for item in result["content"]]
    assert kinds == ["text", "resource_link", "image", "text"]
    assert result["content"][1]["uri"] == "https://files.example.com/t.pdf"
    assert "no web address" in result["content"][3]["text"]
    assert result["structuredContent"] == {"price": 7}


async def test_a_failed_task_is_an_error_with_its_reason(open_gateway: Open) -> None:
    async with open_gateway(ScriptedAgent()) as (client, _):
        result = await ask(client, message="fail")
    assert result["isError"]
    assert "no trains today" in text_of(result)


async def test_data_and_files_are_parts_of_the_message(open_gateway: Open) -> None:
    async with open_gateway(ScriptedAgent()) as (client, agent):
        files = [{"text": "notes", "filename": "n.txt"}, "https://example.com/a.pdf"]
        await ask(client, message="say x", data={"to": "Rome"}, files=files)
        _, data, raw, url = agent.heard[0]["params"]["message"]["parts"]
    assert data["data"] == {"to": "Rome"}
    assert (raw["raw"], raw["filename"]) == ("bm90ZXM=", "n.txt")
    assert url["url"] == "https://example.com/a.pdf"  # the agent's to fetch


async def test_a_question_names_its_task_for_the_answer(open_gateway: Open) -> None:
    async with open_gateway(ScriptedAgent()) as (client, agent):
        asked = await ask(client, message="ask")
        facts = facts_of(asked)
        assert facts["state"] == "input_required"
        assert "Who travels?" in text_of(asked)
        assert facts["task"] in text_of(asked)
        answered = await ask(client, data={"name": "Ada"}, task=facts["task"])
        assert text_of(answered) == "hello Ada"
        [task] = agent.tasks
        assert agent.heard[-1]["params"]["message"]["taskId"] == task


async def test_an_answered_question_that_the_agent_repeats_is_not_asked_again(
    open_gateway: Open,
) -> None:
    async with open_gateway(ScriptedAgent(shows_past=True)) as (client, _):
        asked = facts_of(await ask(client, message="ask"))
        assert text_of(await ask(client, message="Ada", task=asked["task"])) == "hello Ada"


async def test_a_client_that_shows_forms_is_asked_the_question(open_gateway: Open) -> None:
    async with open_gateway(ScriptedAgent()) as (client, _):
        asked, result = await call_with_answer(
            client, "ask", {"elicitation": {}}, {"action": "accept", "content": {"name": "Bea"}}
        )
    assert asked["message"] == "trips: Who travels?"
    assert asked["requestedSchema"]["properties"] == {"name": {"type": "string"}}
    assert text_of(result) == "hello Bea"


async def test_a_form_for_credentials_is_not_shown(open_gateway: Open) -> None:
    async with open_gateway(ScriptedAgent()) as (client, _):
        session = await client.session("2025-11-25", {"elicitation": {}})
        answer = await session.call("tools/call", call_of("secret"))
    assert facts_of(answer["result"])["state"] == "input_required"
    assert "Credentials do not belong into messages" in text_of(answer["result"])


async def test_an_agent_that_waits_for_a_login_shows_the_address(open_gateway: Open) -> None:
    async with open_gateway(ScriptedAgent()) as (client, agent):
        waiting = await ask(client, message="login")
        assert facts_of(waiting)["state"] == "auth_required"
        assert "https://login.example.com/start" in text_of(waiting)
        agent.polls_left = dict.fromkeys(agent.tasks, 0)
        done = await ask(client, task=facts_of(waiting)["task"])
        assert text_of(done) == "one two"


async def test_a_client_that_opens_addresses_is_sent_to_the_login(open_gateway: Open) -> None:
    async with open_gateway(ScriptedAgent()) as (client, _):
        capabilities = {"elicitation": {"url": {}}}
        asked, result = await call_with_answer(client, "login", capabilities, {"action": "accept"})
    assert asked["url"] == "https://login.example.com/start"
    assert "Log in at login.example.com" in asked["message"]
    assert text_of(result) == "one two"


async def test_status_texts_of_the_agent_are_progress_and_log(open_gateway: Open) -> None:
    async with open_gateway(ScriptedAgent()) as (client, _):
        session = await client.session("2025-11-25")
        params = {**call_of("work"), "_meta": {"progressToken": "p"}}
        messages = await read_stream(client, session.headers, params)
        assert messages[-1]["result"]["content"][0]["text"] == "one two"
        assert any(m["params"]["message"] for m in messages if m.get("method") == PROGRESS)
        logged = [m["params"] for m in messages if m.get("method") == "notifications/message"]
        assert logged == [{"level": "info", "logger": "trips", "data": "reading maps"}]
        await session.call("logging/setLevel", {"level": "warning"})
        messages = await read_stream(client, session.headers, params)
        assert "notifications/message" not in {m.get("method") for m in messages}


async def test_a_call_whose_time_is_up_names_the_task_that_goes_on(open_gateway: Open) -> None:
    async with open_gateway(ScriptedAgent(), timeout_s=0.3) as (client, agent):
        late = await ask(client, message="slow")
        assert (facts_of(late)["state"], "isError" in late) == ("working", False)
        agent.polls_left = dict.fromkeys(agent.tasks, 0)
        done = await ask(client, task=facts_of(late)["task"])
        assert text_of(done) == "one two"


async def test_a_cancelled_call_cancels_the_task(open_gateway: Open) -> None:
    async with open_gateway(ScriptedAgent()) as (client, agent):
        session = await client.session("2025-11-25")
        calling = asyncio.create_task(session.call("tools/call", call_of("slow"), 7))
        await agent.arrived.wait()
        await session.post(
            {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 7}}
        )
        with anyio.fail_after(10):
            await agent.stopped.wait()
        calling.cancel()
        assert agent.cancelled == list(agent.tasks)


async def test_a_broken_stream_is_followed_by_polling(open_gateway: Open) -> None:
    async with open_gateway(ScriptedAgent()) as (client, agent):
        result = await ask(client, message="break")
        assert text_of(result) == "one two"
        assert [each["operation"] for each in agent.heard][:2] == ["stream", "get"]


@pytest.mark.parametrize(("interface", "streams"), [("rpc", False), ("rest", True)])
async def test_a_lost_answer_is_looked_up_before_the_message_is_repeated(
    open_gateway: Open, interface: str, streams: bool
) -> None:
    lossy = ScriptedAgent(interfaces=(interface,), streams=streams, losses=1)
    async with open_gateway(lossy) as (client, agent):
        result = await ask(client, message="work")
        assert text_of(result) == "one two"
        sent = "stream" if streams else "send"
        assert [each["operation"] for each in agent.heard][:2] == [sent, "list"]
        assert len(agent.tasks) == 1  # the message was not acted on twice


async def test_a_message_that_never_arrived_is_repeated_with_its_id(open_gateway: Open) -> None:
    async with open_gateway(ScriptedAgent(streams=False, losses=1)) as (client, agent):
        agent.forgets = True
        result = await ask(client, message="work")
        assert text_of(result) == "one two"
        ids = [e["params"]["message"]["messageId"] for e in agent.heard if e["operation"] == "send"]
        assert len(ids) == 2
        assert len(set(ids)) == 1


async def test_an_agent_of_0_3_is_not_asked_twice_after_a_lost_answer(open_gateway: Open) -> None:
    lossy = ScriptedAgent(interfaces=("old",), streams=False, losses=1)
    async with open_gateway(lossy) as (client, agent):
        result = await ask(client, message="work")
        assert result["isError"]
        assert "unknown" in text_of(result)
        assert [each["operation"] for each in agent.heard] == ["send"]


async def test_the_tenant_of_the_interface_is_sent_exactly(open_gateway: Open) -> None:
    async with open_gateway(ScriptedAgent(tenant="Blue/1")) as (client, agent):
        await ask(client, message="say x")
        assert agent.heard[0]["params"]["tenant"] == "Blue/1"


async def test_a_handle_is_good_for_its_source_and_form_alone(open_gateway: Open) -> None:
    async with open_gateway(ScriptedAgent()) as (client, agent):
        first = facts_of(await ask(client, message="ask"))
        sent = len(agent.heard)
        for forged in ("t-1", first["task"][::-1], first["context"], next(iter(agent.tasks))):
            refused = await ask(client, message="x", task=forged)
            assert refused["isError"]
            assert "task: expected that of an earlier answer" in text_of(refused)
        assert len(agent.heard) == sent


async def test_an_empty_call_is_refused(open_gateway: Open) -> None:
    async with open_gateway(ScriptedAgent()) as (client, agent):
        refused = await ask(client)
        assert "message: expected a text" in text_of(refused)
        assert not agent.heard


async def test_configured_headers_authenticate_the_gateway(open_gateway: Open) -> None:
    headers = {"Authorization": "Bearer s3cret"}
    async with open_gateway(ScriptedAgent(), headers=headers) as (client, agent):
        await ask(client, message="say x")
        assert agent.heard[0]["headers"]["authorization"] == "Bearer s3cret"


async def ask_modern(client: Client, capabilities: Any, **params: Any) -> dict[str, Any]:
    """The result of a call by a client of 2026-07-28 with these capabilities."""
    sent = {"MCP-Protocol-Version": MODERN, "Mcp-Method": "tools/call", "Mcp-Name": "trips"}
    params["_meta"] = {**META, CAPABILITIES: capabilities}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    _, answer, _ = await client.post("/mcp", body, sent)
    result: dict[str, Any] = answer["result"]
    return result


@pytest.mark.parametrize(
    ("word", "answer", "expected"),
    [
        ("ask", {"action": "accept", "content": {"name": "Cid"}}, "hello Cid"),
        ("ask", {"action": "decline"}, "Who travels?"),
        ("login", {"action": "accept"}, "one two"),
        ("login", {"action": "cancel"}, "Log in at https://login.example.com/start"),
    ],
)
async def test_a_client_without_sessions_is_asked_by_the_result(
    open_gateway: Open, word: str, answer: Any, expected: str
) -> None:
    capabilities = {"elicitation": {"form": {}, "url": {}}}
    async with open_gateway(ScriptedAgent()) as (client, agent):
        asked = await ask_modern(client, capabilities, **call_of(word))
        assert asked["resultType"] == "input_required"
        assert asked["inputRequests"]["a2a"]["method"] == "elicitation/create"
        again = {"requestState": asked["requestState"], "inputResponses": {"a2a": answer}}
        result = await ask_modern(client, capabilities, **call_of(word), **again)
        assert result["resultType"] == "complete"
        assert expected in text_of(result)
        assert len(agent.tasks) == 1  # the call was not made again


async def test_a_changed_card_is_noticed_by_its_tag(open_gateway: Open) -> None:
    async with open_gateway(ScriptedAgent()) as (client, agent):
        gateway = client.gateway
        source = gateway.catalogs.of(HOST).sources["trips"]
        for _ in range(2):
            await gateway.federation.cards.look(source)
        assert agent.card_reads[-1] != ""  # and it was not sent again
        assert "trips" in await list_names(client)
        agent.card_changes = {"version": "9"}
        await gateway.federation.cards.look(source)
        with anyio.fail_after(DEADLINE_S):
            while "trips" in await list_names(client):
                pass


async def test_a_changed_card_that_was_not_imported_is_told_of_again(open_gateway: Open) -> None:
    async with open_gateway(ScriptedAgent()) as (client, _):
        names: list[str] = []

        async def import_source(name: str) -> None:
            names.append(name)
            if len(names) == 1:
                raise Unavailable("The database is away")

        gateway = client.gateway
        watch = CardWatch(gateway.settings.imports, 60, import_source)
        source = gateway.catalogs.of(HOST).sources["trips"]
        with pytest.raises(Unavailable):
            await watch.look(source)
        for _ in range(2):
            await watch.look(source)
        assert names == ["trips"] * 2


async def list_names(client: Client) -> set[str]:
    _, listed = await client.modern("tools/list")
    return {tool["name"] for tool in listed["result"]["tools"]}


def context_of(name: str, hops: int = 0) -> Context:
    identity = Identity(Principal(name, HOST), verified=True)
    return Context(identity, V2025_11_25, "r-1", agent_hops=hops)


async def call_as(client: Client, context: Context, **arguments: Any) -> ToolResult:
    """The result of the tool's upstream, for callers that a client cannot be."""
    catalog = client.gateway.catalogs.of(HOST)
    tool = catalog.find("trips")
    assert tool is not None
    upstream = client.gateway.executors[A2aBinding]
    result = await upstream.call(tool, catalog.sources["trips"], arguments, context)
    assert isinstance(result, ToolResult)
    return result


async def test_a_handle_is_useless_to_other_callers(open_gateway: Open) -> None:
    async with open_gateway(ScriptedAgent()) as (client, agent):
        ann, bob = context_of("ann"), context_of("bob")
        asked = await call_as(client, ann, message="ask")
        task = cast("dict[str, Any]", asked.meta)["toolgate/a2a"]["task"]
        sent = len(agent.heard)
        with pytest.raises(InvalidParams, match="task: expected that of an earlier answer"):
            await call_as(client, bob, message="x", task=task)
        assert len(agent.heard) == sent
        answered = await call_as(client, ann, message="Ann", task=task)
        assert answered.content == (TextContent("hello Ann"),)


async def test_the_fourth_agent_in_a_row_is_not_called(open_gateway: Open) -> None:
    async with open_gateway(ScriptedAgent()) as (client, agent):
        for hops in (0, 2):
            assert not (await call_as(client, context_of("ann", hops), message="say x")).is_error
            metadata = agent.heard[-1]["params"]["message"]["metadata"]
            assert metadata == {"toolgate/hops": hops + 1}
        refused = await call_as(client, context_of("ann", 3), message="say x")
        assert refused.is_error
        assert len(agent.heard) == 2


async def test_an_agent_of_the_gateway_itself_is_not_called(
    database_settings: DatabaseSettings,
) -> None:
    agent = ScriptedAgent()
    async with serving(agent.app) as agent.base:
        settings = with_agent(database_settings, agent)
        server = replace(settings.server, public_url=agent.base)
        async with running(replace(settings, server=server)) as client:
            result = await ask(client, message="say x")
    assert "it is an agent of this gateway" in text_of(result)
    assert not agent.heard


async def ask_with_tasks(client: Client, method: str, **params: Any) -> dict[str, Any]:
    """The result of a request of a client that knows tasks."""
    meta = {**META, CAPABILITIES: {"extensions": {EXTENSION: {}}}}
    sent = {"MCP-Protocol-Version": MODERN, "Mcp-Method": method}
    sent["Mcp-Name"] = params.get("name") or params.get("taskId") or ""
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": meta}}
    _, answer, _ = await client.post("/mcp", body, sent)
    result: dict[str, Any] = answer["result"]
    return result


async def test_a_task_of_mcp_ends_as_the_task_of_the_agent(
    database_settings: DatabaseSettings,
) -> None:
    agent = ScriptedAgent(streams=False)
    async with serving(agent.app) as agent.base:
        # the call outlasts the deadline of the source: it runs as a task
        settings = with_agent(database_settings, agent, timeout_s=0.2)
        async with running(with_events(settings, task_wait_s=0.01)) as client:
            row = begun = await ask_with_tasks(client, "tools/call", **call_of("slow"))
            with anyio.fail_after(DEADLINE_S):
                await agent.polled.wait()
                agent.polls_left = dict.fromkeys(agent.tasks, 0)
                while row["status"] == "working":
                    row = await ask_with_tasks(client, "tasks/get", taskId=begun["taskId"])
            assert (row["status"], text_of(row["result"])) == ("completed", "one two")
            agent.tasks.clear()
            agent.polled.clear()
            begun = await ask_with_tasks(client, "tools/call", **call_of("slow"))
            assert (begun["resultType"], begun["status"]) == ("task", "working")
            with anyio.fail_after(DEADLINE_S):
                await agent.polled.wait()
            await ask_with_tasks(client, "tasks/cancel", taskId=begun["taskId"])
            with anyio.fail_after(DEADLINE_S):
                await agent.stopped.wait()
            assert agent.cancelled == list(agent.tasks)


def call_of(message: str) -> dict[str, Any]:
    return {"name": "trips", "arguments": {"message": message}}


async def read_stream(
    client: Client, headers: dict[str, str], params: dict[str, Any]
) -> list[dict[str, Any]]:
    """All messages of the stream that answers a call."""
    sent = {**headers, "Accept": "application/json, text/event-stream"}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    async with client.http.post(client.url + "/mcp", json=body, headers=sent) as response:
        text = await response.text()
    data = [line[6:] for line in text.splitlines() if line.startswith("data: {")]
    return [json.loads(each) for each in data] or [json.loads(text)]


async def call_with_answer(
    client: Client, message: str, capabilities: dict[str, Any], answer: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The params of the question to the client, and the result of the call that it answers."""
    session = await client.session("2025-11-25", capabilities)
    sent = {**session.headers, "Accept": "application/json, text/event-stream"}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call_of(message)}
    asked: dict[str, Any] = {}
    async with client.http.post(client.url + "/mcp", json=body, headers=sent) as response:
        async for raw in response.content:
            line = raw.decode().removeprefix("data: ")
            if not line.startswith("{"):
                continue
            said = json.loads(line)
            if said.get("method") == "elicitation/create":
                asked = said["params"]
                await session.post({"jsonrpc": "2.0", "id": said["id"], "result": answer})
            elif "result" in said:
                return asked, said["result"]
    raise AssertionError("no result")
