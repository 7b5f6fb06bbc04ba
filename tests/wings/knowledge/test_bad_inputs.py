"""Bad inputs and bad moments of F.1 that no other test of the knowledge has."""

import asyncio
import gzip
import io
import json
import os
import re
import signal
import sys
import zipfile
import zlib
from asyncio.subprocess import PIPE
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio
import psutil
import psycopg
import pytest
from msgspec.structs import replace

from gateway.operations.problems import ProblemDetails
from gateway.wings.documents.reading.process_pool import ReadingWorkers
from gateway.wings.documents.reading.reading_limits import (
    DEFAULT_LIMITS,
    ReadingLimits,
    ReadingRefused,
)
from gateway.wings.documents.reading.source_files import WantedFiles
from gateway.wings.documents.reading.url_and_s3_files import FetchOptions, url_file
from tests.fixtures_database import TEMPLATE, Cluster, own_database
from tests.fixtures_gateway import running
from tests.polling import until
from tests.properties import places
from tests.wings.documents.test_remote import serve_wsgi
from tests.wings.identities import OTHER
from tests.wings.knowledge.rig import KnowledgeRig
from tests.wings.knowledge.test_ingestion import archive, put, states
from tests.wings.knowledge.test_lightrag import knowing
from tests.wings.knowledge.test_reading import pdf, pdf_of, word
from tests.wings.knowledge.victim import PATH, store, text_of

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(600)]

FILES = {f"{n}.txt": f"The heron number{n} nests.".encode() for n in range(60)}
FULL_DISK = """
    CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        RAISE EXCEPTION 'No space left on device' USING ERRCODE = '53100';
    END $$;
    CREATE TRIGGER full_disk BEFORE INSERT ON knowledge_chunk_t
        FOR EACH ROW EXECUTE FUNCTION full_disk()
"""
SMALL = int(os.environ.get("TOOLGATE_KNOWLEDGE_SMALL", "300"))  # documents of 60 words
VERSION = re.compile(r"version([12])")


async def test_a_writer_killed_before_each_statement_leaves_a_whole_version(
    rig: KnowledgeRig,
) -> None:
    """A writer killed before each statement leaves a whole version (F1.15)."""
    command = (sys.executable, "-m", "tests.wings.knowledge.victim", rig.database.pool.conninfo)
    ann, seen = rig.caller(), list[str]()
    victim = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE)
    assert victim.stdin is not None
    assert victim.stdout is not None
    try:
        for statements in places():
            await store(rig, 2)
            victim.stdin.write(f"{statements}\n".encode())
            with anyio.fail_after(60):
                code = int(await victim.stdout.readline())
            [(status, *_)] = (await states(ann)).values()
            found = " ".join(await ann.find_texts("heron", limit=50))
            assert len({*VERSION.findall(found)}) == 1
            assert all(f"Heron {part} of" in found for part in range(4))
            seen.append(status)
            if code == 0:
                break
            assert code == -signal.SIGKILL
    finally:
        victim.kill()
        await victim.wait()
    assert statements > 15
    assert {*seen} == {"processed", "parsing"}
    assert set(VERSION.findall(found)) == {"1"}
    await store(rig, 2)
    assert await rig.rows("SELECT DISTINCT status FROM knowledge_version_t") == [("processed",)]
    [(document, text)] = await rig.rows(
        "SELECT document_id::text, convert_from(content, 'UTF8') FROM knowledge_blob_t"
        " JOIN knowledge_document_t USING (host_id, sha256)"
    )
    assert text == text_of(2)
    chunks = await rig.rows("SELECT count(*), count(DISTINCT document_id) FROM knowledge_chunk_t")
    [one] = (await ann("documents")).items
    assert ((one.document, one.path, one.chunks), chunks) == (
        (document, PATH, chunks[0][0]), [(one.chunks, 1)],
    )  # fmt: skip


async def test_concurrent_uploads_of_one_archive_store_one_copy(rig: KnowledgeRig) -> None:
    """Concurrent uploads of one archive store one copy (F1.15)."""
    ann, reports = rig.caller(), list[Any]()
    files = dict(list(FILES.items())[:12])

    async def store_all() -> None:
        reports.append(await put(ann, "birds.zip", archive(files)))

    async with anyio.create_task_group() as tasks:
        for _ in range(2):
            tasks.start_soon(store_all)
    assert sum(one.added for one in reports) == len(files)
    assert sum(one.added + one.unchanged for one in reports) == 2 * len(files)
    assert not any(one.changed or one.failed for one in reports)
    assert set((await states(ann)).values()) == {("processed", 1, 1)}
    assert len(await ann.find_texts("heron", limit=50)) == len(files)


def reading_processes() -> list[int]:
    """Those of this process that read files: each leads a session of its own."""
    children = [child.pid for child in psutil.Process().children()]
    return [pid for pid in children if os.getsid(pid) == pid]


async def test_killed_readers_lose_only_their_archive(
    rig: KnowledgeRig,
) -> None:
    """Killed readers lose only their archive (F1.15)."""
    ann, refused = rig.caller(), list[str]()
    large = {name: text + os.urandom(16_000).hex().encode() for name, text in FILES.items()}

    async def store_all() -> None:
        try:
            await put(ann, "birds.zip", archive(large))
        except ProblemDetails as error:
            refused.append(error.detail)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(store_all)
        await until(lambda: rig.rows("SELECT FROM knowledge_chunk_t LIMIT 1"))
        for process in reading_processes():
            os.kill(process, signal.SIGKILL)
    assert ["crashed" in one for one in refused] == [True]
    before = await states(ann)
    assert {status for status, *_ in before.values()} <= {"processed", "failed"}
    report = await put(ann, "birds.zip", archive(large))
    assert (report.failed, report.added + report.changed + report.unchanged) == ((), len(FILES))
    assert {*(await states(ann)).values()} <= {("processed", 1, 1), ("processed", 2, 2)}
    rows = await rig.rows("SELECT count(DISTINCT document_id) FROM knowledge_chunk_t")
    assert rows == [(len(FILES),)]


async def test_deleting_during_ingestion_acts_as_deleting_before(
    rig: KnowledgeRig,
) -> None:
    """A document is there again; a collection is not, and no file of it (F1.15)."""
    ann = rig.caller()
    await put(ann, "a.txt", b"The heron nests.")
    for deleting in ("delete", "delete_collection"):
        problems = list[ProblemDetails]()

        async def change(problems: list[ProblemDetails] = problems) -> None:
            try:
                await put(ann, "a.txt", b"The stork nests.")
            except ProblemDetails as error:
                problems.append(error)

        async with anyio.create_task_group() as tasks, rig.busy_readers("user:ann"):
            tasks.start_soon(change)
            await until(lambda: parsing(rig))
            ids = [one.document for one in (await ann("documents", collection="files")).items]
            more = {"documents": ids} if deleting == "delete" else {}
            await ann(deleting, collection="files", **more)
        if deleting == "delete":
            assert (problems, await ann.find_texts("heron stork")) == ([], ["The stork nests."])
            assert await states(ann) == {"a.txt": ("processed", 1, 1)}
            await put(ann, "a.txt", b"The heron nests.")
        else:
            assert ["was deleted" in one.detail for one in problems] == [True]
            for table in ("collection", "document", "chunk", "blob", "version"):
                assert await rig.rows(f"SELECT FROM knowledge_{table}_t") == [], table


async def parsing(rig: KnowledgeRig) -> bool:
    return bool(await rig.rows("SELECT FROM knowledge_version_t WHERE status = 'parsing'"))


async def test_a_query_sees_one_version(rig: KnowledgeRig) -> None:
    """A query sees one version (F1.15)."""
    ann, written, seen = rig.caller(), anyio.Event(), set[str]()
    await store(rig, 2)

    async def ask() -> None:
        while not written.is_set():
            found = await ann("query", query="heron", limit=50, names=100)
            texts = " ".join(one.text for one in found.evidence)
            [version] = {*VERSION.findall(texts)}
            assert {one.version for one in found.evidence} == {found.evidence[0].version}
            assert all(f"Heron {part} of" in texts for part in range(4))
            seen.add(version)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ask)
        for number in range(12):
            await store(rig, 1 + number % 2)
        written.set()
    assert seen == {"1", "2"}


async def test_a_revoked_grant_ends_with_the_next_statement(
    rig: KnowledgeRig,
) -> None:
    """A revoked grant ends with the next statement (F1.19)."""
    ann, bo = rig.caller("ann"), rig.caller("bo")
    text = "# Grey Heron\n\nIt nests at Lake Constance."
    added = await ann.add(text, path="heron.md")
    await ann("put_collection", collection="notes", grants={"user:bo": "read"})
    [found] = (await bo("query", query="heron")).evidence
    assert (await bo("read", document=found.document)).text == text
    await ann("put_collection", collection="notes", grants={})
    with pytest.raises(ProblemDetails, match="404"):
        await bo("read", document=found.document)
    path = {"from": "Grey Heron", "to": "Lake Constance"}
    for mode in ("naive", "local", "global", "hybrid", "mix"):
        answer = await bo("query", query="heron", mode=mode, names=10)
        assert (answer.evidence, answer.references, answer.names) == ((), (), ())
    assert (await bo("path", **path)).paths == ()
    assert (await bo("documents", track_id=added.track_id)).items == ()
    assert len((await ann("path", **path)).paths) == 1


async def test_unreadable_and_missing_objects_answer_alike(
    rig: KnowledgeRig,
) -> None:
    """Unreadable and missing objects answer alike (F1.19)."""
    ann, bo = rig.caller("ann"), rig.caller("bo")
    added = await ann.add("# Grey Heron\n\nIt nests.", "hidden", path="heron.md")
    missing = "00000000-0000-4000-8000-000000000001"
    asked: tuple[tuple[str, dict[str, Any]], ...] = (
        ("query", {"query": "heron", "collections": ["hidden"]}),
        ("query", {"query": "heron", "filter": {"documents": [added.document]}}),
        ("read", {"document": added.document}),
        ("documents", {"collection": "hidden"}),
        ("documents", {"track_id": added.track_id}),
        ("entity", {"name": "Grey Heron", "collections": ["hidden"]}),
        ("path", {"from": "Grey Heron", "to": "Grey Heron", "collections": ["hidden"]}),
        ("names", {"collection": "hidden"}),
        ("communities", {"collection": "hidden"}),
        ("get_collection", {"collection": "hidden"}),
        ("delete_collection", {"collection": "hidden"}),
        ("delete", {"collection": "hidden", "documents": [added.document]}),
        ("merge", {"collection": "hidden", "names": ["Grey Heron"], "into": "Heron"}),
    )
    for name, arguments in asked:
        told = []
        for real, other in (("hidden", "missing"), (added.document, missing)):
            swapped = json.loads(json.dumps(arguments).replace(real, other))
            for given in (arguments, swapped):
                try:
                    answer: Any = await bo(name, **given)
                except ProblemDetails as error:
                    answer = (error.status, error.detail)
                told.append(repr(answer).replace(other, real))
        assert len({*told}) == 1, (name, told)


async def test_a_full_disk_is_reported_and_earlier_data_stay_usable(cluster: Cluster) -> None:
    """By each way that texts and files come in; the database says that its disk is full (F1.25)."""
    for database in own_database(cluster, TEMPLATE):
        async with running(knowing(database)) as client:

            async def store(bird: str) -> list[int]:
                text = {"text": f"The {bird} nests.", "file_source": "conv.txt"}
                found = [(await client.post("/lightrag/notes/documents/text", text))[0]]
                for path, data in (("a.txt", text["text"].encode()), ("b.zip", None)):
                    url = f"{client.url}/knowledge/files/notes/{path}"
                    packed = archive({f"{n}.txt": f"{bird} {n}.".encode() for n in range(3)})
                    async with client.http.put(url, data=data or packed) as response:
                        found.append(response.status)
                return found

            async def count_evidence(bird: str) -> int:
                _, answer, _ = await client.post("/knowledge/v1/query", {"query": bird})
                return len(answer["evidence"])

            assert await store("heron") == [200, 200, 200]
            async with await psycopg.AsyncConnection.connect(database.url, autocommit=True) as sql:
                await sql.execute(FULL_DISK)
                assert await store("stork") == [503, 503, 503]
                assert (await count_evidence("heron"), await count_evidence("stork")) == (5, 0)
                await sql.execute("DROP TRIGGER full_disk ON knowledge_chunk_t")
            assert await store("stork") == [200, 200, 200]
            assert await count_evidence("stork") == 5
            listed = await client.http.get(f"{client.url}/knowledge/v1/documents")
            statuses = {one["status"] for one in (await listed.json())["items"]}
            assert statuses == {"processed"}


async def test_a_foreign_track_id_lists_nothing(rig: KnowledgeRig) -> None:
    """A foreign track id lists nothing (F1.27)."""
    ann = rig.caller("ann")
    added = await ann.add("The heron nests.")
    assert len((await ann("documents", track_id=added.track_id)).items) == 1
    for caller in (rig.caller("bo"), rig.caller("ann", tenant=OTHER), rig.caller(None)):
        found = await caller("documents", track_id=added.track_id)
        assert (found.items, found.next) == ((), "")


async def test_many_small_documents_are_listed_found_and_deleted(
    rig: KnowledgeRig,
) -> None:
    """Many small documents are listed found and deleted (F1.31)."""
    ann, words = rig.caller(), " ".join(f"word{number}" for number in range(56))

    async def store_each(first: int) -> None:
        for number in range(first, SMALL, 8):
            text = f"The heron number{number} nests. {words}"
            await ann.add(text, path=f"{number}.txt")

    async with anyio.create_task_group() as tasks:
        for first in range(8):
            tasks.start_soon(store_each, first)
    assert (await ann("get_collection", collection="notes")).statuses == {"processed": SMALL}
    listed, after = list[Any](), None
    while after != "":
        page = await ann(
            "documents", collection="notes", limit=100, **({"after": after} if after else {})
        )
        listed, after = [*listed, *page.items], page.next
    assert sorted(one.path for one in listed) == sorted(f"{n}.txt" for n in range(SMALL))
    for number in (0, SMALL // 2, SMALL - 1):
        [best, *_] = (await ann("query", query=f"heron number{number}", limit=3)).evidence
        assert best.path == f"{number}.txt"
    gone = [one.document for one in listed[: SMALL // 2]]
    for at in range(0, len(gone), 100):
        await ann("delete", collection="notes", documents=gone[at : at + 100])
    rows = await rig.rows("SELECT count(*), count(DISTINCT document_id) FROM knowledge_chunk_t")
    assert rows == [(SMALL - len(gone), SMALL - len(gone))]
    await ann("delete_collection", collection="notes")
    assert await rig.rows("SELECT FROM knowledge_blob_t") == []


async def test_a_pdf_and_zip_polyglot_is_read_as_pdf(
    rig: KnowledgeRig,
) -> None:
    """A PDF and ZIP polyglot is read as PDF (F1.05)."""
    ann = rig.caller()
    packed = archive({"inner.txt": b"The heron nests."})
    await put(ann, "a.txt", pdf("The stork nests.") + packed)
    await put(ann, "b.pdf", pdf("The stork sleeps.") + packed)
    assert sorted(await ann.find_texts("stork heron")) == ["The stork nests.", "The stork sleeps."]


def drawing(forms: Sequence[bytes]) -> bytes:
    """A PDF with a text, whose page draws the first of its forms; each form has all of them."""
    names = b" ".join(b"/X%d %d 0 R" % (n, 5 + n) for n in range(len(forms)))
    resources = b"/Resources<</Font<</F1 3 0 R>>/XObject<<%s>>>>" % names
    page = b"BT /F1 12 Tf 40 700 Td (The heron nests.) Tj ET /X0 Do"
    streams = [b"<</Length %d>>stream\n%s\nendstream" % (len(page), page)]
    form = b"<</Type/XObject/Subtype/Form/BBox[0 0 600 800]%s/Length %d>>stream\n%s\nendstream"
    streams += [form % (resources, len(one), one) for one in forms]
    place = 5 + len(forms)
    return pdf_of([
        b"<</Type/Catalog/Pages 2 0 R>>",
        b"<</Type/Pages/Count 1/Kids[%d 0 R]>>" % place,
        b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>",
        *streams,
        b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 600 800]/Contents 4 0 R%s>>" % resources,
    ])  # fmt: skip


@pytest.mark.parametrize(
    "forms",
    [
        [b"/X0 Do"],
        [b"/X1 Do /X1 Do", b"/X0 Do /X0 Do"],
        [*(b"/X%d Do /X%d Do" % (n, n) for n in range(1, 30)), b"0 0 m"],  # a billion
    ],
    ids=["itself", "each other", "doubling"],
)
async def test_recursive_pdf_forms_end(forms: list[bytes]) -> None:
    """Recursive PDF forms end (F1.06)."""
    workers = ReadingWorkers(1, replace(DEFAULT_LIMITS, parse_s=3.0))
    try:
        with anyio.fail_after(90):
            try:
                told = (await workers.read("a.pdf", drawing(forms))).text
            except ReadingRefused as error:  # its process was ended, and no other one
                told = str(error)
            assert re.match(r"The heron nests\.|its parser (did not end|crashed)", told), told
            assert (await workers.read("b.txt", b"The stork sleeps.")).text == "The stork sleeps."
    finally:
        await workers.close()


RELATION = (
    '<Relationship Id="rId{number}" Type="http://schemas.openxmlformats.org/officeDocument/2006/'
    'relationships/{kind}" Target="{target}" TargetMode="External"/>'
)


def word_document(target: str) -> bytes:
    """A document of Word with a template, a picture and a frame from elsewhere, and macros."""
    kinds = ("attachedTemplate", "image", "frame", "oleObject", "subDocument", "aFChunk")
    relations = [
        RELATION.format(number=900 + n, kind=kind, target=target) for n, kind in enumerate(kinds)
    ]
    namespace = "http://schemas.openxmlformats.org/package/2006/relationships"
    own = f'<Relationships xmlns="{namespace}">{"".join(relations)}</Relationships>'
    file = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(word())) as before, zipfile.ZipFile(file, "w") as after:
        for name in before.namelist():
            data = before.read(name)
            if name == "word/_rels/document.xml.rels":
                data = data.replace(b"</Rel", "".join(relations).encode() + b"</Rel")
            after.writestr(name, data)
        after.writestr("word/_rels/settings.xml.rels", own)
        after.writestr("word/vbaProject.bin", b"\xd0\xcf\x11\xe0AutoOpen Shell calc.exe")
    return file.getvalue()


async def test_a_word_document_loads_no_template_and_runs_no_macro(
    rig: KnowledgeRig, tmp_path: Path
) -> None:
    """A word document loads no template and runs no macro (F1.07)."""
    asked, ann = list[str](), rig.caller()
    secret = tmp_path / "template.dotm"
    secret.write_text("The stork sleeps.")

    def app(environ: dict[str, Any], start_response: Any) -> list[bytes]:
        asked.append(environ["PATH_INFO"])
        start_response("200 OK", [])
        return [b"The stork sleeps."]

    with serve_wsgi(app) as url:
        for number, target in enumerate((f"{url}/a.dotm", f"file://{secret}", str(secret))):
            await put(ann, f"{number}.docx", word_document(target))
    assert asked == []
    assert set((await states(ann)).values()) == {("processed", 1, 1)}
    found = " ".join(await ann.find_texts("installer stork AutoOpen Shell", limit=50))
    assert "Run the installer." in found
    assert not re.search("stork|AutoOpen|calc", found)


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
async def test_a_decompression_bomb_is_abandoned(encoding: str) -> None:
    """A decompression bomb is abandoned (F1.12)."""
    packed = (gzip if encoding == "gzip" else zlib).compress(b"0" * 20_000_000)

    def app(_environ: Any, start_response: Any) -> list[bytes]:
        start_response("200 OK", [("Content-Encoding", encoding), ("Content-Type", "text/plain")])
        return [packed]

    limits = ReadingLimits(container_bytes=10**6)
    fetching = FetchOptions(private_networks=True, timeout_s=30)
    with serve_wsgi(app) as url, pytest.raises(ReadingRefused, match="larger than"):
        await url_file(f"{url}/a.txt", fetching, WantedFiles(limits=limits))


async def test_ubiquitous_names_and_circular_merges_end(
    rig: KnowledgeRig,
) -> None:
    """Ubiquitous names and circular merges end (F1.18)."""
    ann = rig.caller()
    names = [f"Heron{chr(97 + n % 26)}{chr(97 + n // 26)} Reed" for n in range(120)]
    for number, name in enumerate(names):
        await ann.add(f"# {name}\n\nIt is near Lake Constance.", path=f"{number}.md")
    everywhere = " and ".join(f"{name} of {number}" for number, name in enumerate(names * 20))
    await ann.add(everywhere, path="all.md")
    for source, target in ((0, 1), (1, 2), (2, 0)):
        given = {"names": [names[source]], "into": names[target]}
        await ann("merge", collection="notes", **given)
    for name in (names[0], names[2], "Lake Constance"):
        assert (await ann("entity", name=name)).passages >= 1
    paths = (await ann("path", **{"from": names[0], "to": names[60]})).paths
    assert 1 <= len(paths[0].hops) <= 3
    for mode in ("local", "global", "hybrid", "mix"):
        found = await ann("query", query=f"Lake Constance near {names[3]}", mode=mode, limit=50)
        assert "3.md" in [one.path for one in found.evidence], mode
