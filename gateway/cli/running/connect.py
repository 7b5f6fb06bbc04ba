"""`toolgate connect`, and standard input and output as the connection of an MCP client."""

import asyncio
import logging
import os
import threading
from collections.abc import AsyncIterator
from typing import IO
from urllib.parse import urlsplit

import aiohttp
import anyio
import click
import msgspec
from anyio import to_thread

from gateway.cli.common.event_loop import run
from gateway.cli.common.failure import USAGE, fail
from gateway.cli.running.bridge import CONNECT_S, MESSAGE_BYTES, Bridge
from gateway.cli.running.client import read_key

READ_BYTES = 65_536
CHUNKS = 16  # read ahead
OUTSIDE = "the client sent a line of more than %d bytes"

log = logging.getLogger("toolgate.stdio")


@click.command()
@click.argument("url")
@click.option(
    "--key-file",
    metavar="FILE",
    type=click.File("r"),
    help="File with an API key or a bearer token.",
)
def connect(url: str, key_file: IO[str] | None) -> None:
    """Connect an MCP client that speaks stdio to the endpoint at URL.

    The client starts this command; messages go through standard input and output,
    and mistakes to standard error. All revisions from 2025-03-26 on are carried,
    and a session that the server forgot is opened anew.

    \b
    Examples:
      toolgate connect http://localhost:8765/mcp
      toolgate connect https://tools.example.com/mcp --key-file tools.key
    """
    if not _is_http(url):
        fail(f"expected a URL such as http://localhost:8765/mcp, not {url!r}", USAGE)
    key = key_of_client(key_file)
    run(carry(url, own_streams(), key=key))


def _is_http(url: str) -> bool:
    try:
        return urlsplit(url).scheme in {"http", "https"} and bool(urlsplit(url).hostname)
    except ValueError:
        return False


def key_of_client(key_file: IO[str] | None) -> str | None:
    if key_file is not None and key_file.name == "<stdin>":
        fail("--key-file: standard input is for the client's messages; name a file", USAGE)
    return None if key_file is None else read_key(key_file)


def own_streams() -> tuple[int, int]:
    """Standard input and output for messages alone: what else this process or its children print
    goes to standard error, and they have nothing to read."""
    streams = os.dup(0), os.dup(1)
    os.dup2(2, 1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    return streams


async def carry(
    url: str, streams: tuple[int, int], *, key: str | None, socket: str | None = None
) -> None:
    """Carry messages between `streams` and the endpoint `url` until the client ends them.
    `socket`: path of the server's socket, if it listens on none of a network."""
    descriptor, output = streams
    via = (
        aiohttp.TCPConnector(limit=0) if socket is None else aiohttp.UnixConnector(socket, limit=0)
    )
    written = anyio.Lock()

    async def write(message: bytes) -> None:
        async with written:
            await to_thread.run_sync(_write, output, message)

    async with aiohttp.ClientSession(
        connector=via,
        headers={} if key is None else {"Authorization": f"Bearer {key}"},
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S),
    ) as http:
        try:
            await Bridge(http, url, write).run(_lines(descriptor))
        except* BrokenPipeError:  # the client has gone
            log.info("bridge_client_disconnected")


def _write(descriptor: int, message: bytes) -> None:
    """Write a message as one line."""
    if b"\n" in message or b"\r" in message:
        message = msgspec.json.format(message, indent=-1)
    remaining = memoryview(message + b"\n")
    while remaining:
        remaining = remaining[os.write(descriptor, remaining) :]


async def _lines(descriptor: int) -> AsyncIterator[bytes]:
    """The lines of a pipe, a file or a terminal; ends at one that is too long."""
    pieces, size = list[bytes](), 0
    async for chunk in _chunks(descriptor):
        first, *others = chunk.split(b"\n")
        pieces.append(first)
        size += len(first)
        for begun in others:
            yield b"".join(pieces)
            pieces, size = [begun], len(begun)
        if size > MESSAGE_BYTES:
            log.error("bridge_line_too_long", extra={"reason": OUTSIDE % MESSAGE_BYTES})
            return
    yield b"".join(pieces)


async def _chunks(descriptor: int) -> AsyncIterator[bytes]:
    """Chunks that a thread reads, as an event loop cannot wait for files; the program ends
    without it. A terminal that was closed is an end, too."""
    loop, queue = asyncio.get_running_loop(), asyncio.Queue[bytes](CHUNKS)

    def read() -> None:
        chunk = b"begun"
        while chunk:
            try:
                chunk = os.read(descriptor, READ_BYTES)
            except OSError as error:
                log.info("bridge_input_failed", extra={"reason": error.strerror})
                chunk = b""
            try:
                asyncio.run_coroutine_threadsafe(queue.put(chunk), loop).result()
            except (RuntimeError, asyncio.CancelledError):
                return  # the loop has ended

    threading.Thread(target=read, name="stdin", daemon=True).start()
    while chunk := await queue.get():
        yield chunk
