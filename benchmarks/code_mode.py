"""Programs beside direct calls: what a model would read and write for the same ten tasks, how long
a program takes to start, and what its calls cost.

There is no model. Both ways are scripted and make no mistake, both end in the same answer, and it
is checked against the state of the services; else the pair does not count. Both begin with one
search in search mode: for schemas of arguments, or for signatures, which have the results, too.
Direct calls know without having read it which members `_fields` may name. A program is charged with
the definitions of the two tools, and one in five with a first attempt that gets a name wrong.

Tokens count as 4 characters. "once": each text once. "as sent": a request repeats everything that
was before it. "cached": what was sent before costs a tenth.
"""

import asyncio
import itertools
import statistics
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
from msgspec import Struct
from tokenizers import Tokenizer

import registry.embedding
from benchmarks.calls import STATELESS_REVISION
from benchmarks.code_services import ENDPOINTS, Facts, describe
from benchmarks.code_shapes import SHAPES, Shape, reads
from benchmarks.memories import await_tools, await_vectors
from benchmarks.processes import free_port, start
from benchmarks.request import Unavailable
from benchmarks.rig import Rig, running, uvicorn
from benchmarks.table import Row, Target, broken
from benchmarks.toolgate import installation, serving
from registry.display.token_budgets import tokens
from registry.names.tool_names import CODE_TOOLS

SETTINGS: Mapping[str, Any] = {
    "code": {"enabled": True, "writes": "allow"},
    "answers": {"fields": "shown"},
}
SIGNATURES: Mapping[str, Any] = {"as": "python"}
FAILS = 0.2  # of the programs have a first attempt that fails
CACHED = 0.1  # price of what was sent before
START = (Target("value", 60.01),)  # milliseconds, at most
MOST_READS = 50  # of the search for the break-even
ROUNDS, QUICK_ROUNDS = 5, 1
STARTS, QUICK_STARTS = 40, 10
PAUSE_S = 0.5  # in which the pool makes a process
CALLS = 100  # of a program
CALL = ("issues_get", {"owner": "octo", "repo": "shop", "issue_number": 7})
META = "io.modelcontextprotocol"

Count = Callable[[str], int]
_ids = itertools.count(1)


class Uneven(Exception):
    """The two ways have not come to the same, right answer."""


class Turn(Struct):
    """A request to a model: what it reads that it has not read before, and what it writes."""

    read: list[str]
    written: list[str]


class Transcript(Struct):
    turns: list[Turn]
    calls: int = 0  # of tools that do the work
    seconds: float = 0.0  # without the model's
    cpu_s: float = 0.0  # of the gateway, and of the processes of programs that have ended
    moved_bytes: int = 0  # of requests to the gateway, and of its answers

    def once(self, count: Count = tokens) -> float:
        return sum(self._sizes(count))

    def sent(self, count: Count = tokens, before: float = 1.0) -> float:
        """`before`: the price of what an earlier request had."""
        sizes = self._sizes(count)
        return sum(size + before * sum(sizes[:place]) for place, size in enumerate(sizes))

    def cached(self) -> float:
        return self.sent(before=CACHED)

    def _sizes(self, count: Count) -> list[int]:
        return [sum(map(count, turn.read + turn.written)) for turn in self.turns]


class Result(Struct, frozen=True):
    texts: tuple[str, ...]
    value: Any  # JSON of the first text; None for a failure
    following: dict[str, Any] | None


class Endpoint:
    """The gateway in search mode, by MCP."""

    def __init__(
        self,
        http: aiohttp.ClientSession,
        url: str,
        services: str,
        cpu_s: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self._http, self._url, self._services = http, url, services
        self.cpu_s = cpu_s
        self.moved_bytes = 0
        self.definitions: dict[bool, str] = {}  # with the tools of code mode, and without

    async def prepare(self) -> None:
        for is_offered, code in ((False, "off"), (True, "offered")):
            listed = await self.ask("tools/list", {}, code)
            self.definitions[is_offered] = _definitions(listed["tools"])

    async def ask(
        self, method: str, params: Mapping[str, Any], code: str = "offered"
    ) -> dict[str, Any]:
        """The result of a request. Raises Unavailable."""
        meta = {f"{META}/protocolVersion": STATELESS_REVISION, f"{META}/clientCapabilities": {}}
        headers = {"MCP-Protocol-Version": STATELESS_REVISION, "Mcp-Method": method}
        if "name" in params:
            headers["Mcp-Name"] = params["name"]
        body = {"jsonrpc": "2.0", "id": next(_ids), "method": method,
                "params": {**params, "_meta": meta}}  # fmt: skip
        url = f"{self._url}/mcp?mode=search&code={code}"
        data = msgspec.json.encode(body)
        headers["Content-Type"] = "application/json"
        async with self._http.post(url, data=data, headers=headers) as response:
            answer_body = await response.read()
        self.moved_bytes += len(data) + len(answer_body)
        answer = msgspec.json.decode(answer_body)
        if "result" not in answer:
            raise Unavailable(f"{params.get('name', method)} answered {str(answer)[:300]}")
        result: dict[str, Any] = answer["result"]
        return result

    async def call(self, name: str, arguments: Mapping[str, Any]) -> Result:
        result = await self.ask("tools/call", {"name": name, "arguments": arguments})
        texts = tuple(part["text"] for part in result["content"])
        following = result.get("_meta", {}).get("toolgate/next", {}).get("arguments")
        try:
            value = None if result.get("isError") else msgspec.json.decode(texts[0])
        except msgspec.DecodeError:  # signatures
            value = texts[0]
        return Result(texts, value, following)

    async def facts(self) -> Facts:
        async with self._http.get(f"{self._services}/facts") as response:
            facts: Facts = await response.json()
        return facts

    async def arrived(self) -> float:
        """When the services were last called."""
        async with self._http.get(f"{self._services}/arrived") as response:
            return float(await response.text())

    async def reset(self) -> None:
        async with self._http.post(f"{self._services}/reset"):
            pass


class ScriptedAgent:
    """An agent of search mode. `parallel`: it writes calls that need nothing of each other in one
    turn."""

    def __init__(self, endpoint: Endpoint, task: str, *, code: bool, parallel: bool) -> None:
        self._endpoint = endpoint
        self._parallel = parallel
        self._unread = [endpoint.definitions[code], task]
        self.transcript = Transcript([])

    async def call(self, name: str, /, **arguments: Any) -> Any:
        return (await self.calls([(name, arguments)]))[0]

    async def calls(self, calls: Sequence[tuple[str, dict[str, Any]]]) -> list[Any]:
        size = len(calls) if self._parallel else 1
        results: list[Result] = []
        for place in range(0, len(calls), size or 1):
            batch = calls[place : place + size]
            results += await self._turn([_by_call_tool(*call) for call in batch])
        self.transcript.calls += len(calls)
        return [result.value for result in results]

    async def pages(self, name: str, /, **arguments: Any) -> list[Any]:
        pages: list[Any] = []
        following: dict[str, Any] | None = arguments
        while following is not None:
            [result] = await self._turn([_by_call_tool(name, following)])
            self.transcript.calls += 1
            pages.append(result.value)
            following = result.following
        return pages

    async def search(self, shape: Shape, **more: Any) -> None:
        """Raises Uneven if a tool is not found."""
        arguments = {"query": shape.query, "limit": len(shape.tools), **more}
        [result] = await self._turn([("search_tools", arguments)])
        text = result.texts[0].replace("-", "_")
        missing = [name for name in shape.tools if name.replace("-", "_") not in text]
        if missing:
            raise Uneven(f"the search has not found {', '.join(missing)}")

    async def run(self, shape: Shape, code: str) -> dict[str, Any]:
        name = CODE_TOOLS[shape.writes]
        [result] = await self._turn([(name, {"code": code})])
        end: dict[str, Any] = result.value
        self.transcript.calls += sum(end.get("made", {}).values())
        return end

    def answer(self, value: Any) -> None:
        self.transcript.turns.append(Turn(self._unread, [_json(value)]))

    async def _turn(self, calls: Sequence[tuple[str, Mapping[str, Any]]]) -> list[Result]:
        written = [_json({"name": name, "arguments": arguments}) for name, arguments in calls]
        self.transcript.turns.append(Turn(self._unread, written))
        results = await asyncio.gather(*(self._endpoint.call(*call) for call in calls))
        self._unread = [text for result in results for text in result.texts]
        return results


class Pair(Struct, frozen=True):
    shape: str
    direct: Transcript
    serial: Transcript  # direct, one call in a turn
    code: Transcript
    failing: Transcript  # with a first attempt that fails

    def charged(self, cost: Callable[[Transcript], float]) -> float:
        """Of a program, with its share of failed attempts."""
        return (1 - FAILS) * cost(self.code) + FAILS * cost(self.failing)

    def ratio(self, cost: Callable[[Transcript], float]) -> float:
        """Above 1: direct calls cost more."""
        return cost(self.direct) / self.charged(cost)


COSTS: Mapping[str, Callable[[Transcript], float]] = {
    "once": Transcript.once, "as sent": Transcript.sent, "cached": Transcript.cached
}  # fmt: skip


async def compare(endpoint: Endpoint, shape: Shape) -> Pair:
    """The transcripts of a task. Raises Uneven."""

    async def directly(agent: ScriptedAgent) -> Any:
        await agent.search(shape)
        return await shape.direct(agent)

    async def by_program(agent: ScriptedAgent, *mistaken: str) -> Any:
        await agent.search(shape, **SIGNATURES)
        for code in mistaken:
            if (end := await agent.run(shape, code))["state"] != "failed":
                raise Uneven(f"the first attempt gave {str(end)[:200]}")
        end = await agent.run(shape, shape.program)
        if end["state"] != "completed":
            raise Uneven(f"the program ended with {end['error']}")
        return end["result"]

    async def failing(agent: ScriptedAgent) -> Any:
        return await by_program(agent, shape.mistaken)

    return Pair(
        shape.name,
        await _scripted(endpoint, shape, directly),
        await _scripted(endpoint, shape, directly, parallel=False),
        await _scripted(endpoint, shape, by_program, code=True),
        await _scripted(endpoint, shape, failing, code=True),
    )


async def _scripted(
    endpoint: Endpoint,
    shape: Shape,
    script: Callable[[ScriptedAgent], Awaitable[Any]],
    *,
    code: bool = False,
    parallel: bool = True,
) -> Transcript:
    await endpoint.reset()
    before = await endpoint.facts()
    agent = ScriptedAgent(endpoint, shape.task, code=code, parallel=parallel)
    begun, cpu_s, moved = time.perf_counter(), endpoint.cpu_s(), endpoint.moved_bytes
    answer = await script(agent)
    agent.transcript.seconds = time.perf_counter() - begun
    agent.transcript.cpu_s = endpoint.cpu_s() - cpu_s
    agent.transcript.moved_bytes = endpoint.moved_bytes - moved
    agent.answer(answer)
    if not shape.check(before, await endpoint.facts(), answer):
        raise Uneven(f"the answer {str(answer)[:200]} is wrong")
    return agent.transcript


def measure_code(rig: Rig, quick: bool) -> list[Row]:
    port = free_port()
    arguments = uvicorn(sys.executable, "benchmarks.code_services:app", port)
    services = start("code-services", arguments, rig.directory, rig.cores.load, port=port)
    with running(services, "/facts", rig.say):
        sources = {
            name: {"openapi": str(path), "base_url": f"{services.url}/{name}"}
            for name, path in write_descriptions(rig.directory, services.url).items()
        }
        with installation(rig, "code", sources, SETTINGS) as site, serving(rig, site) as child:
            await_tools(site, sum(map(len, ENDPOINTS.values())))
            await_vectors(site)
            return asyncio.run(
                _measured(rig, child.url, services.url, quick, lambda: child.cpu_with_children_s)
            )


def write_descriptions(folder: Path, services: str) -> dict[str, Path]:
    paths = {name: folder / f"{name}.json" for name in ENDPOINTS}
    for name, path in paths.items():
        path.write_bytes(msgspec.json.encode(describe(name, services)))
    return paths


async def _measured(
    rig: Rig, url: str, services: str, quick: bool, cpu_s: Callable[[], float]
) -> list[Row]:
    async with aiohttp.ClientSession() as http:
        endpoint = Endpoint(http, url, services, cpu_s)
        await endpoint.prepare()
        rows: list[Row] = []
        pairs: list[Pair] = []
        for shape in SHAPES:
            rig.say(f"code mode: {shape.name}")
            try:
                rounds = range(QUICK_ROUNDS if quick else ROUNDS)
                measured = [await compare(endpoint, shape) for _ in rounds]
            except Uneven as reason:
                rows.append(broken(f"code mode, {shape.name}", str(reason)))
            else:
                pairs.append(measured[0])
                rows.append(_shape_row(measured))
        rows.append(_definitions_row(endpoint))
        rig.say("code mode: break-even")
        reads = await find_break_even(endpoint)
        rig.say("code mode: start and calls")
        times = await _times(endpoint, QUICK_STARTS if quick else STARTS)
    return [*rows, *_all_rows(pairs), *_break_even_rows(reads), *times]


def _shape_row(rounds: Sequence[Pair]) -> Row:
    pair = rounds[0]
    costs = [
        f"{name} {cost(pair.direct):,.0f} / {pair.charged(cost):,.0f}"
        for name, cost in COSTS.items()
    ]
    serial = [f"{name} {cost(pair.serial):,.0f}" for name, cost in COSTS.items()]
    seconds = [
        statistics.median(seconds)
        for seconds in ([pair.direct.seconds for pair in rounds],
                        [pair.code.seconds for pair in rounds])
    ]  # fmt: skip
    # the clock of the system is coarse: the mean
    cpu_ms = [
        statistics.mean(transcript.cpu_s for transcript in transcripts) * 1000
        for transcripts in ([pair.direct for pair in rounds], [pair.code for pair in rounds])
    ]
    facts = [
        *costs,
        f"one call a turn: {', '.join(serial)}",
        f"turns {len(pair.direct.turns)} ({len(pair.serial.turns)}) / {len(pair.code.turns)}",
        f"calls {pair.direct.calls} / {pair.code.calls}",
        f"time {seconds[0] * 1000:,.0f} / {seconds[1] * 1000:,.0f} ms",
        f"CPU {cpu_ms[0]:,.0f} / {cpu_ms[1]:,.0f} ms",
        f"moved {pair.direct.moved_bytes / 1000:,.0f} / {pair.code.moved_bytes / 1000:,.0f} kB",
    ]
    scenario = f"code mode, {pair.shape}: tokens of direct calls / of a program"
    return Row(scenario, pair.ratio(Transcript.cached), "x", note="; ".join(facts))


def _definitions_row(endpoint: Endpoint) -> Row:
    without, with_code = (tokens(endpoint.definitions[code]) for code in (False, True))
    note = f"beside {without} of search mode; in every request"
    return Row("code mode: definitions of its tools", with_code - without, "tokens", note=note)


def _all_rows(pairs: Sequence[Pair]) -> list[Row]:
    if not pairs:
        return []
    count = _bundled_tokenizer()
    by_other = [
        sum(pair.direct.once(count) for pair in pairs),
        sum(pair.charged(lambda side: side.once(count)) for pair in pairs),
    ]
    by_characters = [
        sum(pair.direct.once() for pair in pairs),
        sum(pair.charged(Transcript.once) for pair in pairs),
    ]
    rows = [
        Row("code mode, all shapes, each text once", by_characters[0] / by_characters[1], "x",
            note=f"{by_other[0] / by_other[1]:.2f} x by the tokenizer of the bundled model"),
    ]  # fmt: skip
    for name, cost in COSTS.items():
        lost = [pair.shape for pair in pairs if pair.ratio(cost) < 1]
        scenario = f"code mode, shapes that it loses: {name}"
        rows.append(Row(scenario, len(lost), "shapes", note=", ".join(lost)))
    return rows


async def find_break_even(endpoint: Endpoint) -> dict[tuple[str, str], int]:
    """The fewest reads of a loop of which a program costs less than direct calls; by cost and by
    way, without those that are more than MOST_READS."""
    counts: dict[tuple[str, str], int] = {}
    for count in range(1, MOST_READS + 1):
        pair = await compare(endpoint, reads(count))
        for name, cost in COSTS.items():
            for way, transcript in (("together", pair.direct), ("one a turn", pair.serial)):
                if cost(transcript) > pair.charged(cost):
                    counts.setdefault((name, way), count)
        if len(counts) == 2 * len(COSTS):
            break
    return counts


def _break_even_rows(reads: Mapping[tuple[str, str], int]) -> list[Row]:
    return [
        Row(f"code mode, fewest reads that it saves tokens of: {name}, calls {way}",
            reads.get((name, way)), "reads", note="" if (name, way) in reads else f"> {MOST_READS}")
        for name in COSTS for way in ("together", "one a turn")
    ]  # fmt: skip


async def _times(endpoint: Endpoint, starts: int) -> list[Row]:
    name, arguments = CALL
    call_text = f"tools.call({name!r}, {arguments!r})"
    plain = statistics.median([await _call_ms(endpoint, *CALL) for _ in range(CALLS)])
    begun, ready = [], []
    for _ in range(starts):
        await asyncio.sleep(PAUSE_S)
        asked = time.monotonic()
        await _program_ms(endpoint, call_text)
        begun.append((await endpoint.arrived() - asked) * 1000)
        ready.append(await _program_ms(endpoint, "1", PAUSE_S))
    new = [await _program_ms(endpoint, "1") for _ in range(starts)]
    empty = statistics.median(ready)
    rows = [
        Row("code mode: start of a program, until its first call has arrived, median",
            statistics.median(begun), "ms", targets=START, note="from the pool, by MCP"),
        Row("code mode: a program that does nothing, median", empty, "ms",
            note="the whole call; its process ends before the answer"),
        Row("code mode: the same, one right after the other", statistics.median(new), "ms",
            note="the pool is empty"),
        Row("code mode: a direct call, by MCP, median", plain, "ms"),
    ]  # fmt: skip
    for way, code in {
        "one after the other": f"for _ in range({CALLS}): {call_text}",
        "together": f"tools.all([{call_text} for _ in range({CALLS})])[0]['id']",
    }.items():
        times = [await _program_ms(endpoint, code, PAUSE_S) for _ in range(max(starts // 4, 3))]
        each = (statistics.median(times) - empty) / CALLS
        note = f"{each / plain:.2f} of a direct call; {CALLS} calls"
        rows.append(Row(f"code mode: a call of a program, {way}", each, "ms", note=note))
    return rows


async def _program_ms(endpoint: Endpoint, code: str, pause_s: float = 0.0) -> float:
    """Raises Unavailable for a program that fails."""
    await asyncio.sleep(pause_s)
    begun = time.perf_counter()
    result = await endpoint.call(CODE_TOOLS[0], {"code": code})
    took = (time.perf_counter() - begun) * 1000
    if result.value is None or result.value["state"] != "completed":
        raise Unavailable(f"the program gave {result.texts[0][:300]}")
    return took


async def _call_ms(endpoint: Endpoint, name: str, arguments: Mapping[str, Any]) -> float:
    begun = time.perf_counter()
    await endpoint.call(name, arguments)
    return (time.perf_counter() - begun) * 1000


def _bundled_tokenizer() -> Count:
    folder = Path(registry.embedding.__file__).with_name("model")
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return lambda text: len(tokenizer.encode(text, add_special_tokens=False).ids)


def _definitions(tools: Sequence[Mapping[str, Any]]) -> str:
    """What models are given of tools: neither hints nor output schemas."""
    members = ("name", "description", "inputSchema")
    return _json([{member: tool.get(member) for member in members} for tool in tools])


def _by_call_tool(name: str, arguments: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    return "call_tool", {"name": name, "arguments": arguments}


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
