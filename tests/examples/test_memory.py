"""The memory example: an agent remembers across sessions, users and restarts, and forgets."""

import os
from collections.abc import Sequence

import anyio
import pytest
from msgspec.structs import replace

from config.load import load
from config.settings import DatabaseSettings
from tests.examples.conftest import ROOT, python
from tests.fixtures_gateway import running

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(300)]

MEMORY = ROOT / "examples/memory"
SECRET = {"DEVELOPMENT_SECRET": "x" * 32}


async def run_agent(url: str, *steps: str) -> Sequence[str]:
    command = python(str(MEMORY / "agent.py"), url + "/mcp", *steps)
    with anyio.fail_after(120):
        done = await anyio.run_process(command, check=False, env=os.environ | SECRET, cwd=ROOT)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode().splitlines()


async def test_an_agent_remembers_across_restarts_and_forgets(
    database_settings: DatabaseSettings,
) -> None:
    settings = load(str(MEMORY / "toolgate.yaml"), SECRET)
    settings = replace(settings, database=database_settings)
    settings = replace(settings, embedding=replace(settings.embedding, provider="disabled"))
    async with running(settings) as gateway:
        assert await run_agent(gateway.url, "learn") == [
            "learn: Ann moved; the value before is kept",
            "learn: in this session: Ann waits for a parcel today",
        ]
    async with running(settings) as gateway:  # as after a restart
        lines = await run_agent(gateway.url, "recall", "forget")
    today = lines[2].partition("until ")[2]
    assert lines[:7] == [
        "recall: Ann is allergic to peanuts (user)",
        "recall: Ann lives in Oslo",
        f"  history: Ann lives in Bern, since 2021-03-01, until {today}",
        f"  history: Ann lives in Oslo, since {today}, now",
        "recall: in 2022: Ann lives in Bern",
        "recall: the parcel of that session: False",
        "recall: what Bo eats: False",
    ]
    notes = lines[lines.index("recall: for the prompt:") : -4]
    assert "peanuts" in " ".join(notes)
    assert lines[-4:] == [
        "forget: 1 memory; peanuts left: False",
        "forget: everything, as counted: True",
        "forget: left of Ann: 0",
        "forget: left of Bo: Bo is vegetarian",
    ]
