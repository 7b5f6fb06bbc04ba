"""What an agent sees of two MCP servers behind the gateway, in either era, and how it is asked."""

import sys
from typing import Any

from mcp import Client
from mcp_types import ElicitResult

from examples.login.client import run


async def answer(_context: Any, question: Any) -> ElicitResult:
    print("asked:", question.message)
    return ElicitResult(action="accept", content={"sure": True})


async def main(url: str) -> None:
    for mode in ("legacy", "auto"):
        async with Client(url, mode=mode, elicitation_callback=answer) as client:
            print("speaking", client.protocol_version)
            print("tools:", *(tool.name for tool in (await client.list_tools()).tools))
            print("prompts:", *(one.name for one in (await client.list_prompts()).prompts))
            added = await client.call_tool("home_add_note", {"text": "Buy milk."})
            print(added.content[0].text)
            cleared = await client.call_tool("home_clear_notes", {})
            print(cleared.content[0].text)


if __name__ == "__main__":
    run(main(sys.argv[1] if sys.argv[1:] else "http://127.0.0.1:8765/mcp"))
