"""Clients that leave within the bodies of their requests, at each path that wings mount."""

import logging
from collections.abc import AsyncIterator
from urllib.parse import urlsplit

import anyio
import pytest
from msgspec.structs import replace

from config.events import EventInbound
from config.settings import DatabaseSettings, Settings
from gateway.wings.librarian.tracked_source_operations import HOOKS
from tests.fixtures_database import HOST, Cluster, lend_database
from tests.fixtures_gateway import Client, running
from tests.polling import until
from tests.recycling import Recycling
from tests.wings.events.rig import STRUCTURED, with_events
from tests.wings.events.test_outside import NEW
from tests.wings.librarian.test_wing import lending
from tests.wings.test_toy import got

pytestmark = pytest.mark.anyio

SOURCE = "00000000-0000-4000-8000-00000000feed"
REQUESTS = (
    "PUT /knowledge/files/notes/a.txt",
    "PUT /librarian/indexes/notes",
    f"POST {HOOKS}/{HOST}/{SOURCE}",
    "POST /events/hooks/paid",
    "POST /events/cloudevents",
    "POST /lightrag/notes/query",
    "POST /lightrag/notes/documents/text",
    "POST /lightrag/notes/documents/upload",
)
FORM = 'multipart/form-data; boundary="b"'


def with_all(database: DatabaseSettings) -> Settings:
    paid = EventInbound(skill="getPet", secret=NEW, principal="shop", arguments="body")
    settings = with_events(lending(database), inbound={"paid": paid})
    return replace(settings, logging=replace(settings.logging, access=True))


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"  # with one event loop for the module


@pytest.fixture(scope="module")
async def client(cluster: Cluster, with_wings: Recycling) -> AsyncIterator[Client]:
    for database in lend_database(cluster, with_wings):
        async with running(with_all(database)) as client:
            yield client


async def test_each_operation_that_waits_ends_when_its_client_has_left(client: Client) -> None:
    """Those that take a time to wait for (mending 9)."""
    assert client.gateway.wings is not None
    offers = client.gateway.wings.offers.values()
    waiting = {
        one.id: one.waits
        for offer in offers
        for one in offer.operations
        for given in (one.query, one.body)
        if {"wait_s", "wait"} & set(getattr(given, "__struct_fields__", ()))
    }
    assert len(waiting) > 2
    assert all(waiting.values()), waiting


@pytest.mark.parametrize("request_line", REQUESTS)
@pytest.mark.parametrize("length", ["Content-Length: 100", "Transfer-Encoding: chunked"])
async def test_a_client_that_leaves_within_its_body_is_no_error(
    client: Client, request_line: str, length: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    kind = {"cloudevents": STRUCTURED, "upload": FORM}.get(request_line.rpartition("/")[2], "a/b")
    head = f"{request_line} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {kind}\r\n{length}\r\n\r\n"
    address = urlsplit(client.url)
    with anyio.fail_after(60):
        async with await anyio.connect_tcp(str(address.hostname), int(address.port or 0)) as left:
            await left.send(head.encode() + b"4\r\n--b\r\n")
            await left.send_eof()
            await until(lambda: "request" in [one.getMessage() for one in caplog.records])
    assert (await got(client, "/knowledge/v1/collections"))[0] == 200
    assert [one.getMessage() for one in caplog.records if one.levelname == "ERROR"] == []
