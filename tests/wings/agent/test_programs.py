"""Programs of agents: given by a setting, and counted by the budgets of their runs."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from config.agent import AgentBudget
from config.settings import DatabaseSettings
from tests.fixtures_gateway import Recorder, running
from tests.fixtures_servers import serving
from tests.servers.provider import Answer, chat_whole, providing
from tests.wings.agent.rig import Rig, agent_settings
from tests.wings.agent.test_loop import call

pytestmark = pytest.mark.anyio

LOOP = "for i in range(9):\n    tools.getPet(id=i)"
DONE = chat_whole("Done.")


@asynccontextmanager
async def open_rig(
    database: DatabaseSettings, folder: Path, calls: int = 100, **agent: Any
) -> AsyncIterator[Rig]:
    service = Recorder()
    async with serving(service) as service.url, providing(Answer()) as provider:
        settings = agent_settings(database, folder / "pets.json", service, provider.url, **agent)
        budgets = replace(
            settings.agent.budgets, run=AgentBudget(tokens=0, money=0, seconds=0, calls=calls)
        )
        settings = replace(
            settings,
            agent=replace(settings.agent, budgets=budgets),
            code=replace(settings.code, enabled=True),
        )
        async with running(settings) as client:
            await client.gateway.wait_for_wings()
            yield Rig(client, provider, service)


def read_tool_names(rig: Rig) -> list[str]:
    return [tool["function"]["name"] for tool in rig.provider.requests[0].body["tools"]]


@pytest.mark.parametrize("through", ["itself", "call_tool"])
async def test_calls_of_a_program_count_for_the_budget_of_its_run(
    module_database: DatabaseSettings, tmp_path: Path, through: str
) -> None:
    program: tuple[str, str, str] = call("a1", "run_code", code=LOOP)
    if through == "call_tool":
        program = call("a1", "call_tool", name="run_code", arguments={"code": LOOP, "calls": 50})
    async with open_rig(module_database, tmp_path, calls=4, code=True) as rig:
        rig.script(chat_whole("", [program]), chat_whole("", [call("a2", "getPet", id=1)]), DONE)
        found = await rig.ask("Count the pets.")
        assert "run_code" in read_tool_names(rig)
        assert len(rig.service_calls) == 3  # the run of the program is the first of four
        told = str(rig.sent_messages(1))
        assert "The run may make 3 calls" in told
        assert "the budget of calls is used up" in str(rig.sent_messages(2))
        assert found["state"] == "exhausted", found


async def test_programs_are_given_to_agents_by_a_setting(
    module_database: DatabaseSettings, tmp_path: Path
) -> None:
    nested = call("a2", "call_tool", name="run_code", arguments={"code": LOOP})
    async with open_rig(module_database, tmp_path) as rig:
        rig.script(chat_whole("", [call("a1", "run_code", code=LOOP), nested]), DONE)
        found = await rig.ask("Run code, a program over tools.")
        assert "run_code" not in read_tool_names(rig)
        assert str(rig.sent_messages(1)).count("Runs may not run programs here") == 2
        assert (rig.service_calls, found["state"]) == ([], "completed")


async def test_a_program_of_an_agent_starts_no_further_run(
    module_database: DatabaseSettings, tmp_path: Path
) -> None:
    code = (
        "def kind(name, arguments):\n"
        "    try:\n        return tools.call(name, arguments)\n"
        "    except ToolError as error:\n        return type(error).__name__\n"
        "[kind('run_code', {'code': '1'}), kind('agent_ask', {'message': 'x'})]"
    )
    async with open_rig(module_database, tmp_path, code=True) as rig:
        rig.script(chat_whole("", [call("a1", "run_code", code=code)]), DONE)
        await rig.ask("Go on.")
        assert '["Denied","Denied"]' in str(rig.sent_messages(1)).replace('", "', '","')
