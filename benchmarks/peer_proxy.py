"""FastMCP as proxy of the MCP server. Runs in the peer's own environment.

All callers share one connected client that keeps a session, which is FastMCP's fastest proxy for
clients of either era: as `create_proxy` makes it from a URL, each call builds a client, a pool and
a session of its own (15 times the CPU time).

TOOLGATE_BENCH_UPSTREAM is the base URL of the server.
"""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastmcp import Client, FastMCP
from fastmcp.server.providers.proxy import ProxyProvider
from starlette.requests import Request
from starlette.responses import Response

_client = Client(f"{os.environ['TOOLGATE_BENCH_UPSTREAM']}/mcp", mode="legacy")


@asynccontextmanager
async def lifespan(_: FastMCP) -> AsyncIterator[None]:
    async with _client:
        yield


_server = FastMCP("proxy", lifespan=lifespan)
_server.add_provider(ProxyProvider(lambda: _client))


@_server.custom_route("/health", methods=["GET"])
async def health(_: Request) -> Response:
    return Response("ok")


app = _server.http_app(path="/mcp", stateless_http=True, json_response=True)
