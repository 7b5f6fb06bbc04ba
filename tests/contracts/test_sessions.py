"""What every `SessionStore` does, seen from two nodes."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import anyio
import pytest
from anyio.lowlevel import checkpoint
from msgspec.structs import replace

from gateway.interfaces import SessionChange, SessionRecord, SessionStore
from schemas.errors import Unavailable
from tests.contracts.backends import DEADLINE_S, Backend, Pair
from tests.fixtures_database import HOST
from tests.properties import examples

pytestmark = pytest.mark.anyio

LONG_S, SHORT_S = 3600, 0.001
ADA = SessionRecord(
    id="a-1",
    revision="2025-11-25",
    tenant=HOST,
    principal="ada",
    toolset=None,
    client={"name": "tester \0 ☃", "version": "1", "icons": [{"src": "x"}]},
    capabilities={"roots": {"listChanged": True}, "sampling": {}},
)
CHANGES, WRITERS = examples(1600), 20
KEYS = ["", "\0", "a-1\0", "a-2", "A-1", "é\n", "x" * 10_000, "*"]


@dataclass
class Wanted:
    """What a session is like after changes that are not of the same things."""

    subscriptions: set[str] = field(default_factory=set)
    skills: set[str] = field(default_factory=set)

    def apply(self, change: SessionChange) -> None:
        self.subscriptions = self.subscriptions.union(change.subscribe) - {*change.unsubscribe}
        self.skills = self.skills.union(change.use) - {*change.leave}


async def until(expected: object, ask: Callable[[], Awaitable[object]]) -> None:
    """Ask again and again: what expires does so by the clock of the backend."""
    with anyio.fail_after(DEADLINE_S):
        while await ask() != expected:
            await checkpoint()


async def test_a_session_is_known_at_every_node(nodes: Pair) -> None:
    await nodes.a.sessions.put(ADA, LONG_S)
    assert await nodes.b.sessions.get(ADA.id) == ADA


async def test_a_session_is_known_with_all_that_its_client_said(nodes: Pair) -> None:
    await nodes.a.sessions.put(ADA, LONG_S)
    changed = replace(ADA, log_level="debug", subscriptions=("b://c", "file:///a"), toolset="t")
    await nodes.b.sessions.put(changed, LONG_S)
    assert await nodes.a.sessions.get(ADA.id) == changed


@pytest.mark.parametrize("key", KEYS)
async def test_nobody_is_found_by_an_id_that_was_never_given(nodes: Pair, key: str) -> None:
    await nodes.a.sessions.put(ADA, LONG_S)
    assert await nodes.b.sessions.get(key) is None
    assert await nodes.b.sessions.delete(key) is False
    assert await nodes.b.sessions.is_alive(key) is False
    assert await nodes.b.sessions.hold(key, "n", LONG_S) is None
    assert await nodes.b.sessions.change(key, SessionChange(log_level="info"), LONG_S) is None
    assert await nodes.b.sessions.get(key) is None


async def test_every_node_knows_all_sessions_that_are_open(nodes: Pair) -> None:
    assert await nodes.a.sessions.all() == []
    bob = replace(ADA, id="b-1", principal="bob")
    for record in (ADA, bob):
        await nodes.a.sessions.put(record, LONG_S)
    await nodes.a.sessions.put(replace(ADA, id="c-1"), SHORT_S)
    await until(None, lambda: nodes.a.sessions.get("c-1"))
    assert sorted(await nodes.b.sessions.all(), key=lambda one: one.id) == [ADA, bob]


async def test_a_session_that_is_deleted_is_deleted_everywhere(nodes: Pair) -> None:
    await nodes.a.sessions.put(ADA, LONG_S)
    assert await nodes.b.sessions.delete(ADA.id) is True
    assert await nodes.a.sessions.get(ADA.id) is None
    assert await nodes.a.sessions.delete(ADA.id) is False


async def test_a_session_ends_that_nobody_uses(nodes: Pair) -> None:
    await nodes.a.sessions.put(ADA, SHORT_S)
    await until(None, lambda: nodes.b.sessions.get(ADA.id))
    assert await nodes.b.sessions.delete(ADA.id) is False


async def test_holding_a_session_begins_its_time_to_live_anew(nodes: Pair) -> None:
    await nodes.a.sessions.put(ADA, LONG_S)
    assert await nodes.b.sessions.hold(ADA.id, "b", SHORT_S) == replace(ADA, nodes=("b",))
    await until(None, lambda: nodes.a.sessions.get(ADA.id))
    assert await nodes.a.sessions.hold(ADA.id, "a", LONG_S) is None  # too late
    assert await nodes.b.sessions.get(ADA.id) is None


async def test_changing_a_session_returns_the_nodes_that_hold_the_session(nodes: Pair) -> None:
    await nodes.a.sessions.put(replace(ADA, nodes=("a",)), LONG_S)
    for node in ("b", "a", "b"):
        await nodes.b.sessions.hold(ADA.id, node, LONG_S)
    record = await nodes.a.sessions.change(ADA.id, SessionChange(log_level="info"), LONG_S)
    assert record is not None
    assert (sorted(record.nodes), record.version) == (["a", "b"], 1)


async def test_a_change_sets_new_values_and_keeps_the_rest(nodes: Pair) -> None:
    known = replace(ADA, log_level="info", subscriptions=("a://1", "a://2"), skills=("mail",))
    await nodes.a.sessions.put(known, LONG_S)
    uri = "a://é☃?x=s:y"
    change = SessionChange(subscribe=(uri, "a://2"), unsubscribe=("a://1", "b://none"))
    await nodes.b.sessions.change(ADA.id, change, LONG_S)
    client, capabilities = {"name": "late", "icons": []}, {"roots": {}, "odd": []}
    change = SessionChange(client=client, capabilities=capabilities, use=("s:x",), leave=("mail",))
    expected = replace(
        known,
        client=client,
        capabilities=capabilities,
        subscriptions=("a://2", uri),
        skills=("s:x",),
        version=2,
    )
    assert await nodes.a.sessions.change(ADA.id, change, LONG_S) == expected
    assert await nodes.b.sessions.get(ADA.id) == expected


async def test_no_change_is_lost_when_nodes_change_one_session_at_once(nodes: Pair) -> None:
    """Each of `WRITERS` requests makes its changes one after the other, at both nodes in turn."""
    await nodes.a.sessions.put(ADA, LONG_S)
    stores = (nodes.a.sessions, nodes.b.sessions)

    async def write(writer: int) -> None:
        for number in range(CHANGES // WRITERS):
            uri, skill = f"r://{writer}/{number % 9}", f"skill-{writer}-{number % 3}"
            change = (
                SessionChange(subscribe=(uri,)),
                SessionChange(subscribe=(uri,), log_level="info"),
                SessionChange(unsubscribe=(uri,), use=(skill,)),
                SessionChange(subscribe=(uri,), leave=(skill,)),
            )[number % 4]
            wanted.apply(change)
            assert await stores[number % 2].change(ADA.id, change, LONG_S) is not None

    wanted = Wanted()
    with anyio.fail_after(DEADLINE_S):
        async with anyio.create_task_group() as tasks:
            for writer in range(WRITERS):
                tasks.start_soon(write, writer)
    record = await nodes.b.sessions.get(ADA.id)
    assert record is not None
    assert (set(record.subscriptions), set(record.skills)) == (wanted.subscriptions, wanted.skills)
    assert (record.version, record.log_level) == (CHANGES, "info")


async def test_purging_forgets_only_expired_sessions(nodes: Pair) -> None:
    other = replace(ADA, id="other")
    await nodes.a.sessions.put(other, LONG_S)
    await nodes.a.sessions.put(ADA, SHORT_S)
    await until(None, lambda: nodes.b.sessions.get(ADA.id))
    assert await nodes.b.sessions.purge() in (0, 1)  # 0: the backend had done it by itself
    assert await nodes.a.sessions.purge() == 0
    assert await nodes.a.sessions.get("other") == other


async def test_a_node_is_alive_until_its_heartbeat_expires(nodes: Pair) -> None:
    assert await nodes.a.sessions.is_alive("n1") is False
    await nodes.a.sessions.beat("n1", LONG_S)
    assert await nodes.b.sessions.is_alive("n1") is True
    assert await nodes.b.sessions.is_alive("n2") is False
    await nodes.a.sessions.beat("n1", SHORT_S)
    await until(False, lambda: nodes.b.sessions.is_alive("n1"))


async def test_concurrent_nodes_agree_on_a_secret(nodes: Pair) -> None:
    secrets: list[bytes] = []

    async def ask(store: SessionStore) -> None:
        secrets.append(await store.secret())

    async with anyio.create_task_group() as tasks:
        for _ in range(4):
            tasks.start_soon(ask, nodes.a.sessions)
            tasks.start_soon(ask, nodes.b.sessions)
    assert len(secrets) == 8
    assert len(set(secrets)) == 1
    assert len(secrets[0]) == 32


async def test_a_secret_survives_purging(nodes: Pair) -> None:
    secret = await nodes.a.sessions.secret()
    await nodes.a.purge()
    assert await nodes.b.sessions.secret() == secret


async def test_only_shared_stores_are_marked_shared(backend: Backend, nodes: Pair) -> None:
    assert nodes.a.sessions.shared is (backend.state.backend != "memory")


async def test_an_unreachable_backend_is_unavailable_until_back(shared_backend: Backend) -> None:
    async with shared_backend.nodes() as nodes:
        sessions = nodes.a.sessions
        await sessions.secret()
        await shared_backend.refuses(
            sessions.put(ADA, LONG_S),
            sessions.get(ADA.id),
            sessions.hold(ADA.id, "a", LONG_S),
            sessions.change(ADA.id, SessionChange(log_level="info"), LONG_S),
            sessions.delete(ADA.id),
            sessions.beat("n", LONG_S),
            sessions.is_alive("n"),
            sessions.secret(),
        )

        async def answers() -> bool:
            try:
                await sessions.put(ADA, LONG_S)
            except Unavailable:
                return False
            return True

        await until(True, answers)
        assert await nodes.b.sessions.get(ADA.id) == ADA
