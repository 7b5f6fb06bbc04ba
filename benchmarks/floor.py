"""What a gateway cannot beat in this language: bare Starlette and aiohttp, doing the forwarding;
bare Starlette and json, where the answer is made on the spot.

Started by uvicorn; TOOLGATE_BENCH_UPSTREAM is the base URL of the upstream stub.
"""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from benchmarks.item import find

JSON = "application/json"


@asynccontextmanager
async def lifespan(app: Starlette) -> AsyncIterator[None]:
    app.state.upstream = os.environ["TOOLGATE_BENCH_UPSTREAM"]
    app.state.payload = b""
    async with aiohttp.ClientSession() as app.state.client:
        yield


async def forward(request: Request) -> Response:
    state = request.app.state
    body = await request.json()
    async with state.client.get(f"{state.upstream}/items/{body['id']}") as response:
        return Response(await response.read(), media_type=JSON)


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
        Route("/answer", answer, methods=["POST"]),
        Route("/echo", echo, methods=["POST"]),
        Route("/bytes", store, methods=["PUT"]),
        Route("/bytes", payload, methods=["GET"]),
    ],
    lifespan=lifespan,
)
