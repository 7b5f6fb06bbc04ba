"""The agent: its first event, its streams, the runs that wait, and the tokens of a first turn.

The chat model is scripted and runs in this process, beside the clients; the gateway has a core of
its own. A chunk carries the time at which it was sent, so delays need no second clock.
"""

import asyncio
import itertools
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from benchmarks.memories import await_tools, await_vectors
from benchmarks.processes import Child
from benchmarks.rig import Rig
from benchmarks.search import p95
from benchmarks.table import Row, Target
from benchmarks.toolgate import installation, serving
from registry.display.token_budgets import tokens

TOOLS, QUICK_TOOLS = 12_000, 2_415
ONE_SOURCE = 10_000  # most operations of a description
ASKED, QUICK_ASKED = 200, 40
STREAMS, QUICK_STREAMS = 500, 50
WAITING, QUICK_WAITING = 10_000, 500
CHUNKS = 20  # of an answer
EVERY_S = 0.25  # between the chunks of one answer
QUICKLY, LONG, LONG_EVERY_S = 8, 1000, 0.004  # streams at once, and the chunks of each
IDLE_S = 4.0
AT_ONCE = 25  # requests that begin runs
SETTLES_S = 60
IDLE_SHARE = 0.03  # of a core
HELD = "getItem2"
QUESTION = "Which items are new?"
_ids = itertools.count(1)


def measure_agents(rig: Rig, quick: bool) -> list[Row]:
    return asyncio.run(_measured(rig, quick))


@dataclass
class Model:
    """A provider of chat completions; `answer` writes one."""

    answer: Callable[[asyncio.StreamWriter], Any]
    url: str = ""
    bodies: list[bytes] = field(default_factory=list)  # the last requests

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                length = head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]
                self.bodies[:] = [await reader.readexactly(int(length or 0))]
                writer.write(
                    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
                    b"Transfer-Encoding: chunked\r\n\r\n"
                )
                await self.answer(writer)
                writer.write(b"0\r\n\r\n")
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass  # the gateway has left, or the measurement is over
        finally:
            writer.close()


async def _measured(rig: Rig, quick: bool) -> list[Row]:
    model = Model(_said)
    server = await asyncio.start_server(model, "127.0.0.1", 0, backlog=1024)
    model.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    strategy = {"url": model.url, "needs_key": False, "model": "m"}
    more = {
        "agent": {"enabled": True, "open_runs": 2 * WAITING, "runs": 2 * STREAMS},
        "models": {"strategies": {"openai_compatible": strategy}},
        "policy": {
            "approvals": 2 * WAITING,
            "rules": {"hold": {"effect": "approve", "tools": [HELD]}},
        },
    }
    rows: list[Row] = []
    count = QUICK_TOOLS if quick else TOOLS
    sources = {"items": _source(rig, min(count, ONE_SOURCE))}
    if count > ONE_SOURCE:
        sources["more"] = _source(rig, count - ONE_SOURCE)
    with installation(rig, "agents", sources, more) as site, serving(rig, site) as child:
        rig.say(f"agent: {count:,} tools and their vectors")
        await_tools(site, count)
        await_vectors(site)
        await _settled(child)
        async with server, _clients() as http:
            rig.say("agent: first events")
            rows += await _first_events(child, http, model, QUICK_ASKED if quick else ASKED)
            rig.say("agent: streams")
            model.answer = _spoken
            rows += await _streams(child, http, QUICK_STREAMS if quick else STREAMS)
            model.answer = _spoken_quickly
            rows += await _chunks(child, http)
            rig.say("agent: waiting runs")
            model.answer = _called
            rows.append(await _waiting(child, http, QUICK_WAITING if quick else WAITING))
            server.close()
    return rows


def _source(rig: Rig, operations: int) -> dict[str, str]:
    return {"openapi": str(rig.write_description(operations)), "base_url": rig.upstream_url}


async def _settled(child: Child) -> None:
    """Wait until a gateway that has just started does nothing by itself."""
    for _ in range(SETTLES_S):
        used = child.cpu_s
        await asyncio.sleep(1)
        if child.cpu_s - used < IDLE_SHARE:
            return


@asynccontextmanager
async def _clients() -> AsyncIterator[aiohttp.ClientSession]:
    connector = aiohttp.TCPConnector(limit=0)
    timeout = aiohttp.ClientTimeout(None)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as http:
        yield http


async def _first_events(
    child: Child, http: aiohttp.ClientSession, model: Model, count: int
) -> list[Row]:
    await _first_event_ms(child, http)
    used = child.cpu_s
    times = sorted([await _first_event_ms(child, http) for _ in range(count)])
    used = (child.cpu_s - used) * 1000 / count
    tools = json.loads(model.bodies[-1])["tools"]
    size = sum(tokens(json.dumps(tool, separators=(",", ":"))) for tool in tools)
    return [
        Row("agent: first event of a run, median", times[len(times) // 2], "ms"),
        Row("agent: first event of a run, p95", p95(times), "ms", targets=(Target("value", 50.0),),
            note="with the search among all tools; the model answers at once"),
        Row("agent: CPU of a run of one answer", used, "ms", note="without PostgreSQL's"),
        Row("agent: definitions of tools in the first turn", size, "tokens",
            targets=(Target("value", 800.01),), note=f"{len(tools)} of them"),
    ]  # fmt: skip


async def _first_event_ms(child: Child, http: aiohttp.ClientSession) -> float:
    started = time.perf_counter()
    elapsed_ms = 0.0
    async for name, _ in _events(child, http):
        if name == "ResponseChunk" and not elapsed_ms:
            elapsed_ms = (time.perf_counter() - started) * 1000
    return elapsed_ms


async def _streams(child: Child, http: aiohttp.ClientSession, count: int) -> list[Row]:
    before = child.rss_mb
    delays: list[float] = []
    peak = [before]

    async def one(place: int) -> None:
        await asyncio.sleep(place * EVERY_S * CHUNKS / count / 2)
        async for name, data in _events(child, http):
            if name == "ResponseChunk":
                now = time.perf_counter()
                delays.extend((now - float(sent)) * 1000 for sent in data["text"].split())
        peak[0] = max(peak[0], child.rss_mb if place % 50 == 0 else 0.0)

    async with asyncio.TaskGroup() as tasks:
        for place in range(count):
            tasks.create_task(one(place))
    each = (peak[0] - before) * 1000 / count
    about = f"{count} streaming runs, {len(delays):,} chunks"
    return [
        Row("agent: delay of a chunk, p95", p95(sorted(delays)), "ms",
            targets=(Target("value", 50.0),), note=about),
        Row("agent: memory of a streaming run", each, "kB", targets=(Target("value", 60.0),)),
    ]  # fmt: skip


async def _chunks(child: Child, http: aiohttp.ClientSession) -> list[Row]:
    """What a chunk costs, and its delay, where long answers come quickly."""
    used = child.cpu_s
    await asyncio.sleep(IDLE_S)
    idle = (child.cpu_s - used) / IDLE_S
    delays: list[float] = []

    async def one() -> None:
        async for name, data in _events(child, http):
            if name == "ResponseChunk":
                now = time.perf_counter()
                delays.extend((now - float(sent)) * 1000 for sent in data["text"].split())

    await one()
    delays.clear()
    used, began = child.cpu_s, time.perf_counter()
    await asyncio.gather(*(one() for _ in range(QUICKLY)))
    used = child.cpu_s - used - idle * (time.perf_counter() - began)
    delays.sort()
    return [
        Row("agent: CPU of a chunk", used * 1e6 / len(delays), "us",
            targets=(Target("value", 80.0),), note=f"{QUICKLY} streams of {LONG:,}"),
        Row("agent: delay of a chunk where they come quickly, p99",
            delays[int(len(delays) * 0.99)], "ms", targets=(Target("value", 3.0),),
            note="with the time of the model and of the client"),
    ]  # fmt: skip


async def _waiting(child: Child, http: aiohttp.ClientSession, count: int) -> Row:
    """Memory of the gateway for each run that waits for an approval."""
    numbers = itertools.count()
    await _wait_once(child, http)
    before = child.rss_mb

    async def begin() -> None:
        while next(numbers) < count:
            await _wait_once(child, http)

    async with asyncio.TaskGroup() as tasks:
        for _ in range(AT_ONCE):
            tasks.create_task(begin())
    each = (child.rss_mb - before) * 1000 / count
    note = f"{count:,} runs; what the gateway holds at the end, caches included"
    return Row(
        "agent: memory of a waiting run", each, "kB", targets=(Target("value", 4.0),), note=note
    )


async def _wait_once(child: Child, http: aiohttp.ClientSession) -> None:
    body = {"message": QUESTION}
    async with http.post(f"{child.url}/agent/v1/ask", json=body) as response:
        run = await response.json(content_type=None)
        if run.get("state") != "waiting":
            raise RuntimeError(f"expected a run that waits, found {run}")


async def _events(
    child: Child, http: aiohttp.ClientSession
) -> AsyncIterator[tuple[str, dict[str, Any]]]:
    headers = {"Accept": "text/event-stream"}
    async with http.post(
        f"{child.url}/agent/v1/ask",
        json={"message": f"{QUESTION} {next(_ids)}"},  # another each time: vectors are cached
        headers=headers,
    ) as response:
        name = ""
        async for line in response.content:
            if line.startswith(b"event: "):
                name = line[7:].strip().decode()
            elif line.startswith(b"data: "):
                yield name, json.loads(line[6:])


async def _said(writer: asyncio.StreamWriter) -> None:
    _write(writer, {"content": "Two."}, "stop")


async def _spoken(writer: asyncio.StreamWriter) -> None:
    for _ in range(CHUNKS):
        _write(writer, {"content": f"{time.perf_counter()} "})
        await asyncio.sleep(EVERY_S)
    _write(writer, {}, "stop")


async def _spoken_quickly(writer: asyncio.StreamWriter) -> None:
    for _ in range(LONG):
        _write(writer, {"content": f"{time.perf_counter()} "})
        await asyncio.sleep(LONG_EVERY_S)
    _write(writer, {}, "stop")


async def _called(writer: asyncio.StreamWriter) -> None:
    function = {"name": HELD, "arguments": json.dumps({"id": next(_ids)})}
    call = {"index": 0, "id": "a1", "type": "function", "function": function}
    _write(writer, {"tool_calls": [call]}, "tool_calls")


def _write(writer: asyncio.StreamWriter, delta: dict[str, Any], finish: str | None = None) -> None:
    chunk = {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}
    tail = b"data: [DONE]\n\n" if finish else b""
    data = b"data: %b\n\n%b" % (json.dumps(chunk).encode(), tail)
    writer.write(b"%x\r\n%b\r\n" % (len(data), data))
