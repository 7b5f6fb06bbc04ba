"""Programs whose process or whose gateway is killed at each step: every write at most once, none
lost without a word."""

import json
import os
import signal
from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import aiohttp
import pytest
import yaml
from msgspec.structs import replace

from config.access import Rule
from config.settings import Settings
from gateway.sandbox.program_process import javascript_engine
from registry.access.approvals import Approvals
from registry.database.postgres import Pool
from tests.gateway.cli.processes import Served, serving
from tests.polling import until
from tests.properties import seeds
from tests.wings.code.shop import CodeShop, Shop, code_shop

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]

WRITING = "run_code_writing"


SENDING = {
    "python": """\
ends = {}
async def send(text):
    try:
        await tools.send_mail(text=text)
        ends[text] = 'sent'
    except ToolError as error:
        ends[text] = type(error).__name__
""",
    "javascript": """\
const ends = {};
async function send(text) {
  try {
    await tools.send_mail({text});
    ends[text] = 'sent';
  } catch (error) {
    ends[text] = error.name;
  }
}
""",
}


def draw_program(random: Random, texts: list[str]) -> dict[str, str]:
    """A program that sends each text once, between reads and idempotent changes, and tells what
    came of each."""
    language = random.choice([*SENDING] if javascript_engine() else ["python"])
    is_python, lines = language == "python", [SENDING[language]]
    left = list(texts)
    while left:
        batch, left = left[: (count := random.randint(1, 3))], left[count:]
        calls = [f"send({text!r})" for text in batch]
        calls += [f"tools.get_item(id={random.randint(0, 9)})"] * random.randint(0, 2)
        calls += [f"tools.change_item(id={random.randint(0, 9)}, count=7)"] * random.randint(0, 1)
        if not is_python:
            calls = [call.replace("=", ": ").replace("(id", "({id") for call in calls]
            calls = [call.replace(")", "})") if "{" in call else call for call in calls]
        if random.random() < 0.5:
            begin, close = ("asyncio.gather(", ")") if is_python else ("Promise.all([", "])")
            lines.append(f"await {begin}{', '.join(calls)}{close}")
        else:
            lines += [f"await {call}" for call in calls]
    return {"code": "\n".join([*lines, "ends"]), "language": language}


def kill_jails() -> None:
    """Kill the processes of programs that this process has."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            is_jail = b"jail_launcher.py" in (folder / "cmdline").read_bytes()
        except OSError:
            continue
        if int(fields[1]) == os.getpid() and is_jail:
            os.killpg(int(folder.name), signal.SIGKILL)


def kill_at(shop: Shop, step: int, kill: Callable[[], None]) -> None:
    """Kill at a mail: before its effect if `step` is even, else behind it."""
    mails = 0

    def count(when: int) -> None:
        nonlocal mails
        mails += when == 0
        if (mails - 1, when) == divmod(step, 2):
            kill()

    shop.watch = count


async def wait_for_stop(pool: Pool) -> tuple[str, Any]:
    """State and result of the only run, once it has ended or waits."""

    async def read_stop() -> tuple[str, Any] | None:
        async with pool.connection() as connection:
            rows = await connection.execute("SELECT state, result FROM code_run_t")
            [(state, result)] = await rows.fetchall()
        return (state, json.loads(result)) if state in ("ended", "waiting") else None

    stop: tuple[str, Any] = await until(read_stop)
    return stop


async def has_gone_on(pool: Pool, end: Any) -> bool:
    return (await wait_for_stop(pool))[1] != end


def check_ends(shop: Shop, texts: list[str], ends: dict[str, str], denied: set[str]) -> None:
    assert sorted(ends) == sorted(texts)  # none is lost
    for text, end in ends.items():
        times = shop.mails.count(text)
        if end == "OutcomeUnknown":
            assert times <= 1, (text, shop.mails)
        else:
            assert (end, times) == (("Denied", 0) if text in denied else ("sent", 1))
    for key, texts_of_key in shop.keys.items():
        assert len(set(texts_of_key)) == 1, key  # a key is of one call


@pytest.mark.parametrize("seed", seeds(24))
async def test_a_program_whose_process_is_killed_goes_on(
    seed: int, settings: Settings, tmp_path: Path
) -> None:
    random = Random(seed)
    texts = [f"m{number}" for number in range(random.randint(2, 6))]
    async with code_shop(settings, tmp_path, code={"ready": 1}) as shop:
        kill_at(shop.shop, random.randrange(2 * len(texts)), kill_jails)
        program = draw_program(random, texts)
        end = await shop.run(**program, tool=WRITING)
        assert end["state"] == "completed", end
        check_ends(shop.shop, texts, end["result"], set())


def write_settings(shop: CodeShop, folder: Path, *, asks: bool) -> Path:
    """A file with settings like those of a gateway, for another one in a process of its own."""
    settings = shop.client.gateway.settings
    source = settings.sources["shop"]
    rules = {"mails": {"effect": "approve", "tools": ["send_mail"]}} if asks else {}
    path = folder / "toolgate.yaml"
    values = {
        "database": {"url": settings.database.url},
        "embedding": {"provider": "disabled"},
        "sources": {"shop": {"openapi": source.openapi, "base_url": source.base_url}},
        "code": {"enabled": True, "writes": "allow", "lease_s": 1.0, "poll_s": 0.05},
        "policy": {"rules": rules},
    }
    path.write_text(yaml.safe_dump(values))
    return path


async def begin(shop: CodeShop, gateway: Served, program: dict[str, str]) -> Any:
    """The end of a run, or its pause; None: its gateway was killed."""
    params = {"name": WRITING, "arguments": program}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    try:
        async with shop.client.http.post(f"{gateway.url}/rpc", json=body) as response:
            answer = await response.json()
            return answer["result"]["structuredContent"]
    except aiohttp.ClientError:
        return None


@pytest.mark.parametrize("seed", seeds(24))
async def test_a_program_whose_gateway_is_killed_goes_on_at_another(
    seed: int, settings: Settings, tmp_path: Path
) -> None:
    """At each step, with decisions of people between the steps, or without."""
    random = Random(seed)
    texts = [f"m{number}" for number in range(random.randint(2, 6))]
    asks, denied = random.random() < 0.5, set[str]()
    rules = {"mails": Rule("approve", tools=("send_mail",))} if asks else {}
    policy = replace(settings.policy, rules=rules)
    async with AsyncExitStack() as stack:
        slow = {"lease_s": 1.0, "poll_s": 0.5}
        shop = await stack.enter_async_context(
            code_shop(settings, tmp_path, code=slow, policy=policy)
        )
        path = write_settings(shop, tmp_path, asks=asks)
        gateway = await stack.enter_async_context(serving("--config", str(path)))
        await gateway.ready()
        kill_at(shop.shop, random.randrange(2 * len(texts)), gateway.process.kill)
        end = await begin(shop, gateway, draw_program(random, texts))
        pool = shop.client.gateway.feed.pool
        approvals = Approvals(pool, shop.client.gateway.principal.tenant)
        while end is None or end["state"] != "completed":
            state, end = await wait_for_stop(pool)
            if state == "ended":
                break
            approve = random.random() < 0.7
            if not approve:
                denied |= {call["arguments"]["text"] for call in end["pending"]}
            assert await approvals.decide(end["pending"][0]["approval"], approve, "carol")
            await until(partial(has_gone_on, pool, end))
        assert end["state"] == "completed", end
        check_ends(shop.shop, texts, end["result"], denied)
