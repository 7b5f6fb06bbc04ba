"""`python -m benchmarks.scale`: how the cost of a request grows with tools, sessions, streams,
tenants, the size of batches and workers.

Costs are CPU time inside one gateway process, without a server or a network, and for searches that
of its database connections as well; the least of some rounds. With workers they are that of all
processes of a served gateway. Nothing but whole lists may grow faster than log n. The upstream is
the example `petshop`, in a process of its own.
"""

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import anyio
import click
import msgspec
from anyio.abc import TaskGroup
from psycopg import AsyncConnection
from rich.console import Console
from rich.table import Table
from starlette.types import ASGIApp, Message

from benchmarks import workers
from benchmarks.curve import Curve, svg
from benchmarks.ways import (
    Walk,
    called,
    own_directory,
    petshop,
    petshop_settings,
    posted,
    scope_of,
    session_headers,
)
from config.settings import Settings
from gateway.app.gateway import Gateway
from registry.database.postgres import Database
from schemas.mcp.messages import TOOLS_CHANGED

RESULTS = Path(__file__).parent / "results" / "scale"
ROUNDS, ROUND_S = 5, 0.1
LOADED_S = 600.0
QUICK_MOST = 1000
TICKS = os.sysconf("SC_CLK_TCK")
JSON = {"content-type": "application/json"}
LIST = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
TOLD = TOOLS_CHANGED.encode()
TOOL, ARGUMENTS = "listPets", {"species": "cat"}
CALL = {"name": TOOL, "arguments": ARGUMENTS}

_TOOLS = """
INSERT INTO tool_t (host_id, name, description, input_schema, binding)
SELECT %(host)s, 'tool_' || n,
    concat_ws(' ', verbs[1 + n %% 10], things[1 + n / 10 %% 10], 'of', places[1 + n / 100 %% 10],
        'with number', n),
    '{"type": "object", "properties": {"status": {"type": "string"}}}',
    '{"type": "function", "name": "none"}'
FROM generate_series(%(first)s::int, %(last)s - 1) AS n, (VALUES (
    ARRAY['List', 'Create', 'Delete', 'Update', 'Approve', 'Export', 'Cancel', 'Find',
        'Send', 'Count'],
    ARRAY['invoices', 'customers', 'shipments', 'refunds', 'contracts', 'tickets', 'forecasts',
        'payments', 'flights', 'recipes'],
    ARRAY['a region', 'a branch', 'a quarter', 'an order', 'a delivery', 'a supplier', 'a team',
        'a trip', 'a project', 'a season'])) AS word (verbs, things, places)
"""


@dataclass(frozen=True, slots=True)
class Bench:
    gateway: Gateway
    app: ASGIApp
    database: Database

    @property
    def tenant(self) -> str:
        return self.gateway.principal.tenant

    async def tools(self, count: int) -> None:
        """Bring the tenant to so many tools, and await its catalog."""
        present = len(self.gateway.catalogs.of(self.tenant).tools)
        if present < count:
            async with self.database.connect() as connection:
                await _insert(connection, self.tenant, present, count)
            await self._settle()
        await _until(lambda: len(self.gateway.catalogs.of(self.tenant).tools) >= count)

    async def tenants(self, count: int) -> None:
        """Bring the registry to so many tenants, each with ten tools."""
        hosts = [f"00000000-0000-4000-8000-{n:012d}" for n in range(count)]
        async with self.database.connect() as connection:
            for host in hosts:
                if not self.gateway.catalogs.of(host).tools:
                    await _insert(connection, host, 0, 10)
        await self._settle()
        await _until(lambda: all(self.gateway.catalogs.of(host).tools for host in hosts))

    async def _settle(self) -> None:
        async with self.database.connect() as connection:
            await connection.execute("VACUUM ANALYZE")


async def _insert(connection: AsyncConnection, host: str, first: int, last: int) -> None:
    statement = "INSERT INTO host_t (host_id, name) VALUES (%s, '') ON CONFLICT DO NOTHING"
    await connection.execute(statement, [host])
    await connection.execute(_TOOLS, {"host": host, "first": first, "last": last})


async def _until(done: Callable[[], bool]) -> None:
    with anyio.fail_after(LOADED_S):
        while not done():  # noqa: ASYNC110 - nothing says so
            await anyio.sleep(0.05)


async def cost_us(walk: Walk, extra_s: Callable[[], Awaitable[float]] | None = None) -> float:
    """Microseconds of CPU time of one walk; `extra_s` counts that of other processes."""
    await walk()
    times, best = 1, float("inf")
    for _ in range(ROUNDS + 8):
        began, extra = time.process_time(), await extra_s() if extra_s else 0.0
        for _ in range(times):
            await walk()
        spent = time.process_time() - began + (await extra_s() - extra if extra_s else 0.0)
        if spent < ROUND_S and times < 100_000:
            times = max(times + 1, round(times * min(10, 1.2 * ROUND_S / max(spent, 1e-4))))
            continue
        best = min(best, spent / times)
    return best * 1e6


async def backends_s(connection: AsyncConnection) -> float:
    """CPU seconds of the database's processes for the gateway's connections."""
    rows = await connection.execute(
        "SELECT pid FROM pg_stat_activity WHERE datname = current_database()"
        " AND pid <> pg_backend_pid()"
    )
    return sum([_cpu_s(pid) async for (pid,) in rows])


def _cpu_s(pid: int) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except FileNotFoundError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / TICKS


async def by_tools(bench: Bench, sizes: list[int]) -> list[Curve]:
    call, page, all_pages, search = [], [], [], []
    headers = await session_headers(bench.app)
    walk = posted(bench.app, "/mcp", msgspec.json.encode(LIST), headers)
    asked = called(bench.app, "search_tools", {"query": "approve the refunds of a supplier"})
    async with bench.database.connect() as connection:
        for size in sizes:
            await bench.tools(size)
            call.append((size, await cost_us(called(bench.app, TOOL, ARGUMENTS))))
            page.append((size, await cost_us(walk)))
            all_pages.append((size, await cost_us(lambda: pages(bench.app, headers))))
            search.append((size, await cost_us(asked, lambda: backends_s(connection))))
    return [
        Curve("tools/call", "tools", "µs of CPU", tuple(call)),
        Curve("first page of tools/list", "tools", "µs of CPU", tuple(page), linear=True),
        Curve("all pages of tools/list", "tools", "µs of CPU", tuple(all_pages), linear=True),
        Curve("search_tools, by words", "tools", "µs of CPU, database included", tuple(search)),
    ]


async def pages(app: ASGIApp, headers: dict[str, str]) -> None:
    cursor: str | None = None
    while True:
        params = {"params": {"cursor": cursor}} if cursor else {}
        answer = await posted(app, "/mcp", msgspec.json.encode({**LIST, **params}), headers)()
        cursor = msgspec.json.decode(answer)["result"].get("nextCursor")
        if cursor is None:
            return


async def by_sessions(bench: Bench, sizes: list[int]) -> list[Curve]:
    body = msgspec.json.encode({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": CALL})
    points: list[tuple[int, float]] = []
    sessions: list[dict[str, str]] = []
    for size in sizes:
        sessions += [await session_headers(bench.app) for _ in range(size - len(sessions))]
        points.append((size, await cost_us(posted(bench.app, "/mcp", body, sessions[size // 2]))))
    return [Curve("tools/call of a session", "open sessions", "µs of CPU", tuple(points))]


async def by_streams(bench: Bench, sizes: list[int]) -> list[Curve]:
    body = msgspec.json.encode({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": CALL})
    call, told = [], []
    async with anyio.create_task_group() as group:
        crowd = Streams(bench)
        for size in sizes:
            while crowd.opened < size:
                await crowd.open(group)
            call.append((size, await cost_us(posted(bench.app, "/mcp", body, crowd.headers))))
            told.append((size, await cost_us(crowd.told) / size))
        group.cancel_scope.cancel()
    return [
        Curve("tools/call of a session", "open streams", "µs of CPU", tuple(call)),
        Curve("a stream told of a changed list", "open streams", "µs of CPU each", tuple(told)),
    ]


class Streams:
    """Open streams of sessions, without a network."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._heard = 0
        self._changed = anyio.Event()  # one more stream is open, or all have heard
        self.opened = 0
        self.headers: dict[str, str] = {}  # of the session with the newest stream

    async def open(self, group: TaskGroup) -> None:
        """Open one more, in a session of its own."""
        self.headers, self._changed = await session_headers(self._bench.app), anyio.Event()
        scope = scope_of("GET", "/mcp", {**self.headers, "accept": "text/event-stream"})

        async def run() -> None:
            await self._bench.app(scope, _stays, self._take)

        group.start_soon(run)
        with anyio.fail_after(LOADED_S):
            await self._changed.wait()

    async def told(self) -> None:
        """The list of tools changes, and every stream has been told."""
        self._heard, self._changed = 0, anyio.Event()
        self._bench.gateway.events.lists_changed.publish(self._bench.tenant, frozenset({"tools"}))
        with anyio.fail_after(LOADED_S):
            await self._changed.wait()

    async def _take(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            if message["status"] != 200:
                raise click.ClickException(f"a stream was refused: {message['status']}")
            self.opened += 1
            self._changed.set()
        elif TOLD in message.get("body", b""):
            self._heard += 1
            if self._heard == self.opened:
                self._changed.set()


async def _stays() -> Message:
    """What a client sends that listens only: nothing."""
    await anyio.sleep_forever()
    raise AssertionError


async def by_tenants(bench: Bench, sizes: list[int]) -> list[Curve]:
    call, search = [], []
    asked = called(bench.app, "search_tools", {"query": "cats for sale"})
    async with bench.database.connect() as connection:
        for size in sizes:
            await bench.tenants(size)
            call.append((size, await cost_us(called(bench.app, TOOL, ARGUMENTS))))
            search.append((size, await cost_us(asked, lambda: backends_s(connection))))
    return [
        Curve("tools/call", "tenants", "µs of CPU", tuple(call)),
        Curve("search_tools", "tenants", "µs of CPU, database included", tuple(search)),
    ]


async def by_batch(bench: Bench, sizes: list[int]) -> list[Curve]:
    points = []
    for size in sizes:
        member = {"jsonrpc": "2.0", "method": CALL["name"], "params": CALL["arguments"]}
        body = msgspec.json.encode([{**member, "id": n} for n in range(size)])
        points.append((size, await cost_us(posted(bench.app, "/rpc", body, JSON)) / size))
    return [Curve("a member of a batch", "members", "µs of CPU each", tuple(points))]


KINDS = {
    "batch": (by_batch, (1, 10, 100, 1000)),
    "sessions": (by_sessions, (10, 100, 1000, 10_000)),
    "streams": (by_streams, (10, 100, 1000, 10_000)),
    "tenants": (by_tenants, (1, 10, 100, 1000)),
    "tools": (by_tools, (100, 1000, 10_000, 100_000)),
}


WORKERS = (1, 2, 3, 4)
WORKERS_S, WORKERS_ROUNDS = 3.0, 3


def by_workers(quick: bool) -> list[Curve]:
    with workers.unpinned(1.0 if quick else WORKERS_S, 1 if quick else WORKERS_ROUNDS) as rig:
        points = tuple((count, workers.cost_us(rig, count)) for count in WORKERS)
    return [Curve("tools/call on /rpc", "workers", "µs of CPU of all processes", points)]


@asynccontextmanager
async def benches(directory: Path, url: str) -> AsyncIterator[Bench]:
    settings = _roomy(petshop_settings(directory, url))
    gateway = Gateway(settings)
    app = gateway.app()
    async with app.router.lifespan_context(app):
        await _until(lambda: gateway.health.ready)
        async with Database.open(settings.database, migrate=False) as database:
            yield Bench(gateway, app, database)


def _roomy(settings: Settings) -> Settings:
    """Without a model, and without limits that the sizes would meet."""
    replace = msgspec.structs.replace
    roomy = {"session_limit": 20_000, "session_rate": 1_000_000, "stream_limit": 20_000}
    mcp = replace(settings.mcp, **roomy, debounce_ms=0)
    embedding = replace(settings.embedding, provider="disabled")
    budgets = replace(settings.logging, level="warning", access=False)
    return replace(settings, mcp=mcp, embedding=embedding, logging=budgets)


async def measure(kinds: tuple[str, ...], most: int) -> list[Curve]:
    curves: list[Curve] = []
    for kind in kinds:
        curve, sizes = KINDS[kind]
        began = time.monotonic()
        with petshop() as url, own_directory() as directory:
            async with benches(directory, url) as bench:
                curves += await curve(bench, [size for size in sizes if size <= most])
        click.echo(f"{kind}: {time.monotonic() - began:.0f} s", err=True)
    return curves


def _rows(curves: list[Curve]) -> Iterator[tuple[str, ...]]:
    for curve in curves:
        costs = ", ".join(f"{size:,}: {cost:,.0f}" for size, cost in curve.points)
        bound = f"{curve.bound:.1f} ({'n' if curve.linear else 'log n'})"
        verdict = "ok" if curve.holds else "FASTER"
        named = f"{curve.name}, {curve.unit}, by {curve.size}"
        yield named, costs, f"{curve.exponent:.2f}", f"{curve.growth:.1f}", bound, verdict


@click.command()
@click.option(
    "--only",
    "kinds",
    multiple=True,
    type=click.Choice(sorted((*KINDS, "workers"))),
    help="Default: all.",
)
@click.option("--quick", is_flag=True, help="Sizes to 1,000, and short rounds of workers.")
@click.option("--most", default=100_000, show_default=True, help="Largest size.")
@click.option("--into", default=RESULTS, type=click.Path(path_type=Path), show_default=True)
def main(kinds: tuple[str, ...], quick: bool, most: int, into: Path) -> None:
    """How the cost of a request grows. Writes one SVG for each curve."""
    chosen = kinds or (*KINDS, "workers")
    within = tuple(kind for kind in chosen if kind in KINDS)
    curves = asyncio.run(measure(within, min(most, QUICK_MOST) if quick else most))
    if "workers" in chosen:
        curves += by_workers(quick)
    into.mkdir(parents=True, exist_ok=True)
    for curve in curves:
        name = "-".join(f"{curve.name} by {curve.size}".replace("/", " ").replace(",", "").split())
        (into / f"{name}.svg").write_text(svg(curve))
    table = Table("cost", "by size", "exponent", "grows", "may grow", "", title="Growth")
    for row in _rows(curves):
        table.add_row(*row)
    Console(width=160 if not sys.stdout.isatty() else None).print(table)
    if not all(curve.holds for curve in curves):
        raise SystemExit(1)


if __name__ == "__main__":
    main(prog_name="python -m benchmarks.scale")
