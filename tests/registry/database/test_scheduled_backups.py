"""Scheduled backups: in a folder and in a bucket, kept so many, verified, and restored."""

import os
import re
import stat
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs
from wsgiref.simple_server import WSGIRequestHandler, make_server

import anyio
import pytest
from msgspec.structs import replace

from config.backups import BackupBucket, BackupsSettings
from config.load import load
from registry.database.backup_places import BackupRefused, place_of
from registry.database.postgres import Database
from registry.database.scheduled_backups import Backups

pytestmark = pytest.mark.anyio


class _Quiet(WSGIRequestHandler):
    protocol_version = "HTTP/1.1"  # botocore waits for a second for "100 Continue"

    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def serve_bucket() -> Iterator[tuple[str, dict[str, bytes]]]:
    """A server of one bucket: objects, listings and multipart uploads of the API of S3."""
    objects: dict[str, bytes] = {}
    uploads: dict[str, dict[int, bytes]] = {}

    def app(environ: dict[str, Any], start_response: Callable[..., Any]) -> list[bytes]:
        key = environ["PATH_INFO"].removeprefix("/bucket").lstrip("/")
        query = parse_qs(environ["QUERY_STRING"], keep_blank_values=True)
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        method, headers, answer = environ["REQUEST_METHOD"], [("ETag", '"e"')], b""
        if "AWS4-HMAC-SHA256 Credential=id/" not in environ.get("HTTP_AUTHORIZATION", ""):
            start_response("403 Forbidden", [])
            return [b"<Error><Code>AccessDenied</Code><Message>no</Message></Error>"]
        match (
            method,
            next((name for name in ("uploads", "uploadId", "list-type") if name in query), ""),
        ):
            case "POST", "uploads":
                uploads[key] = {}
                answer = b"<R><UploadId>u</UploadId></R>"
            case "PUT", "uploadId":
                uploads[key][int(query["partNumber"][0])] = body
            case "POST", "uploadId":
                objects[key] = b"".join(data for _, data in sorted(uploads.pop(key).items()))
                answer = b"<R><ETag>e</ETag></R>"
            case "DELETE", "uploadId":
                uploads.pop(key)
            case "DELETE", _:
                objects.pop(key, None)
            case "GET", "list-type":
                wanted = [name for name in objects if name.startswith(query["prefix"][0])]
                entries = "".join(f"<Contents><Key>{name}</Key></Contents>" for name in wanted)
                answer = f"<R><IsTruncated>false</IsTruncated>{entries}</R>".encode()
            case "GET", _:
                answer = objects[key]
        start_response("200 OK", [*headers, ("Content-Length", str(len(answer)))])
        return [answer]

    with make_server("127.0.0.1", 0, app, handler_class=_Quiet) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", objects
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture(params=["folder", "bucket"])
def settings(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[BackupsSettings]:
    defaults = replace(load(None, {}).backups, enabled=True, keep=2)
    if request.param == "folder":
        yield replace(defaults, to=str(tmp_path / "backups"))
        return
    with serve_bucket() as (url, _):
        bucket = replace(defaults.bucket, endpoint=url, key_id="id", secret="s3cret")
        yield replace(defaults, to="s3://bucket/gateway/", bucket=bucket)


@pytest.fixture
def backups(settings: BackupsSettings) -> Backups:
    return Backups(place_of(settings), settings.keep)


async def test_a_backup_is_listed_verified_and_restored(
    backups: Backups, database: Database
) -> None:
    made = await backups.make(database)
    assert await backups.all() == [made]
    report = await backups.verify(made.name)
    assert (report.problems, report.tables) == ((), len(made.rows))
    assert made.rows["host_t"] >= 0
    restored = await backups.verify(made.name, database)
    assert (restored.problems, restored.restored) == ((), True)
    async with database.connect() as connection:
        rows = await connection.execute(
            "SELECT count(*) FROM pg_database WHERE datname LIKE 'toolgate_verify_%'"
        )
        assert await rows.fetchone() == (0,)


OLD, OLDER, OLDEST, LEFT, AHEAD = (
    f"toolgate-20{year}0101T000000Z-00000000" for year in (24, 23, 22, 21, 99)
)


async def test_the_newest_backups_stay(
    settings: BackupsSettings, backups: Backups, database: Database, tmp_path: Path
) -> None:
    """Older ones go once a new one is whole, and so does what an interrupted one has left; one of a
    clock that ran ahead takes the place of none."""
    place, file = place_of(settings), tmp_path / "file"
    first = await backups.make(database)
    for suffix in (".backup", ".json"):
        for name in (OLD, OLDER, OLDEST, AHEAD):
            place.fetch(first.name + suffix, file)
            if suffix == ".json":
                file.write_bytes(file.read_bytes().replace(first.name.encode(), name.encode()))
            place.put(name + suffix, file)
        place.delete(first.name + suffix)
    place.put(f"{LEFT}.backup", file)  # it has no manifest
    place.put("notes.txt", file)
    made = await backups.make(database)
    assert [entry.name for entry in await backups.all()] == [AHEAD, made.name, OLD]
    whole = [f"{name}{end}" for name in (AHEAD, made.name, OLD) for end in (".backup", ".json")]
    assert sorted(place.names()) == sorted(["notes.txt", *whole])


async def test_two_processes_make_backups_at_once(
    settings: BackupsSettings, database: Database
) -> None:
    async with anyio.create_task_group() as group:
        for _ in range(2):
            group.start_soon(Backups(place_of(settings), 7).make, database)
    backups = Backups(place_of(settings), 7)
    stored = await backups.all()
    assert len(stored) == 2
    assert [(await backups.verify(entry.name)).problems for entry in stored] == [(), ()]


async def test_a_backup_with_a_broken_manifest_is_none(
    settings: BackupsSettings, backups: Backups, database: Database, tmp_path: Path
) -> None:
    made, file = await backups.make(database), tmp_path / "file"
    file.write_bytes(b"{")
    for suffix in (".backup", ".json"):
        place_of(settings).put(AHEAD + suffix, file)
    assert await backups.all() == [made]


async def test_a_fetched_archive_is_a_new_file_for_its_owner(
    backups: Backups, database: Database, tmp_path: Path
) -> None:
    made, file, link = await backups.make(database), tmp_path / "file", tmp_path / "link"
    await backups.fetch(made.name, file)
    assert (stat.S_IMODE(file.stat().st_mode), file.stat().st_size) == (0o600, made.bytes)
    link.symlink_to(tmp_path / "target")
    for path in (file, link):
        with pytest.raises(BackupRefused, match="File exists"):
            await backups.fetch(made.name, path)
    for name, reason in (("../file", "expected the name of a backup"), (OLD, "backups.to: ")):
        with pytest.raises(BackupRefused, match=reason):
            await backups.fetch(name, tmp_path / "new")
    assert not tmp_path.joinpath("new").exists()


async def test_leavings_of_killed_processes_are_deleted_after_a_day(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    settings = replace(load(None, {}).backups, to=str(tmp_path / "backups"))
    await Backups(place_of(settings), 1).make(database)
    part = tmp_path / "backups" / ".x.part"
    part.touch()
    folders = [tmp_path / f"toolgate-{name}-x" for name in ("backup", "service")]
    for folder in folders:
        folder.mkdir()
        folder.joinpath("file").touch()
    for path in (part, *folders):
        os.utime(path, (0, 0))
    await Backups(place_of(settings), 1).make(database)
    assert [path for path in (part, *folders) if path.exists()] == []


async def test_a_changed_archive_is_broken(
    settings: BackupsSettings, backups: Backups, database: Database, tmp_path: Path
) -> None:
    made, file = await backups.make(database), tmp_path / "archive"
    place_of(settings).fetch(made.name + ".backup", file)
    data = file.read_bytes()
    for changed, problem in (
        (data[:-1], "bytes, not"),
        (data[:99] + bytes([data[99] ^ 1]) + data[100:], "SHA-256"),
    ):
        file.write_bytes(changed)
        place_of(settings).put(made.name + ".backup", file)
        report = await backups.verify(made.name)
        assert re.search(problem, report.problems[0])


async def test_files_are_for_their_owner(database: Database, tmp_path: Path) -> None:
    folder = tmp_path / "new" / "backups"
    settings = replace(load(None, {}).backups, to=str(folder))
    await Backups(place_of(settings), 1).make(database)
    assert {stat.S_IMODE(file.stat().st_mode) for file in folder.iterdir()} == {0o600}
    assert len(list(folder.iterdir())) == 2


async def test_places_that_cannot_be_used_are_named(database: Database, tmp_path: Path) -> None:
    defaults = load(None, {}).backups
    file = tmp_path / "file"
    file.touch()
    with serve_bucket() as (url, _):
        bucket = BackupBucket(url, "us-east-1", "wrong", "s3cret", timeout_s=5)
        for settings, reason in (
            (replace(defaults, to=str(file / "backups")), "Not a directory"),
            (replace(defaults, to="s3://bucket", bucket=bucket), "AccessDenied"),
        ):
            with pytest.raises(BackupRefused, match=reason):
                await Backups(place_of(settings), 1).make(database)
    with pytest.raises(BackupRefused, match=r"backups\.to: expected a folder"):
        place_of(defaults)
