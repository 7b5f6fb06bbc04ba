"""TrackedSources that collections follow: git, URLs, schedules and webhooks."""

import asyncio
import base64
import hashlib
import hmac
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from email.utils import formatdate
from functools import partial
from typing import Any

import anyio
import pytest
from dulwich.refs import Ref
from msgspec.structs import replace
from numpy.typing import NDArray

from config.load import load
from gateway.context import Context
from gateway.http_client.webhooks import sign
from gateway.operations.job_declarations import NO_JOB
from gateway.operations.problems import ProblemDetails
from gateway.wings.document_library import PassageQuery, SourcePlace
from gateway.wings.knowledge.chunk_search import KIND
from gateway.wings.librarian.library_access import LibraryAccess
from gateway.wings.librarian.source_webhooks import SourceHooks
from gateway.wings.librarian.tracked_source_operations import HOOKS, HookSecrets
from gateway.wings.librarian.tracked_sources import (
    _CLAIM_DUE,
    _LEAVE,
    _RENEW,
    TrackedSource,
    TrackedSources,
    claim_of,
)
from registry.access.secrets import Keys
from registry.database.postgres import Database
from registry.embedding.search_kinds import search_kinds
from registry.embedding.target_models import register
from registry.embedding.worker import Worker
from schemas.tool import ToolResult
from tests.fixtures_database import HOST, Cluster, lend_database
from tests.recycling import Recycling
from tests.wings.documents.test_remote import GitServer, commit_files, git, serve_wsgi
from tests.wings.identities import OTHER
from tests.wings.knowledge.rig import KEYS, KnowledgeRig, knowledge_settings, open_rig
from tests.wings.knowledge.test_vectors import Colours
from tests.wings.librarian.test_library import context

__all__ = ["git"]
pytestmark = pytest.mark.anyio

FILE = 0o100644
FIRST = {
    b"README.md": (FILE, b"# Project\n\nIt catches herons.\n"),
    b"src/a.py": (FILE, b"def catch(): pass\n"),
    b"src/b.py": (FILE, b"def release(): pass\n"),
}


@dataclass(frozen=True)
class Tracking:
    rig: KnowledgeRig
    sources: TrackedSources

    async def add(self, location: str, who: Context | None = None, **more: Any) -> TrackedSource:
        place = SourcePlace(type=more.pop("type", "git"), location=location)
        options = {"interval_s": 0, "webhook": False, **more}
        return await self.sources.add(who or context(), "code", place, **options)

    async def refresh(self, one: TrackedSource, who: Context | None = None) -> TrackedSource:
        return await self.sources.refresh(who or context(), one, NO_JOB)

    async def chunks(self) -> Mapping[str, str]:
        """The paths of chunks by their ids."""
        rows = await self.rig.rows(
            "SELECT chunk_id::text, path FROM knowledge_chunk_t"
            " JOIN knowledge_document_t USING (host_id, document_id)"
        )
        return dict(rows)


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"  # with one event loop for the module


@pytest.fixture(scope="module")
async def readers(cluster: Cluster, with_documents: Recycling) -> AsyncIterator[KnowledgeRig]:
    """One rig for all tests: its processes that read files take a second to start."""
    for settings in lend_database(cluster, with_documents):
        async with (
            Database.open(settings) as database,
            open_rig(database, knowledge_settings(private_networks=True)) as rig,
        ):
            yield rig


@pytest.fixture
async def tracking(readers: KnowledgeRig) -> Tracking:
    settings = replace(load(None, {}).librarian, enabled=True, sources=3)
    sources = TrackedSources(
        readers.database.pool, LibraryAccess(lambda: readers.parts.library), settings
    )
    await readers.run("DELETE FROM librarian_source_t")
    for table in ("chunk", "version", "document", "collection"):
        await readers.run(f"DELETE FROM knowledge_{table}_t")
    return Tracking(readers, sources)


def project(git: GitServer) -> str:
    return f"{git.url}/project"


async def test_only_changed_files_of_a_branch_are_read(git: GitServer, tracking: Tracking) -> None:
    """Only changed files of a branch are read (L22)."""
    commit_files(git.repository, FIRST)
    one = await tracking.add(project(git))
    assert (one.status, one.due is not None) == ("pending", True)
    one = await tracking.refresh(one)
    assert (one.status, one.report["added"], one.error) == ("ready", 3, None)
    assert one.place.seen.encode() == git.repository.refs[Ref(b"refs/heads/main")]
    before = await tracking.chunks()

    asked = len(git.authorized)
    one = await tracking.refresh(one)  # the branch is where it was: its refs alone are asked for
    assert (one.report["unchanged"], one.report["deleted"]) == (3, 0)
    assert len(git.authorized) - asked == 1

    # A forced push: the commit has no parents.
    changed = {**FIRST, b"src/a.py": (FILE, b"def snatch(): pass\n")}
    del changed[b"src/b.py"]
    commit_files(git.repository, changed)
    one = await tracking.refresh(one)
    assert [one.report[name] for name in ("added", "changed", "unchanged", "deleted")] == [
        0, 1, 1, 1,
    ]  # fmt: skip
    after = await tracking.chunks()
    assert {before[id_] for id_ in before.keys() - after.keys()} == {"src/a.py", "src/b.py"}
    assert {after[id_] for id_ in after.keys() - before.keys()} == {"src/a.py"}


class Counted(Colours):
    """A model that keeps what it embeds."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    async def embed(self, texts: Any, *, query: bool = False) -> NDArray[Any]:
        self.texts += texts
        return await super().embed(texts, query=query)


async def embed_texts(rig: KnowledgeRig, model: Counted) -> list[str]:
    """The texts that are embedded now."""
    model.texts.clear()
    kinds = search_kinds([KIND])
    worker = Worker(rig.database.pool, model, load(None, {}).embedding, kinds=kinds)
    while await worker.step():
        pass
    return sorted(model.texts)


async def test_only_changed_chunks_of_a_file_are_embedded(
    git: GitServer, tracking: Tracking
) -> None:
    """Only changed chunks of a file are embedded (L22)."""
    model, files = Counted(), dict[bytes, tuple[int, bytes]]()
    await register(tracking.rig.database.pool, model, KIND.purpose)
    body = b"def stay_%d():\n" + b"    call()\n" * 150 + b"\n\ndef go_%d():\n" + b"    go()\n" * 150
    for number in range(20):
        files[b"src/f%d.py" % number] = (FILE, body % (number, number))
    commit_files(git.repository, files)
    one = await tracking.refresh(await tracking.add(project(git)))
    assert one.report["added"] == 20
    assert len(await embed_texts(tracking.rig, model)) == len(await tracking.chunks()) >= 40
    _, text = files[b"src/f7.py"]
    files[b"src/f7.py"] = (FILE, text.replace(b"go_7", b"went_7"))
    commit_files(git.repository, files)
    one = await tracking.refresh(one)
    told = [one.report[name] for name in ("changed", "unchanged", "deleted")]
    assert told == [1, 19, 0]
    (found,) = await embed_texts(tracking.rig, model)
    assert "went 7" in found


async def test_a_failed_reading_keeps_earlier_documents(git: GitServer, tracking: Tracking) -> None:
    """A failed reading keeps earlier documents (L22)."""
    commit_files(git.repository, FIRST)
    one = await tracking.refresh(await tracking.add(project(git)))
    (gone,) = await tracking.rig.rows(
        "UPDATE librarian_source_t SET location = replace(location, 'project', 'empty')"
        " RETURNING location"
    )
    with pytest.raises(ProblemDetails, match="is empty"):
        await tracking.refresh(one)
    (one,) = await tracking.sources.of(context())
    assert (one.status, "is empty" in (one.error or "")) == ("failed", True)
    library = tracking.rig.parts.library
    found = await library.search(context(), PassageQuery(text="herons"))
    assert [passage.path for passage in found.passages] == ["README.md"]
    assert gone[0].endswith("/empty")


async def test_the_status_agrees_with_search(git: GitServer, tracking: Tracking) -> None:
    """The status agrees with search (L23)."""
    library = tracking.rig.parts.library
    commit_files(git.repository, FIRST)
    one = await tracking.add(project(git))
    (status,) = await library.status(context(), ["code"])
    assert (status.documents, status.chunks) == ({}, 0)
    await tracking.refresh(one)
    (status,) = await library.status(context(), None)
    found = await library.search(context(), PassageQuery(text="herons catch release", limit=50))
    assert status.documents == {"processed": 3}
    assert (status.chunks, status.embedded) == (len(found.passages), 0)


async def test_due_sources_are_read_with_the_rights_of_their_author(
    git: GitServer, tracking: Tracking
) -> None:
    commit_files(git.repository, FIRST)
    ann = tracking.rig.caller()
    await ann("put_collection", collection="code", grants={"user:bo": "write"})
    one = await tracking.add(project(git), context("bo"), interval_s=60)
    assert await tracking.sources.refresh_due() == 1
    (one,) = await tracking.sources.of(context())
    assert (one.status, one.report["added"]) == ("ready", 3)
    assert await tracking.sources.refresh_due() == 0  # not before the interval has passed

    await ann("put_collection", collection="code", grants={})
    assert await tracking.sources.of(context("bo")) == []
    await tracking.sources.make_due(one)
    assert await tracking.sources.refresh_due() == 1
    (one,) = await tracking.sources.of(context())
    assert (one.status, "may not write" in (one.error or "")) == ("failed", True)


async def test_a_source_that_is_being_read_is_read_again(
    git: GitServer, tracking: Tracking
) -> None:
    """A source that is being read is read again (F1.15)."""
    commit_files(git.repository, FIRST)
    one = await tracking.add(project(git))
    run = tracking.rig.run
    await run(
        "UPDATE librarian_source_t SET status = 'reading', next_ts = NULL,"
        " lease_ts = now() + interval '1 minute'"
    )
    one = await tracking.refresh(one)
    assert (one.status, one.due is not None) == ("reading", True)
    assert await tracking.sources.refresh_due() == 0
    # Its reader died: what it had begun is taken up.
    await run("UPDATE librarian_source_t SET next_ts = NULL, lease_ts = now() - interval '1 s'")
    assert await tracking.sources.refresh_due() == 1
    (one,) = await tracking.sources.of(context())
    assert one.status == "ready"


async def test_timestamps_of_the_future_delay_no_source(git: GitServer, tracking: Tracking) -> None:
    """What a clock wrote that is set back by a year since (F1.24)."""
    commit_files(git.repository, FIRST)
    one = await tracking.add(project(git), interval_s=60)
    assert await tracking.sources.refresh_due() == 1
    assert await tracking.sources.refresh_due() == 0
    ahead = "interval '1 year'"
    await tracking.rig.run(f"UPDATE librarian_source_t SET next_ts = next_ts + {ahead}")
    assert await tracking.sources.refresh_due() == 1, "its schedule goes on"
    assert await tracking.sources.refresh_due() == 0
    for read in (tracking.sources.refresh_due, partial(tracking.refresh, one)):
        await tracking.rig.run(
            f"UPDATE librarian_source_t SET status = 'reading', lease_ts = now() + {ahead}"
        )
        await read()
        (one,) = await tracking.sources.of(context())
        assert one.status == "ready", "whoever was reading it is dead"


async def test_a_url_is_read_again_when_its_validator_changes(tracking: Tracking) -> None:
    """A URL is read again when its validator changes (L22)."""
    tag, texts, conditions = ['"1"'], [b"# One"], []

    def app(environ: dict[str, Any], start_response: Any) -> Any:
        conditions.append(environ.get("HTTP_IF_NONE_MATCH", ""))
        if conditions[-1] == tag[0]:
            start_response("304 Not Modified", [("ETag", tag[0])])
            return []
        start_response("200 OK", [("ETag", tag[0])])
        return [texts[0]]

    with serve_wsgi(app) as url:
        one = await tracking.add(f"{url}/guide.md", type="url")
        one = await tracking.refresh(one)
        assert (one.report["added"], one.place.seen) == (1, 'If-None-Match: "1"')
        one = await tracking.refresh(one)
        assert (one.report["unchanged"], one.report["deleted"]) == (1, 0)
        tag[0], texts[0] = '"2"', b"# Two"
        one = await tracking.refresh(one)
        assert (one.report["changed"], one.place.seen) == (1, 'If-None-Match: "2"')
    assert conditions == ["", '"1"', '"1"']


async def test_only_changed_objects_of_a_bucket_are_fetched(tracking: Tracking) -> None:
    """Only changed objects of a bucket are fetched (L22)."""
    tags, fetched = {"a.md": "1", "b.md": "1"}, []

    def app(environ: dict[str, Any], start_response: Any) -> Any:
        key = environ["PATH_INFO"].removeprefix("/books").strip("/")
        start_response("200 OK", [])
        if key:
            fetched.append(key)
            return [f"# Heron {tags[key]} of {key}".encode()]
        listed = "".join(
            f"<Contents><Key>{one}</Key><ETag>{tag}</ETag></Contents>" for one, tag in tags.items()
        )
        return [f"<X>{listed}</X>".encode()]

    with serve_wsgi(app) as url:
        one = await tracking.add(f"s3://books?endpoint={url}", type="s3")
        one = await tracking.refresh(one)
        assert (one.status, one.report["added"], sorted(fetched)) == ("ready", 2, ["a.md", "b.md"])
        fetched.clear()
        one = await tracking.refresh(one)
        assert (one.report["unchanged"], fetched) == (2, [])
        tags["a.md"] = "2"
        del tags["b.md"]
        one = await tracking.refresh(one)
        told = [one.report[name] for name in ("changed", "unchanged", "deleted")]
        assert (told, fetched) == ([1, 0, 1], ["a.md"])


@asynccontextmanager
async def meanwhile(act: Callable[[str], Awaitable[Any]]) -> AsyncIterator[str]:
    """A URL; what is to happen while it is read, as often as it is asked for, 4 times at most."""
    loop, times = asyncio.get_running_loop(), iter(range(4))

    def app(_environ: dict[str, Any], start_response: Any) -> Any:
        if next(times, None) is not None:
            asyncio.run_coroutine_threadsafe(act(url), loop).result(60)
        start_response("200 OK", [("ETag", '"1"')])
        return [b"# One"]

    with serve_wsgi(app) as server:
        url = f"{server}/guide.md"
        yield url


async def test_a_source_due_again_waits_for_other_sources(tracking: Tracking) -> None:
    async def due_again(_url: str) -> None:
        (one,) = await tracking.sources.of(context())
        await tracking.sources.make_due(one)

    async with meanwhile(due_again) as url:
        await tracking.add(url, type="url")
        assert await tracking.sources.refresh_due() == 1
        (one,) = await tracking.sources.of(context())
        assert one.due is not None
        assert await tracking.sources.refresh_due() == 1


async def test_a_collection_deleted_during_a_reading_stays_deleted(
    tracking: Tracking,
) -> None:
    async def delete(_url: str) -> None:
        await tracking.rig.caller()("delete_collection", collection="code")

    async with meanwhile(delete) as url:
        one = await tracking.add(url, type="url")
        with pytest.raises(ProblemDetails, match="was deleted"):
            await tracking.refresh(one)
    assert await tracking.rig.rows("SELECT name FROM knowledge_collection_t") == []


async def test_a_reader_with_a_lost_claim_keeps_the_lease_of_its_successor(
    tracking: Tracking,
) -> None:
    """Two workers: the first one's lease ends while it reads, and the second one takes the source
    up, which is still reading when the first one ends (F1.15)."""
    claims: list[Any] = []

    async def taken_up(_url: str) -> None:
        await tracking.rig.run("UPDATE librarian_source_t SET lease_ts = now() - interval '1 s'")
        values = {"host": HOST, "began": "infinity", "lease": 3600, "limit": 1}
        claims.extend(await tracking.sources._sources(_CLAIM_DUE, values))

    async with meanwhile(taken_up) as url:
        first = await tracking.refresh(await tracking.add(url, type="url"))
    (second,) = claims
    assert first.claim != second.claim
    (one,) = await tracking.sources.of(context())
    assert (one.status, one.claim, one.report) == ("reading", second.claim, {})
    lease = "SELECT lease_ts FROM librarian_source_t"
    before = await tracking.rig.rows(lease)
    for statement in (_RENEW, _LEAVE):
        assert await tracking.sources._sources(statement, {**claim_of(first), "lease": 60}) == []
    assert await tracking.rig.rows(lease) == before
    assert len(await tracking.sources._sources(_RENEW, {**claim_of(second), "lease": 60})) == 1
    assert await tracking.rig.rows(lease) != before


async def test_a_source_added_again_during_its_reading_is_read_anew(tracking: Tracking) -> None:
    async def elsewhere(url: str) -> None:
        place = SourcePlace(type="url", location=url, folder="docs")
        await tracking.sources.add(context(), "code", place, interval_s=0, webhook=False)

    async with meanwhile(elsewhere) as url:
        one = await tracking.refresh(await tracking.add(url, type="url"))
        assert (one.place.folder, one.place.seen) == ("docs", "")
        one = await tracking.refresh(one)
        assert one.place.seen == 'If-None-Match: "1"'
    assert {*(await tracking.chunks()).values()} == {"docs/127.0.0.1/guide.md"}


@pytest.mark.parametrize(
    ("type_", "location"),
    [
        ("git", "https://me:secret@host/x"),
        ("git", "file:///etc"),
        ("git", "ext::sh -c x"),
        ("git", "ssh://host/x"),
        ("url", "file:///etc/passwd"),
        ("s3", "https://bucket"),
    ],
)
async def test_locations_that_are_not_stored(tracking: Tracking, type_: str, location: str) -> None:
    with pytest.raises(ProblemDetails, match="location") as raised:
        await tracking.add(location, type=type_)
    assert "me:secret" not in raised.value.detail
    assert await tracking.sources.of(context()) == []


async def test_a_source_deleted_before_its_reading_is_not_found(
    tracking: Tracking,
) -> None:
    one = await tracking.add("https://host/a")
    assert await tracking.sources.delete(context(), one.id)
    with pytest.raises(ProblemDetails, match="There is no source"):
        await tracking.refresh(one)


async def test_a_source_deleted_during_its_reading_is_not_found(tracking: Tracking) -> None:
    settings = replace(load(None, {}).librarian, enabled=True, lease_s=0.3)
    shelves = LibraryAccess(lambda: tracking.rig.parts.library)
    impatient = TrackedSources(tracking.rig.database.pool, shelves, settings)

    loop, refreshed = asyncio.get_running_loop(), threading.Event()
    deleting = partial(tracking.rig.run, "DELETE FROM librarian_source_t")

    def app(_environ: dict[str, Any], start_response: Any) -> Any:
        asyncio.run_coroutine_threadsafe(deleting(), loop).result(60)
        refreshed.wait(60)  # the next renewal of the claim ends it
        start_response("200 OK", [])
        return [b""]

    with serve_wsgi(app) as server:
        one = await tracking.add(f"{server}/guide.md", type="url")
        with anyio.fail_after(30), pytest.raises(ProblemDetails, match="There is no source"):
            await impatient.refresh(context(), one, NO_JOB)
        refreshed.set()


async def test_a_deleted_collection_takes_its_sources_and_their_secrets(
    tracking: Tracking,
) -> None:
    one = await tracking.add("https://example.org/a.git", webhook=True)
    hooks = HookSecrets(tracking.rig.database.pool, KEYS)
    await hooks.make(one)
    assert await hooks.of(one) is not None
    await tracking.rig.run("DELETE FROM knowledge_collection_t")
    assert await tracking.rig.rows("SELECT * FROM librarian_source_t") == []
    assert await hooks.of(one) is None
    assert await tracking.sources.refresh_due() == 0


async def test_a_collection_has_so_many_sources(tracking: Tracking) -> None:
    for name in "abc":
        await tracking.add(f"https://host/{name}")
    await tracking.add("https://host/a", interval_s=60)  # another state of one that is there
    with pytest.raises(ProblemDetails, match=r"librarian\.sources"):
        await tracking.add("https://host/d")
    assert len(await tracking.sources.of(context())) == 3


async def test_sources_are_listed_only_for_writers(tracking: Tracking) -> None:
    """Sources are listed only for writers (L24)."""
    one = await tracking.add("https://host/a")
    await tracking.rig.caller()("put_collection", collection="code", grants={"user:bo": "read"})
    for who in (context("bo"), context("cy"), context(None), context("ann", tenant=OTHER)):
        assert await tracking.sources.of(who) == []
        assert not await tracking.sources.delete(who, one.id)
        if who.principal.tenant == HOST:
            with pytest.raises(ProblemDetails, match=r"may not write|Anonymous"):
                await tracking.add("https://host/b", who)
    # Another collection of the name has none of them.
    ann = tracking.rig.caller()
    await ann("delete_collection", collection="code")
    await tracking.rig.caller("bo")("put_collection", collection="code")
    assert await tracking.sources.of(context("bo")) == []
    with pytest.raises(ProblemDetails, match="There is no source"):
        await tracking.refresh(one)


async def test_signed_webhooks_make_a_source_due(tracking: Tracking) -> None:
    """Signed webhooks make a source due (L25)."""
    asked: list[tuple[str | None, str, Mapping[str, Any]]] = []

    async def call(who: Context, name: str, arguments: Mapping[str, Any]) -> ToolResult:
        asked.append((who.principal.id, name, arguments))
        return ToolResult(())

    one = await tracking.add("https://host/a", webhook=True)
    pool = tracking.rig.database.pool
    secrets = HookSecrets(pool, KEYS)
    secret = await secrets.make(one)
    body = b'{"ref": "refs/heads/main"}'
    digest = hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
    standard = sign("msg_1", int(time.time()), body, [secret])
    other = "whsec_" + base64.b64encode(b"k" * 32).decode()
    path = f"{HOOKS}/{HOST}/{one.id}"
    app = SourceHooks(call, tracking.sources, secrets)

    async def send_hook(path: str, headers: Mapping[str, str], body: bytes = body) -> int:
        return await post_request(app, path, headers, body)

    for headers in (standard, {"X-Hub-Signature-256": f"sha256={digest}"}):
        await tracking.rig.run("UPDATE librarian_source_t SET next_ts = NULL")
        assert await send_hook(path, headers) == 202
        (due,) = await tracking.sources.of(context())
        assert due.due is not None
    assert asked == [("ann", "librarian_refresh", {"source": one.id, "as_job": True})] * 2
    for bad, headers, payload in (
        (path, {}, body),
        (path, standard, b"{}"),
        (path, {"X-Hub-Signature-256": "sha256=é"}, body),
        (path, sign("msg_1", int(time.time()), body, [other]), body),
        (path, sign("msg_1", int(time.time()) - 3600, body, [secret]), body),
        (f"{HOOKS}/{OTHER}/{one.id}", standard, body),
        (f"{HOOKS}/{HOST}/{HOST}", standard, body),
        (f"{HOOKS}/x", standard, body),
    ):
        assert await send_hook(bad, headers, payload) == 401
    assert len(asked) == 2
    with pytest.raises(ProblemDetails, match="TOOLGATE_SECRETS__KEY"):
        HookSecrets(pool, Keys()).check()


async def post_request(app: Any, path: str, headers: Mapping[str, str], body: bytes) -> int:
    """The status of a POST to an ASGI application."""
    statuses: list[int] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            statuses.append(message["status"])

    scope = {
        "type": "http",
        "method": "POST",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "server": ("host", 80),
        "headers": [(name.lower().encode(), value.encode()) for name, value in headers.items()],
    }
    await app(scope, receive, send)
    return statuses[0]


async def test_a_url_that_changes_twice_in_a_second_is_read_again(tracking: Tracking) -> None:
    """A document that was changed in the second in which it was fetched is fetched whole the next
    time: its date and a tag made of that would not tell of another change (mending 38)."""
    texts, age, conditions = [b"# One"], [0], []

    def app(environ: dict[str, Any], start_response: Any) -> Any:
        conditions.append(environ.get("HTTP_IF_MODIFIED_SINCE", ""))
        changed = formatdate(time.time() - age[0], usegmt=True)
        if conditions[-1]:
            start_response("304 Not Modified", [])
            return []
        start_response("200 OK", [("Last-Modified", changed)])
        return [texts[0]]

    with serve_wsgi(app) as url:
        one = await tracking.add(f"{url}/guide.md", type="url")
        one = await tracking.refresh(one)
        assert (one.report["added"], one.place.seen) == (1, "")
        texts[0], age[0] = b"# Two", 5
        one = await tracking.refresh(one)
        assert one.report["changed"] == 1
        assert one.place.seen.startswith("If-Modified-Since: ")
        one = await tracking.refresh(one)
        assert one.report["unchanged"] == 1
    assert [bool(one) for one in conditions] == [False, False, True]
