"""Bad inputs of F.1 that no other test has: sources that lie or drip, very long lines, disks that
are full."""

import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import anyio
import psycopg
import pytest
from aiohttp.resolver import ThreadedResolver
from msgspec.structs import replace

from config.settings import DatabaseSettings
from gateway.operations.problems import ProblemDetails
from gateway.wings.documents.reading.reading_limits import ReadingLimits, ReadingRefused
from gateway.wings.documents.reading.source_files import WantedFiles
from gateway.wings.documents.reading.url_and_s3_files import FetchOptions, url_file
from registry.documents.ssrf_protection import PrivateAddress, PublicResolver
from tests.fixtures_database import TEMPLATE, Cluster, own_database
from tests.fixtures_gateway import running
from tests.polling import until
from tests.wings.documents.test_remote import serve_wsgi
from tests.wings.knowledge.rig import KnowledgeRig
from tests.wings.librarian.test_library import context
from tests.wings.librarian.test_wing import lending

pytestmark = pytest.mark.anyio

LINE = 600_000  # characters


async def test_a_very_long_line_is_found_and_quoted_in_part(rig: KnowledgeRig) -> None:
    """A very long line is found and quoted in part (F1.04)."""
    ann = rig.caller()
    await ann.add("heron " * (LINE // 6) + "stork", collection="code", path="one-line.txt")
    library = rig.parts.library
    with anyio.fail_after(60):
        found = await library.grep(context(), ["code"], "stork$")
        none = await library.grep(context(), ["code"], "(h|e)*(r|o)*(n| )*x")
    assert [(one.lines, len(one.text)) for one in found] == [((1, 1), 500)]
    assert none == []


async def test_a_host_name_that_turns_private_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """An address is checked each time that it is connected to, and no other one is (F1.12)."""
    answers = iter((["8.8.8.8"], ["127.0.0.1"], ["8.8.8.8", "::ffff:169.254.169.254"]))

    async def resolve(_self: Any, host: str, port: int = 0, family: int = 0) -> list[Any]:
        shown = {"hostname": host, "port": port, "family": family, "proto": 0, "flags": 0}
        return [{**shown, "host": address} for address in next(answers)]

    monkeypatch.setattr(ThreadedResolver, "resolve", resolve)
    resolver = PublicResolver()
    assert [one["host"] for one in await resolver.resolve("turning.test", 80)] == ["8.8.8.8"]
    for _ in range(2):
        with pytest.raises(PrivateAddress):
            await resolver.resolve("turning.test", 80)


@pytest.mark.parametrize("pause", [0.02, 0.0], ids=["slow drip", "endless"])
async def test_an_endless_body_is_abandoned(pause: float) -> None:
    """An endless body is abandoned (F1.12)."""

    def app(_environ: Any, start_response: Any) -> Iterator[bytes]:
        start_response("200 OK", [("Content-Type", "text/plain")])
        until = time.monotonic() + 60
        while time.monotonic() < until:
            time.sleep(pause)
            yield b"x" * (1 if pause else 65536)

    limits = ReadingLimits(container_bytes=10**6)
    fetching = FetchOptions(private_networks=True, timeout_s=1)
    reason = r"no answer within|larger than"
    with serve_wsgi(app) as url, anyio.fail_after(30), pytest.raises(ReadingRefused, match=reason):
        await url_file(f"{url}/drip.txt", fetching, WantedFiles(limits=limits))


@pytest.fixture
async def full(rig: KnowledgeRig) -> KnowledgeRig:
    """A database whose disk is full when a text is stored."""
    await rig.caller().add("The heron nests.", collection="code", path="a.md")
    await rig.run(
        "CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
        " RAISE EXCEPTION 'No space left on device' USING ERRCODE = '53100'; END $$"
    )
    await rig.run("CREATE TRIGGER full_disk BEFORE INSERT ON knowledge_chunk_t"
                  " FOR EACH ROW EXECUTE FUNCTION full_disk()")  # fmt: skip
    return rig


async def test_a_full_disk_keeps_the_version_before(full: KnowledgeRig) -> None:
    """A full disk keeps the version before (F1.25)."""
    ann = full.caller()
    with pytest.raises((psycopg.errors.DiskFull, ProblemDetails)):
        await ann.add("The stork nests.", collection="code", path="a.md")
    assert await ann.find_texts("heron") == ["The heron nests."]
    assert await ann.find_texts("stork") == []
    await full.run("DROP TRIGGER full_disk ON knowledge_chunk_t")
    await ann.add("The stork nests.", collection="code", path="a.md")
    assert await ann.find_texts("stork") == ["The stork nests."]


async def test_health_answers_while_all_connections_are_taken(cluster: Cluster) -> None:
    """Health answers while all connections are taken (F1.26)."""
    for database in own_database(cluster, TEMPLATE):
        small = replace(database, pool_max=4)
        async with running(lending(small)) as client, await connect_to(small) as other:
            await client.post("/knowledge/v1/documents", {"collection": "a", "text": "A heron."})
            await other.execute("LOCK knowledge_collection_t IN ACCESS EXCLUSIVE MODE")
            body = {"query": "heron"}
            async with anyio.create_task_group() as group:
                for _ in range(20):
                    group.start_soon(client.post, "/librarian/v1/search", body)
                await until(partial(waiting, small))
                with anyio.fail_after(20):
                    for path in ("/health", "/lightrag/a/health"):
                        async with client.http.get(client.url + path) as response:
                            assert response.status == 200
                await other.rollback()
            status, found, _ = await client.post("/librarian/v1/search", body)
            assert (status, len(found["passages"])) == (200, 1)


async def connect_to(settings: DatabaseSettings) -> psycopg.AsyncConnection:
    return await psycopg.AsyncConnection.connect(settings.url)


async def waiting(settings: DatabaseSettings) -> bool:
    """Whether so many statements wait for the lock that more have no connection."""
    async with await connect_to(settings) as connection:
        found = await connection.execute("SELECT count(*) FROM pg_locks WHERE NOT granted")
        return bool((await found.fetchone() or (0,))[0] >= 3)
