"""The official MCP client against the gateway: list the tools, search them, call two.

    .venv/bin/python examples/client.py [URL] [WORD]

Needs the package `mcp` (2.3). Prints the revision of the protocol that the two agreed on.
"""

import asyncio
import sys
from typing import Any

try:
    from httpx2 import ConnectError
    from mcp import Client
    from mcp.types import CallToolResult, TextContent, Tool
except ModuleNotFoundError:
    sys.exit(f"The official client is missing: {sys.executable} -m pip install 'mcp>=2.3,<2.4'")

URL = "http://127.0.0.1:8765/mcp"


async def main(url: str = URL, word: str = "order") -> None:
    async with Client(url) as client:
        print(f"Connected to {url}, revision {client.protocol_version}")
        tools = await list_tools(client)
        show(f"{len(tools)} tools", tools)
        show(f'Tools about "{word}"', [tool for tool in tools if matches(tool, word)])
        await call(client, "listPets", {"species": "cat", "limit": 2})
        await call(client, "createPet", {"name": "Kit", "species": "cat", "priceCents": 12_000})


async def list_tools(client: Client) -> list[Tool]:
    """All of them, page by page."""
    page = await client.list_tools()
    tools = list(page.tools)
    while page.next_cursor:
        page = await client.list_tools(cursor=page.next_cursor)
        tools += page.tools
    return tools


def matches(tool: Tool, word: str) -> bool:
    return word.lower() in f"{tool.name} {tool.title} {tool.description}".lower()


async def call(client: Client, name: str, arguments: dict[str, Any]) -> None:
    result = await client.call_tool(name, arguments)
    print(f"\n{name}({arguments}){' failed' if result.is_error else ''}")
    print(f"  {text_of(result)}")


def text_of(result: CallToolResult) -> str:
    return "\n".join(item.text for item in result.content if isinstance(item, TextContent))


def show(title: str, tools: list[Tool]) -> None:
    print(f"\n{title}")
    for tool in tools:
        print(f"  {tool.name:16} {(tool.description or '').splitlines()[0][:80]}")


if __name__ == "__main__":
    try:
        asyncio.run(main(*sys.argv[1:]))
    except ExceptionGroup as group:  # of the tasks of the client
        if group.subgroup(ConnectError) is None:
            raise
        sys.exit(f"Nothing answers at {[*sys.argv[1:], URL][0]}: does `make run` run?")
