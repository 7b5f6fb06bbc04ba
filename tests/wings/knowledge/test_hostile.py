"""Requests that are meant to break something: each gets an answer that is no 500, in time."""

from collections.abc import AsyncIterator
from typing import Any

import anyio
import pytest

from tests.fixtures_database import TEMPLATE, Cluster, own_database
from tests.fixtures_gateway import DEADLINE_S, Client, running
from tests.wings.knowledge.test_lightrag import knowing

pytestmark = pytest.mark.anyio

LONG = "".join(chr(0x4E00 + number * 17) for number in range(1024))  # as bytes three times that
DEEP: Any = "x"
for _ in range(400):
    DEEP = {"a": DEEP}


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"  # with one event loop for the module


@pytest.fixture(scope="module")
async def client(cluster: Cluster) -> AsyncIterator[Client]:
    for database in own_database(cluster, TEMPLATE):
        async with running(knowing(database)) as client:
            for number in range(30):
                text = {"text": f"The Grey Heron {number} nests.", "collection": "notes",
                        "path": f"{'a/' * number}{'b' * number}.txt"}  # fmt: skip
                await client.post("/knowledge/v1/documents", text)
            yield client


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("query", b'{"query": "\\ud800 heron"}'),
        ("query", b'{"query": "heron", "filter": {"heading": "\\ud800"}}'),
        ("query", {"query": "heron", "filter": {"metadata": DEEP}}),
        ("query", {"query": "heron", "filter": {"metadata": {"a": 10**400}}}),
        ("query", {"query": "heron", "filter": {"paths": ["**/" * 85] * 20}}),
        ("query", {"query": "heron", "filter": {"paths": ["*a" * 128] * 20}}),
        ("query", {"query": "heron", "filter": {"paths": ["**/a" * 10, "**/b" * 10]}}),
        (
            "query",
            {"query": "heron", "filter": {"paths": ["(((" * 80, "[[:alpha:]", "\\1", "{9}"]}},
        ),
        ("query", {"query": "heron", "limit": 10**9}),
        ("query", {"query": "heron", "collections": ["../x"]}),
        ("query", {"query": "🦩 " * 3000}),
        ("query", {"query": "Grey Heron " * 5000, "mode": "hybrid"}),
        ("entity", b'{"name": "\\ud800"}'),
        ("entity", {"name": "the"}),
        ("entity", {"name": "G" * 257}),
        ("path", {"from": "Grey Heron", "to": "%_' OR 1=1 --"}),
        ("path", {"from": "Grey Heron", "to": "nests"}),
        ("documents", {"collection": "notes", "text": "x" * 200, "metadata": {"a": "\0"}}),
        ("documents", {"collection": "notes", "text": "x", "metadata": {"a": "y" * 20_000}}),
        ("documents", {"collection": "n" * 300, "text": "x"}),
        ("documents", b'{"collection": "notes", "text": "\\udfff"}'),
        ("documents", {"collection": "notes", "text": "A" * 10_000 + " heron", "path": "capital"}),
        ("documents", {"collection": "notes", "text": "[" * 30_000, "path": "deep.json"}),
        ("documents", {"collection": "notes", "text": "(" * 30_000, "path": "deep.py"}),
        ("documents", {"collection": "notes", "text": "x", "path": LONG}),
        ("files", {"collection": "notes", "path": LONG, "data": "eA=="}),
        ("documents/delete", {"collection": "notes", "documents": ["no-id"]}),
        ("files", {"collection": "notes", "path": "x", "data": "no base64!"}),
        ("sources", {"collection": "notes", "type": "git", "location": "ext::sh -c id"}),
        ("sources", {"collection": "notes", "type": "s3", "location": "s3://../../etc"}),
    ],
)
async def test_each_gets_an_answer(client: Client, path: str, body: Any) -> None:
    with anyio.fail_after(DEADLINE_S):
        status, answer, _ = await client.post(f"/knowledge/v1/{path}", body)
    assert status < 500, answer
    if status >= 400:
        assert answer["detail"], answer


async def test_ids_of_foreign_objects_reveal_nothing(client: Client) -> None:
    foreign = "00000000-0000-4000-8000-000000000001"
    for path in (f"documents/{foreign}", "collections/other", "documents/no-id"):
        async with client.http.get(f"{client.url}/knowledge/v1/{path}") as response:
            assert response.status == 404
    body = {"collection": "notes", "documents": [foreign]}
    _, answer, _ = await client.post("/knowledge/v1/documents/delete", body)
    assert answer == {"documents": 0}
