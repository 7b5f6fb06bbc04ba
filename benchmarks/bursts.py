"""`python -m benchmarks.bursts`: calls that fail in bursts, when a healthy service closes idle
connections between them.

The service is uvicorn with its usual idle timeout of 5 s; bursts are as far apart, so that each
meets connections that are just being closed. POSTs, which are never sent again, count.
"""

import asyncio
import socket
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import click
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from yarl import URL

from benchmarks.processes import free_port
from gateway.http_client.http1 import Site
from gateway.http_client.pool import IDLE_S, Pool

APART_S = 5.0
STARTED_S = 20.0


async def answer(_request: Request) -> Response:
    return JSONResponse({})


app = Starlette(routes=[Route("/", answer, methods=["POST"])])


@asynccontextmanager
async def service() -> AsyncIterator[Site]:
    """A process of its own: in ours, closed connections would be noticed before the next burst."""
    port = free_port()
    arguments = ("benchmarks.bursts:app", "--port", str(port), "--log-level", "error")
    process = await asyncio.create_subprocess_exec(sys.executable, "-m", "uvicorn", *arguments)
    try:
        await asyncio.to_thread(wait_for_port, port)
        yield Site(URL(f"http://127.0.0.1:{port}"))
    finally:
        process.terminate()
        await process.wait()


def wait_for_port(port: int) -> None:
    until = time.monotonic() + STARTED_S
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.05)
        else:
            return


async def failures(bursts: int, calls: int, idle_s: float, apart_s: float) -> int:
    """Failed calls of all bursts."""
    async with service() as site:
        pool = Pool(True, None, limit=calls, connect_timeout_s=5, idle_s=idle_s)

        async def call() -> bool:
            try:
                response = await pool.request(site, "POST", "/", {}, body=b"{}")
            except aiohttp.ClientError:
                return True
            response.close()
            return False

        failed = 0
        for burst in range(bursts):
            if burst:
                await asyncio.sleep(apart_s)
            failed += sum(await asyncio.gather(*(call() for _ in range(calls))))
        await pool.close()
    return failed


@click.command()
@click.option("--bursts", default=12, show_default=True)
@click.option("--calls", default=250, show_default=True, help="Calls of a burst, at once.")
@click.option("--idle-s", default=IDLE_S, show_default=True, help="Idle timeout of connections.")
@click.option("--apart-s", default=APART_S, show_default=True)
def main(bursts: int, calls: int, idle_s: float, apart_s: float) -> None:
    """Exits with 1 if any call failed."""
    failed = asyncio.run(failures(bursts, calls, idle_s, apart_s))
    click.echo(f"{failed} of {bursts * calls} calls failed, bursts {apart_s:g} s apart")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
