"""What every `SessionStore` does, seen from two nodes."""

from collections.abc import Awaitable, Callable

import anyio
import pytest
from anyio.lowlevel import checkpoint
from msgspec.structs import replace

from gateway.abc import SessionRecord, SessionStore
from schemas.errors import Unavailable
from tests.contracts.backends import DEADLINE_S, Backend, Pair
from tests.fixtures_database import HOST

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
KEYS = ["", "\0", "a-1\0", "a-2", "A-1", "é\n", "x" * 10_000, "*"]


async def until(expected: object, ask: Callable[[], Awaitable[object]]) -> None:
    """Ask again and again: what expires does so by the clock of the backend."""
    with anyio.fail_after(DEADLINE_S):
        while await ask() != expected:
            await checkpoint()


async def test_a_session_is_known_at_every_node(nodes: Pair) -> None:
    await nodes.a.sessions.put(ADA, LONG_S)
    assert await nodes.b.sessions.get(ADA.id) == ADA


async def test_a_session_that_changed_is_known_as_it_is_now(nodes: Pair) -> None:
    await nodes.a.sessions.put(ADA, LONG_S)
    changed = replace(ADA, log_level="debug", subscriptions=("file:///a", "b://c"), toolset="t")
    await nodes.b.sessions.put(changed, LONG_S)
    assert await nodes.a.sessions.get(ADA.id) == changed


@pytest.mark.parametrize("key", KEYS)
async def test_nobody_is_found_by_an_id_that_was_never_given(nodes: Pair, key: str) -> None:
    await nodes.a.sessions.put(ADA, LONG_S)
    assert await nodes.b.sessions.get(key) is None
    assert await nodes.b.sessions.delete(key) is False
    assert await nodes.b.sessions.beats(key) is False
    await nodes.b.sessions.touch(key, LONG_S)
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


async def test_a_touch_begins_the_time_to_live_anew(nodes: Pair) -> None:
    await nodes.a.sessions.put(ADA, LONG_S)
    await nodes.b.sessions.touch(ADA.id, SHORT_S)
    await until(None, lambda: nodes.a.sessions.get(ADA.id))
    await nodes.a.sessions.touch(ADA.id, LONG_S)  # too late
    assert await nodes.b.sessions.get(ADA.id) is None


async def test_purging_forgets_what_has_expired_and_nothing_else(nodes: Pair) -> None:
    other = replace(ADA, id="other")
    await nodes.a.sessions.put(other, LONG_S)
    await nodes.a.sessions.put(ADA, SHORT_S)
    await until(None, lambda: nodes.b.sessions.get(ADA.id))
    assert await nodes.b.sessions.purge() in (0, 1)  # 0: the backend had done it by itself
    assert await nodes.a.sessions.purge() == 0
    assert await nodes.a.sessions.get("other") == other


async def test_a_node_lives_while_it_says_so(nodes: Pair) -> None:
    assert await nodes.a.sessions.beats("n1") is False
    await nodes.a.sessions.beat("n1", LONG_S)
    assert await nodes.b.sessions.beats("n1") is True
    assert await nodes.b.sessions.beats("n2") is False
    await nodes.a.sessions.beat("n1", SHORT_S)
    await until(False, lambda: nodes.b.sessions.beats("n1"))


async def test_all_nodes_agree_on_a_secret_however_they_begin(nodes: Pair) -> None:
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


async def test_only_shared_sessions_say_that_they_are(backend: Backend, nodes: Pair) -> None:
    assert nodes.a.sessions.shared is (backend.state.backend != "memory")


async def test_a_backend_that_is_away_is_unavailable_until_it_is_back(shared: Backend) -> None:
    async with shared.nodes() as nodes:
        sessions = nodes.a.sessions
        await sessions.secret()
        await shared.refuses(
            sessions.put(ADA, LONG_S),
            sessions.get(ADA.id),
            sessions.touch(ADA.id, LONG_S),
            sessions.delete(ADA.id),
            sessions.beat("n", LONG_S),
            sessions.beats("n"),
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
