"""`python -m benchmarks.ways`: how many functions of ours one request calls, how many modules it
enters, how often it re-enters one, and how much memory it holds at a time.

Counted are calls of Python functions of the four packages, in call order, on any thread, with the
gateway in this process and warm, by the request itself and by no other task. A module is entered
once, the first time that one of its functions is called. It is re-entered whenever a function of it
is called after one of another module: in A B A C A it is re-entered twice. Not counted: returns,
resumed awaits, comprehensions, lambdas, imports, and third-party modules. The upstream is a service
of the example `petshop`, as a separate process.

Memory is what Python allocates at most beyond what it held before, the median of some requests:
other tasks of the gateway wake meanwhile. Not counted is the buffer that asyncio reads a socket
into.
"""

import asyncio
import gc
import inspect
import os
import subprocess
import sys
import tempfile
import threading
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from types import FrameType

import anyio
import click
import msgspec
from rich.console import Console
from rich.table import Table
from starlette.types import ASGIApp, Message, Scope

from benchmarks.guarded import COUNTED, MANY, RULES, Identity
from benchmarks.mcp_server import TOOL
from benchmarks.rig import running, start_mcp_server
from config.access import Rate, Rule
from config.load import load
from config.settings import Settings
from config.sources import SourceSettings
from gateway.app.gateway import Gateway
from registry.database.postgres import Database
from registry.sources.import_specs import ImportSpec
from registry.sources.imports import Sources
from registry.sources.tool_store import ToolStore

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = tuple(f"{ROOT / name}{os.sep}" for name in ("config", "gateway", "registry", "schemas"))
SETTINGS = ROOT / "examples" / "petshop" / "toolgate.yaml"
REPEATED = 5
PEAKS = 25
READ_BYTES = 256 * 1024  # buffer of asyncio's transports; a session's call holds 15 KB besides
START_S = 60.0
PASSED_OVER = {"<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>", "<lambda>", "<module>"}
META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}

RESUMABLE = inspect.CO_COROUTINE | inspect.CO_GENERATOR | inspect.CO_ASYNC_GENERATOR

Walk = Callable[[], Awaitable[object]]


@dataclass(frozen=True, slots=True)
class Way:
    """Functions in the order in which a request called them, each as (module, name)."""

    functions: tuple[tuple[str, str], ...]
    bytes: int = 0  # of memory at most

    @property
    def calls(self) -> int:
        return len(self.functions)

    @property
    def modules(self) -> tuple[str, ...]:
        """Modules in the order in which the request came to them; neighbours differ."""
        return tuple(module for module, _ in groupby(self.functions, key=lambda step: step[0]))

    @property
    def entered(self) -> int:
        return len(set(self.modules))

    @property
    def reentered(self) -> int:
        return len(self.modules) - self.entered


@click.command()
@click.option("--list", "listed", is_flag=True, help="Print the functions of each request.")
def main(listed: bool) -> None:
    """Functions that a request calls, and modules that it enters and re-enters."""
    ways = asyncio.run(measure())
    columns = ("request", "calls", "modules entered", "re-entered", "bytes")
    table = Table(*columns, title="Ways of requests")
    for name, way in ways.items():
        figures = (way.calls, way.entered, way.reentered, way.bytes)
        table.add_row(name, *map(str, figures))
    Console().print(table)
    if listed:
        for name, way in ways.items():
            lines = (f"{module}.{function}" for module, function in way.functions)
            click.echo(f"\n{name}\n  " + "\n  ".join(lines))


async def measure() -> dict[str, Way]:
    recorder = Recorder()
    recorder.install()
    try:
        with petshop() as url, own_directory() as directory:
            settings = petshop_settings(directory, url)
            async with serving(Gateway(settings)) as app:
                walks = {
                    "session": posted(app, "/mcp", _CALL, await session_headers(app)),
                    "stateless": called(app, "listPets", {"species": "cat"}),
                    "tools/list": posted(app, "/mcp", _LIST, await session_headers(app)),
                    "/rpc": posted(app, "/rpc", msgspec.json.encode(_by_name(1)), _JSON),
                    "search_tools": called(app, "search_tools", {"query": "cats for sale"}),
                    "legacy": posted(app, "/portal/query", _LEGACY, _JSON),
                    **{
                        f"batch of {size}": posted(app, "/rpc", _batch(size), _JSON)
                        for size in BATCHES
                    },
                }
                ways = {name: await recorder.least(walk) for name, walk in walks.items()}
                bytes_by_walk = {
                    name: await recorder.held_bytes(walk) for name, walk in walks.items()
                }
                ways = {name: replace(way, bytes=bytes_by_walk[name]) for name, way in ways.items()}
            with mcp_server(directory) as url:
                async with serving(Gateway(relaying(settings, url))) as app:
                    headers, arguments = await session_headers(app), {"id": 1}
                    walks = {
                        "MCP server, session": posted(app, "/mcp", _RELAYED, headers),
                        "MCP server, stateless": called(app, TOOL, arguments),
                    }
                    ways |= {name: await recorder.least(walk) for name, walk in walks.items()}
            identity = Identity(directory)
            async with serving(Gateway(guarded(settings, identity))) as app:
                headers = {**_JSON, **identity.header}
                walk = posted(app, "/rpc", msgspec.json.encode(_by_name(1)), headers)
                ways["everything on"] = await recorder.least(walk)
            async with Database.open(settings.database) as database:
                imported = _imported(settings, database, directory / "one.json")
                ways["import"] = await recorder.least(imported)
            return ways
    finally:
        recorder.uninstall()


_measured = ContextVar("_measured", default=False)  # true in the tasks of the measured request


class Recorder:
    """Records each call of a Python function, on every thread that is started after `install`."""

    def __init__(self) -> None:
        self._functions: list[tuple[str, str]] = []
        self._begun: set[FrameType] = set()  # coroutines, which an await leaves and comes back to

    def install(self) -> None:
        threading.setprofile(self._record)
        sys.setprofile(self._record)

    def uninstall(self) -> None:
        sys.setprofile(None)
        threading.setprofile(None)

    async def least(self, walk: Walk) -> Way:
        """The shortest of some, the first of which only warms up."""
        await walk()
        return min([await self._way(walk) for _ in range(REPEATED)], key=lambda way: way.calls)

    async def held_bytes(self, walk: Walk) -> int:
        """The most memory that a request holds at a time, besides what there was before."""
        sys.setprofile(None)
        gc.disable()
        tracemalloc.start()
        try:
            peaks = [await _peak(walk) for _ in range(PEAKS)]
        finally:
            tracemalloc.stop()
            gc.enable()
            sys.setprofile(self._record)
        median = sorted(peaks)[PEAKS // 2]
        return median - READ_BYTES if median > READ_BYTES else median

    async def _way(self, walk: Walk) -> Way:
        self._functions.clear()
        self._begun.clear()
        token = _measured.set(True)
        try:
            await walk()
        finally:
            _measured.reset(token)
        return Way(tuple(self._functions))

    def _record(self, frame: FrameType, event: str, _argument: object) -> None:
        if event != "call" or not _measured.get():
            return
        code = frame.f_code
        if not code.co_filename.startswith(PACKAGES) or code.co_name in PASSED_OVER:
            return
        if code.co_flags & RESUMABLE:
            if frame in self._begun:
                return
            self._begun.add(frame)
        self._functions.append((frame.f_globals["__name__"], code.co_qualname))


async def _peak(walk: Walk) -> int:
    tracemalloc.reset_peak()
    before, _ = tracemalloc.get_traced_memory()
    await walk()
    _, peak = tracemalloc.get_traced_memory()
    return peak - before


def called(app: ASGIApp, name: str, arguments: Mapping[str, object]) -> Walk:
    params = {"name": name, "arguments": arguments, "_meta": META}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    return posted(app, "/mcp", msgspec.json.encode(body), _MCP | {"mcp-name": name})


_JSON = {"content-type": "application/json"}
_MCP = {
    **_JSON,
    "accept": "application/json, text/event-stream",
    "mcp-protocol-version": "2026-07-28",
    "mcp-method": "tools/call",
}
BATCHES = (10, 30)


def _call(tool: str, arguments: Mapping[str, object]) -> bytes:
    params = {"name": tool, "arguments": arguments}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    return msgspec.json.encode(body)


_CALL = _call("listPets", {"species": "cat"})
_RELAYED = _call(TOOL, {"id": 1})
_LIST = msgspec.json.encode({"jsonrpc": "2.0", "id": 1, "method": "tools/list"})
_INITIALIZE = msgspec.json.encode(
    {
        "jsonrpc": "2.0",
        "id": 0,
        "method": "initialize",
        "params": {
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": {"name": "ways", "version": "1"},
        },
    }
)
_LEGACY = msgspec.json.encode(
    {"host": "lightapi.net", "service": "rule", "action": "getRuleCount", "version": "0.1.0"}
)


def _by_name(id_: int) -> dict[str, object]:
    return {"jsonrpc": "2.0", "id": id_, "method": "listPets", "params": {"species": "cat"}}


def _batch(size: int) -> bytes:
    return msgspec.json.encode([_by_name(number) for number in range(size)])


async def session_headers(app: ASGIApp) -> dict[str, str]:
    """The headers of requests in a new session."""
    headers = {**_JSON, "accept": _MCP["accept"]}
    start, *_ = await _sent(app, "/mcp", _INITIALIZE, headers)
    session = dict(start["headers"])[b"mcp-session-id"].decode()
    return {**headers, "mcp-session-id": session, "mcp-protocol-version": "2025-11-25"}


def posted(
    app: ASGIApp, path: str, body: bytes, headers: Mapping[str, str]
) -> Callable[[], Awaitable[bytes]]:
    """A POST to the application, which returns the answer; it must be 200 and no error."""

    async def walk() -> bytes:
        start, *parts = await _sent(app, path, body, headers)
        answer = b"".join(message.get("body", b"") for message in parts)
        if start["status"] != 200 or b'"error"' in answer or b'"isError":true' in answer:
            raise click.ClickException(f"{path}: {start['status']} {answer.decode()}")
        return answer

    return walk


def scope_of(method: str, path: str, headers: Mapping[str, str]) -> Scope:
    """The scope of a request from loopback, without a server."""
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": [
            (b"host", b"127.0.0.1:8765"),
            *((name.encode(), value.encode()) for name, value in headers.items()),
        ],
        "client": ("127.0.0.1", 40000),
        "server": ("127.0.0.1", 8765),
        "state": {},
    }


async def _sent(
    app: ASGIApp, path: str, body: bytes, headers: Mapping[str, str]
) -> Sequence[Message]:
    """The answer to a POST from loopback to the application, without a server."""
    scope = scope_of("POST", path, {**headers, "content-length": str(len(body))})
    sent_messages: list[Message] = []
    messages = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> Message:
        if not messages:
            await anyio.sleep_forever()  # the client stays
        return messages.pop()

    async def send(message: Message) -> None:
        sent_messages.append(message)

    with anyio.fail_after(START_S):
        await app(scope, receive, send)
    return sent_messages


def _imported(settings: Settings, database: Database, file: Path) -> Walk:
    """A description of one operation, anew each time; each further one adds to the re-entries."""
    limit = {"name": "limit", "in": "query", "schema": {"type": "integer"}}
    operation = {"operationId": "listPets", "summary": "List pets", "parameters": [limit]}
    description = {
        "openapi": "3.1.0",
        "info": {"title": "Pets", "version": "1"},
        "servers": [{"url": "https://pets.example"}],
        "paths": {"/pets": {"get": operation}},
    }
    file.write_bytes(msgspec.json.encode(description))
    sources = Sources(ToolStore(database.pool), settings.tenant.host_id, settings.imports)

    async def walk() -> None:
        await sources.import_(ImportSpec("imported", str(file)), force=True)

    return walk


def petshop_settings(directory: Path, url: str) -> Settings:
    settings = load(str(SETTINGS), {"PETSHOP_URL": url})
    database = msgspec.structs.replace(settings.database, data_dir=str(directory / "data"))
    return msgspec.structs.replace(settings, database=database)


def relaying(settings: Settings, url: str) -> Settings:
    """`settings` with one source, which is an MCP server."""
    sources = msgspec.convert({"server": {"mcp": f"{url}/mcp"}}, dict[str, SourceSettings])
    return msgspec.structs.replace(settings, sources=sources)


def guarded(settings: Settings, identity: Identity) -> Settings:
    """`settings` with authentication, policy, five rate limits and the audit log on."""
    rules = {**RULES, "small-ids": {"effect": "deny", "when": "arguments.species == 'dragon'"}}
    changed = msgspec.structs.replace
    return changed(
        settings,
        auth=changed(settings.auth, mode="jwt", key_file=str(identity.key_file)),
        policy=changed(
            settings.policy, default="deny", rules=msgspec.convert(rules, dict[str, Rule])
        ),
        limits=changed(
            settings.limits,
            **dict.fromkeys(COUNTED, MANY),
            tools={"*": Rate(MANY)},
            sources=dict.fromkeys(settings.sources, Rate(MANY)),
        ),
        audit=changed(settings.audit, mode="always"),
    )


@asynccontextmanager
async def serving(gateway: Gateway) -> AsyncIterator[ASGIApp]:
    """The application of a gateway, whose catalog is complete."""
    app = gateway.app()
    async with app.router.lifespan_context(app):
        with anyio.fail_after(START_S):
            while not gateway.health.ready:  # noqa: ASYNC110 - nothing says so
                await anyio.sleep(0.05)
        yield app


@contextmanager
def own_directory() -> Iterator[Path]:
    """As root the embedded database runs as another user, who must be able to enter."""
    with tempfile.TemporaryDirectory(prefix="toolgate-ways-", ignore_cleanup_errors=True) as name:
        directory = Path(name)
        directory.chmod(0o755)
        yield directory


@contextmanager
def petshop() -> Iterator[str]:
    """Its URL, for as long as it runs."""
    with announced([sys.executable, "-m", "examples.petshop", "--port", "0"]) as url:
        yield url


@contextmanager
def mcp_server(directory: Path) -> Iterator[str]:
    """The URL of the server of the benchmarks, for as long as it runs."""
    child = start_mcp_server(directory, frozenset(os.sched_getaffinity(0)))
    with running(child, "/streams", lambda _: None):
        yield child.url


@contextmanager
def announced(command: Sequence[str]) -> Iterator[str]:
    """The first line of a process, which runs meanwhile."""
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.terminate()


if __name__ == "__main__":
    main(prog_name="python -m benchmarks.ways")
