"""Where programs are offered: in lists of every revision and mode, at toolsets, on request."""

from pathlib import Path
from typing import Any

import pytest
from mcp import ClientSession
from mcp.client.client import Client as McpClient
from mcp.client.sse import sse_client

from config.settings import Settings, Toolset
from registry.display.token_budgets import tokens
from schemas.jsonrpc import encode
from tests.gateway.disclosing import ask_gateway, names
from tests.wings.code.shop import CodeShop, code_shop

pytestmark = pytest.mark.anyio

PROGRAMS = ["run_code", "run_code_writing"]
ALONE = ["describe_tools", *PROGRAMS, "search_tools"]
SHOP = ["change_item", "get-item", "list_counts", "list_items", "send_mail"]
TOOLSETS = {
    "items": Toolset(include=("*item*",), code="only"),
    "mails": Toolset(include=("*mail*",), code="offered", exclude=("run_code_writing",)),
    "plain": Toolset(include=("*mail*",)),
    "none": Toolset(sources=("shop", "code"), code="off"),
    "source": Toolset(sources=("shop", "code")),
    "typed": Toolset(sources=("shop",), code="offered", signatures="typescript"),
}


async def listed_over_sse(shop: CodeShop, query: str) -> list[str]:
    """The list of a client of 2024-11-05."""
    async with (
        sse_client(f"{shop.client.url}/mcp/sse{query}") as streams,
        ClientSession(*streams) as session,
    ):
        await session.initialize()
        return [tool.name for tool in (await session.list_tools()).tools]


async def test_lists_of_every_revision_have_programs_beside_or_alone(
    settings: Settings, tmp_path: Path
) -> None:
    found = ["call_tool", *ALONE]
    lists = {"?code=only": ALONE, "?mode=search": sorted(found), "?code=only&mode=search": ALONE}
    async with code_shop(settings, tmp_path) as shop:
        assert {*PROGRAMS, *SHOP} <= {*(every := await names(shop.client, "/mcp"))}
        listed = (await ask_gateway(shop.client, "tools/list", {}))["tools"]
        weights = {tool["name"]: tokens(encode(tool)) for tool in listed}
        assert all(weights[name] < 400 for name in PROGRAMS), weights
        assert sum(map(weights.get, PROGRAMS)) < 580, weights
        assert await names(shop.client, "/mcp?code=offered") == every
        assert not {*PROGRAMS} & {*(await names(shop.client, "/mcp?code=off"))}
        for query, expected in lists.items():
            assert await names(shop.client, f"/mcp{query}") == expected
            assert await listed_over_sse(shop, query) == expected
            for mode in ("legacy", "auto"):
                async with McpClient(f"{shop.client.url}/mcp{query}", mode=mode) as mcp:
                    assert [tool.name for tool in (await mcp.list_tools()).tools] == expected
        status, answer, _ = await shop.client.post("/mcp?code=on", {})
        assert status == 400
        assert "There is no such code; there is off, offered, only" in answer["error"]["message"]


async def test_a_client_of_programs_alone_finds_signatures_and_runs_a_program(
    settings: Settings, tmp_path: Path
) -> None:
    at = "/mcp?code=only"

    async def call(shop: CodeShop, name: str, **arguments: Any) -> Any:
        params = {"name": name, "arguments": arguments}
        return await ask_gateway(shop.client, "tools/call", params, at)

    async with code_shop(settings, tmp_path) as shop:
        tools = (await ask_gateway(shop.client, "tools/list", {}, at))["tools"]
        search = next(tool for tool in tools if tool["name"] == "search_tools")
        assert "call_tool" not in search["description"]
        found = await call(shop, "search_tools", query="one item")
        assert "def get_item(*, id: int" in found["content"][0]["text"], found
        told = await call(shop, "describe_tools", names=["get-item"])
        assert "def get_item(*, id: int" in told["content"][0]["text"]
        end = await call(shop, "run_code", code="tools.get_item(id=3)['id']")
        assert end["structuredContent"]["result"] == 3


async def test_toolsets_decide_for_themselves(settings: Settings, tmp_path: Path) -> None:
    alone = ["describe_tools", *PROGRAMS, "search_tools"]
    lists = {
        "items": alone,
        "items?code=offered": [
            *("change_item", "code_list_runs", "get-item", "list_items", *PROGRAMS),
        ],
        "items?code=off": ["change_item", "get-item", "list_items"],
        "mails": ["code_list_runs", "run_code", "send_mail"],
        "plain": ["send_mail"],
        "plain?code=only": ["send_mail"],
        "none": SHOP,
        "none?code=only": SHOP,
    }
    async with code_shop(settings, tmp_path, toolsets=TOOLSETS) as shop:
        for path, expected in lists.items():
            assert await names(shop.client, f"/mcp/{path}") == expected, path
        for toolset, code, text in (
            ("items", "tools.send_mail(text='x')", "There is no tool 'send_mail'"),
            ("none", "1", "Unknown tool: run_code"),
        ):
            params = {"name": "run_code", "arguments": {"code": code}}
            answer = await ask_gateway(shop.client, "tools/call", params, f"/mcp/{toolset}")
            assert text in str(answer), answer
        describing = {"name": "describe_tools", "arguments": {"names": ["get-item"]}}
        for query, text in (("", "get_item(args: {id: number})"), ("?code=off", "inputSchema")):
            at = f"/mcp/typed{query}"
            answer = await ask_gateway(shop.client, "tools/call", describing, at)
            assert text in answer["content"][0]["text"], answer


async def test_a_query_does_not_enable_programs(settings: Settings, tmp_path: Path) -> None:
    off = {"disclosure": "off"}
    async with code_shop(settings, tmp_path, code=off, toolsets=TOOLSETS) as shop:
        for query in ("", "?code=only", "?code=offered", "?mode=search"):
            assert not {*PROGRAMS} & {*(await names(shop.client, f"/mcp{query}"))}, query
        answer = await shop.ask("1")
        assert answer["error"]["code"] == -32601, answer
        _, problem, _ = await shop.client.post("/code/v1/run", {"code": "1"})
        assert problem["status"] == 404, problem
        found = await ask_gateway(
            shop.client, "tools/call", {"name": "search_tools", "arguments": {"query": "run code"}}
        )
        assert "run_code" not in str(found["structuredContent"])
        assert await names(shop.client, "/mcp/items") == ALONE
        assert await names(shop.client, "/mcp/source") == SHOP


async def test_a_machine_without_a_jail_lists_no_programs(
    settings: Settings, tmp_path: Path
) -> None:
    """A process of Python does not start in so little memory."""
    async with code_shop(settings, tmp_path, code={"memory_bytes": 1 << 20}) as shop:
        for query in ("", "?code=only", "?mode=search"):
            assert not {*PROGRAMS} & {*(await names(shop.client, f"/mcp{query}"))}, query
        assert (await names(shop.client, "/mcp?code=only"))[-5:] == SHOP
        assert "was ended" in (await shop.run("1"))["error"]
