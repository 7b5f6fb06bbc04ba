"""Tools of programs alone, and tools that programs may not call, at every front."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from config.code import CALL_WAYS
from config.load import load
from config.settings import Settings, Toolset
from tests.gateway.disclosing import ask_gateway, names
from tests.wings.code.shop import CodeShop, code_shop

pytestmark = pytest.mark.anyio

CALLERS = {"get-item": ["code"], "*mail*": ["direct"], "list_*": ["direct", "code"]}
TOOLSETS = {
    "inside": Toolset(sources=("shop", "code"), callers=("code",)),
    "outside": Toolset(sources=("shop", "code"), callers=("direct",)),
}
PROGRAMS = ["run_code", "run_code_writing"]


@pytest.fixture
async def shop(settings: Settings, tmp_path: Path) -> AsyncIterator[CodeShop]:
    code = {"callers": CALLERS}
    async with code_shop(settings, tmp_path, code=code, toolsets=TOOLSETS) as shop:
        yield shop


async def search(shop: CodeShop, query: str, **arguments: Any) -> str:
    params = {"name": "search_tools", "arguments": {"query": query, **arguments}}
    return str((await ask_gateway(shop.client, "tools/call", params, "/mcp"))["structuredContent"])


async def test_a_tool_of_programs_alone_is_called_by_nobody_else(shop: CodeShop) -> None:
    assert "get-item" not in await names(shop.client, "/mcp")
    assert "get-item" not in await names(shop.client, "/rpc", query="item")
    assert "get-item" not in await search(shop, "one item by its id")
    discovered = await ask_gateway(shop.client, "rpc.discover", {}, "/rpc")
    assert "send_mail" in str(discovered)
    assert "get-item" not in str(discovered)
    arguments = {"name": "get-item", "arguments": {"id": 1}}
    refused = [
        await ask_gateway(shop.client, "tools/call", arguments, "/mcp"),
        await ask_gateway(
            shop.client, "tools/call", {"name": "call_tool", "arguments": arguments}, "/mcp"
        ),
        await ask_gateway(
            shop.client,
            "tools/call",
            {"name": "describe_tools", "arguments": {"names": ["get-item"]}},
            "/mcp",
        ),
        await ask_gateway(shop.client, "get-item", {"id": 1}, "/rpc"),
    ]
    for answer in refused:
        text = str(answer)
        assert any(said in text for said in ("Unknown tool", "no tool", "not found")), answer
        assert shop.shop.reads == 0, answer
    assert (await shop.run("tools.get_item(id=3)['id']"))["result"] == 3
    assert "def get_item" in str(await shop.run("tools.describe('get_item')"))
    assert "get-item" in str((await shop.run("tools.search('one item by its id')"))["result"])
    assert "get-item" in await search(shop, "one item by its id", **{"as": "python"})


async def test_programs_do_not_know_tools_of_clients_alone(shop: CodeShop) -> None:
    assert "send_mail" in await names(shop.client, "/mcp")
    assert "send_mail" in await search(shop, "send a mail")
    assert "send_mail" not in await search(shop, "send a mail", **{"as": "typescript"})
    for code in ("tools.send_mail(text='x')", "tools.describe('send_mail')", "tools.send_mial()"):
        error = (await shop.run(code, "run_code_writing"))["error"]
        assert "NotFound" in error, error
        assert "Did you mean send_mail" not in error
    found = await shop.run("tools.search('send a mail')", "run_code_writing")
    assert "send_mail" not in str(found["result"])
    assert not shop.shop.mails
    request = {"jsonrpc": "2.0", "id": 1, "method": "send_mail", "params": {"text": "x"}}
    await shop.client.post("/rpc", request)
    assert shop.shop.mails == ["x"]


async def test_a_toolset_limits_the_callers_of_its_tools(shop: CodeShop) -> None:
    """Tools that run programs stay, or nobody could call the others."""
    assert await names(shop.client, "/mcp/inside") == PROGRAMS
    assert "list_items" in await names(shop.client, "/mcp/outside")
    for toolset, expected in (("inside", "'result': 3"), ("outside", "There is no tool")):
        arguments = {"code": "tools.get_item(id=3)['id']"}
        params = {"name": "run_code", "arguments": arguments}
        answer = await ask_gateway(shop.client, "tools/call", params, f"/mcp/{toolset}")
        assert expected in str(answer)
    await check_callers_change_without_a_restart(shop)


async def check_callers_change_without_a_restart(shop: CodeShop) -> None:
    gateway = shop.client.gateway
    code = replace(gateway.settings.code, callers={"send_mail": ("code",)})
    await gateway.reconfigure(replace(gateway.settings, code=code))
    listed = await names(shop.client, "/mcp")
    assert ("get-item" in listed, "send_mail" in listed) == (True, False)
    assert (await shop.run("tools.get_item(id=3)['id']"))["result"] == 3


def test_every_matching_pattern_limits_the_callers() -> None:
    code = replace(
        load(None, {}).code, enabled=True, callers={"a*": ("code",), "tag:x": ("direct",)}
    )
    assert code.callers_of(["b"], [], None) == [*CALL_WAYS]
    assert code.callers_of(["b", "alias"], [], None) == ["code"]
    assert code.callers_of(["a"], ["x"], None) == []
    off = replace(code, enabled=False)
    assert off.callers_of(["b"], [], None) == ["direct"]
