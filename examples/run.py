"""What `make run` runs: the pet shop and, in front of it, the gateway; until Ctrl-C. The rules of
`examples/portal/` run inside the gateway.

Both are child processes. When one ends, so does the other; neither outlives this process.
"""

import asyncio
import ctypes
import os
import re
import signal
import socket
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from config.load import load
from registry.database.embedded_server import directory_of

ROOT = Path(__file__).resolve().parents[1]
PETSHOP = (sys.executable, "-m", "examples.petshop")
SETTINGS = "examples/petshop/toolgate.yaml"
GATEWAY = (sys.executable, "-m", "gateway", "serve", "-c", SETTINGS)
TOOLGATE = f"{Path(sys.executable).parent}/toolgate"
DATA_DIR = "TOOLGATE_DATABASE__DATA_DIR"
USUAL_PORT = 8766  # where the pet shop's own OpenAPI file says that it is
# Calls of unknown callers are recorded there, so that the console has something to show.
CONSOLE = {"TOOLGATE_CONSOLE__ENABLED": "true", "TOOLGATE_AUDIT__MODE": "always"}
SLOW_S = 10  # between reports of a start that takes long
STOP_S = 20  # longer than the gateway drains and its database needs to stop
ENDPOINT = re.compile(r"JSON-RPC at ((http://[^/\s]+)\S*)")
MCP = re.compile(r"(http://[^/\s]+)/mcp")
TRY = """
Try it:
  curl -s {endpoint} -H 'Content-Type: application/json' \\
    -d '{{"jsonrpc": "2.0", "id": 1, "method": "listPets", "params": {{"species": "cat"}}}}'

The payload of light-hybrid-4j, to a service in Python:
  curl -s {base}/portal/query \\
    -d '{{"host": "lightapi.net", "service": "rule", "action": "getRuleCount", "version": "0.1.0"}}'

Look at it, in a browser: {base}/console

The pet shop behind it is at {petshop}. The example has a database of its own, {data_dir};
to look into it, in another terminal:
  {toolgate} tools list

Ctrl-C stops both.
"""
PR_SET_PDEATHSIG = 1  # prctl(2)
LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None


Serve = Callable[[], Coroutine[Any, Any, None]]


class Stopped(Exception):
    """A child ended although nobody asked it to."""


def main(serve: Serve) -> int:
    try:
        return asyncio.run(run(serve))
    except Stopped as stopped:
        print(stopped, file=sys.stderr)
        return 1


async def run(serve: Serve) -> int:
    """Serve until a signal comes."""
    serving = asyncio.ensure_future(serve())
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, serving.cancel)  # a second one kills what is still there
    try:
        await serving
    except asyncio.CancelledError:
        print("Stopped.")
    return 0


async def serve() -> None:
    """Serve until a child ends; Stopped says which."""
    step("Example services: starting the pet shop ...")
    async with pet_shop() as (petshop, url):
        # Not printed yet: the first address that a reader sees is the gateway's.
        data_dir = database_of("petshop")
        step(f"Gateway: starting, with its database in {data_dir} ...")
        own = {**CONSOLE, **agent(os.environ)}
        async with child(*GATEWAY, *sys.argv[1:], PETSHOP_URL=url, **own) as gateway:
            told = {"petshop": url, "toolgate": toolgate(os.environ), "data_dir": data_dir}
            announcing = asyncio.ensure_future(announce(gateway, TRY, **told))
            await until_one_ends({"pet shop": petshop, "gateway": gateway})
        await announcing


def agent(env: Mapping[str, str]) -> dict[str, str]:
    """Variables that switch the agent on, where a chat model is configured."""
    named = any(name.startswith("TOOLGATE_MODELS__STRATEGIES__") for name in env)
    return {"TOOLGATE_AGENT__ENABLED": "true"} if named else {}


@asynccontextmanager
async def pet_shop() -> AsyncIterator[tuple[Process, str]]:
    """The pet shop and its URL: on the usual port, unless another process has that or takes it
    first."""
    if is_free(USUAL_PORT):
        async with child(*PETSHOP, "--port", str(USUAL_PORT)) as petshop:
            if line := await read_line(petshop):
                yield petshop, line.strip()
                return
    async with child(*PETSHOP, "--port", "0") as petshop:
        yield petshop, await first_line(petshop, "pet shop")


def database_of(example: str) -> str:
    """The data directory of `example` alone: a gateway that is started later must not serve what
    the example imports. A directory that the environment names goes first."""
    return str(
        directory_of(load(str(ROOT / "examples" / example / "toolgate.yaml"), os.environ).database)
    )


def toolgate(env: Mapping[str, str]) -> str:
    """The command with the settings of the example."""
    named = f"{DATA_DIR}={env[DATA_DIR]} " if env.get(DATA_DIR) else ""
    return f"{named}{TOOLGATE} -c {SETTINGS}"


def step(text: str) -> None:
    """Say what takes a moment; on standard error, because the first line of the other is the
    gateway's address."""
    print(text, file=sys.stderr, flush=True)


async def announce(gateway: Process, text: str, **addresses: str) -> None:
    """Pass on what the gateway prints, and after its addresses add something to try."""
    line = await read_first_line(gateway)
    while line:
        print(line, end="", flush=True)
        if match := ENDPOINT.search(line):
            print(text.format(endpoint=match[1], base=match[2], **addresses), flush=True)
        line = await read_line(gateway)


async def read_first_line(process: Process) -> str:
    """The first line that a gateway prints; a start that takes long is reported until then."""
    seconds, reading = 0, asyncio.ensure_future(read_line(process))
    try:
        while not (await asyncio.wait({reading}, timeout=SLOW_S))[0]:
            seconds += SLOW_S
            step(f"Gateway: starting for {seconds} s; the first start makes the database ...")
        return await reading
    finally:
        reading.cancel()


@asynccontextmanager
async def gateway(*command: str, **variables: str) -> AsyncIterator[tuple[Process, str]]:
    """A gateway in the background, and its URL."""
    async with child(*command, **variables) as process:
        while line := await read_line(process):
            if match := MCP.search(line):
                break
        else:
            raise SystemExit("the gateway did not start")
        reading = asyncio.ensure_future(_drain(process))
        try:
            yield process, match[1]
        finally:
            reading.cancel()


async def _drain(process: Process) -> None:
    while await read_line(process):
        pass


async def until_one_ends(children: dict[str, Process]) -> None:
    waiting = {asyncio.ensure_future(one.wait()): name for name, one in children.items()}
    ended, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    first = ended.pop()
    raise Stopped(f"The {waiting[first]} ended with exit code {first.result()}.")


async def first_line(process: Process, name: str) -> str:
    line = await read_line(process)
    if not line:
        raise Stopped(f"The {name} ended with exit code {await process.wait()}.")
    return line.strip()


async def read_line(process: Process) -> str:
    """The next line that the child prints; "" at the end."""
    return (await process.stdout.readline()).decode() if process.stdout else ""


@asynccontextmanager
async def child(*command: str, **environment: str) -> AsyncIterator[Process]:
    """A process in a session of its own, so that Ctrl-C reaches it through us only, and once."""
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=ROOT,
        env=os.environ | {"PYTHONUNBUFFERED": "1"} | environment,
        stdin=DEVNULL,
        stdout=PIPE,
        start_new_session=True,
        preexec_fn=end_with_parent,
    )
    try:
        yield process
    finally:
        await stop(process)


def end_with_parent() -> None:
    """Where the system can (Linux): SIGTERM when this process is killed and cannot stop it."""
    if LIBC is not None:
        LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


async def stop(process: Process) -> None:
    if process.returncode is None:
        process.terminate()
    try:
        await asyncio.wait_for(process.wait(), STOP_S)
    except (TimeoutError, asyncio.CancelledError):
        process.kill()
        await process.wait()
        raise


def is_free(port: int) -> bool:
    try:
        socket.create_server(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True


if __name__ == "__main__":
    sys.exit(main(serve))
