"""Tasks that are not for whoever asks, and clients that know none of them or the other form."""

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest

from config.settings import Settings
from tests.fixtures_gateway import MODERN, Client
from tests.gateway.federation.conftest import EVERYTHING, caller, gateway_to
from tests.gateway.federation.servers import fleet
from tests.gateway.federation.tasks import (
    EXTENSION,
    KNOWS,
    LEGACY,
    begin_task,
    calling,
    refusal,
    result,
    until,
)
from tests.gateway.guards.signing import FOREVER, by_jwks, signer
from tests.servers.everything import everything
from tests.servers.everything_wire import Era
from tests.servers.mcp_wire import Scripted, Turn

pytestmark = pytest.mark.anyio

UNKNOWN = (-32602, "Unknown task: it ended, or never was")


@pytest.mark.parametrize("revision", [LEGACY, MODERN])
async def test_an_id_of_nowhere_is_refused(both: Client, revision: str) -> None:
    who = await caller(both, revision, KNOWS)
    for method in ("tasks/get", "tasks/cancel"):
        assert await refusal(who, method, {"taskId": "nowhere"}) == UNKNOWN
    task = await begin_task(who, "slow_compute", seconds=0)
    assert await refusal(who, "tasks/get", {"taskId": task + "A"}) == UNKNOWN


async def test_neither_form_is_known_to_clients_of_the_other(both: Client) -> None:
    stateless, session = await caller(both, MODERN, KNOWS), await caller(both, LEGACY)
    one, other = (
        await begin_task(stateless, "slow_compute", seconds=0),
        await begin_task(session, "slow_compute", seconds=0),
    )
    assert await refusal(session, "tasks/get", {"taskId": one}) == UNKNOWN
    assert await refusal(stateless, "tasks/get", {"taskId": other}) == UNKNOWN


@pytest.mark.parametrize("revision", [LEGACY, MODERN])
async def test_nobody_else_gets_at_a_task(bare: Settings, tmp_path: Path, revision: str) -> None:
    key = signer("ES256", kid="2026")
    settings = msgspec.structs.replace(bare, auth=by_jwks(tmp_path, [key.jwk()]))

    def logged_in(name: str) -> aiohttp.ClientSession:
        token = key.token(sub=name, exp=FOREVER)
        return aiohttp.ClientSession(headers={"Authorization": f"Bearer {token}"})

    async with (
        gateway_to(settings, every="both") as client,
        logged_in("ada") as hers,
        logged_in("bob") as his,
    ):
        ada = await caller(replace(client, http=hers), revision, KNOWS)
        bob = await caller(replace(client, http=his), revision, KNOWS)
        task = await begin_task(ada, "slow_compute", seconds=60)
        for method in ("tasks/get", "tasks/cancel"):
            assert await refusal(bob, method, {"taskId": task}) == UNKNOWN
        assert (await until(ada, task, "working"))["status"] == "working"


async def list_offers(client: Client, revision: str) -> tuple[bool, bool]:
    """Whether tasks of 2025-11-25, and the extension, are offered."""
    who = await caller(client, revision, KNOWS)
    if who.session is not None:
        can = who.session.initialized["capabilities"]
    else:
        can = (await result(who, "server/discover", {}))["capabilities"]
    return "tasks" in can, EXTENSION in can.get("extensions", {})


@pytest.mark.parametrize(
    ("server", "legacy", "modern"),
    [("handshake", True, False), ("stateless", False, True), ("both", True, True)],
)
async def test_each_era_is_offered_tasks_of_its_servers(
    bare: Settings, server: Era, legacy: bool, modern: bool
) -> None:
    async with gateway_to(bare, every=server) as client:
        assert await list_offers(client, LEGACY) == (legacy, False)
        assert await list_offers(client, "2025-06-18") == (False, False)
        assert await list_offers(client, MODERN) == (False, modern)


@pytest.mark.parametrize("revision", [LEGACY, MODERN])
async def test_where_no_server_has_tasks_there_are_none(bare: Settings, revision: str) -> None:
    async with fleet(bare, {"every": everything(tasks=False)}) as behind:
        assert await list_offers(behind.client, revision) == (False, False)
        who = await caller(behind.client, revision, KNOWS)
        for method in ("tasks/get", "tasks/cancel", "tasks/result", "tasks/update", "tasks/list"):
            code, _ = await refusal(who, method, {"taskId": "any"})
            assert code == -32601
        said = await result(who, "tools/call", {**calling("greet", name="Ada"), "task": {}})
        assert said["content"][0]["text"] == "Hello, Ada!"


@pytest.mark.parametrize(
    ("server", "revision", "capabilities"),
    [
        ("handshake", MODERN, KNOWS),
        ("stateless", LEGACY, KNOWS),
        ("both", MODERN, EVERYTHING),
        ("both", "2025-06-18", KNOWS),
    ],
)
async def test_a_client_gets_no_task_of_an_unknown_form(
    bare: Settings, server: Era, revision: str, capabilities: Any
) -> None:
    async with gateway_to(bare, every=server) as client:
        who = await caller(client, revision, capabilities)
        wish = {**calling("slow_compute", seconds=0, label="it"), "task": {"ttl": 1000}}
        said = await result(who, "tools/call", wish)
        assert said["content"] == [{"type": "text", "text": "Computed it."}]
        assert "task" not in said
        assert "taskId" not in said


async def test_a_stateless_client_must_declare_the_task_extension(both: Client) -> None:
    who = await caller(both, MODERN)
    needed = {"extensions": {EXTENSION: {}}}
    for method in ("tasks/get", "tasks/update", "tasks/cancel"):
        error = (await who.result(method, {"taskId": "any"}))["error"]
        assert (error["code"], error["data"]["requiredCapabilities"]) == (-32021, needed)
    error = (await who.result("tools/call", calling("failing_job")))["error"]
    assert (error["code"], error["data"]["requiredCapabilities"]) == (-32021, needed)


async def test_tools_declare_task_support_to_handshake_clients_only(
    both: Client,
) -> None:
    for revision, expected in (
        (LEGACY, {"taskSupport": "required"}),
        ("2025-06-18", None),
        (MODERN, None),
    ):
        tools = (await result(await caller(both, revision, KNOWS), "tools/list", {}))["tools"]
        [failing] = [tool for tool in tools if tool["name"] == "failing_job"]
        assert failing.get("execution") == expected


async def test_a_tool_that_does_not_run_as_a_task_refuses_to(both: Client) -> None:
    who = await caller(both, LEGACY)
    wish = {**calling("greet", name="Ada"), "task": {"ttl": 1000}}
    assert await refusal(who, "tools/call", wish) == (-32601, "greet does not run as a task")


@pytest.mark.parametrize("tasks", [True, False])
async def test_so_does_any_other_tool_where_clients_were_told_of_tasks(
    settings: Settings, tasks: bool
) -> None:
    async with fleet(settings, {"every": everything(tasks=tasks)}) as behind:
        who = await caller(behind.client, LEGACY)
        wish = {**calling("listPets"), "task": {"ttl": 1000}}
        answer = await who.result("tools/call", wish)
        if tasks:
            assert answer["error"]["message"] == "listPets does not run as a task"
        else:
            assert "error" not in answer


async def test_a_task_that_nobody_can_know_is_no_result(bare: Settings) -> None:
    async def answer_discovery(turn: Turn) -> None:
        can = {"tools": {}}
        await turn.result(resultType="complete", supportedVersions=[MODERN], capabilities=can)

    async def answer_list(turn: Turn) -> None:
        tool = {"name": "eager", "inputSchema": {"type": "object"}}
        await turn.result(resultType="complete", tools=[tool], ttlMs=0, cacheScope="private")

    async def answer_call(turn: Turn) -> None:
        await turn.result(resultType="task", taskId="t-1", status="working")

    plays = {
        "server/discover": answer_discovery,
        "tools/list": answer_list,
        "tools/call": answer_call,
    }
    server = Scripted({**plays, "initialize": refuse_revision})
    async with fleet(bare, {"eager": (server, nullcontext())}) as behind:
        who = await caller(behind.client, MODERN)
        code, message = await refusal(who, "tools/call", calling("eager"))
        assert message == "eager began a task, which this client does not know"
        assert code not in (-32601, -32602)


async def refuse_revision(turn: Turn) -> None:
    await turn.error(-32022, "Unsupported protocol version", 400)
