"""What is of Redis alone."""

import logging
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, cast

import anyio
import msgspec
import pytest
from anyio.lowlevel import checkpoint

from config.load import load
from config.settings import DatabaseSettings
from gateway.context import Principal
from gateway.interfaces import SessionChange, SessionRecord
from gateway.state import redis
from gateway.state.postgres import read_installation
from gateway.state.redis import KeyPrefix, RedisCounter, RedisLog, connect
from gateway.state.stores import Retention
from registry.database.postgres import Database
from schemas.errors import ToolgateError, Unavailable
from tests.contracts.backends import DEADLINE_S, in_redis, open_stores
from tests.fixtures_database import TEMPLATE, Cluster, own_database
from tests.fixtures_redis import RedisCluster, RedisServer
from tests.gateway.state.conftest import ANN, Node, together

pytestmark = pytest.mark.anyio

SESSION = SessionRecord("a", "2025-11-25", "t", "p", None, {}, {})


async def test_everything_expires_but_the_secret(
    redis_server: RedisServer, database_settings: DatabaseSettings
) -> None:
    async with in_redis(redis_server, database_settings).nodes() as nodes:
        await nodes.a.log.append("s", b"")
        await nodes.a.sessions.put(SESSION, 60)
        await nodes.a.sessions.hold("a", "n", 60)
        await nodes.a.sessions.beat("n", 60)
        await nodes.a.counter.hit("k", 1, 60)
        await nodes.a.sessions.secret()
    with redis_server.client() as client:
        lasting = [key for key in client.scan_iter() if client.ttl(key) < 0]
        assert sorted(lasting) == [b"toolgate:installation", b"toolgate:secret"]
        assert client.dbsize() == 6


async def test_errors_of_redis_are_unavailable_and_logged(
    redis_server: RedisServer, database_settings: DatabaseSettings, caplog: pytest.LogCaptureFixture
) -> None:
    with redis_server.client() as client:
        client.set("toolgate:stream:s", "not a stream")
    async with in_redis(redis_server, database_settings).nodes() as nodes:
        with pytest.raises(Unavailable) as refused:
            await nodes.a.log.append("s", b"")
    assert "WRONGTYPE" not in refused.value.message
    (record,) = [one for one in caplog.records if one.message == "redis_refused"]
    assert "WRONGTYPE" in record.reason  # type: ignore[attr-defined]


def whole(**changes: str | bytes) -> dict[str, str | bytes]:
    """A session as Redis has it, with some fields changed."""
    record = msgspec.json.encode(SESSION).decode()
    return {"record": record, "version": "0", "client": "{}", "capabilities": "{}", **changes}


@pytest.mark.parametrize(
    "fields",
    [
        whole(record="{"),
        whole(record="[" * 100_000),
        whole(record='{"id": "a"}'),
        whole(version="many"),
        whole(client="[]"),
        whole(capabilities="null"),
        whole(level=b"\xff"),
        {**whole(), b"s:\xff": "1"},
        {"odd": "1"},
        whole(client='{"name": "' + "x" * 2**20 + '"}'),
        whole(**{f"s:{number}": "1" for number in range(10_000)}),
    ],
)
async def test_an_unreadable_session_is_none_and_other_sessions_work(
    redis_server: RedisServer,
    database_settings: DatabaseSettings,
    caplog: pytest.LogCaptureFixture,
    fields: dict[str, str],
) -> None:
    async with in_redis(redis_server, database_settings).nodes() as nodes:
        await nodes.a.sessions.put(SESSION, 60)
        with redis_server.client() as client:
            client.hset("toolgate:session:{bad}", mapping=fields)
        assert await nodes.a.sessions.get("bad") is None
        assert await nodes.a.sessions.hold("bad", "n", 60) is None
        assert await nodes.b.sessions.all() == [SESSION]
    assert {one.message for one in caplog.records} == {"session_unreadable"}


async def test_a_key_of_another_type_is_no_session(
    redis_server: RedisServer, database_settings: DatabaseSettings
) -> None:
    with redis_server.client() as client:
        client.set("toolgate:session:{text}", "hunter2")
        client.lpush("toolgate:session:{list}", "hunter2")
        client.hset("toolgate:session:{mine}", mapping=whole())
    async with in_redis(redis_server, database_settings).nodes() as nodes:
        for key in ("text", "list"):
            assert await nodes.a.sessions.get(key) is None
            assert await nodes.a.sessions.change(key, SessionChange(use=("x",)), 60) is None
        (found,) = await nodes.a.sessions.all()
        assert found.id == "mine"  # whatever its record says


async def test_a_session_is_that_of_the_tenant_and_principal_in_its_record(
    redis_server: RedisServer,
    database_settings: DatabaseSettings,
) -> None:
    """Ids of others are of no use: also not where the store has the session."""
    async with in_redis(redis_server, database_settings).nodes() as stores:
        a, b = Node(stores.a, "aa"), Node(stores.b, "bb")
        async with together(a, b):
            session = await a.open()
            await b.sessions.load(session.id)
            for other in (Principal("ann", "another"), Principal("bob", "tenant")):
                assert b.sessions.find(session.id, other) is None
            assert await b.sessions.all("another") == []
            assert b.sessions.find(session.id, ANN) is not None


async def test_foreign_messages_on_the_bus_stop_no_node(
    redis_server: RedisServer, database_settings: DatabaseSettings, caplog: pytest.LogCaptureFixture
) -> None:
    async with in_redis(redis_server, database_settings).nodes() as stores:
        a, b = Node(stores.a, "aa"), Node(stores.b, "bb")
        heard = anyio.Event()

        async def hear(_said: object) -> None:
            heard.set()

        b.bus.on("mine", hear)
        async with together(a, b):
            await a.bus.broadcast("other")
            with redis_server.client() as client:
                client.publish("toolgate:appended", b"\xff\xfe")
                client.xadd("toolgate:stream:bus", {"x": "1"})
            for junk in (b"", b"{", b"[]", b"\xff", b'{"node": 1}', b'{"kind": []}'):
                await stores.a.log.append("bus", junk)
            await a.bus.broadcast("mine")
            with anyio.fail_after(DEADLINE_S):
                await heard.wait()
    assert "bus_message_unreadable" in {one.message for one in caplog.records}


@pytest.mark.parametrize("spoilt", [b"", b"short", b"x" * 33])
async def test_a_secret_that_was_replaced_by_something_else_seals_nothing(
    redis_server: RedisServer, database_settings: DatabaseSettings, spoilt: bytes
) -> None:
    with redis_server.client() as client:
        client.set("toolgate:secret", spoilt)
    async with in_redis(redis_server, database_settings).nodes() as nodes:
        with pytest.raises(Unavailable):
            await nodes.a.sessions.secret()


@pytest.mark.parametrize("option", ["?db=hunter2", "?hunter2=1&nothing=2"])
async def test_a_url_that_the_client_cannot_use_is_told_unseen(option: str) -> None:
    with pytest.raises(ToolgateError, match=r"state\.redis_url cannot be used") as refused:
        connect(f"redis://me:hunter2@127.0.0.1:1/{option}", 1, 1)
    assert "hunter2" not in str(refused.value)


async def test_a_redis_that_never_answers_is_given_up(redis_server: RedisServer) -> None:
    redis = connect(redis_server.url, timeout_s=0.1, connections=2)
    kept = RedisLog(redis, 10, 60, prefix=KeyPrefix(redis, "toolgate:", read_no_database))
    await kept.append("s", b"before")
    redis_server.freeze()
    try:
        with anyio.fail_after(DEADLINE_S), pytest.raises(Unavailable):
            await kept.append("s", b"unknown")
    finally:
        redis_server.thaw()
    with anyio.fail_after(DEADLINE_S):
        while True:
            try:
                await kept.append("s", b"after")
                break
            except Unavailable:
                await checkpoint()
    said = [event.data for event in await kept.read("s", "")]
    assert said[0] == b"before"
    assert said.count(b"unknown") <= 1  # nothing is sent twice
    await redis.aclose()


async def test_silence_on_the_channel_is_told_from_a_dead_connection(
    redis_server: RedisServer,
    database_settings: DatabaseSettings,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    # a quarter of a minute is too long for a test
    monkeypatch.setattr(redis, "CHECK_S", 0.02)
    caplog.set_level(logging.WARNING, "toolgate.state")
    async with in_redis(redis_server, database_settings).nodes() as nodes:
        with redis_server.client() as client, anyio.fail_after(DEADLINE_S):
            while client.info("commandstats").get("cmdstat_ping", {"calls": 0})["calls"] < 10:
                await checkpoint()
        assert caplog.records == []  # it answered every time
        redis_server.freeze()
        try:
            with anyio.fail_after(DEADLINE_S):
                while not caplog.records:
                    await checkpoint()
        finally:
            redis_server.thaw()
        assert {record.message for record in caplog.records} == {"redis_connection_lost"}
        woken = anyio.Event()
        with nodes.b.log.watch("s", woken.set), anyio.fail_after(DEADLINE_S):
            await nodes.a.log.append("s", b"")
            await woken.wait()


@pytest.mark.parametrize("backend", ["memory", "redis"])
async def test_a_given_secret_is_the_same_everywhere(backend: str) -> None:
    async def secret(text: str) -> bytes:
        env = {"TOOLGATE_STATE__BACKEND": backend, "TOOLGATE_STATE__SECRET": text}
        if backend == "redis":
            env["TOOLGATE_STATE__REDIS_URL"] = "redis://127.0.0.1:1"  # nobody is asked
        state = load(None, env).state
        async with open_stores(state, Retention(1, 1), lambda: None) as stores:
            assert not text or text not in repr(stores)
            return await stores.secret()

    one = await secret("a text of 16 characters")
    assert (len(one), await secret("a text of 16 characters")) == (32, one)
    assert await secret("another text of 16") != one


async def test_a_random_secret_differs_in_each_process() -> None:
    async def secret() -> bytes:
        async with open_stores(load(None, {}).state, Retention(1, 1), lambda: None) as stores:
            assert await stores.secret() == await stores.secret()
            return await stores.secret()

    assert await secret() != await secret()


async def test_all_keys_of_a_session_are_on_one_node_of_a_cluster(
    redis_cluster: RedisCluster,
    database_settings: DatabaseSettings,
) -> None:
    sessions = [f"{n:08x}" for n in range(40)]
    async with in_redis(redis_cluster, database_settings).nodes() as nodes:
        for session in sessions:
            await nodes.a.sessions.put(msgspec.structs.replace(SESSION, id=session), 60)
            for stream in ("standalone", "1"):
                await nodes.b.log.append(f"s/{session}/{stream}", b"")
        assert {one.id for one in await nodes.b.sessions.all()} == set(sessions)
    keys = redis_cluster.keys()
    assert all(keys)  # they are spread
    for session in sessions:
        tag = f"{{{session}}}".encode()
        assert sorted(sum(tag in key for key in own) for own in keys) == [0, 0, 3]


async def test_commands_beyond_the_connections_of_a_cluster_wait(
    redis_cluster: RedisCluster,
) -> None:
    client = connect(redis_cluster.url, 5, 2)
    try:
        with anyio.fail_after(DEADLINE_S):
            async with anyio.create_task_group() as tasks:
                for n in range(100):
                    tasks.start_soon(client.set, f"k{n}", n)
        assert await client.get("k99") == b"99"
    finally:
        await client.aclose()


@pytest.mark.parametrize("url", ["redis+cluster://a/1", "redis+cluster://a?x=hunter2"])
async def test_an_unusable_address_of_a_cluster_is_refused_unseen(url: str) -> None:
    with pytest.raises(ToolgateError, match=r"state\.redis_url cannot be used") as refused:
        connect(url, 5, 1)
    assert "hunter2" not in str(refused.value)


async def test_two_prefixes_share_nothing(
    redis_server: RedisServer, database_settings: DatabaseSettings
) -> None:
    """Sessions, counters, streams, nodes and the secret of two installations on one Redis are
    apart (mending 9)."""
    backend = in_redis(redis_server, database_settings)
    odd = replace(backend, state=msgspec.structs.replace(backend.state, redis_prefix="other-1:"))
    async with backend.nodes() as ours, odd.nodes() as theirs:
        await ours.a.sessions.put(SESSION, 60)
        await ours.a.sessions.beat("n", 60)
        assert (await ours.a.counter.hit("k", 1, 60)).is_allowed
        written = await ours.a.log.append("s", b"ours")

        assert [record.id for record in await ours.b.sessions.all()] == [SESSION.id]
        assert await theirs.a.sessions.get(SESSION.id) is None
        assert await theirs.a.sessions.all() == []
        assert not await theirs.a.sessions.is_alive("n")
        assert (await theirs.a.counter.hit("k", 1, 60)).is_allowed
        assert await theirs.a.log.last("s") == ""
        assert await ours.b.log.last("s") == written
        assert await theirs.a.sessions.secret() != await ours.a.sessions.secret()
        await theirs.a.sessions.put(SESSION, 60)
        assert [record.id for record in await theirs.b.sessions.all()] == [SESSION.id]
    with redis_server.client() as client:
        prefixes = {key.partition(b":")[0] for key in client.scan_iter()}
        assert prefixes == {b"toolgate", b"other-1"}


@pytest.mark.parametrize("servers", ["redis_server", "redis_cluster"])
async def test_two_installations_on_one_redis_do_not_see_each_other(
    servers: str,
    request: pytest.FixtureRequest,
    cluster: Cluster,
    database_settings: DatabaseSettings,
) -> None:
    """Sessions, counters, streams, heartbeats and secrets are of one installation, which is known
    by its database, though both have the same settings (mending 9)."""
    server = request.getfixturevalue(servers)
    with contextmanager(own_database)(cluster, TEMPLATE) as other_settings:
        ours, theirs = in_redis(server, database_settings), in_redis(server, other_settings)
        async with ours.nodes() as first, theirs.nodes() as second:
            await first.a.sessions.put(SESSION, 60)
            await first.a.sessions.beat("n", 60)
            written = await first.a.log.append("s", b"ours")
            assert (await first.a.counter.hit("k", 1, 60)).is_allowed

            assert await first.b.sessions.get(SESSION.id) == SESSION
            assert await first.b.sessions.is_alive("n")
            assert await first.b.log.last("s") == written
            assert not (await first.b.counter.hit("k", 1, 60)).is_allowed
            assert await first.b.sessions.secret() == await first.a.sessions.secret()

            assert await second.a.sessions.all() == []
            assert await second.a.sessions.get(SESSION.id) is None
            assert not await second.a.sessions.is_alive("n")
            assert await second.a.log.last("s") == ""
            assert (await second.a.counter.hit("k", 1, 60)).is_allowed
            assert await second.a.sessions.secret() != await first.a.sessions.secret()

            woken = anyio.Event()
            with second.b.log.watch("s", woken.set):
                await second.a.log.append("s", b"theirs")
                with anyio.fail_after(DEADLINE_S):
                    await woken.wait()
            await second.a.sessions.put(SESSION, 60)
            assert [record.id for record in await second.b.sessions.all()] == [SESSION.id]


async def test_the_installation_with_existing_keys_keeps_its_prefix(
    redis_server: RedisServer, database_settings: DatabaseSettings
) -> None:
    """A gateway of an older release, which claims nothing else, shares the keys of new ones of its
    database during a rolling upgrade (mending 9)."""
    async with in_redis(redis_server, database_settings).nodes() as nodes:
        await nodes.a.sessions.put(SESSION, 60)
    async with in_redis(redis_server, database_settings).nodes() as nodes:
        assert await nodes.a.sessions.get(SESSION.id) == SESSION
    with redis_server.client() as client:
        assert client.exists("toolgate:session:{a}")


async def test_a_prefix_that_is_taken_gets_the_id_behind_and_is_logged(
    redis_server: RedisServer, database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    """The log names the prefix that is used instead (mending 9)."""
    with redis_server.client() as client:
        client.set("toolgate:installation", "somebody else's")
    state = in_redis(redis_server, load(None, {}).database).state
    async with open_stores(state, Retention(10, 10), lambda: database) as stores:
        await stores.counter.hit("k", 1, 60)
        await stores.counter.hit("k", 1, 60)
    used = f"toolgate:{await read_installation(lambda: database)}:"
    (record,) = [each for each in caplog.records if each.message == "redis_prefix_taken"]
    assert record.prefix == used  # type: ignore[attr-defined]
    with redis_server.client() as client:
        assert all(key.startswith(used.encode()) for key in client.scan_iter("*uses*"))
        assert client.get("toolgate:installation") == b"somebody else's"


async def test_nothing_is_kept_before_the_database_tells_the_installation(
    redis_server: RedisServer, database: Database
) -> None:
    """A gateway whose database has not answered cannot know its prefix (mending 9)."""
    opened: list[Database] = []
    state = in_redis(redis_server, load(None, {}).database).state
    async with open_stores(
        state, Retention(10, 10), lambda: opened[0] if opened else None
    ) as stores:
        for use in (stores.counter.hit("k", 1, 60), stores.sessions.secret(), stores.log.last("s")):
            with pytest.raises(Unavailable):
                await use
        with redis_server.client() as client:
            assert client.dbsize() == 0
        opened.append(database)
        assert (await stores.counter.hit("k", 1, 60)).is_allowed


async def test_the_claim_of_a_prefix_is_renewed_after_redis_was_emptied(
    redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A database that is away then stops nothing, and a stranger who came first is logged
    (mending 9)."""
    monkeypatch.setattr(redis, "CLAIM_S", -1.0)
    ids = iter(["ours"])

    async def read_once() -> str:
        return next(ids)

    client = connect(redis_server.url, timeout_s=5, connections=2)
    counter = RedisCounter(client, KeyPrefix(client, "toolgate:", read_once))
    await counter.hit("k", 1, 60)
    with redis_server.client() as looking:
        looking.flushall()
        await counter.hit("k", 1, 60)
        assert looking.get("toolgate:installation") == b"ours"
        assert "redis_prefix_shared" not in caplog.messages
        looking.set("toolgate:installation", "theirs")
        await counter.hit("k", 1, 60)
    assert "redis_prefix_shared" in caplog.messages
    await client.aclose()


async def read_no_database() -> str:
    return "installation"


class MeetingRedis:
    """A Redis that answers a claim when another one has come, too, and whose keys are taken."""

    def __init__(self) -> None:
        self._come = 0
        self._met = anyio.Event()

    async def set(self, _key: str, _value: str, *, nx: bool) -> None:
        assert nx
        self._come += 1
        if self._come % 2:
            await self._met.wait()
        else:
            self._met.set()
            self._met = anyio.Event()

    async def get(self, _key: str) -> bytes:
        return b"another"


async def test_calls_do_not_wait_for_claims_by_concurrent_calls(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Where Redis hangs, each call waits for its own timeout alone: behind one lock, the last of
    many calls waited for the timeouts of all (mending 9)."""
    prefix = KeyPrefix(cast("Any", MeetingRedis()), "toolgate:", read_no_database)
    resolved: list[str] = []

    async def resolve() -> None:
        resolved.append(await prefix.resolve())

    with anyio.fail_after(DEADLINE_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(resolve)
            tasks.start_soon(resolve)
    assert resolved == ["toolgate:installation:"] * 2
    assert [record.message for record in caplog.records] == ["redis_prefix_taken"]


async def test_a_limit_recovers_within_its_window_when_the_clock_of_the_store_goes_back(
    redis_server: RedisServer, database_settings: DatabaseSettings
) -> None:
    window_s = 0.5
    async with in_redis(redis_server, database_settings).nodes() as nodes:
        assert (await nodes.a.counter.hit("k", 1, window_s)).is_allowed
        with redis_server.client() as client:
            ((key, field),) = [(key, client.hkeys(key)[0]) for key in client.scan_iter("*uses*")]
            client.hset(key, str(int(field) + 3600), client.hget(key, field))
            client.hdel(key, field)
            client.pexpire(key, 60_000)
            assert not (await nodes.b.counter.hit("k", 1, window_s)).is_allowed
            assert client.pttl(key) > 0  # else it would stay for ever
        with anyio.fail_after(DEADLINE_S):
            while not (verdict := await nodes.a.counter.hit("k", 1, window_s)).is_allowed:
                assert verdict.retry_after_s <= window_s * 61 / 60
                await anyio.sleep(verdict.retry_after_s)


async def test_gateways_make_the_same_secret_for_an_emptied_redis(
    redis_server: RedisServer, database_settings: DatabaseSettings
) -> None:
    """Before their next heartbeat, too."""
    async with in_redis(redis_server, database_settings).nodes() as nodes:
        secret = await nodes.a.sessions.secret()
        with redis_server.client() as client:
            client.flushall()
        assert await nodes.b.sessions.secret() == secret


async def test_a_secret_in_redis_needs_no_database(
    redis_server: RedisServer,
    database_settings: DatabaseSettings,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def fail(_key: str) -> bytes:
        raise Unavailable("The database does not answer")

    async with in_redis(redis_server, database_settings).nodes() as nodes:
        secret = await nodes.a.sessions.secret()
        monkeypatch.setattr(nodes.b.sessions, "_new_secret", fail)
        assert await nodes.b.sessions.secret() == secret


async def test_the_secret_of_running_gateways_returns_to_an_emptied_redis(
    redis_server: RedisServer, database_settings: DatabaseSettings
) -> None:
    async with in_redis(redis_server, database_settings).nodes() as nodes:
        with redis_server.client() as client:  # of a release that made another one
            client.set("toolgate:secret", secret := bytes(range(32)))
            assert await nodes.a.sessions.secret() == secret
            client.flushall()
        await nodes.a.sessions.beat("a", 60)
        assert await nodes.b.sessions.secret() == secret
