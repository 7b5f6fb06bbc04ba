"""Hooks around calls that wings make, and calls that become jobs."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from config.access import Rule
from config.hooks import HookSettings
from config.settings import Settings
from gateway.operations.job_declarations import RESPOND_ASYNC
from tests.fixtures_gateway import Recorder, running
from tests.gateway.guards.signing import FOREVER, by_jwks, signer
from tests.servers.hooks import EVENTS, LEFT, MODULE
from tests.servers.provider import chat_whole, providing
from tests.wings.agent.rig import Rig, agent_settings
from tests.wings.code.shop import code_shop
from tests.wings.code.test_pauses import decide
from tests.wings.code.test_pauses import wait_for_end as wait_for_run
from tests.wings.events.rig import invoke_skill, wait_for_end, with_events
from tests.wings.rig import wings, with_toy
from tests.wings.test_jobs import until

pytestmark = pytest.mark.anyio

KEY = signer("ES256", kid="2026")
WATCHED = {"watch": HookSettings("before", use=f"{MODULE}:remember")}


@pytest.fixture(autouse=True)
def _no_events() -> None:
    EVENTS.clear()


def asked_about() -> list[str]:
    return [event["tool"]["name"] for event in EVENTS]


async def test_each_call_of_a_program_asks_its_hooks(settings: Settings, tmp_path: Path) -> None:
    async with code_shop(settings, tmp_path, hooks=WATCHED) as shop:
        await shop.run("[tools.get_item(id=n) for n in (1, 2)]")
    assert asked_about() == ["run_code", "get-item", "get-item"]
    assert [event["context"]["code"] for event in EVENTS] == [False, True, True]


async def test_a_run_that_goes_on_by_itself_asks_about_its_caller_again(
    settings: Settings, tmp_path: Path
) -> None:
    directory = HookSettings("identity", use=f"{MODULE}:have_left", changes=True)
    policy = replace(settings.policy, rules={"mails": Rule("approve", tools=("send_mail",))})
    own = replace(settings, auth=by_jwks(tmp_path, [KEY.jwk()]), policy=policy)
    token = {"Authorization": f"Bearer {KEY.token(sub='ann', exp=FOREVER, scope='code:write')}"}
    call = {"code": "tools.send_mail(text='a')"}
    body = {"jsonrpc": "2.0", "id": 1, "method": "run_code_writing", "params": call}
    async with code_shop(own, tmp_path, hooks={"directory": directory}) as shop:
        _, answer, _ = await shop.client.post("/rpc", body, token)
        assert "result" in answer, answer
        paused = answer["result"]
        LEFT.add("ann")
        try:
            await decide(shop, paused)
            end = await wait_for_run(shop, paused["run"])
        finally:
            LEFT.clear()
        assert shop.shop.mails == []
    assert "Refused by the hook 'directory': has left" in end["error"]


async def test_a_hook_refuses_calls_of_a_program(settings: Settings, tmp_path: Path) -> None:
    refusing = {"no": HookSettings("before", use=f"{MODULE}:refuse", tools=("get-*",))}
    code = "try:\n    tools.get_item(id=1)\nexcept ToolError as error:\n    result(str(error))"
    async with code_shop(settings, tmp_path, hooks=refusing) as shop:
        end = await shop.run(code)
        assert shop.shop.reads == 0
    assert "Refused by the hook 'no': not today" in end["result"]


async def test_the_run_of_an_invocation_asks_its_hooks(
    settings: Settings, service: Recorder
) -> None:
    async with running(replace(with_events(settings), hooks=WATCHED)) as client:
        await invoke_skill(client, "getPet", {"id": 7}, correlationId="pet-7")
        await wait_for_end(client, "pet-7")
    assert asked_about().count("getPet") == len(service.requests) == 1
    [event] = [event for event in EVENTS if event["tool"]["name"] == "getPet"]
    assert event["context"]["absent"] is True


async def test_a_hook_knows_the_attempt_of_an_invocation(settings: Settings) -> None:
    unreachable = replace(settings.sources["pets"], base_url="http://127.0.0.1:9")
    changed = replace(with_events(settings), hooks=WATCHED, sources={"pets": unreachable})
    async with running(changed) as client:
        await invoke_skill(client, "getPet", {"id": 7}, correlationId="pet-8", attempts=2)
        await wait_for_end(client, "pet-8")
    assert [event["attempt"] for event in EVENTS if event["tool"]["name"] == "getPet"] == [1, 2]


async def test_a_call_that_becomes_a_job_asks_its_hooks_once(settings: Settings) -> None:
    with wings():
        toy = with_toy(replace(settings, hooks=WATCHED), enabled=True)
        async with running(toy) as client:
            body = {"tool": "getPet", "arguments": {"id": 3}}
            status, job, _ = await client.post("/toy/v1/calls", body, {"Prefer": RESPOND_ASYNC})
            assert status == 202
            await until(client, job["job"], "succeeded")
    reading = "toy_get_job"
    assert [name for name in asked_about() if name != reading] == ["toy_call", "getPet"]


async def test_each_call_of_an_agent_asks_its_hooks(
    settings: Settings, service: Recorder, tmp_path: Path
) -> None:
    calls = [("a1", "getPet", '{"id": 3}')]
    async with providing(chat_whole("", calls), chat_whole("done")) as provider:
        own = agent_settings(settings.database, tmp_path / "a.json", service, provider.url)
        async with running(replace(own, hooks=WATCHED)) as client:
            await Rig(client, provider, service).ask("Which pet?")
    assert asked_about().count("getPet") == len(service.requests) == 1
