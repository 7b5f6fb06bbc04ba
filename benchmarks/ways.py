"""`python -m benchmarks.ways`: how many of our modules one request enters, and how often it
re-enters one.

Counted are calls of Python functions of the four packages, in call order, on any thread, with the
gateway in this process and warm. A module is entered once, the first time that one of its functions
is called. It is re-entered whenever a function of it is called after one of another module: in
A B A C A it is re-entered twice. Not counted: returns, resumed awaits, comprehensions, imports, and
third-party modules. The gateway's own tasks may run in between, hence the minimum of several
requests. Its upstream is a service of the example `petshop`, as a separate process.
"""

import asyncio
import inspect
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

import anyio
import click
import msgspec
from rich.console import Console
from rich.table import Table
from starlette.types import ASGIApp, Message

from config.load import load
from config.settings import Settings
from gateway.app import Gateway
from registry.database.postgres import Database
from registry.sources.imports import Sources
from registry.sources.source_reader import ImportSpec
from registry.sources.store import ToolStore

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = tuple(f"{ROOT / name}{os.sep}" for name in ("config", "gateway", "registry", "schemas"))
SETTINGS = ROOT / "examples" / "petshop" / "toolgate.yaml"
REPEATED = 5
START_S = 60.0
PASSED_OVER = {"<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>", "<lambda>", "<module>"}
META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}

RESUMABLE = inspect.CO_COROUTINE | inspect.CO_GENERATOR | inspect.CO_ASYNC_GENERATOR

Walk = Callable[[], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Way:
    """Modules, in the order in which a request came to them; neighbours differ."""

    modules: tuple[str, ...]

    @property
    def entered(self) -> int:
        return len(set(self.modules))

    @property
    def reentered(self) -> int:
        return len(self.modules) - self.entered


@click.command()
@click.option("--list", "listed", is_flag=True, help="Print the way of each request as well.")
def main(listed: bool) -> None:
    """Modules that a request enters and re-enters."""
    ways = asyncio.run(measure())
    table = Table("request", "modules entered", "re-entered", title="Ways through the modules")
    for name, way in ways.items():
        table.add_row(name, str(way.entered), str(way.reentered))
    Console().print(table)
    if listed:
        for name, way in ways.items():
            click.echo(f"\n{name}\n  " + "\n  ".join(way.modules))


async def measure() -> dict[str, Way]:
    recorder = Recorder()
    recorder.install()
    try:
        with _petshop() as url, _directory() as directory:
            settings = _settings(directory, url)
            async with _gateway(settings) as app:
                walks = {
                    "tools/call": _called(app, "listPets", {"species": "cat"}),
                    "search_tools": _called(app, "search_tools", {"query": "cats for sale"}),
                    "legacy call": _posted(app, "/portal/query", _LEGACY, _JSON),
                    "batch of two": _posted(app, "/rpc", _BATCH, _JSON),
                }
                ways = {name: await recorder.least(walk) for name, walk in walks.items()}
            async with Database.open(settings.database) as database:
                walk = _imported(settings, database, directory / "one.json")
                ways["import of one operation"] = await recorder.least(walk)
            return ways
    finally:
        recorder.uninstall()


class Recorder:
    """Hears each call of a Python function, on every thread that is started after `install`."""

    def __init__(self) -> None:
        self._heard: list[str] = []
        self._begun: set[FrameType] = set()  # coroutines, which an await leaves and comes back to
        self._recording = False

    def install(self) -> None:
        threading.setprofile(self._hear)
        sys.setprofile(self._hear)

    def uninstall(self) -> None:
        sys.setprofile(None)
        threading.setprofile(None)

    async def least(self, walk: Walk) -> Way:
        """The shortest of some, the first of which only warms up."""
        await walk()
        return min(
            [await self._way(walk) for _ in range(REPEATED)], key=lambda way: len(way.modules)
        )

    async def _way(self, walk: Walk) -> Way:
        self._heard.clear()
        self._begun.clear()
        self._recording = True
        await walk()
        self._recording = False
        return Way(tuple(self._heard))

    def _hear(self, frame: FrameType, event: str, _argument: object) -> None:
        if not self._recording or event != "call":
            return
        code = frame.f_code
        if not code.co_filename.startswith(PACKAGES) or code.co_name in PASSED_OVER:
            return
        if code.co_flags & RESUMABLE:
            if frame in self._begun:
                return
            self._begun.add(frame)
        module = frame.f_globals["__name__"]
        if not self._heard or self._heard[-1] != module:
            self._heard.append(module)


def _called(app: ASGIApp, name: str, arguments: Mapping[str, object]) -> Walk:
    params = {"name": name, "arguments": arguments, "_meta": META}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    return _posted(app, "/mcp", msgspec.json.encode(body), _MCP | {"mcp-name": name})


_JSON = {"content-type": "application/json"}
_MCP = {
    **_JSON,
    "accept": "application/json, text/event-stream",
    "mcp-protocol-version": "2026-07-28",
    "mcp-method": "tools/call",
}
_BATCH = msgspec.json.encode(
    [
        {"jsonrpc": "2.0", "id": number, "method": "listPets", "params": {"species": "cat"}}
        for number in range(2)
    ]
)
_LEGACY = msgspec.json.encode(
    {"host": "lightapi.net", "service": "rule", "action": "getRuleCount", "version": "0.1.0"}
)


def _posted(app: ASGIApp, path: str, body: bytes, headers: Mapping[str, str]) -> Walk:
    """A POST from loopback to the application, without a server; it must be answered with 200."""
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": [
            (b"host", b"127.0.0.1:8765"),
            (b"content-length", str(len(body)).encode()),
            *((name.encode(), value.encode()) for name, value in headers.items()),
        ],
        "client": ("127.0.0.1", 40000),
        "server": ("127.0.0.1", 8765),
    }

    async def walk() -> None:
        sent: list[Message] = []
        messages = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive() -> Message:
            if not messages:
                await anyio.sleep_forever()  # the client stays
            return messages.pop()

        async def send(message: Message) -> None:
            sent.append(message)

        with anyio.fail_after(START_S):
            await app({**scope, "state": {}}, receive, send)
        answer = b"".join(message.get("body", b"") for message in sent)
        if sent[0]["status"] != 200 or b'"error"' in answer or b'"isError":true' in answer:
            raise click.ClickException(f"{path}: {sent[0]['status']} {answer.decode()}")

    return walk


def _imported(settings: Settings, database: Database, file: Path) -> Walk:
    """A description of one operation, anew each time; each further one adds to the re-entries."""
    limit = {"name": "limit", "in": "query", "schema": {"type": "integer"}}
    one = {"operationId": "listPets", "summary": "List pets", "parameters": [limit]}
    description = {
        "openapi": "3.1.0",
        "info": {"title": "Pets", "version": "1"},
        "servers": [{"url": "https://pets.example"}],
        "paths": {"/pets": {"get": one}},
    }
    file.write_bytes(msgspec.json.encode(description))
    sources = Sources(ToolStore(database.pool), settings.tenant.host_id, settings.imports)

    async def walk() -> None:
        await sources.import_(ImportSpec("imported", str(file)), anew=True)

    return walk


def _settings(directory: Path, url: str) -> Settings:
    settings = load(str(SETTINGS), {"PETSHOP_URL": url})
    database = msgspec.structs.replace(settings.database, data_dir=str(directory / "data"))
    return msgspec.structs.replace(settings, database=database)


@asynccontextmanager
async def _gateway(settings: Settings) -> AsyncIterator[ASGIApp]:
    """The application of a gateway whose catalog is complete."""
    gateway = Gateway(settings)
    app = gateway.app()
    async with app.router.lifespan_context(app):
        with anyio.fail_after(START_S):
            while not gateway.health.ready:  # noqa: ASYNC110 - nothing says so
                await anyio.sleep(0.05)
        yield app


@contextmanager
def _directory() -> Iterator[Path]:
    """As root the embedded database runs as another user, who must be able to enter."""
    with tempfile.TemporaryDirectory(prefix="toolgate-ways-", ignore_cleanup_errors=True) as name:
        directory = Path(name)
        directory.chmod(0o755)
        yield directory


@contextmanager
def _petshop() -> Iterator[str]:
    """Its URL, for as long as it runs."""
    command = [sys.executable, "-m", "examples.petshop", "--port", "0"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.terminate()


if __name__ == "__main__":
    main(prog_name="python -m benchmarks.ways")
