"""Fixtures: real HTTP servers on free loopback ports, in the event loop of the test."""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial

import pytest
from starlette.types import ASGIApp
from uvicorn import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

Serve = Callable[[ASGIApp], Awaitable[str]]


@asynccontextmanager
async def serving(
    app: ASGIApp, http: type[HttpToolsProtocol] = HttpToolsProtocol, port: int = 0
) -> AsyncIterator[str]:
    """The URL at which uvicorn serves `app`; what still runs at the end is cut off. `port` is one
    that a server had before; 0: any."""
    # Kept connections outlast a stall of a loaded machine: a POST that meets their end is lost.
    config = Config(
        app, lifespan="off", ws="none", log_config=None, access_log=False, timeout_keep_alive=60
    )
    config.load()
    state = ServerState()
    # uvicorn.Server adds signal handlers, which are the test runner's, and a tenth of a second
    protocol = partial(http, config=config, server_state=state, app_state={})
    listener = await asyncio.get_running_loop().create_server(protocol, "127.0.0.1", port)
    try:
        yield f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
    finally:
        listener.close()
        for connection in list(state.connections):
            connection.transport.abort()
        for task in list(state.tasks):
            task.cancel()
        await asyncio.gather(*state.tasks, return_exceptions=True)
        await listener.wait_closed()


@pytest.fixture
async def serve(anyio_backend: str) -> AsyncIterator[Serve]:
    """Start servers: `url = await serve(app)`; they stop when the test ends."""
    async with AsyncExitStack() as stack:
        yield lambda app: stack.enter_async_context(serving(app))


def free_ports(count: int) -> list[int]:
    """Different ports of loopback that nobody listens at. Those 10,000 above, which nodes of a
    Redis cluster use among themselves, are free, too."""
    ports: set[int] = set()
    while len(ports) < count:
        with socket.socket() as above, socket.socket() as probe:
            above.bind(("127.0.0.1", 0))
            port = above.getsockname()[1] - 10_000
            with suppress(OSError):
                probe.bind(("127.0.0.1", port))
                ports.add(port)
    return list(ports)
