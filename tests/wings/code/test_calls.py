"""Calls of programs, as the gateway refuses them and as servers answer them."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import ClientSession
from mcp.client.streamable_http import streamable_http_client
from msgspec.structs import replace

from config.access import Rate, Rule
from config.settings import Settings
from registry.sources.tool_store import ToolStore
from tests.fixtures_servers import serving
from tests.servers.mcp_wire import Scripted, Turn
from tests.wings.code.shop import CodeShop, code_shop

pytestmark = pytest.mark.anyio

KIND = "try:\n    {}\nexcept ToolError as error:\n    result([type(error).__name__, {}])"
IMAGE = {"type": "image", "data": "aGk=", "mimeType": "image/png"}
ANSWERS: dict[str, dict[str, Any]] = {
    "picture": {"content": [{"type": "text", "text": "a"}, IMAGE]},
    "follows": {"content": [], "structuredContent": {"a": 1}, "_meta": {"toolgate/next": "x"}},
    "large": {"content": [{"type": "text", "text": "x" * 2000}], "isError": True},
    "digits": {"content": [], "structuredContent": {"a": "DIGITS"}},
    "deep": {"content": [], "structuredContent": {"a": "DEEP"}},
    "failing": {},
}


async def list_tools(turn: Turn) -> None:
    hints = {"readOnlyHint": True}
    schema = {"type": "object"}
    tools = [{"name": name, "inputSchema": schema, "annotations": hints} for name in ANSWERS]
    await turn.result(tools=tools)


async def answer_call(turn: Turn) -> None:
    name = turn.params["name"]
    if name == "failing":
        await turn.error(-32000, "a secret of the CRM")
        return
    text = json.dumps({"jsonrpc": "2.0", "id": turn.id, "result": ANSWERS[name]})
    text = text.replace('"DIGITS"', "1" * 10_000).replace('"DEEP"', "[" * 5_000 + "]" * 5_000)
    await turn.say(200, text.encode())


def crm_server() -> Scripted:
    plays = {"tools/list": list_tools, "tools/call": answer_call}
    return Scripted(plays, capabilities={"tools": {}})


async def test_a_limited_call_says_when_there_is_room(settings: Settings, tmp_path: Path) -> None:
    limits = replace(settings.limits, tools={"get-item": Rate(calls=1, per_s=60)})
    code = KIND.format(
        "tools.get_item(id=1); tools.get_item(id=2)", "error.retry_after > 0, error.retryable"
    )
    async with code_shop(settings, tmp_path, limits=limits) as shop:
        assert (await shop.run(code))["result"] == ["RateLimited", True, True]


async def test_answers_of_servers_are_whole_or_a_failure_of_their_call(
    settings: Settings, tmp_path: Path
) -> None:
    """Content beside text, members that only the gateway writes, and JSON that Python refuses."""
    async with (
        serving(crm_server()) as url,
        code_shop(settings, tmp_path, crm=f"{url}/mcp", code={"call_bytes": 50_000}) as shop,
    ):
        end = await shop.run("tools.picture()")
        assert end["result"] == {"content": [{"type": "text", "text": "a"}, IMAGE]}, end
        end = await shop.run("tools.pages(tools.follows)")
        assert end["result"] == [{"a": 1}]
        for name in ("digits", "deep"):
            end = await shop.run(KIND.format(f"tools.{name}()", "str(error)[:10]"))
            assert end["state"] == "completed", (name, end)
            assert (await shop.run(f"tools.get_item(id=1)\n{name!r}"))["result"] == name


async def test_a_source_that_fails_has_answered(settings: Settings, tmp_path: Path) -> None:
    rules = {"mail": Rule(effect="deny", tools=("send_mail",), when="'crm' in context.sources")}
    policy = replace(settings.policy, rules=rules)
    code = (
        "try:\n    tools.failing()\nexcept ToolError as error:\n    text = str(error)\n"
        "tools.send_mail(text=text)"
    )
    async with (
        serving(crm_server()) as url,
        code_shop(settings, tmp_path, crm=f"{url}/mcp", policy=policy) as shop,
    ):
        end = await shop.run(code, "run_code_writing")
        assert (end["state"], shop.shop.mails) == ("failed", []), end


async def test_failures_count_for_the_limit_of_answers(settings: Settings, tmp_path: Path) -> None:
    code = "for i in range(3):\n    " + KIND.format("tools.large()", "1").replace("\n", "\n    ")
    async with (
        serving(crm_server()) as url,
        code_shop(settings, tmp_path, crm=f"{url}/mcp", code={"total_bytes": 5000}) as shop,
    ):
        assert (await shop.run(code))["result"] == ["LimitReached", 1]


REFUSED = {
    "search": "tools.search('x')",
    "unknown": "tools.get_itm(id=1)",
    "described": "tools.describe('get_item')",
    "denied": "tools.send_mail(text='x')",
}


async def test_each_request_of_a_program_counts(settings: Settings, tmp_path: Path) -> None:
    """What is refused, searched and described costs the gateway something, too."""
    async with code_shop(settings, tmp_path, code={"calls": 3}) as shop:
        for name, call in REFUSED.items():
            lines = f"try:\n        {call}\n    except (NotFound, Denied): pass"
            end = await shop.run(f"for _ in range(4):\n    {lines}")
            assert "LimitReached" in end["error"], (name, end)
        end = await shop.run("tools['x' * 2_000_000]()")
        assert "There is no tool 'xxx" in end["error"]
        assert len(end["error"]) < 1000


async def test_a_tool_that_begins_to_write_is_refused_in_the_middle(
    settings: Settings, tmp_path: Path
) -> None:
    """The catalog of now decides, not the one with which the program began."""
    server = crm_server()
    async with serving(server) as url, code_shop(settings, tmp_path, crm=f"{url}/mcp") as shop:
        gateway = shop.client.gateway
        store = ToolStore(gateway.feed.pool)

        async def change(turn: Turn) -> None:
            async with gateway.feed.pool.connection() as connection:
                await connection.execute("UPDATE tool_t SET annotations = '{}' WHERE name = 'deep'")
            await gateway.catalogs.reload(store, gateway.principal.tenant)
            await turn.result(content=[])

        server.plays = {**server.plays, "tools/call": change}
        end = await shop.run("tools.deep()\ntools.deep()")
        assert "Denied [deep]" in end["error"], end
        assert len(server.all("tools/call")) == 1


async def test_progress_grows_by_calls_and_during_a_call(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.operations.progress_notifications.BEAT_S", 0.05)
    told: list[tuple[float, str | None]] = []
    enough = anyio.Event()

    async def take(done: float, _total: float | None, text: str | None) -> None:
        told.append((done, text))
        if done > 1.6:  # 1 call, and two beats
            enough.set()

    async with (
        code_shop(settings, tmp_path) as shop,
        streamable_http_client(shop.client.url + "/mcp") as streams,
        ClientSession(*streams[:2]) as session,
    ):
        await session.initialize()
        arguments = {"code": "tools.list_counts()\ntools.get_item(id=1)"}
        shop.shop.hangs = True
        async with anyio.create_task_group() as group:
            group.start_soon(
                partial(session.call_tool, progress_callback=take), "run_code", arguments
            )
            with anyio.fail_after(10):
                await enough.wait()
            group.cancel_scope.cancel()
        values = [done for done, _ in told]
        assert values == sorted(set(values)), told
        assert told[-1][1] == "get-item", told


async def test_a_cancelled_run_ends_its_calls(settings: Settings, tmp_path: Path) -> None:
    async with code_shop(settings, tmp_path) as shop:
        for end in (leave, cancel):
            shop.shop.hangs = True
            shop.shop.arrived, shop.shop.gone = anyio.Event(), anyio.Event()
            await end(shop)
            with anyio.fail_after(5):
                await shop.shop.gone.wait()
            shop.shop.hangs = False
            assert (await shop.run("1"))["result"] == 1


async def leave(shop: CodeShop) -> None:
    """The HTTP client goes away."""
    async with anyio.create_task_group() as group:
        group.start_soon(shop.ask, "tools.get_item(id=1)")
        await shop.shop.arrived.wait()
        group.cancel_scope.cancel()


async def cancel(shop: CodeShop) -> None:
    """The MCP client cancels its request."""
    session = await shop.client.session()
    params = {"name": "run_code", "arguments": {"code": "tools.get_item(id=1)"}}
    async with anyio.create_task_group() as group:
        call = {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params}
        group.start_soon(session.post, call)
        await shop.shop.arrived.wait()
        cancelled = {"method": "notifications/cancelled", "params": {"requestId": 7}}
        await session.post({"jsonrpc": "2.0", **cancelled})
        with anyio.fail_after(5):
            await shop.shop.gone.wait()
        group.cancel_scope.cancel()
