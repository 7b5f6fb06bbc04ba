"""A small server built with the official SDK, on each of its transports:
`python -m tests.servers.mcp_sdk stdio|sse|http|http-json`. All but the first print a URL first."""

import socket
import sys
from typing import Any

import anyio
import uvicorn
from mcp.server.mcpserver import Context, MCPServer
from pydantic import BaseModel

server = MCPServer("small")


class Name(BaseModel):
    name: str


@server.tool()
async def add(a: int, b: int) -> int:
    return a + b


@server.tool()
async def steps(count: int, context: Context[Any, Any]) -> str:
    for step in range(count):
        await context.report_progress(step + 1, count)
    return "done"


@server.tool()
async def greet(context: Context[Any, Any]) -> str:
    answer = await context.elicit("Who are you?", Name)
    return f"Hello, {answer.data.name}!" if answer.action == "accept" else "Hello, whoever."


@server.tool()
async def wait() -> str:
    """Says on stderr how it is doing."""
    try:
        print("waiting", file=sys.stderr, flush=True)
        await anyio.sleep_forever()
    finally:
        print("cancelled", file=sys.stderr, flush=True)


def main(transport: str) -> None:
    if transport == "stdio":
        server.run("stdio")
        return
    listener = socket.create_server(("127.0.0.1", 0))
    print(f"http://127.0.0.1:{listener.getsockname()[1]}", flush=True)
    app = (
        server.sse_app()
        if transport == "sse"
        else server.streamable_http_app(json_response=transport == "http-json")
    )
    config = uvicorn.Config(app, log_level="error")
    anyio.run(uvicorn.Server(config).serve, [listener])


if __name__ == "__main__":
    main(sys.argv[1])
