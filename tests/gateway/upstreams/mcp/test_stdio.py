"""Servers that are processes, under both event loops that we run on."""

import asyncio
import json
import logging
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import psutil
import pytest

from gateway.upstreams.http.source_pools import UpstreamFailed
from gateway.upstreams.mcp import stdio
from gateway.upstreams.mcp.backoff import RestartBackoff
from gateway.upstreams.mcp.duplex_link import DuplexLink
from gateway.upstreams.mcp.handshake import UNKNOWN
from gateway.upstreams.mcp.link_and_handlers import SessionLost, Timeout
from gateway.upstreams.mcp.stdio import ProcessCommand, open_stdio, open_stdio_stateless
from tests.gateway.upstreams.mcp.conftest import HELLO, Ears
from tests.polling import until
from tests.servers import mcp_stdio

pytestmark = pytest.mark.anyio

SERVER = (sys.executable, "-I", "-S", str(Path(mcp_stdio.__file__)))
PATIENT = Timeout(20, 20)  # processes start slowly on a loaded machine
LIMIT_BYTES = 1_000_000


@pytest.fixture(params=[False, True], ids=["asyncio", "uvloop"])
def anyio_backend(request):
    return ("asyncio", {"use_uvloop": request.param})


@pytest.fixture(autouse=True)
def little_grace(monkeypatch):
    monkeypatch.setattr(stdio, "GRACE_S", 0.2)


def command(habit: str = "handshake", **changes: Any) -> ProcessCommand:
    return ProcessCommand("things", (*SERVER, habit), line_limit_bytes=LIMIT_BYTES, **changes)


@pytest.fixture
async def open_link(anyio_backend: Any) -> AsyncIterator[Any]:
    links: list[DuplexLink] = []

    async def open_(
        started: ProcessCommand | None = None, background: Ears | None = None, **options: Any
    ) -> DuplexLink:
        respawn = options.pop("respawn", RestartBackoff("things", 60))
        timeout = options.pop("timeout", PATIENT)
        ears = background or Ears()
        link = await open_stdio(
            started or command(),
            respawn,
            HELLO,
            background=ears,
            timeout=timeout,
            requests_limit=3,
            **options,
        )
        links.append(link)
        return link

    yield open_
    for link in links:
        await link.close()


async def call(link: DuplexLink, name: str, ears: Ears | None = None, **params: Any) -> Any:
    members = await link.request("tools/call", {"name": name, **params}, ears, PATIENT)
    return {key: json.loads(bytes(value)) for key, value in members.items()}


def is_gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


async def until_gone(pid: int) -> None:
    with anyio.fail_after(20):
        while not is_gone(pid):  # noqa: ASYNC110 (nobody tells us of them)
            await anyio.sleep(0.01)


async def until_ended(link: DuplexLink) -> None:
    with anyio.fail_after(20):
        await link._hearing  # ends with the session


async def test_a_session_over_lines(open_link):
    link = await open_link()
    assert link.revision.name == "2025-06-18"
    assert link.facts.server_info == {"name": "handshake", "version": "1"}
    answers = await asyncio.gather(*(call(link, f"n{number}") for number in range(20)))
    assert [answer["echo"]["name"] for answer in answers] == [f"n{n}" for n in range(20)]


async def test_a_process_has_a_minimal_environment(open_link, monkeypatch):
    monkeypatch.setenv("TOOLGATE_SECRET", "s")
    monkeypatch.setenv("LC_ALL", "C.UTF-8")
    link = await open_link(command(env={"TOKEN": "t", "HOME": "/elsewhere"}))
    told = await call(link, "environment")
    environment = told["environment"]
    environment.pop("LC_CTYPE", None)  # Python's own
    assert environment.pop("PATH") == os.environ["PATH"]
    allowed = {"HOME", "LANG", "TMPDIR"} | {n for n in os.environ if n.startswith("LC_")}
    assert environment.keys() - {"TOKEN"} <= allowed
    assert (environment["TOKEN"], environment["HOME"]) == ("t", "/elsewhere")
    assert environment["LC_ALL"] == "C.UTF-8"
    assert told["group"] == told["pid"]  # one of its own


async def test_a_process_gets_no_files_of_ours_and_not_too_many_of_its_own(open_link):
    ours = os.open("/dev/null", os.O_RDONLY)
    os.set_inheritable(ours, True)
    try:
        told = await call(await open_link(), "files")
    finally:
        os.close(ours)
    assert told == {"open": [], "most": [1024, 1024]}


async def test_lines_that_are_no_answers_are_passed_over(open_link):
    assert await call(await open_link(), "garbage") == {}


async def test_progress_and_unattributed_messages_are_separated(open_link):
    background, ears = Ears(), Ears()
    link = await open_link(background=background)
    await call(link, "progress", ears, _meta={"progressToken": "t"})
    with anyio.fail_after(20):
        await background.until(1)
    told = ("notifications/progress", {"progressToken": "t", "progress": 1})
    assert ears.heard == [told, told]
    assert background.heard == [
        ("notifications/message", {"level": "info", "data": "unattributed"})
    ]


async def test_the_process_asks(open_link):
    async def answer(method: str, params: Any) -> Any:
        return {"roots": [], "method": method}

    link = await open_link(background=Ears(answer=answer))
    members = await link.request("ask", {}, None, PATIENT)
    answer_sent = json.loads(bytes(members["got"]))
    assert answer_sent["result"] == {"roots": [], "method": "roots/list"}
    assert answer_sent["id"] == "q"


async def test_a_cancelled_request_is_cancelled_there_too(open_link):
    background = Ears()
    link = await open_link(background=background)
    calling = asyncio.create_task(call(link, "never"))
    with anyio.fail_after(20):
        await anyio.wait_all_tasks_blocked()
        calling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await calling
        await background.until(1)
    assert background.heard[0][1]["data"] == 2  # the id that it knows


async def test_a_flood_of_notifications_holds_no_answer_up(open_link):
    background = Ears()
    link = await open_link(background=background)
    assert await call(link, "flood") == {}
    assert (await call(link, "x"))["echo"]


async def test_stderr_goes_to_the_log_within_bounds(open_link, caplog):
    caplog.set_level(logging.INFO, "toolgate.upstream")
    link = await open_link()
    await call(link, "stderr")
    await link.close()
    lines = [record.line for record in caplog.records if record.message == "stdio_stderr"]
    assert lines[0] == "x" * stdio.LOG_LINE_BYTES
    assert len(lines) == stdio.LOGGED_LINES


async def test_a_line_that_is_too_long_ends_the_process(open_link):
    link = await open_link()
    told = await call(link, "environment")
    assert len((await call(link, "long", arguments={"size": 100_000}))["long"]) == 100_000
    with pytest.raises(SessionLost, match=f"answered more than {LIMIT_BYTES} bytes"):
        await call(link, "long", arguments={"size": 10**8})
    assert not link.alive
    await until_gone(told["pid"])


async def test_the_memory_of_a_process_is_limited(open_link):
    link = await open_link(command(memory_bytes=2**29))
    assert await call(link, "memory", arguments={"size": 2**20}) == {"held": 2**20}
    assert await call(link, "memory", arguments={"size": 2**30}) == {"held": 0}


async def test_reserved_addresses_are_no_memory(open_link):
    """Node.js reserves 10 GB when a server calls fetch() for the first time."""
    link = await open_link(command(memory_bytes=2**29))
    assert await call(link, "reserve", arguments={"size": 2**34}) == {"reserved": True}


async def test_a_process_that_does_not_read_is_sent_no_more(anyio_backend):
    link = await open_stdio_stateless(
        command("deaf"), RestartBackoff("things", 60), HELLO, background=Ears(), facts=UNKNOWN
    )
    texts = []
    while len(texts) < 50 and not (texts and "read" in texts[-1]):
        with pytest.raises(UpstreamFailed) as caught:
            await link.request("x", {"a": "x" * 500_000}, None, Timeout(0.05, 0.05))
        texts.append(str(caught.value))
    await link.close()
    assert texts[0] == "things did not answer within 0.05 s"
    assert texts[-1] == "things does not read its input"


@pytest.mark.parametrize("name", ["exit", "answer-and-exit"])
async def test_a_process_that_ends_takes_its_session_along(open_link, name):
    link = await open_link()
    if name == "exit":
        with pytest.raises(SessionLost, match="things has ended") as caught:
            await call(link, name)
        assert caught.value.sent
    else:
        assert await call(link, name) == {"said": "goodbye"}  # what it said last still counts
        await until_ended(link)
    with pytest.raises(SessionLost) as caught:
        await call(link, "x")
    assert not caught.value.sent


async def test_closing_ends_the_process_and_its_children(open_link):
    link = await open_link()
    pid = (await call(link, "environment"))["pid"]
    child = (await call(link, "fork"))["child"]
    await link.close()
    assert is_gone(pid)
    await until_gone(child)


async def test_children_do_not_outlive_their_process(open_link):
    link = await open_link()
    child = (await call(link, "fork-and-exit"))["child"]
    await until_gone(child)
    await until_ended(link)


async def test_a_process_that_will_not_end_is_made_to(open_link):
    link = await open_link(command("stubborn"))
    pid = (await call(link, "environment"))["pid"]
    await link.close()
    assert is_gone(pid)


async def test_an_interrupted_close_leaves_no_process_behind(open_link, monkeypatch):
    monkeypatch.setattr(stdio, "GRACE_S", 60)
    link = await open_link(command("stubborn"))
    pid = (await call(link, "environment"))["pid"]
    with anyio.move_on_after(0.05):
        await link.close()
    await until_gone(pid)


async def test_a_command_that_is_not_there(open_link, monkeypatch):
    monkeypatch.setattr(stdio, "EOF_TIMEOUT_S", 30)  # a busy machine tells of the exit late
    missing = ProcessCommand("things", ("/nowhere/at-all",))
    with pytest.raises(UpstreamFailed, match="its command was not found or cannot be run"):
        await open_link(missing)


async def test_the_end_of_a_process_before_its_session_has_its_reason(open_link, monkeypatch):
    begin, respawn = DuplexLink.begin, RestartBackoff("things", 60)

    async def begin_late(link, *arguments):
        await until(lambda: not link.alive)
        await begin(link, *arguments)

    monkeypatch.setattr(DuplexLink, "begin", begin_late)
    reason = "its command was not found or cannot be run"
    with pytest.raises(UpstreamFailed, match=reason):
        await open_link(ProcessCommand("things", ("/nowhere/at-all",)), respawn=respawn)
    with pytest.raises(UpstreamFailed, match=rf"{reason}; it is not started again for another 0\."):
        respawn.check()


async def test_a_process_that_ends_at_once_is_not_started_again_at_once(open_link):
    respawn = RestartBackoff("things", 60)
    with pytest.raises(UpstreamFailed, match="things has ended"):
        await open_link(command("exits"), respawn=respawn)
    with pytest.raises(
        UpstreamFailed, match=r"^things has ended; it is not started again for another 0\.\d s$"
    ):
        await open_link(command("exits"), respawn=respawn)


async def test_a_process_that_never_answers_is_ended_and_not_started_again_at_once(open_link):
    respawn = RestartBackoff("things", 60)
    with pytest.raises(UpstreamFailed, match=r"did not answer within 0\.3 s"):
        await open_link(command("deaf"), respawn=respawn, timeout=Timeout(0.3, 0.3))
    with pytest.raises(UpstreamFailed, match="was started and did not begin a session"):
        respawn.check()


async def test_a_stateless_process_is_told_all_with_every_request(anyio_backend):
    link = await open_stdio_stateless(
        command("modern"), RestartBackoff("things", 60), HELLO, background=Ears(), facts=UNKNOWN
    )
    meta = (await call(link, "x"))["echo"]["_meta"]
    assert meta["io.modelcontextprotocol/protocolVersion"] == "2026-07-28"
    ears = Ears()
    with anyio.fail_after(20):
        async with link.listen({"toolsListChanged": True}, ears) as over:
            await ears.until(2)
            assert not over.done()
    assert [method for method, _ in ears.heard] == [
        "notifications/subscriptions/acknowledged",
        "notifications/tools/list_changed",
    ]
    await link.close()


ORPHAN = """
import asyncio, sys
from tests.gateway.upstreams.mcp.test_stdio import PATIENT, command, Ears, HELLO
from gateway.upstreams.mcp.backoff import RestartBackoff
from gateway.upstreams.mcp.stdio import open_stdio

async def main():
    respawn = RestartBackoff("t", 1)
    link = await open_stdio(
        command("stubborn"), respawn, HELLO,
        background=Ears(), timeout=PATIENT, requests_limit=1)
    members = await link.request("tools/call", {"name": "environment"}, None, PATIENT)
    print(bytes(members["pid"]).decode(), flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere its input ends, no more")
async def test_a_gateway_that_is_killed_leaves_no_process_behind(anyio_backend):
    words = [sys.executable, "-c", ORPHAN]
    async with await anyio.open_process(words, stdout=subprocess.PIPE) as gateway:
        assert gateway.stdout is not None
        pid = int(await gateway.stdout.receive())
        assert not is_gone(pid)
        gateway.send_signal(signal.SIGKILL)
    await until_gone(pid)


def test_pauses_double_until_a_process_has_lived_long_enough():
    now = 0.0
    respawn = RestartBackoff("things", 4, clock=lambda: now)
    respawn.check()
    pauses = []
    for _ in range(5):
        respawn.record_end(0.1, "has ended")
        before = now
        while True:
            try:
                respawn.check()
            except UpstreamFailed:
                now += 0.25
            else:
                break
        pauses.append(now - before)
    assert pauses == [0.5, 1, 2, 4, 4]
    respawn.record_end(5, "has ended")
    now += 0.5
    respawn.check()
