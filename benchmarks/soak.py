"""`python -m benchmarks.soak`: memory of a gateway that serves everything for hours.

A gateway with workers, audit and the memory answers a steady mixture of requests: calls at each
front, batches, searches, sessions that are closed and sessions that are left open, streams, errors
and memories. Sessions expire after a minute, so that their number settles. Once a minute the
resident memory of each process is written to a CSV file; at the end the program compares the
median of the last quarter with that of the quarter before the middle, and fails if any process has
grown by more than 5 %.
"""

import asyncio
import csv
import itertools
import random
import statistics
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import aiohttp
import click
import msgspec
import psutil

from benchmarks import calls
from benchmarks.request import JSON_HEADERS, HttpRequest
from benchmarks.toolgate import gateway
from benchmarks.workers import unpinned

OPERATIONS = 200
GROWTH = 1.05  # of the memory of a process, at most
SAMPLE_S = 60.0
STREAM_S = 3.0  # of a stream until its client closes it
AT_ONCE = 200  # requests; beyond that a tick is skipped, and counted
PEOPLE = 200
SETTINGS: Mapping[str, Any] = {
    "mcp": {"session_idle_s": 60, "session_rate": 10**6, "session_limit": 10**5},
    "limits": {"principal_calls": 10**9, "tenant_calls": 10**9},
    "audit": {"mode": "always"},
    "memory": {"enabled": True, "owner_rows": 10**6, "writes_per_minute": 10**6},
    "state": {"backend": "postgres"},
    "server": {"workers": 2},
}
QUERIES = ("read an item", "list items", "delete what is old", "who ordered a lamp", "weather")

Action = Callable[[], Awaitable[object]]


class Client:
    """The mixture of requests, on one pool of connections."""

    def __init__(self, port: int, http: aiohttp.ClientSession, tool: str) -> None:
        self._port, self._http = port, http
        self._random = random.Random(7)
        call, search = calls.call(tool), {"name": "search_tools"}
        unknown = {"name": "no_such_tool", "arguments": {}}
        rpc, stateless = (
            calls.rpc(port, "tools/call", call),
            calls.stateless(port, "tools/call", call),
        )
        self._numbers = itertools.count()
        self.outcomes: Counter[str] = Counter()
        self._actions: Sequence[tuple[int, str, Action]] = [
            (45, "/rpc", lambda: self._send(rpc)),
            (20, "/mcp", lambda: self._send(stateless)),
            (2, "batch", lambda: self._send(calls.rpc_batch(port, "tools/call", call))),
            (
                5,
                "search",
                lambda: self._send(calls.rpc(port, "tools/call", {**search, **self._query()})),
            ),
            (10, "session", lambda: self._visit(call, leaves=False)),
            (5, "session left open", lambda: self._visit(call, leaves=True)),
            (4, "stream", self._listen),
            (3, "unknown tool", lambda: self._send(calls.rpc(port, "tools/call", unknown))),
            (2, "no JSON", lambda: self._send(HttpRequest(port, "/rpc", bodies=(b"{",)))),
            (4, "memory", self._remember),
        ]

    async def act(self) -> None:
        """One action of the mixture; an answer of another kind than expected is counted."""
        weights = [weight for weight, _, _ in self._actions]
        ((_, name, action),) = self._random.choices(self._actions, weights)
        try:
            await action()
        except (OSError, aiohttp.ClientError, TimeoutError, KeyError) as error:
            self.outcomes[f"{name}: {type(error).__name__}"] += 1
        else:
            self.outcomes[name] += 1

    def _query(self) -> dict[str, Any]:
        return {"arguments": {"query": f"{self._random.choice(QUERIES)} {next(self._numbers)}"}}

    async def _send(self, request: HttpRequest) -> Mapping[str, str]:
        body = request.bodies[next(self._numbers) % len(request.bodies)]
        async with self._http.request(
            request.method, request.url, data=body, headers=request.headers
        ) as response:
            await response.read()
            if response.status >= 500:
                raise aiohttp.ClientError(str(response.status))
            return {name.lower(): value for name, value in response.headers.items()}

    async def _visit(self, call: Mapping[str, Any], *, leaves: bool) -> None:
        headers = await self._open_session()
        for method, params in (("tools/list", {}), ("tools/call", call)):
            bodies = (calls.messages(method, params)[0],)
            await self._send(HttpRequest(self._port, "/mcp", bodies=bodies, headers=headers))
        if not leaves:
            await self._send(HttpRequest(self._port, "/mcp", "DELETE", headers=headers))

    async def _open_session(self) -> dict[str, str]:
        answer = await self._send(HttpRequest(self._port, "/mcp", bodies=(calls.HELLO,)))
        session = {"mcp-session-id": answer["mcp-session-id"]}
        headers = {**JSON_HEADERS, "mcp-protocol-version": calls.SESSION_REVISION, **session}
        greeting = (calls.GREETING,)
        await self._send(HttpRequest(self._port, "/mcp", bodies=greeting, headers=headers))
        return headers

    async def _listen(self) -> None:
        headers = {**await self._open_session(), "accept": "text/event-stream"}
        url = f"http://127.0.0.1:{self._port}/mcp"
        async with self._http.get(url, headers=headers) as response:
            response.raise_for_status()
            await asyncio.sleep(STREAM_S)

    async def _remember(self) -> None:
        user = f"user-{self._random.randrange(PEOPLE)}"
        number = next(self._numbers)
        for path, body in (
            ("/memories", {"items": [{"content": f"{user} bought {number} lamps"}]}),
            ("/search", {"query": f"what did {user} buy", "scopes": ["user"], "limit": 5}),
        ):
            scope = {"scope": "user"} if path == "/memories" else {}
            bodies = (msgspec.json.encode({**body, **scope, "user_id": user}),)
            await self._send(HttpRequest(self._port, f"/memory/v1{path}", bodies=bodies))


def memory_mb(pid: int) -> dict[str, float]:
    """Resident megabytes (10**6) of the gateway's first process and of its children: that of the
    model, then the workers."""
    first = psutil.Process(pid)
    children = enumerate(first.children(recursive=True), 1)
    processes = {"first": first, **{f"child {number}": child for number, child in children}}
    return {name: process.memory_info().rss / 1e6 for name, process in processes.items()}


def growth(sizes: Sequence[float]) -> float:
    """The median of the last quarter, of that of the quarter before the middle."""
    quarter = max(1, len(sizes) // 4)
    middle = len(sizes) // 2
    earlier = statistics.median(sizes[middle - quarter : middle] or sizes[:1])
    return statistics.median(sizes[-quarter:]) / earlier


@click.command()
@click.option("--hours", type=float, default=8.0, show_default=True)
@click.option("--rate", type=float, default=300.0, show_default=True, help="Actions a second.")
@click.option("--csv", "path", type=click.Path(path_type=Path), default=Path("soak.csv"))
def main(hours: float, rate: float, path: Path) -> None:
    """Memory of all processes of a gateway over hours, as CSV; fails if one grows by 5 %."""
    with unpinned(1.0, 1) as rig, gateway(rig, OPERATIONS, SETTINGS) as child:
        tool = calls.find_tool(child.port)
        rows = asyncio.run(_soak(child.process.pid, child.port, tool, hours, rate, path))
    grown = {name: growth([row[name] for row in rows if name in row]) for name in rows[0]}
    for name, factor in grown.items():
        click.echo(f"{name}: {rows[0][name]:.0f} to {rows[-1][name]:.0f} MB, x {factor:.3f}")
    if any(factor > GROWTH for factor in grown.values()):
        sys.exit(f"a process has grown by more than {GROWTH - 1:.0%}")


async def _soak(
    pid: int, port: int, tool: str, hours: float, rate: float, path: Path
) -> list[dict[str, float]]:
    begin = time.monotonic()
    rows: list[dict[str, float]] = []
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector) as http:
        client, running = Client(port, http, tool), set[asyncio.Task[None]]()
        skipped, sample_at, ticks = 0, 0.0, itertools.count(1)
        while (elapsed := time.monotonic() - begin) < hours * 3600:
            if elapsed >= sample_at:
                sample_at = elapsed + SAMPLE_S
                rows.append(memory_mb(pid))
                write(path, rows)
                sizes = ", ".join(f"{name} {size:.0f}" for name, size in rows[-1].items())
                click.echo(f"{elapsed / 60:.0f} min: {sizes} MB; skipped {skipped}", err=True)
            if len(running) < AT_ONCE:
                task = asyncio.create_task(client.act())
                running.add(task)
                task.add_done_callback(running.discard)
            else:
                skipped += 1
            await asyncio.sleep(max(0.0, begin + next(ticks) / rate - time.monotonic()))
        await asyncio.gather(*running)
    click.echo(msgspec.json.encode(dict(client.outcomes)).decode())
    return rows


def write(path: Path, rows: Sequence[Mapping[str, float]]) -> None:
    names = list(dict.fromkeys(name for row in rows for name in row))
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["minute", *names])
        for minute, row in enumerate(rows):
            writer.writerow([minute, *(round(row.get(name, 0.0), 1) for name in names)])


if __name__ == "__main__":
    main()
