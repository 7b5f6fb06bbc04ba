"""Baseline that a Python gateway cannot beat: bare Starlette and aiohttp as forwarding proxy;
bare Starlette and json for local answers. In front of an MCP server it is a transparent proxy
that does not parse bodies.

Started by uvicorn; TOOLGATE_BENCH_UPSTREAM is the base URL of the upstream stub or MCP server.
"""

import os
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

import aiohttp
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from benchmarks.item import find

JSON = "application/json"
EVENTS = "text/event-stream"
OWN_HEADERS = {"host", "connection", "content-length", "transfer-encoding", "date", "server"}


@asynccontextmanager
async def lifespan(app: Starlette) -> AsyncIterator[None]:
    app.state.upstream = os.environ["TOOLGATE_BENCH_UPSTREAM"]
    app.state.payload = b""
    async with aiohttp.ClientSession(auto_decompress=False) as app.state.client:
        yield


async def forward(request: Request) -> Response:
    state = request.app.state
    body = await request.json()
    async with state.client.get(f"{state.upstream}/items/{body['id']}") as response:
        return Response(await response.read(), media_type=JSON)


async def relay(request: Request) -> Response:
    """The same request upstream, its answer as it comes: bytes of which nothing is known."""
    state = request.app.state
    response = await state.client.request(
        request.method,
        f"{state.upstream}{request.url.path}",
        data=await request.body() or None,
        headers=_end_to_end(request.headers.items()),
    )
    headers = _end_to_end(response.headers.items())
    if response.content_type == EVENTS:
        return StreamingResponse(_events(response), response.status, headers)
    async with response:
        return Response(await response.read(), response.status, headers)


async def _events(response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    async with response:
        async for piece in response.content.iter_any():
            yield piece


def _end_to_end(headers: Iterable[tuple[str, str]]) -> dict[str, str]:
    return {name: value for name, value in headers if name.lower() not in OWN_HEADERS}


async def store(request: Request) -> Response:
    request.app.state.payload = await request.body()
    return Response(status_code=204)


async def payload(request: Request) -> Response:
    return Response(request.app.state.payload, media_type=JSON)


async def answer(request: Request) -> Response:
    """What the hybrid action answers, to a JSON-RPC request."""
    body = await request.json()
    return JSONResponse({"jsonrpc": "2.0", "id": body["id"], "result": find(body["params"])})


async def echo(request: Request) -> Response:
    return Response(await request.body(), media_type=JSON)


app = Starlette(
    routes=[
        Route("/forward", forward, methods=["POST"]),
        Route("/mcp", relay, methods=["GET", "POST", "DELETE"]),
        Route("/answer", answer, methods=["POST"]),
        Route("/echo", echo, methods=["POST"]),
        Route("/bytes", store, methods=["PUT"]),
        Route("/bytes", payload, methods=["GET"]),
    ],
    lifespan=lifespan,
)
