"""What every engine has to do: wake other processes, lose nothing, run nothing twice."""

import logging
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from itertools import product
from typing import Any
from uuid import uuid4

import aiohttp
import anyio
import msgspec
import psycopg
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.legacy_records import LegacyRecordBatchBuilder
from aiokafka.record.memory_records import MemoryRecords
from aiokafka.record.util import calc_crc32c
from msgspec.structs import replace
from redis.asyncio import Redis

from config.events import EventKafka
from config.settings import Settings
from gateway.wings.events.kafka_engine import BatchTooLarge, KafkaEngine, bound_unpacking
from gateway.wings.events.redis_engine import TENANTS, RedisEngine
from gateway.wings.events.wakeups import CHANNEL
from tests.documentation.pages import ROOT as REPOSITORY
from tests.documentation.pages import Page
from tests.fixtures_database import HOST
from tests.fixtures_gateway import DEADLINE_S, Client, Recorder, running
from tests.fixtures_redis import RedisServer
from tests.fixtures_servers import free_ports
from tests.polling import until
from tests.wings.events.rig import EVENT, ROOT, got, invoke_skill, wait_for_end, with_events

pytestmark = pytest.mark.anyio

LARGE = b"x" * 1_100_000  # bytes: more than a producer sends by default
LONG_S = 50.0  # no process polls before a test ends


@pytest.fixture(params=["postgres", "redis", "kafka"])
def engine(request: pytest.FixtureRequest, settings: Settings) -> Settings:
    """Settings of gateways that are woken, and do not poll."""
    woken: dict[str, object] = {}
    if request.param == "redis":
        woken["redis_url"] = request.getfixturevalue("redis_server").url
    if request.param == "kafka":
        woken["kafka"] = at(settings, request.getfixturevalue("kafka"))
    return with_events(settings, poll_s=LONG_S, sweep_s=LONG_S, **woken)


def at(settings: Settings, address: str, **more: object) -> EventKafka:
    """A broker, used by this test alone."""
    own = {"group": f"g{uuid4().hex}", "servers": (address,), **more}
    return replace(settings.events.kafka, **own)


def accepting(settings: Settings) -> Settings:
    return with_events(settings, **{**settings_dict(settings), "concurrency": 0})


def settings_dict(settings: Settings) -> dict[str, object]:
    return msgspec.structs.asdict(settings.events)


async def test_an_invocation_accepted_by_one_gateway_runs_on_another(engine: Settings) -> None:
    """An invocation accepted by one gateway runs on another (V18)."""
    async with running(accepting(engine)) as front, running(engine):
        for number in range(5):
            one = await invoke_skill(front, "getPet", {"id": number})
            assert (await wait_for_end(front, one["id"]))["status"] == "ACKED"


async def test_the_next_of_a_key_does_not_wait_for_polling(engine: Settings) -> None:
    async with running(engine) as client:
        made = [await invoke_skill(client, "getPet", {"id": one}, orderKey="a") for one in range(3)]
        for one in made:
            assert (await wait_for_end(client, one["id"]))["status"] == "ACKED"


async def test_notices_of_strangers_stop_nothing(
    engine: Settings, request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(engine) as client:
        await notify(engine, request)
        one = await invoke_skill(client, "getPet", {"id": 7})
        assert (await wait_for_end(client, one["id"]))["status"] == "ACKED"
    own = [one for one in caplog.records if one.name.startswith("toolgate")]
    assert not [one for one in own if one.levelname in ("WARNING", "ERROR")]


async def notify(settings: Settings, request: pytest.FixtureRequest) -> None:
    """Tell all of a tenant that there cannot be."""
    if (kafka := settings.events.kafka).servers:
        async with AIOKafkaProducer(bootstrap_servers=kafka.servers[0]) as producer:
            await producer.send_and_wait(f"{kafka.group}-invocations", b"1", key=b"x:\xff")
    if settings.events.redis_url:
        with request.getfixturevalue("redis_server").client() as redis:
            redis.sadd(TENANTS, b"\xff", "x:y")
            redis.xadd("tg:x:y:invocations", {"id": "1"})
    url = settings.database.url
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        await connection.execute("SELECT pg_notify(%s, 'work:x')", [CHANNEL])


async def test_many_are_run_once_each(engine: Settings, service: Recorder) -> None:
    async with running(engine) as one, running(engine) as other:
        ids: list[str] = []

        async def ask(client: Client, number: int) -> None:
            ids.append((await invoke_skill(client, "getPet", {"id": number}))["id"])

        async with anyio.create_task_group() as group:
            for number in range(40):
                group.start_soon(ask, (one, other)[number % 2], number)
        for id_ in ids:
            assert (await wait_for_end(one, id_))["attempt"] == 1
    paths = [request["path"] for request in service.requests]
    assert sorted(paths) == sorted(f"/pets/{number}" for number in range(40))


async def test_kafka_commands_become_invocations_and_publish_their_completions(
    settings: Settings, kafka: str, service: Recorder, caplog: pytest.LogCaptureFixture
) -> None:
    """Twice the same, and what is no event, names no tool, or has an id that is none: only the
    first counts, and the others hold up nothing (V03)."""
    topics = {"commands": f"c{uuid4().hex}", "principal": "fleet"}
    ends = f"e{uuid4().hex}"
    engine = with_events(settings, kafka=at(settings, kafka, **topics), topics=(ends,))
    data = {"skillName": "getPet", "arguments": {"id": 7}, "correlationId": "k-1", "replyTo": ends}
    event = msgspec.json.encode({**EVENT, "data": data})
    unknown = msgspec.json.encode({**EVENT, "id": "e-2", "data": {"skillName": "nowhere"}})
    unfit = msgspec.json.encode({**EVENT, "id": "e-3", "correlationid": "a b"})
    null = [("traceparent", None)]
    consumer = AIOKafkaConsumer(ends, bootstrap_servers=kafka, auto_offset_reset="earliest")
    async with AIOKafkaProducer(bootstrap_servers=kafka) as producer:
        for value in (b"no event", unknown, unfit, event, event):
            await producer.send_and_wait(topics["commands"], value, partition=0, headers=null)
    async with running(engine) as client, consumer:
        with anyio.fail_after(DEADLINE_S):
            told = await consumer.getone()
        assert msgspec.json.decode(told.value)["data"]["correlationId"] == "k-1"
        await until(lambda: len([one for one in caplog.records if is_refusal(one)]) == 3)
        status, row = await got(client, "/events/v1/invocations/k-1")
        assert (status, row["principal"], row["status"]) == (200, "fleet", "ACKED")
    assert len(service.requests) == 1


def is_refusal(record: logging.LogRecord) -> bool:
    return record.getMessage() == "command_refused"


async def test_a_command_that_cannot_be_taken_holds_up_nothing(
    settings: Settings, kafka: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Internal errors are tried again and then among the dead letters, refusals at once; one that
    waits for the gateway comes again for as long as it has to."""
    monkeypatch.setattr("gateway.wings.events.kafka_engine.RETRY_S", 0.01)
    topics = {"commands": f"c{uuid4().hex}", "dead_letters": f"d{uuid4().hex}"}
    own = at(settings, kafka, principal="fleet", **topics)
    taken, done = Counter[bytes](), anyio.Event()

    async def take(_headers: Mapping[str, str], body: bytes) -> tuple[int, str]:
        taken[body] += 1
        if body == b"breaks":
            raise RecursionError
        if body == b"good":
            done.set()
            await anyio.sleep_forever()  # not cut off while it commits
        late = body == b"late" and taken[body] > 5
        if body == LARGE:
            return 422, "because"
        return {b"fails": 500, b"refused": 422, b"late": 202 if late else 503}[body], "because"

    dead = AIOKafkaConsumer(
        topics["dead_letters"], bootstrap_servers=kafka, auto_offset_reset="earliest"
    )
    most = 2 * len(LARGE)
    async with AIOKafkaProducer(bootstrap_servers=kafka, max_request_size=most) as producer, dead:
        for value in (b"breaks", b"fails", b"refused", LARGE, b"late", b"good"):
            await producer.send_and_wait(
                own.commands, value, key=b"k", partition=0, headers=[("ce_id", b"1")]
            )
        engine = KafkaEngine(own, attempts=3, work=lambda _: None, take=take)
        async with anyio.create_task_group() as group:
            group.start_soon(engine.send)
            group.start_soon(engine.read)
            with anyio.fail_after(DEADLINE_S):
                await done.wait()
                letters = [await dead.getone() for _ in range(4)]
            group.cancel_scope.cancel()
    reasons = [(one.value, dict(one.headers)["toolgate-reason"]) for one in letters]
    # a broker that goes away may give one twice
    assert set(reasons) >= {
        (b"breaks", b"Internal error"),
        (b"fails", b"because"),
        (b"refused", b"because"),
        (b"", b"because"),  # too large to be kept whole
    }
    whole = [one for one in letters if one.value]
    assert {one.key for one in letters} == {b"k"}
    assert {dict(one.headers)["ce_id"] for one in whole} == {b"1"}
    assert min(taken[b"breaks"], taken[b"fails"]) >= 3
    assert taken[b"late"] >= 6


def break_batch(batch: Any, how: str) -> None:
    """Break the batch as it is built: a header's name, or a codec that it is not in."""
    build = batch._build

    def build_broken() -> bytearray:
        data = bytearray(build())
        if how == "header":
            data[data.index(b"zz")] = 0xFF
        else:
            data[22] = 4  # zstd, in the lower byte of the attributes
        data[17:21] = calc_crc32c(bytes(data[21:])).to_bytes(4, "big")
        return data

    batch._build = build_broken


@pytest.mark.parametrize("how", ["header", "codec"])
async def test_a_record_that_cannot_be_read_holds_up_nothing(
    settings: Settings, kafka: str, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A record that the reader of Kafka cannot parse is passed over, with a line in the log, and
    ends neither the reader nor the wing (mending 10)."""
    own = at(settings, kafka, principal="fleet", commands=f"c{uuid4().hex}")
    taken, done = list[bytes](), anyio.Event()

    async def take(_headers: Mapping[str, str], body: bytes) -> tuple[int, str]:
        taken.append(body)
        if body == b"last":
            done.set()
            await anyio.sleep_forever()  # not cut off while it commits
        return 202, ""

    async with AIOKafkaProducer(bootstrap_servers=kafka) as producer:
        await producer.send_and_wait(own.commands, b"first", partition=0)
        batch = producer.create_batch()
        for _ in range(1 if how == "header" else 40):  # passed over at once, not one by one
            batch.append(key=None, value=b"bad", timestamp=None, headers=[("zz", b"1")])
        break_batch(batch, how)
        await (await producer.send_batch(batch, own.commands, partition=0))
        await producer.send_and_wait(own.commands, b"last", partition=0)
    engine = KafkaEngine(own, attempts=3, work=lambda _: None, take=take)
    async with anyio.create_task_group() as group:
        group.start_soon(engine.read)
        with anyio.fail_after(DEADLINE_S):
            await done.wait()
        group.cancel_scope.cancel()
    assert taken == [b"first", b"last"]
    [line] = [one for one in caplog.records if one.getMessage() == "record_unreadable"]
    assert (line.topic, line.offset) == (own.commands, 1)  # type: ignore[attr-defined]


async def test_without_kafka_invocations_run_and_their_ends_wait(
    settings: Settings, service: Recorder
) -> None:
    away = at(settings, f"127.0.0.1:{free_ports(1)[0]}")
    async with running(with_events(settings, kafka=away)) as client:
        one = await invoke_skill(client, "getPet", {"id": 7}, replyTo="agent-events")
        assert (await wait_for_end(client, one["id"]))["status"] == "ACKED"
        assert (await got(client, "/events/v1/stats"))[1]["unsent"] == 1


async def test_a_delayed_invocation_runs_when_due(engine: Settings) -> None:
    settings = with_events(engine, **{**settings_dict(engine), "poll_s": 0.1})
    async with running(settings) as client:
        one = await invoke_skill(client, "getPet", {"id": 7}, delayS=0.3)
        over = await wait_for_end(client, one["id"])
        assert over["due"] > over["created"]


@pytest.fixture
def redis_settings(settings: Settings, redis_server: RedisServer) -> Settings:
    return with_events(settings, poll_s=0.1, redis_url=redis_server.url)


@pytest.mark.parametrize("how", ["flushed", "stopped", "split"])
async def test_losing_redis_loses_nothing(
    redis_settings: Settings, redis_server: RedisServer, service: Recorder, how: str
) -> None:
    """Losing Redis loses nothing (V19)."""
    async with running(accepting(redis_settings)) as front:
        ids = [(await invoke_skill(front, "getPet", {"id": number}))["id"] for number in range(5)]
        if how == "flushed":
            with redis_server.client() as redis:
                redis.flushall()
        elif how == "split":  # its connections stay open, and nothing answers
            redis_server.freeze()
        else:
            redis_server.stop()
        ids += [
            (await invoke_skill(front, "getPet", {"id": number}))["id"] for number in range(5, 8)
        ]
        async with running(redis_settings):
            for id_ in ids:
                assert (await wait_for_end(front, id_))["status"] == "ACKED"
            if how == "split":
                redis_server.thaw()
        if how == "stopped":
            redis_server.start()
    assert len(service.requests) == 8


async def test_installations_on_one_redis_have_streams_of_their_own(
    redis_server: RedisServer,
) -> None:
    """The installation that came second keeps its keys behind its id, and is woken by them
    (mending 9)."""
    host = str(uuid4())
    heard = {"first": anyio.Event(), "second": anyio.Event()}
    tenants = list[str]()

    def make_engine(installation: str) -> RedisEngine:
        async def read_installation() -> str:
            return installation

        def work(host_id: str) -> None:
            tenants.append(host_id)
            heard[installation].set()

        return RedisEngine(
            redis_server.url, "c", work=work, room=lambda: 9, installation=read_installation
        )

    engines = {installation: make_engine(installation) for installation in heard}
    for installation, engine in engines.items():
        async with anyio.create_task_group() as group:
            group.start_soon(engine.read)
            group.start_soon(engine.send)
            engine.announce(host, "1")
            with anyio.fail_after(DEADLINE_S):
                await engine.publish(host, "topic", installation.encode())
                await heard[installation].wait()
            group.cancel_scope.cancel()
        await engine.close()
    assert set(tenants) == {host}
    with redis_server.client() as redis:
        assert set(redis.scan_iter()) == {
            b"tg:installation",
            *(b"tg:%s" % key for key in keys_of(host)),
            *(b"tg:second:%s" % key for key in keys_of(host)),
        }
        assert redis.xlen(f"tg:{host}:topic") == redis.xlen(f"tg:second:{host}:topic") == 1


def keys_of(host: str) -> list[bytes]:
    return [TENANTS.encode(), f"{host}:invocations".encode(), f"{host}:topic".encode()]


async def test_entries_of_a_dead_consumer_are_taken_over(
    settings: Settings, redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.wings.events.redis_engine.IDLE_MS", 0)
    engine = with_events(settings, poll_s=LONG_S, redis_url=redis_server.url)
    async with running(accepting(engine)) as front:
        one = await invoke_skill(front, "getPet", {"id": 7})
        with redis_server.client() as redis, anyio.fail_after(DEADLINE_S):
            [stream] = [name for name in await names(redis) if name.endswith(b":invocations")]
            redis.xgroup_create(stream, "workers", id="0", mkstream=True)
            assert redis.xreadgroup("workers", "dead", {stream: ">"})
        async with running(engine):
            assert (await wait_for_end(front, one["id"]))["status"] == "ACKED"
        with redis_server.client() as redis:
            assert redis.xpending(stream, "workers")["pending"] == 0


async def names(redis: object) -> list[bytes]:
    found: list[bytes] = []
    while not found:
        found = redis.keys("tg:*:invocations")  # type: ignore[attr-defined]
        await anyio.sleep(0.02)
    return found


async def test_completions_are_published_to_a_stream(
    settings: Settings, redis_server: RedisServer
) -> None:
    """Completions are published to a stream (V03)."""
    engine = with_events(settings, redis_url=redis_server.url)
    async with running(replace(engine)) as client:
        one = await invoke_skill(client, "getPet", {"id": 7}, replyTo="agent-events")
        await wait_for_end(client, one["id"])
        with redis_server.client() as redis, anyio.fail_after(DEADLINE_S):
            while not (keys := redis.keys("tg:*:agent-events")):  # noqa: ASYNC110 - of Redis
                await anyio.sleep(0.02)
            [(_, fields)] = redis.xrange(keys[0])
        event = msgspec.json.decode(fields[b"event"])
        assert event["data"]["correlationId"] == one["correlationId"]


@pytest.fixture
def consumers() -> dict[str, Any]:
    """The functions of the documentation for consumers of one's own."""
    [code] = [
        one
        for one in Page(REPOSITORY / "docs/events.md").blocks("python")
        if "redis_entries" in one
    ]
    made: dict[str, Any] = {}
    exec(code, made)
    return made


@pytest.mark.parametrize("engine", ["redis", "kafka"], indirect=True)
async def test_external_consumers_execute_skills_and_receive_completions(
    engine: Settings, consumers: dict[str, Any]
) -> None:
    """As the documentation says; one that failed and was redriven is told of twice (V03)."""
    ends = f"e{uuid4().hex}"
    settings = with_events(engine, **{**settings_dict(engine), "topics": (ends,)})
    heard: list[Any] = []

    async def run(delivery: Any) -> Any:
        return {"year": delivery["arguments"]["year"]}

    async def handle(event: Any) -> None:
        heard.append(event)

    async def work_entries(entries: AsyncIterator[Any], http: aiohttp.ClientSession) -> None:
        async for _ in entries:
            await consumers["work"](http, run)

    async with (
        running(settings) as client,
        aiohttp.ClientSession(client.url) as http,
        streams(settings, consumers, ends) as (accepted, ended_),
        anyio.create_task_group() as group,
    ):
        one = await invoke_skill(client, "report", {"year": 2025}, replyTo=ends, delayS=3600.0)
        async with client.http.delete(f"{client.url}{ROOT}/{one['id']}"):
            pass
        group.start_soon(consumers["handle_all"], ended_, handle)
        await until(lambda: heard)
        status, answer, _ = await client.post("/events/v1/redrives", {"ids": [one["id"]]})
        assert status == 200, answer
        group.start_soon(work_entries, accepted, http)
        two = await invoke_skill(client, "report", {"year": 2026}, replyTo=ends)
        await until(lambda: len({event["id"] for event in heard}) == 3)
        group.cancel_scope.cancel()
    told = [(event["data"]["correlationId"], event["data"]["status"]) for event in heard]
    assert set(told) == {(one["id"], "FAILED"), (one["id"], "ACKED"), (two["id"], "ACKED")}
    assert {event["data"].get("result", {}).get("year") for event in heard} == {None, 2025, 2026}


@asynccontextmanager
async def streams(
    settings: Settings, consumers: dict[str, Any], ends: str
) -> AsyncIterator[tuple[AsyncIterator[Any], AsyncIterator[Any]]]:
    """What was accepted, and completions, by the functions of the documentation."""
    if url := settings.events.redis_url:
        names = (f"tg:{HOST}:invocations", f"tg:{HOST}:{ends}")
        async with Redis.from_url(url) as redis:
            one, two = (consumers["redis_entries"](redis, name, "reports") for name in names)
            yield one, two
        return
    kafka = settings.events.kafka
    options: dict[str, Any] = {
        "bootstrap_servers": kafka.servers[0],
        "group_id": f"own{uuid4().hex}",
        "enable_auto_commit": False,
        "auto_offset_reset": "earliest",
        "metadata_max_age_ms": 200,  # topics that are not there yet
    }
    async with (
        AIOKafkaConsumer(f"{kafka.group}-invocations", **options) as accepted,
        AIOKafkaConsumer(ends, **{**options, "group_id": f"own{uuid4().hex}"}) as told,
    ):
        yield consumers["kafka_values"](accepted), consumers["kafka_values"](told)


CODECS = {"gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}


@pytest.mark.parametrize(("magic", "codec"), [*product((0, 1, 2), ["gzip", "snappy"]),
                                              (1, "lz4"), (2, "lz4"), (2, "zstd")])  # fmt: skip
def test_a_batch_of_kafka_unpacks_to_so_many_bytes(magic: int, codec: str) -> None:
    """A megabyte became a gigabyte in the process, again at each start: of gzip (mending 10), and
    of other codecs where their library is installed (mending 35)."""
    if codec != "gzip":
        pytest.importorskip("cramjam", reason="cramjam, which is optional, is not installed")

    def values(length: int) -> list[bytes]:
        batch = (
            DefaultRecordBatchBuilder(2, CODECS[codec], 0, -1, -1, -1, 2**30)
            if magic == 2
            else LegacyRecordBatchBuilder(magic, CODECS[codec], 2**30)
        )
        batch.append(0, 1, None, b"0" * length, *([[]] if magic == 2 else []))
        read = MemoryRecords(bytes(batch.build())).next_batch()
        return [bytes(record.value) for record in read]

    bound_unpacking(100_000)
    try:
        assert values(90_000) == [b"0" * 90_000]
        with pytest.raises(BatchTooLarge, match=r"than 100000 bytes \(events.kafka.batch_bytes"):
            values(10_000_000)
    finally:
        bound_unpacking(2**24)
