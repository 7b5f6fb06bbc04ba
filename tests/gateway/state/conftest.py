"""Two nodes side by side in one process, sharing stores in its memory."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import anyio
import pytest

from gateway import context
from gateway.context import Principal, Session
from gateway.interfaces import Events
from gateway.state import open_sessions, sessions
from gateway.state.change_streams import Hub
from gateway.state.client_requests import ClientRequests, RemoteAnswers
from gateway.state.memory import MemoryCounter, MemoryLog, MemorySessions
from gateway.state.node_bus import Bus
from gateway.state.open_sessions import SessionLimits
from gateway.state.session_streams import Streams
from gateway.state.sessions import Sessions
from schemas.mcp.revisions import V2025_06_18

ANN = Principal("ann", "tenant")
IDLE_S = 60
TIMEOUT_S = 30


@dataclass
class Clock:
    """A monotonic clock that a test moves."""

    now: float = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(context, "time", clock)
    monkeypatch.setattr(open_sessions, "time", clock)
    monkeypatch.setattr(sessions, "time", clock)
    return clock


class Shared(MemorySessions):
    """What another process would see just as well, were there one."""

    shared = True


@dataclass
class Stores:
    log: MemoryLog
    sessions: MemorySessions
    counter: MemoryCounter


def stores_of(sessions=None, keep_events=1000):
    return Stores(MemoryLog(keep_events, 300, 10_000_000), sessions or Shared(), MemoryCounter())


class Node:
    """One gateway's part."""

    def __init__(self, stores, name="a", asks=20, timeout_s=TIMEOUT_S, keep_s=300, **limits):
        shared = stores.sessions.shared
        self.stores = stores
        self.bus = Bus(stores.log, shared, name)
        self.events = Events()
        self.hub = Hub(stream_limit=100, version=self.version_of, events=self.events)
        self.version = "AAAABBBBCCCC"
        chosen = {"idle_s": IDLE_S, "sessions": 100, "calls": 10, "rate": 1_000_000} | limits
        self.sessions = Sessions(
            self.hub,
            self.bus,
            store=stores.sessions,
            counter=stores.counter,
            limits=SessionLimits(**chosen),
            events=self.events,
        )
        later = self.sessions.background
        self.streams = Streams(
            stores.log, stores.sessions, stores.counter, self.bus, replay_s=300, background=later
        )
        answers = RemoteAnswers(stores.log, shared, later, keep_s)
        self.asks = ClientRequests(self.bus.node, answers, timeout_s, asks)

    def version_of(self, _tenant, _toolset):
        return self.version

    async def open(self, principal=ANN, revision=V2025_06_18, **more) -> Session:
        session = await self.sessions.open(
            revision, principal, {"name": "client"}, {"sampling": {}}, **more
        )
        session.touch()  # by the clock of the test
        session.renewed = session.last_used
        return session

    async def load(self, session: Session) -> Session:
        """The same session at this node."""
        await self.sessions.load(session.id)
        found = self.sessions.find(session.id, session.principal, session.toolset)
        assert found is not None
        return found


@asynccontextmanager
async def together(*nodes: Node) -> AsyncIterator[None]:
    """The nodes hear each other."""
    async with anyio.create_task_group() as tasks:
        for node in nodes:
            tasks.start_soon(node.bus.run)
        with anyio.fail_after(30):
            for node in nodes:
                await node.bus.following.wait()
        yield
        for node in nodes:
            await node.sessions.close_all()
        tasks.cancel_scope.cancel()


@pytest.fixture
async def nodes(anyio_backend: str) -> AsyncIterator[tuple[Node, Node]]:
    stores = stores_of()
    a, b = Node(stores, "aa"), Node(stores, "bb")
    async with together(a, b):
        yield a, b
