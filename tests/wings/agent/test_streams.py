"""Events of runs over HTTP."""

import dataclasses
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import anyio
import pytest
from msgspec.structs import replace

from config.settings import DatabaseSettings
from gateway.interfaces import Event as LogEntry
from gateway.state.memory import MemoryLog
from gateway.wings.agent import run_events
from gateway.wings.agent.conversation_and_run_store import Conversations, Ending, Run, Runs
from gateway.wings.agent.run_events import LIVE_EVENTS, EventWriter, RunEvent, RunFollower
from schemas.errors import Unavailable
from tests.fixtures_gateway import Recorder, running
from tests.fixtures_servers import serving
from tests.servers.provider import Answer, chat, delta, failing, providing, sse
from tests.wings.agent.rig import Rig, agent_settings
from tests.wings.agent.test_takeover import DELETE, GET

pytestmark = pytest.mark.anyio

STREAM = {"Accept": "text/event-stream"}
Event = tuple[str, int, Any]  # type, id, data
Batches = AsyncIterator[Sequence[RunEvent]]


async def read(response: aiohttp.ClientResponse) -> AsyncIterator[Event]:
    assert response.status == 200, await response.text()
    fields: dict[str, str] = {}
    async for line in response.content:
        text = line.decode().rstrip("\r\n")
        if not text and "data" in fields:
            yield fields["event"], int(fields["id"]), json.loads(fields["data"])
            fields = {}
        elif not text.startswith(":"):
            name, _, value = text.partition(": ")
            fields[name] = value


async def stream_events(rig: Rig, path: str, body: Any) -> list[Event]:
    url = f"{rig.client.url}/agent/v1{path}"
    with anyio.fail_after(60):
        async with rig.client.http.post(url, json=body, headers=STREAM) as response:
            return [event async for event in read(response)]


async def follow_run(rig: Rig, run: str, after: int = 0, limit: int = 10_000) -> list[Event]:
    url = f"{rig.client.url}/agent/v1/runs/{run}/events"
    headers = {**STREAM, "Last-Event-ID": str(after)}
    found = []
    with anyio.fail_after(60):
        async with rig.client.http.get(url, headers=headers) as response:
            async for event in read(response):
                found.append(event)
                if len(found) >= limit:
                    break
    return found


async def test_words_and_calls_are_streamed_with_a_final_event(rig: Rig) -> None:
    rig.script(chat("Let me see.", [GET]), chat("A fine cat.", reasoning="hm"))
    events = await stream_events(rig, "/ask", {"message": "Which pet?"})
    types = [type_ for type_, _, _ in events]
    assert types == [
        *["ResponseChunk"] * 3, "IterationComplete", "ToolCallStart", "ToolCallResult",
        *["ResponseChunk"] * 3, "IterationComplete", "Completed",
    ]  # fmt: skip
    numbers = [number for _, number, _ in events]
    assert numbers == sorted(set(numbers))
    last = events[-1][2]
    assert (last["answer"], last["iterations"], last["tokens"]) == ("A fine cat.", 2, 36)
    assert events[4][2]["arguments"] == {"id": 7}
    assert {data["conversation_id"] for _, _, data in events} == {events[0][2]["conversation_id"]}
    assert [data["iteration"] for _, _, data in events] == [*[1] * 6, *[2] * 5]


async def test_a_client_goes_on_behind_its_last_event(rig: Rig) -> None:
    rig.script(chat("one two three four five six"))
    events = await stream_events(rig, "/ask", {"message": "Count"})
    run = events[-1][2]["run_id"]
    assert await follow_run(rig, run) == events
    for place in range(len(events) - 1):
        assert await follow_run(rig, run, events[place][1]) == events[place + 1 :]
    cut: list[Event] = []
    while not cut or cut[-1][0] != "Completed":
        cut += await follow_run(rig, run, cut[-1][1] if cut else 0, limit=2)
    assert cut == events


async def test_a_follower_sees_a_run_that_goes_on(rig: Rig) -> None:
    rig.script(Answer(pieces=[sse(delta(content="One"))], end="hang"))
    status, begun = await rig.post("/ask", {"message": "x", "wait": False, "stream": True})
    assert status == 200
    [first] = await follow_run(rig, begun["run"], limit=1)
    assert first[2]["text"] == "One"
    await rig.post(f"/runs/{begun['run']}/cancel")
    [last] = await follow_run(rig, begun["run"], first[1])
    assert (last[0], last[2]["state"]) == ("Completed", "cancelled")


@asynccontextmanager
async def two_nodes(database: DatabaseSettings, tmp_path: Path) -> AsyncIterator[tuple[Rig, Rig]]:
    service = Recorder()
    async with serving(service) as service.url, providing(Answer()) as provider:
        settings = agent_settings(database, tmp_path / "pets.json", service, provider.url)
        state = replace(settings.state, backend="postgres")
        settings = replace(settings, state=state)
        async with running(settings) as a, running(settings) as b:
            yield Rig(a, provider, service), Rig(b, provider, service)


async def test_a_client_goes_on_at_another_node(
    module_database: DatabaseSettings, tmp_path: Path
) -> None:
    async with two_nodes(module_database, tmp_path) as (here, there):
        here.script(chat("one two three"))
        events = await stream_events(here, "/ask", {"message": "Count"})
        for place in range(len(events) - 1):  # behind each event, of a run that has ended
            run = events[-1][2]["run_id"]
            assert await follow_run(there, run, events[place][1]) == events[place + 1 :]
        here.script(Answer(pieces=[sse(delta(content="One"))], end="hang"))
        _, begun = await here.post("/ask", {"message": "x", "wait": False, "stream": True})
        [first] = await follow_run(here, begun["run"], limit=1)
        assert first[2]["text"] == "One"
        assert await follow_run(there, begun["run"], limit=1) == [first]
        await here.post(f"/runs/{begun['run']}/cancel")
        [last] = await follow_run(there, begun["run"], first[1])  # of one that goes on here
        assert (last[0], last[2]["state"]) == ("Completed", "cancelled")


async def test_a_stream_ends_where_another_node_erases_its_conversation(
    module_database: DatabaseSettings, tmp_path: Path
) -> None:
    async with two_nodes(module_database, tmp_path) as (here, there):
        here.script(Answer(pieces=[sse(delta(content="One"))], end="hang"))
        _, begun = await here.post("/ask", {"message": "x", "wait": False, "stream": True})
        url = f"{here.client.url}/agent/v1/runs/{begun['run']}/events"
        with anyio.fail_after(60):
            async with here.client.http.get(url, headers=STREAM) as response:
                events = read(response)
                await anext(events)
                assert await there.delete(f"/conversations/{begun['conversation']}") == 204
                last = [event async for event in events]
        assert [(type_, data["state"]) for type_, _, data in last] == [("Completed", "cancelled")]


async def test_the_last_event_tells_the_state_that_was_stored(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another node has erased the conversation since."""
    end = Runs.end

    async def end_and_erase(runs: Runs, run: Run, ending: Ending) -> Run:
        stored = await end(runs, run, ending)
        assert await Conversations(runs._pool).delete(run.tenant, run.owner, run.conversation)
        return stored

    monkeypatch.setattr(Runs, "end", end_and_erase)
    rig.script(chat("One"))
    events = await stream_events(rig, "/ask", {"message": "x"})
    assert (events[-1][0], events[-1][2]["state"]) == ("Completed", "completed")


def waiting_run() -> Run:
    now = datetime.now(UTC)
    return Run(
        tenant="t", id="r", conversation="c", turn=1, owner="o", caller="", content="",
        strategy="s", streams=True, history=[], state="waiting", stopped="", error="", answer="",
        approvals=["a"], cancel=False, attempt=1, iterations=1, tokens=0, money=0.0, seconds=0.0,
        calls=0, created=now, updated=now,
    )  # fmt: skip


async def test_a_follower_of_a_waiting_run_gets_the_event_of_its_approval() -> None:
    """A run waits before it says so; its process has not written the event yet."""
    run = waiting_run()
    log = MemoryLog(10, 60.0, 1_000_000)
    writer = EventWriter(log, run)

    async def reread() -> Run:
        return run

    with anyio.fail_after(60):
        writer.put("ResponseChunk", text="Hm.")
        await writer.flush()
        follower = RunFollower(log, run, 0, reread=reread, writers={})
        events = follower.follow(600.0)
        [chunk] = await anext(events)
        assert chunk.type == "ResponseChunk"
        writer.put("StatusUpdate", status=run_events.WAITS, phase="tools", approval="a")
        await writer.flush()
        assert [event.awaited_approval async for [event] in events] == ["a"]


async def test_a_failure_is_the_last_event(rig: Rig) -> None:
    rig.script(failing(401))
    events = await stream_events(rig, "/ask", {"message": "x"})
    assert [one[0] for one in events] == ["Error"]
    assert events[0][2]["code"] == "provider_auth"


async def test_a_stream_ends_where_a_person_has_to_decide(rig: Rig) -> None:
    rig.script(chat("", [DELETE]), chat("Done."))
    events = await stream_events(rig, "/ask", {"message": "x"})
    type_, number, data = events[-1]
    assert (type_, data["status"]) == ("StatusUpdate", "waiting_for_approval")
    _, listed = await rig.get("/runs?state=waiting")
    run = listed["runs"][0]["run"]
    assert listed["runs"][0]["approvals"] == [data["approval"]]
    await rig.post(f"/approvals/{data['approval']}", {"approve": False})
    await rig.until(run, "completed")
    assert (await follow_run(rig, run, number))[-1][0] == "Completed"


async def test_a_decision_may_follow_its_event_at_once(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run waits by then, however slow the database is, which no test can make it."""
    end = Runs.end

    async def end_late(*given: Any) -> Run:
        await anyio.sleep(0.3)
        return await end(*given)

    monkeypatch.setattr(Runs, "end", end_late)
    rig.script(chat("", [DELETE]), chat("Done."))
    url = f"{rig.client.url}/agent/v1/ask"
    with anyio.fail_after(60):
        async with rig.client.http.post(url, json={"message": "x"}, headers=STREAM) as response:
            async for _, _, data in read(response):
                if "approval" in data:
                    decision = f"/approvals/{data['approval']}"
                    assert (await rig.post(decision, {"approve": False}))[0] == 204


async def test_a_client_that_leaves_within_its_body_is_no_error(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    address = urlsplit(rig.client.url)
    head = "POST /agent/v1/ask HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream"
    with anyio.fail_after(60):
        async with await anyio.connect_tcp(str(address.hostname), int(address.port or 0)) as client:
            await client.send(f'{head}\r\nContent-Length: 100\r\n\r\n{{"message"'.encode())
            await client.send_eof()
            with pytest.raises(anyio.EndOfStream):
                await client.receive()
    assert (await rig.get("/runs"))[0] == 200
    assert [one for one in caplog.records if one.levelname == "ERROR"] == []


async def test_problems_are_no_streams(rig: Rig) -> None:
    other = "00000000-0000-4000-8000-000000000000"
    for path, body, status in (
        (f"/conversations/{other}/messages", {"content": "x"}, 404),
        ("/ask", {"message": ""}, 422),
        ("/ask", {"text": "x"}, 422),
    ):
        url = f"{rig.client.url}/agent/v1{path}"
        async with rig.client.http.post(url, json=body, headers=STREAM) as response:
            assert (response.status, response.content_type) == (status, "application/problem+json")
    url = f"{rig.client.url}/agent/v1/ask"
    async with rig.client.http.post(url, data=b"[1]", headers=STREAM) as response:
        assert response.status == 400
    async with rig.client.http.get(
        f"{rig.client.url}/agent/v1/runs/{other}/events", headers=STREAM
    ) as response:
        assert response.status == 404


class SlowLog(MemoryLog):
    """A log whose reads wait, as those of a database do, until the test lets them go on."""

    is_remote = True

    def __init__(self, query: "SlowQuery") -> None:
        super().__init__(10, 60, 1_000_000)
        self._query = query

    async def read(self, stream: str, after: str, limit: int = 1000) -> Sequence[LogEntry]:
        await self._query.run()
        return await super().read(stream, after, limit)


class HeldLog(MemoryLog):
    """A log whose first append waits until it is let go, and that counts its reads."""

    def __init__(self, *, held: bool = False) -> None:
        super().__init__(10 * LIVE_EVENTS, 60.0, 100_000_000)
        self.letting_go = anyio.Event()
        self.holds = held
        self.reads = 0

    async def append(self, stream: str, data: bytes) -> str:
        if self.holds:
            self.holds = False
            await self.letting_go.wait()
        return await super().append(stream, data)

    async def read(self, stream: str, after: str, limit: int = 1000) -> Sequence[LogEntry]:
        self.reads += 1
        return await super().read(stream, after, limit)


def follow_writer(log: MemoryLog, run: Run, writers: Mapping[str, EventWriter]) -> Batches:
    async def reread() -> Run:
        return run

    return RunFollower(log, run, 0, reread=reread, writers=writers).follow(600.0)


async def collect_texts(batches: Batches) -> list[str]:
    return [event.data["text"] async for batch in batches for event in batch if not event.terminal]


def running_run(attempt: int = 1) -> Run:
    return dataclasses.replace(waiting_run(), state="running", attempt=attempt)


async def test_a_follower_beside_the_writer_needs_no_log_for_new_events() -> None:
    """Events reach it before they are written; also those that are being written when it comes."""
    log, run, writers = HeldLog(held=True), running_run(), dict[str, EventWriter]()
    writer = EventWriter(log, run)
    with anyio.fail_after(60), writer.open_to(writers, run.id):
        async with anyio.create_task_group() as tasks:
            writer.put("ResponseChunk", text="being written")
            tasks.start_soon(writer.flush)
            await anyio.wait_all_tasks_blocked()
            writer.put("ResponseChunk", text="waiting")
            batches = follow_writer(log, run, writers)
            batch = await anext(batches)
            assert [event.data["text"] for event in batch] == ["being written", "waiting"]
            for text in ("live", "too"):
                writer.put("ResponseChunk", text=text)
                [event] = await anext(batches)
                assert event.data["text"] == text
            assert log.reads == 1  # what was there before
            writer.put("Completed")
            log.letting_go.set()
            assert [event.type async for [event] in batches] == ["Completed"]


async def test_a_follower_that_is_too_slow_for_its_writer_reads_on_in_the_log() -> None:
    log, run, writers = HeldLog(), running_run(), dict[str, EventWriter]()
    writer, batches = EventWriter(log, run), follow_writer(log, run, writers)
    texts = [str(number) for number in range(3 * LIVE_EVENTS)]
    with anyio.fail_after(60), writer.open_to(writers, run.id):
        writer.put("ResponseChunk", text=texts[0])
        await anext(batches)
        for text in texts[1:]:
            writer.put("ResponseChunk", text=text)
            await writer.flush()
        writer.put("Completed")
        await writer.flush()
        assert await collect_texts(batches) == texts[1:]


class FailingLog(HeldLog):
    """A log whose first read fails."""

    async def read(self, stream: str, after: str, limit: int = 1000) -> Sequence[LogEntry]:
        entries = await super().read(stream, after, limit)
        if self.reads == 1:
            raise Unavailable("The log is away")
        return entries


async def test_a_follower_of_a_log_that_is_away_loses_no_event() -> None:
    log, run, writers = FailingLog(), running_run(), dict[str, EventWriter]()
    writer, batches = EventWriter(log, run), follow_writer(log, run, writers)
    texts = [str(number) for number in range(5)]
    with anyio.fail_after(60), writer.open_to(writers, run.id):
        for text in texts[:3]:
            writer.put("ResponseChunk", text=text)
        await writer.flush()
        async with anyio.create_task_group() as tasks:
            gathered = list[str]()

            async def gather() -> None:
                gathered.extend(await collect_texts(batches))

            tasks.start_soon(gather)
            await anyio.wait_all_tasks_blocked()
            for text in texts[3:]:
                writer.put("ResponseChunk", text=text)
            writer.put("Completed")
            await writer.flush()
    assert gathered == texts


async def test_a_follower_reads_all_where_the_log_has_dropped_its_place() -> None:
    log, run, writers = MemoryLog(4, 60.0, 100_000_000), running_run(), dict[str, EventWriter]()
    writer, batches = EventWriter(log, run), follow_writer(log, run, writers)
    with anyio.fail_after(60):
        with writer.open_to(writers, run.id):
            writer.put("ResponseChunk", text="first")
            await writer.flush()
            await anext(batches)
            for text in "abcdefgh":
                writer.put("ResponseChunk", text=text)
                await writer.flush()
            assert [event.data["text"] for event in await anext(batches)] == list("abcdefgh")
        for type_ in ("ResponseChunk", "Completed"):
            writer.put(type_, text="last")
            await writer.flush()
        assert await collect_texts(batches) == ["last"]


async def test_a_follower_reads_on_in_the_log_when_another_process_takes_the_run() -> None:
    log, run, writers = HeldLog(), running_run(), dict[str, EventWriter]()
    writer, writer_there = EventWriter(log, run), EventWriter(log, running_run(attempt=2))
    batches = follow_writer(log, run, writers)
    with anyio.fail_after(60):
        with writer.open_to(writers, run.id):
            writer.put("ResponseChunk", text="here")
            await writer.flush()
            await anext(batches)
        writer_there.put("ResponseChunk", text="there")
        writer_there.put("Completed")
        await writer_there.flush()
        assert await collect_texts(batches) == ["there"]


async def test_events_written_by_two_at_once_keep_their_order() -> None:
    log, run = HeldLog(held=True), running_run()
    writer = EventWriter(log, run)
    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            for type_ in ("ResponseChunk", "Completed"):
                writer.put(type_, text="")
                tasks.start_soon(writer.flush)
                await anyio.wait_all_tasks_blocked()
            log.letting_go.set()
        [batch] = [batch async for batch in follow_writer(log, run, {})]
    assert [event.type for event in batch] == ["ResponseChunk", "Completed"]


class SlowQuery:
    def __init__(self) -> None:
        self.began, self.release, self.ended = anyio.Event(), anyio.Event(), anyio.Event()

    async def run(self) -> None:
        self.began.set()
        await self.release.wait()
        self.ended.set()


@pytest.mark.parametrize("slow", ["log", "run"])
async def test_a_client_that_leaves_within_a_query_lets_the_query_end(slow: str) -> None:
    """Or the pool would lose a connection."""
    query, run = SlowQuery(), dataclasses.replace(waiting_run(), state="running")
    log = SlowLog(query) if slow == "log" else MemoryLog(10, 60, 1_000_000)

    async def reread() -> Run:
        await query.run()
        return run

    async def follow() -> None:
        follower = RunFollower(log, run, 0, reread=reread, writers={})
        async for _ in follower.follow(0.01):
            pass

    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(follow)
            await query.began.wait()
            tasks.cancel_scope.cancel()
            query.release.set()
    assert query.ended.is_set()
