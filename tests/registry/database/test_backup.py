"""Backups of the embedded database: whole, consistent, and restored without loss."""

import stat
from pathlib import Path
from threading import Event, Thread

import psycopg
import pytest

from config.settings import DatabaseSettings as Settings
from registry.database.backup import back_up, restore
from registry.database.embedded_server import DatabaseError, Embedded
from tests.fixtures_database import settings_for
from tests.polling import until

pytestmark = pytest.mark.anyio


def rows(url: str, table: str) -> list[int]:
    with psycopg.connect(url) as connection:
        return [row[0] for row in connection.execute(f"SELECT n FROM {table} ORDER BY n")]  # type: ignore[arg-type]


class Writer:
    """Adds a row to two tables, in one transaction each time, until it is stopped."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._stopped = Event()
        self._thread = Thread(target=self._write)
        self.written = 0

    def __enter__(self) -> "Writer":
        with psycopg.connect(self._url) as connection:
            connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
            connection.execute("CREATE TABLE first_t (n int); CREATE TABLE second_t (n int)")
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()

    def _write(self) -> None:
        with psycopg.connect(self._url, autocommit=True) as connection:
            while not self._stopped.is_set():
                with connection.transaction():
                    connection.execute("INSERT INTO first_t VALUES (%s)", (self.written,))
                    connection.execute("INSERT INTO second_t VALUES (%s)", (self.written,))
                self.written += 1


async def test_a_backup_under_writes_is_restored_whole(scratch: Path) -> None:
    settings, other = settings_for(scratch / "a"), settings_for(scratch / "b")
    file = scratch / "toolgate.backup"
    embedded = Embedded.start(settings)
    try:
        with Writer(embedded.url) as writer:
            await until(lambda: writer.written > 20)
            before = writer.written
            size = await back_up(settings, file)
            await until(lambda: writer.written > before)
        assert size == file.stat().st_size
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert [one.name for one in scratch.iterdir() if one.name.endswith(".part")] == []
        with pytest.raises(DatabaseError, match="is not empty"):
            await restore(settings, file)
    finally:
        embedded.stop()
    await restore(other, file)
    embedded = Embedded.start(other)
    try:
        first, second = rows(embedded.url, "first_t"), rows(embedded.url, "second_t")
    finally:
        embedded.stop()
    assert first == second == list(range(len(first)))
    assert len(first) >= before


async def test_an_invalid_backup_leaves_the_database_empty(scratch: Path) -> None:
    broken = scratch / "broken.backup"
    broken.write_bytes(b"PGDMP no more")
    settings = settings_for(scratch / "c")
    for _ in range(2):  # it would not be empty at the second time
        with pytest.raises(DatabaseError, match=f"{broken.name} cannot be read as a backup"):
            await restore(settings, broken)


async def test_another_server_has_its_own_programs(database_settings: Settings) -> None:
    with pytest.raises(DatabaseError, match=r"database\.url leads to another server"):
        await back_up(database_settings, Path("never"))
