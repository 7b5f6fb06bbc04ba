"""Shares of a process's places: who has many runs does not hold up the others. Runs end with the
credentials of their callers."""

from collections.abc import AsyncIterator
from dataclasses import replace
from functools import partial

import anyio
import pytest

from config.settings import DatabaseSettings
from gateway.context import KEY_MARK, Context, Identity
from registry.access.api_keys import ApiKeys
from schemas.mcp.revisions import V2025_11_25
from tests.fixtures_database import HOST
from tests.servers.provider import Answer, Asked, chat_whole
from tests.wings.agent.rig import Rig, open_rig
from tests.wings.agent.test_context import caller
from tests.wings.agent.test_rights import call_agent, until

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
async def rig(
    module_database: DatabaseSettings, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Rig]:
    shares = {"runs": 2, "runs_per_tenant": 2, "runs_per_principal": 1}
    async with open_rig(module_database, tmp_path_factory.mktemp("agent"), **shares) as rig:
        rig.script(answer_bob)
        yield rig


def answer_bob(asked: Asked) -> Answer:
    """An answer for Bob; others wait for theirs."""
    content = asked.body["messages"][-1]["content"]
    return chat_whole("Hello.") if content == "I am bob." else Answer(silent=True)


async def begin(rig: Rig, name: str, runs: list[str], context: Context | None = None) -> None:
    context = context or caller(name)
    conversation = await call_agent(rig, context, "agent_create_conversation")
    run = await call_agent(
        rig,
        context,
        "agent_send",
        conversation=conversation["id"],
        content=f"I am {name}.",
        wait=False,
    )
    runs.append(run["run"])


async def test_many_runs_of_one_person_leave_places_to_other_people(rig: Rig) -> None:
    mine: list[str] = []
    async with anyio.create_task_group() as group:  # at the same time
        for _ in range(4):
            group.start_soon(partial(begin, rig, "ann", mine))
    bobs: list[str] = []
    await begin(rig, "bob", bobs)
    assert (await until(rig, caller("bob"), bobs[0], "completed"))["answer"] == "Hello."
    views = [await call_agent(rig, caller("ann"), "agent_get_run", run=run) for run in mine]
    states = {view["run"]: view["state"] for view in views}
    assert sorted(states.values()) == ["queued"] * 3 + ["running"]
    for run in sorted(mine, key=lambda run: states[run]):  # also those that wait for a place
        view = await call_agent(rig, caller("ann"), "agent_cancel_run", run=run)
        assert view["state"] == "cancelled"


async def test_a_run_ends_when_the_credential_of_its_caller_is_revoked(rig: Rig) -> None:
    keys, eve, runs = ApiKeys((await rig.parts()).pool, HOST), caller("eve"), list[str]()
    key, _ = await keys.create("eve")
    marked = Identity(replace(eve.principal, mark=KEY_MARK + key.id), verified=True)
    await begin(rig, "eve", runs, Context(marked, V2025_11_25, "1"))
    await until(rig, eve, runs[0], "running")
    assert await keys.revoke(key.id)
    await until(rig, eve, runs[0], "cancelled")
