"""`toolgate audit`, over what two gateway processes wrote."""

import asyncio
import hashlib
import json
import signal
from datetime import UTC, datetime, tzinfo
from pathlib import Path
from typing import Self

import aiohttp
import psycopg
import pytest
from msgspec.structs import replace

from config.load import load
from config.settings import DatabaseSettings
from gateway.cli.audit import unknown_records
from gateway.cli.local import open_operations
from gateway.cli.running.client import RunningGateway
from registry.database.postgres import Database
from tests.fixtures_gateway import Recorder, pets
from tests.gateway.audit.conftest import entry
from tests.gateway.audit.test_queries import write
from tests.gateway.cli.conftest import Toolgate
from tests.gateway.cli.processes import DEADLINE_S, Served, command, serving
from tests.gateway.cli.test_serve_database import Wire

pytestmark = pytest.mark.anyio

CALL = {"jsonrpc": "2.0", "id": 1, "method": "listPets", "params": {"limit": 3}}


@pytest.fixture
def settings_file(folder: Path, service: Recorder) -> Path:
    (folder / "pets.json").write_text(json.dumps(pets()))
    file = folder / "toolgate.yaml"
    file.write_text(
        f"sources: {{pets: {{openapi: pets.json, base_url: '{service.url}'}}}}\n"
        "database: {retry_max_s: 0.3, connect_timeout_s: 1}\n"
        "embedding: {provider: disabled}\n"
        "audit: {mode: always, spool_dir: spool, flush_s: 0.1}\n"
    )
    return file


async def call(gateway: Served, times: int = 1, **changes: object) -> None:
    async with aiohttp.ClientSession() as http:
        for _ in range(times):
            async with http.post(gateway.url + "/rpc", json={**CALL, **changes}) as response:
                assert response.status == 200


@pytest.fixture
async def recorded_calls(settings_file: Path, database_settings: DatabaseSettings) -> None:
    """Calls before and while the database is away, and in the next process."""
    wire = Wire(database_settings.url)
    await wire.mend()
    async with serving(TOOLGATE_DATABASE__URL=wire.url) as gateway:
        await gateway.ready()
        await call(gateway)
        await call(gateway, method="nothing")
        await wire.cut()
        await call(gateway, times=3)
        assert (await gateway.stop())[0] == 0
    [left] = settings_file.with_name("spool").glob("*.jsonl")
    assert left.read_bytes().count(b'"hash":') >= 3
    await wire.mend()
    async with serving(TOOLGATE_DATABASE__URL=wire.url) as gateway:
        await gateway.ready()
        await call(gateway, method="getPet", params={"id": 404})
        assert (await gateway.stop())[0] == 0
    await wire.cut()
    assert not settings_file.with_name("spool").exists()


@pytest.mark.usefixtures("anyio_backend", "recorded_calls")
def test_calls_are_kept_whatever_becomes_of_the_database_and_the_process(
    database_settings: DatabaseSettings, toolgate: Toolgate
) -> None:
    records = toolgate("audit", "search", "--json").json[::-1]
    entries = [record["entry"] for record in records]
    assert [(entry["subject"], entry["outcome"]) for entry in entries] == [
        ("listPets", "ok"),
        ("nothing", "-32601"),
        *[("listPets", "ok")] * 3,
        ("getPet", "1500"),
    ]
    assert (entries[0]["source"], entries[0]["client"]) == ("pets", "127.0.0.1")
    assert entries[0]["digest"] == hashlib.sha256(b'{"limit":3}').hexdigest()
    assert [record["sequence"] for record in records] == [1, 2, 3, 4, 5, 1]

    verified = toolgate("audit", "verify")
    assert (verified.code, verified.out) == (
        0,
        "6 valid records in 2 chains. All chains are intact.\n",
    )
    exported = toolgate("audit", "export", "--tool", "listPets").out.splitlines()
    assert [json.loads(line)["sequence"] for line in exported] == [1, 3, 4, 5]
    [line] = toolgate("audit", "tail", "-n", "1").out.splitlines()
    assert line.split()[1:4] == ["anonymous", "getPet", "getPet"]
    assert line.endswith("  1500")
    assert toolgate("audit", "search", "--outcome", "ok", "--limit", "1").out.count("\n") == 1
    assert toolgate("audit", "search", "--since", "0s", "--json").json == []

    with psycopg.connect(database_settings.url, autocommit=True) as connection:
        connection.execute("UPDATE audit_t SET outcome = 'ok' WHERE subject = 'nothing'")
    tampered = toolgate("audit", "verify")
    assert tampered.code == 1
    assert ", record 2: changed: it is not what was written" in tampered.out
    assert " breaks." in tampered.out


@pytest.mark.parametrize("time", ["yesterday", "999999w"])
def test_times_that_are_none_are_told(toolgate: Toolgate, time: str) -> None:
    ran = toolgate("audit", "export", "--since", time)
    assert ran.code == 2
    assert "since: expected a time with its zone" in ran.err


async def test_followers_print_late_records(
    folder: Path, database_settings: DatabaseSettings, database: Database
) -> None:
    """Records that a gateway spooled during an outage are older than those known by then."""
    await write(database, folder, entry(5))
    settings = replace(load(None, {}), database=database_settings)
    async with open_operations(settings) as client:
        known: dict[tuple[str, int], None] = {}
        assert len(await unknown_records(client, {}, known)) == 1
        await write(database, folder, entry(1), entry(2, principal="bob"), entry(3))
        given = {"principal": "ada"}
        late = await unknown_records(client, given, known)
        assert [record["entry"]["subject"] for record in late] == ["tool_1", "tool_3"]
        assert await unknown_records(client, given, known) == []


async def test_followers_find_late_records_behind_future_records(
    folder: Path,
    database_settings: DatabaseSettings,
    database: Database,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A gateway whose clock is ahead fills the newest pages."""
    monkeypatch.setattr("gateway.cli.audit.PAGE", 2)
    settings = replace(load(None, {}), database=database_settings)
    ahead = datetime(2100, 1, 1, tzinfo=UTC)
    async with open_operations(settings) as client:
        early = [entry(0), entry(1)]
        await write(database, folder, *early, *(entry(n, recorded_ts=ahead) for n in range(3)))
        known: dict[tuple[str, int], None] = {}
        assert len(await unknown_records(client, {}, known)) == 5
        await write(database, folder, entry(2))
        late = await unknown_records(client, {}, known)
        assert [record["entry"]["subject"] for record in late] == ["tool_2"]
        assert len(await unknown_records(client, {}, {}, at_least=1)) == 4


class SlowClock(datetime):
    @classmethod
    def now(cls, tz: tzinfo | None = None) -> Self:
        return cls(2000, 1, 1, tzinfo=tz)


async def test_a_follower_with_a_clock_behind_reads_few_pages(
    folder: Path,
    database_settings: DatabaseSettings,
    database: Database,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All records are of the future for it."""
    monkeypatch.setattr("gateway.cli.audit.PAGE", 2)
    monkeypatch.setattr("gateway.cli.audit.datetime", SlowClock)
    settings = replace(load(None, {}), database=database_settings)
    async with open_operations(settings) as client:
        await write(database, folder, *(entry(n) for n in range(20)))
        known: dict[tuple[str, int], None] = {}
        assert len(await unknown_records(client, {}, known, at_least=4)) == 4
        assert await unknown_records(client, {}, known) == []


async def test_the_time_of_a_gateway_is_that_of_its_last_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    dates = ["Tue, 01 Dec 2026 13:00:00 GMT", "none"]

    async def answer(*_: object, **__: object) -> tuple[bytes, int, dict[str, str]]:
        return b'{"paths": {}}', 200, {"Date": dates.pop(0)}

    monkeypatch.setattr("gateway.cli.running.client.send_request", answer)
    gateway = RunningGateway("http://127.0.0.1:9", "/admin/v1", "key")
    await gateway.description()
    assert await gateway.time() == datetime(2026, 12, 1, 13, tzinfo=UTC)
    await gateway.description()
    assert (await gateway.time()).tzinfo is UTC


async def test_followers_print_each_future_record_once(
    folder: Path,
    database_settings: DatabaseSettings,
    database: Database,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("gateway.cli.audit.PAGE", 2)
    monkeypatch.setattr("gateway.cli.audit.RECORDS_REMEMBERED", 4)
    settings = replace(load(None, {}), database=database_settings)
    ahead = datetime(2100, 1, 1, tzinfo=UTC)
    async with open_operations(settings) as client:
        await write(database, folder, entry(0), entry(1, recorded_ts=ahead))
        known: dict[tuple[str, int], None] = {}
        assert len(await unknown_records(client, {}, known)) == 2
        for number in range(2, 8):
            await write(database, folder, entry(number))
            late = await unknown_records(client, {}, known)
            assert [record["entry"]["subject"] for record in late] == [f"tool_{number}"]


@pytest.mark.parametrize("words", ["audit search", "keys list", "token revoke --sub ada"])
def test_a_tenant_has_to_be_a_uuid(bare: Toolgate, words: str) -> None:
    ran = bare(*words.split(), "--tenant", "acme")
    assert (ran.code, "'acme' is not a valid UUID" in ran.err) == (2, True)


@pytest.mark.parametrize("word", ["search", "tail", "export"])
def test_a_reversed_time_span_is_refused(toolgate: Toolgate, word: str) -> None:
    ran = toolgate("audit", word, "--since", "1h", "--until", "2h")
    plain = ran.err.replace("`", "").replace("--", "")  # written by hand, these are members
    assert (ran.code, "Expected since to be earlier than until" in plain) == (2, True), ran.err


async def test_a_killed_process_loses_only_records_in_memory(
    settings_file: Path, database_settings: DatabaseSettings, folder: Path
) -> None:
    """Killed while it wrote to disk, and again while it wrote to the database: the next process
    takes up what is on disk, and the chain verifies."""
    wire = Wire(database_settings.url)
    await wire.mend()
    async with serving(TOOLGATE_DATABASE__URL=wire.url) as gateway:
        await gateway.ready()
        await wire.cut()
        await call(gateway, times=20)
        await on_disk(folder / "spool", 20)
        await call(gateway, times=5)  # in memory, for flush_s
        await kill(gateway)
    await wire.mend()
    async with serving(TOOLGATE_DATABASE__URL=wire.url) as gateway:
        await gateway.ready()
        await in_database(database_settings, 20)
        await call(gateway, times=30)
        await kill(gateway)
    async with serving(TOOLGATE_DATABASE__URL=wire.url) as gateway:
        await gateway.ready()
        await call(gateway)
        assert (await gateway.stop())[0] == 0
    code, out, err = await command("audit", "verify", TOOLGATE_DATABASE__URL=wire.url)
    assert code == 0, out + err
    assert not (folder / "spool").exists()
    assert 21 <= count(database_settings) <= 56
    await wire.cut()


async def kill(gateway: Served) -> None:
    gateway.process.send_signal(signal.SIGKILL)
    async with asyncio.timeout(DEADLINE_S):
        await gateway.process.wait()


async def on_disk(spool: Path, records: int) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while sum(one.read_bytes().count(b'"hash":') for one in spool.glob("*.jsonl")) < records:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def in_database(settings: DatabaseSettings, records: int) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while count(settings) < records:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


def count(settings: DatabaseSettings) -> int:
    with psycopg.connect(settings.url) as connection:
        row = connection.execute("SELECT count(*) FROM audit_t").fetchone()
    assert row is not None
    return int(row[0])
