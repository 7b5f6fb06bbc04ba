"""Files to documents: what changed alone is read, and what cannot be read leaves the older version
serving."""

import base64
import io
import os
import tarfile
import zipfile
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qs, quote

import anyio
import pytest
from msgspec.structs import replace

from config.sources import SchemeSettings
from gateway.operations.job_declarations import NO_JOB
from gateway.operations.problems import ProblemDetails
from gateway.wings.documents.reading.reading_limits import ReadingRefused
from gateway.wings.documents.reading.source_files import git_url
from gateway.wings.knowledge.caller_access import KnowledgeReader
from gateway.wings.knowledge.collections import NewCollection
from gateway.wings.knowledge.ingestion import SourceSpec
from gateway.wings.knowledge.source_credentials import (
    PlaceCredentials,
    bucket_of,
    place_of,
    place_of_bucket,
)
from registry.access.secrets import Secrets
from registry.database.postgres import Database
from tests.fixtures_database import HOST, Cluster, own_database
from tests.polling import until
from tests.recycling import Recycling
from tests.wings.documents.test_remote import serve_wsgi
from tests.wings.identities import OTHER
from tests.wings.knowledge.rig import (
    KEYS,
    KnowledgeCaller,
    KnowledgeRig,
    knowledge_settings,
    open_rig,
)

pytestmark = pytest.mark.anyio

CODE = b"class Heron:\n    def nest(self) -> str:\n        return 'reeds'\n"


def archive(files: Mapping[str, bytes]) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as opened:
        for name, data in files.items():
            opened.writestr(name, data)
    return packed.getvalue()


def tar_files(files: Mapping[str, bytes]) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as opened:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            opened.addfile(info, io.BytesIO(data))
    return packed.getvalue()


async def put(caller: KnowledgeCaller, path: str, data: bytes, collection: str = "files") -> Any:
    encoded = base64.b64encode(data).decode()
    return await caller("add_file", collection=collection, path=path, data=encoded)


async def states(caller: KnowledgeCaller) -> dict[str, tuple[str, int, int]]:
    listed = (await caller("documents", collection="files")).items
    return {one.path: (one.status, one.version, one.live) for one in listed}


async def test_files_are_stored_at_a_cost_that_does_not_grow_with_the_tenant(
    cluster: Cluster, with_documents: Recycling
) -> None:
    """Without statistics each chunk, symbol and foreign key once read what all collections have."""
    files = {
        f"{number}.py": CODE.replace(b"Heron:", b"Heron%d(Bird):" % number) * 9
        for number in range(60)
    }
    for settings in own_database(cluster, with_documents._template):
        async with Database.open(settings) as database, open_rig(database) as rig:
            tables = "SELECT relname FROM pg_class WHERE relkind = 'r'"
            for (table,) in await rig.rows(f"{tables} AND relname ~ '^(knowledge|search|e).*_t$'"):
                await rig.run(f"ALTER TABLE {table} SET (autovacuum_enabled = false)")
            for collection in ("first", "second", "third"):
                before = await rig.rows_read(".*")
                report = await put(rig.caller(), "birds.zip", archive(files), collection)
                assert report.added == len(files)
                cost = await rig.rows_read(".*") - before
    assert cost < 30 * len(files) * 9, "a chunk has 22"


async def test_only_changed_files_of_an_archive_are_read_again(rig: KnowledgeRig) -> None:
    """Only changed files of an archive are read again (L22)."""
    ann = rig.caller()
    files = {f"{n}.md": f"# Part {n}\n\nIt is about subject{n}.".encode() for n in range(5)}
    found = await put(ann, "book.zip", archive({**files, "../x": b"y", "a.py": CODE}))
    assert (found.added, [one.path for one in found.left_out]) == (6, ["../x"])
    hits = (await ann("query", query="nest of herons")).evidence
    assert [(one.path, one.symbol, one.kind) for one in hits][:1] == [
        ("book.zip/a.py", "Heron", "class")
    ]
    before = await rig.rows("SELECT chunk_id, xmin::text FROM knowledge_chunk_t ORDER BY 1")
    files["3.md"] = b"# Part 3\n\nIt is about something else."
    found = await put(ann, "book.zip", archive({**files, "a.py": CODE}))
    assert (found.added, found.changed, found.unchanged) == (0, 1, 5)
    after = await rig.rows("SELECT chunk_id, xmin::text FROM knowledge_chunk_t ORDER BY 1")
    assert len(set(before) & set(after)) == len(before) - 1


async def test_a_file_that_moved_in_an_archive_keeps_its_content(rig: KnowledgeRig) -> None:
    ann = rig.caller()
    await put(ann, "book.zip", archive({"a.txt": b"The heron nests in reeds."}))
    await put(ann, "book.zip", archive({"b.txt": b"The heron nests in reeds."}))
    [best, *_] = (await ann("query", query="heron", filter={"paths": ["book.zip/b.txt"]})).evidence
    assert best.text == "The heron nests in reeds."


async def test_an_unreadable_file_keeps_the_older_version(rig: KnowledgeRig) -> None:
    """An unreadable file keeps the older version (K24)."""
    ann = rig.caller()
    await put(ann, "a.txt", b"The heron nests in reeds.")
    assert await states(ann) == {"a.txt": ("processed", 1, 1)}
    with pytest.raises(ProblemDetails, match="binary"):
        await put(ann, "a.txt", b"\0\1\2\3" * 100)
    assert await states(ann) == {"a.txt": ("failed", 2, 1)}
    assert await ann.find_texts("heron") == ["The heron nests in reeds."]
    [failed] = (await ann("documents", collection="files")).items
    assert "binary" in failed.error
    added = await ann.add("The heron nests in trees.", "files", path="a.txt")
    assert await states(ann) == {"a.txt": ("processed", 2, 2)}
    [tracked] = (await ann("documents", track_id=added.track_id)).items
    assert tracked.path == "a.txt"
    await put(ann, "a.txt", b"The heron nests in trees.")
    assert await states(ann) == {"a.txt": ("processed", 2, 2)}


async def test_a_file_is_parsing_until_read_or_its_process_has_ended(
    rig: KnowledgeRig,
) -> None:
    """A file is parsing until read or its process has ended (K24)."""
    ann = rig.caller()
    async with rig.busy_readers("user:ann"), anyio.create_task_group() as tasks:
        tasks.start_soon(put, ann, "a.txt", b"The heron nests in reeds.")
        await until(lambda: states(ann))
        assert await states(ann) == {"a.txt": ("parsing", 1, 0)}
        tasks.cancel_scope.cancel()
    await rig.run("UPDATE knowledge_version_t SET created_ts = now() - interval '2 hours'")
    [cut] = (await ann("documents", collection="files")).items
    assert (cut.status, cut.error) == ("failed", "its reading was cut off")
    assert (await ann("get_collection", collection="files")).statuses == {"failed": 1}
    await put(ann, "a.txt", b"The heron nests in reeds.")
    assert await states(ann) == {"a.txt": ("processed", 1, 1)}


async def test_a_failing_file_stops_no_other_file(rig: KnowledgeRig) -> None:
    """A failing file stops no other file (K25)."""
    ann = rig.caller()
    files = {"a.txt": b"One heron.", "b.pdf": b"%PDF-1.7 no", "c.txt": b"Two herons."}
    found = await put(ann, "x.zip", archive(files))
    assert (found.added, [one.path for one in found.failed]) == (2, ["x.zip/b.pdf"])
    assert sorted(await ann.find_texts("heron")) == ["One heron.", "Two herons."]


@pytest.mark.parametrize(
    ("files", "length", "reason"),
    [
        ({f"{n}.txt": os.urandom(64) for n in range(10_001)}, None, "more than 10,000 entries"),
        ({"a.txt": b"heron", "b.txt": os.urandom(99_999)}, -50_000, "broken"),
    ],
    ids=["entries", "cut"],
)
async def test_a_refused_archive_stores_nothing(
    rig: KnowledgeRig, files: Mapping[str, bytes], length: int | None, reason: str
) -> None:
    """A refused archive stores nothing (K25)."""
    ann = rig.caller()
    with pytest.raises(ProblemDetails, match=reason):
        await put(ann, "x.tar.gz", tar_files(files)[:length])
    assert await states(ann) == {}


@pytest.mark.parametrize(
    ("path", "data", "reason"),
    [
        ("a.pdf", b"%PDF-1.7\nbroken", "a.pdf"),
        ("a.zip", b"PK\x03\x04 broken", "a.zip"),
        ("a.docx", b"no document", "binary"),
        ("empty.txt", b"", ""),
    ],
)
async def test_bad_files_are_told_or_have_no_chunks(
    rig: KnowledgeRig, path: str, data: bytes, reason: str
) -> None:
    if not reason:
        assert (await put(rig.caller(), path, data)).added == 1
        return
    with pytest.raises(ProblemDetails, match=reason) as refused:
        await put(rig.caller(), path, data)
    assert refused.value.status == 422


async def test_files_cut_as_plain_text_are_read_again_until_properly_read(
    rig: KnowledgeRig,
) -> None:
    """Its process was killed, as for want of time or memory."""
    ann, workers, packed = rig.caller(), rig.parts.workers, archive({"a.py": CODE, "b.py": CODE})
    limits = workers._limits
    workers._limits = replace(limits, cut_s=0.0)
    assert (await put(ann, "book.zip", packed)).added == 2
    assert (await ann.add(CODE.decode(), "files", path="c.py")).changed
    again = await put(ann, "book.zip", packed)
    assert (again.changed, again.unchanged) == (0, 2)
    assert not (await ann.add(CODE.decode(), "files", path="c.py")).changed
    notes = [one.note or "" for one in (await ann("documents", collection="files")).items]
    assert all("plain text" in one for one in notes)

    workers._limits = limits
    assert (await put(ann, "book.zip", packed)).changed == 2
    assert (await ann.add(CODE.decode(), "files", path="c.py")).changed
    listed = (await ann("documents", collection="files")).items
    assert {(one.note, one.version) for one in listed} == {(None, 2)}
    found = (await ann("query", query="heron", collections=["files"])).evidence
    assert {one.symbol for one in found} == {"Heron"}

    workers._limits = replace(limits, cut_s=0.0)
    assert (await put(ann, "book.zip", packed)).unchanged == 2
    assert not (await ann.add(CODE.decode(), "files", path="c.py")).changed


async def test_an_unchanged_source_is_read_again_if_cut_as_plain_text(
    database: Database,
) -> None:
    def app(environ: dict[str, Any], start_response: Any) -> Any:
        if environ.get("HTTP_IF_NONE_MATCH") == '"1"':
            start_response("304 Not Modified", [])
            return []
        start_response("200 OK", [("ETag", '"1"')])
        return [CODE]

    with serve_wsgi(app) as url:
        async with open_rig(database, knowledge_settings(private_networks=True)) as rig:
            workers, reader = rig.parts.workers, KnowledgeReader(HOST, "ann", ("*", "user:ann"))
            limits, reports = workers._limits, list[tuple[int, int, int]]()
            workers._limits, seen = replace(limits, cut_s=0.0), ""
            for _ in range(3):
                spec = SourceSpec("url", f"{url}/a.py", seen=seen)
                target = NewCollection("files")
                report = await rig.parts.ingestion.source(reader, target, spec, job=NO_JOB)
                reports.append((report.added, report.changed, report.unchanged))
                workers._limits, seen = limits, report.seen
    assert reports == [(1, 0, 0), (0, 1, 0), (0, 0, 1)]


async def test_sources_at_private_addresses_are_refused(rig: KnowledgeRig) -> None:
    ann = rig.caller()
    for type_, location in (
        ("url", "http://127.0.0.1:1/x"),
        ("url", "file:///etc/passwd"),
        ("url", "http://user:secret@example.com/"),
        ("git", "https://127.0.0.1/x.git"),
        ("git", "file:///tmp"),
        ("git", "https://["),
    ):
        with pytest.raises(ProblemDetails) as refused:
            await ann("ingest", collection="files", type=type_, location=location)
        assert refused.value.status == 422, location
        assert "secret" not in refused.value.detail.replace(location, "")


async def test_a_file_that_cannot_be_fetched_now_keeps_its_older_version(
    database: Database,
) -> None:
    broken, keys = set[str](), ("a.txt", "b.txt")

    def app(environ: dict[str, Any], start_response: Any) -> Any:
        key = environ["PATH_INFO"].removeprefix("/books").strip("/")
        start_response("500 Sorry" if key in broken else "200 OK", [])
        tag = "2" if broken else "1"
        listed = "".join(f"<Contents><Key>{one}</Key><ETag>{tag}</ETag></Contents>" for one in keys)
        return [f"The heron of {key}.".encode() if key else f"<X>{listed}</X>".encode()]

    with serve_wsgi(app) as url:
        async with open_rig(database, knowledge_settings(private_networks=True)) as rig:
            ann, source = rig.caller(), f"s3://books?endpoint={url}"
            found = await ann("ingest", collection="files", type="s3", location=source)
            assert found.added == 2
            broken.add("b.txt")
            found = await ann("ingest", collection="files", type="s3", location=source)
            assert [one.path for one in found.left_out] == ["b.txt"]
            assert await states(ann) == dict.fromkeys(("a.txt", "b.txt"), ("processed", 1, 1))


async def test_the_credential_of_a_folder_lists_no_names_with_its_prefix(
    database: Database,
) -> None:
    prefixes = []

    def app(environ: dict[str, Any], start_response: Any) -> Any:
        prefixes.append(parse_qs(environ["QUERY_STRING"])["prefix"][0])
        start_response("200 OK", [])
        return [b"<X/>"]

    with serve_wsgi(app) as url:
        async with open_rig(database, knowledge_settings(private_networks=True)) as rig:
            stored = Secrets(rig.database.pool, HOST, KEYS)
            place = place_of_bucket(bucket_of(f"s3://books/team?endpoint={url}"))
            await stored.put("knowledge", place, SchemeSettings(username="a", password="b"))
            for prefix in ("team", "team/", "team/a", "other"):
                source = f"s3://books/{prefix}?endpoint={url}"
                await rig.caller()("ingest", collection="files", type="s3", location=source)
    assert prefixes == ["team/", "team/", "team/a", "other"]


async def test_large_and_structured_texts_are_cut_elsewhere(rig: KnowledgeRig) -> None:
    ann = rig.caller()
    added = await ann.add(CODE.decode(), path="heron.py")
    assert added.chunks == 1
    assert [one.symbol for one in (await ann("query", query="heron")).evidence] == ["Heron"]
    whole = "\n\n".join(f"Paragraph {n} about word{n}." for n in range(4000))
    assert (await ann.add(whole, path="large")).chunks > 40
    [best] = (await ann("query", query="word3999", limit=1)).evidence
    assert best.lines[1] == 7999


async def test_stored_credentials_apply_to_a_place_and_its_subfolders(rig: KnowledgeRig) -> None:
    stored = Secrets(rig.database.pool, HOST, KEYS)
    for scheme, token in (("example.com", "all"), ("example.com/acme", "acme")):
        await stored.put("knowledge", scheme, SchemeSettings(token=token))
    credentials = PlaceCredentials(rig.database.pool, KEYS)
    for url, token in (
        ("https://example.com/acme/book.git", "acme"),
        ("https://EXAMPLE.com/acme", "acme"),
        ("https://example.com/acmes/book", "all"),
        ("https://example.com:8443/acme", None),
        ("https://other.example/acme", None),
        ("https://example.com.evil.example/acme", None),
    ):
        assert (await credentials.of(HOST, place_of(git_url(url)))).token == token, url
    assert (await credentials.of(OTHER, "example.com/acme")).token is None


@pytest.mark.parametrize(
    ("location", "place"),
    [
        ("s3://books", "s3.amazonaws.com/books"),
        ("s3://books/a/b", "s3.amazonaws.com/books/a/b"),
        (
            "s3://books?region=eu-west-1&endpoint=https://minio.example:9000",
            "minio.example_9000/books",
        ),
    ],
)
def test_places_of_buckets(location: str, place: str) -> None:
    assert place_of_bucket(bucket_of(location)) == place


AMBIGUOUS = (
    "https://evil.example\\@github.com/acme/repo",
    "https://evil.example\\.github.com/acme/repo",
    "https://github.com/acme/../victim/repo",
    "https://github.com/acme/%2E%2e/victim/repo",
    "https://github.com/acme/..%2fvictim/repo",
    "https://github.com/acme/./repo",
    "https://github.com//evil.example/repo",
    "https://github.com%2f.evil.example/repo",
    "https://github.com/acme/repo\t",
    "https://git\nhub.com/acme/repo",
    "https://github.com/acme/repo?x=/../..",
    "https://github.com#/acme",
    "https:///github.com/acme",
    "https://github.com:x/acme",
)


@pytest.mark.parametrize("url", AMBIGUOUS)
def test_no_credential_is_chosen_by_a_url_that_may_be_another(url: str) -> None:
    with pytest.raises(ReadingRefused, match="URL"):
        git_url(url)
    with pytest.raises(ReadingRefused, match="URL"):
        bucket_of(f"s3://books?endpoint={quote(url)}")


def test_requests_go_to_the_url_that_the_credential_was_chosen_by() -> None:
    url = git_url("https://GitHub.com/acme/My%20Book.git")
    assert (url, place_of(url)) == (
        "https://github.com/acme/My%20Book.git",
        "github.com/acme/My%20Book",
    )


@pytest.mark.parametrize(
    "location", ["s3://..", "books", "s3://", "s3://b?x=1", "https://b", "s3://["]
)
def test_locations_that_are_no_bucket(location: str) -> None:
    with pytest.raises(ReadingRefused, match="expected s3://BUCKET/PREFIX"):
        bucket_of(location)
