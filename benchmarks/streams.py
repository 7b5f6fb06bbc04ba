"""Thousands of idle event streams: memory of each, and latency until all are notified of a change.

The change comes from upstream: the gateway's MCP server gets one more tool and announces it.
"""

import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from http.client import HTTPConnection

import msgspec

from benchmarks import calls
from benchmarks.crowd import Crowd
from benchmarks.mcp_server import CHANGED
from benchmarks.processes import Child, allowed_files
from benchmarks.request import HttpRequest, Unavailable, expect
from benchmarks.rig import Rig, mcp_server
from benchmarks.table import Row, Target
from benchmarks.toolgate import relay

STREAMS = 9000
FEW = 1000  # in a run shorter than FULL_S
FULL_S = 10.0
SPARE_FILES = 500  # of a process, for whatever is no stream
PATIENCE_S = 10.0
POLL_S = 0.01
SETTINGS = {"session_rate": 10 * STREAMS, "session_limit": 2 * STREAMS}

MEMORY_TARGETS = (Target("value", 20.0),)
ALL_TARGETS = (Target("value", 2.0),)
ONE_TARGETS = (Target("value", 1.0),)
NEWS = CHANGED.encode()


@dataclass(frozen=True, slots=True)
class Kind:
    """A way to listen."""

    name: str
    ready: bytes  # what an open stream has said
    requests: Callable[[int, int], list[bytes]]  # port, number of streams


def _of_sessions(port: int, number: int) -> list[bytes]:
    """Opens the sessions."""
    with closing(HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)) as connection:
        sessions = [calls.open_session(connection) for _ in range(number)]
    return [_get(port, headers) for headers in sessions]


def _get(port: int, headers: Mapping[str, str]) -> bytes:
    accept = {**headers, "accept": "text/event-stream"}
    return HttpRequest(port, "/mcp", "GET", headers=accept).encode()[0]


def _of_requests(port: int, number: int) -> list[bytes]:
    filters = {"notifications": {"toolsListChanged": True}}
    request = calls.stateless(port, "subscriptions/listen", filters).encode()[0]
    return [request] * number


KINDS = (
    Kind("GET streams of sessions", b"HTTP/1.1 200", _of_sessions),
    Kind("subscriptions/listen streams", b"notifications/subscriptions/acknowledged", _of_requests),
)


@dataclass(frozen=True, slots=True)
class Scene:
    """A gateway of its own for each kind, because memory that was used once may stay."""

    kind: Kind
    child: Child
    server: Child

    def change(self) -> str:
        """Name of the tool that the server now has in addition."""
        answer = HttpRequest(self.server.port, "/tools", bodies=(b"{}",)).send()
        expect(answer, b'"name"')
        return str(msgspec.json.decode(answer.body)["name"])

    def open(self, crowd: Crowd, requests: Sequence[bytes]) -> None:
        crowd.open(requests, self.kind.ready, PATIENCE_S)


@dataclass(frozen=True, slots=True)
class Found:
    streams: int
    stream_kb: float  # memory of one
    session_kb: float  # and of its session, before there is a stream
    all_s: tuple[float, ...]  # from each change to the last stream
    one_s: tuple[float, ...]  # to a lone listener, who has the new list


def measure_streams(rig: Rig) -> list[Row]:
    number, note = count_streams(rig.slice_s * rig.rounds, allowed_files())
    return [row for kind in KINDS for row in rows(kind, _measure(rig, kind, number), note)]


def count_streams(seconds: float, files: int) -> tuple[int, str]:
    """How many streams there can be, and why they are fewer than they should."""
    goal, affordable = STREAMS if seconds >= FULL_S else FEW, files - SPARE_FILES
    if goal <= affordable:
        return goal, "" if goal == STREAMS else f"a full run has {STREAMS:,}"
    if affordable <= 0:
        raise Unavailable(f"only {files:,} open files are allowed (ulimit -n)")
    return affordable, f"only {files:,} open files are allowed (ulimit -n)"


def rows(kind: Kind, run: Found, note: str) -> list[Row]:
    crowd = f"{run.streams:,} {kind.name}"
    session = f"the session before it: {run.session_kb:.1f} kB" if run.session_kb >= 1 else ""
    notes = "; ".join(text for text in (session, note) if text)
    return [
        Row(f"{crowd}, memory of each", run.stream_kb, "kB", targets=MEMORY_TARGETS, note=notes),
        _times(f"{crowd}: a tool added upstream, all of them told", run.all_s, ALL_TARGETS),
        _times(f"the same: one of {kind.name} told, and the tool listed", run.one_s, ONE_TARGETS),
    ]


def _times(scenario: str, rounds: tuple[float, ...], targets: tuple[Target, ...]) -> Row:
    note = f"rounds from {min(rounds):.2f} to {max(rounds):.2f} s"
    return Row(scenario, statistics.median(rounds), "s", targets=targets, note=note, rounds=rounds)


def _measure(rig: Rig, kind: Kind, number: int) -> Found:
    with ExitStack() as stack:
        server = stack.enter_context(mcp_server(rig))
        child = stack.enter_context(relay(rig, server.url, SETTINGS))
        scene = Scene(kind, child, server)
        _await_listening(server)
        rig.say(f"one of {kind.name}")
        one_s = tuple(_seen_by_one(scene, rig.rounds))
        rig.say(f"opening {number:,} {kind.name}")
        start = child.rss_mb
        requests = kind.requests(child.port, number)
        connected_mb = child.rss_mb
        crowd = stack.enter_context(Crowd(child.port))
        scene.open(crowd, requests)
        full = child.rss_mb
        rig.say(f"telling {number:,} {kind.name}")
        all_s = tuple(_heard_by_all(scene, crowd, rig.rounds))
    return Found(
        number,
        (full - connected_mb) * 1e3 / number,
        (connected_mb - start) * 1e3 / number,
        all_s,
        one_s,
    )


def _await_listening(server: Child) -> None:
    """Until the gateway listens to its server; before that it hears of changes only later."""
    request, until = HttpRequest(server.port, "/streams", "GET"), time.perf_counter() + PATIENCE_S
    while request.send().body == b"0":
        if time.perf_counter() > until:
            raise Unavailable("the gateway does not listen to its MCP server")
        time.sleep(POLL_S)


def _heard_by_all(scene: Scene, crowd: Crowd, rounds: int) -> Iterator[float]:
    for _ in range(rounds):
        crowd.settle(NEWS)
        begin = time.perf_counter()
        scene.change()
        yield crowd.await_all(NEWS, PATIENCE_S) - begin


def _seen_by_one(scene: Scene, rounds: int) -> Iterator[float]:
    port = scene.child.port
    with Crowd(port) as crowd:
        scene.open(crowd, scene.kind.requests(port, 1))
        for _ in range(rounds):
            crowd.settle(NEWS)
            begin = time.perf_counter()
            added = scene.change()
            crowd.await_all(NEWS, PATIENCE_S)
            if added not in (tool["name"] for tool in calls.list_tools(port)):
                raise Unavailable("listeners were told before the new tool was listed")
            yield time.perf_counter() - begin
