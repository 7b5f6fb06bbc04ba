"""Strangers are answered before they have sent a large body, on every path without credentials."""

import asyncio
import base64
import time
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import urlsplit

import anyio
import pytest
from msgspec.structs import replace

from config.events import EventInbound
from config.settings import Settings
from tests.fixtures_gateway import DEADLINE_S, Client, running
from tests.gateway.shared import anyio_backend

__all__ = ["anyio_backend"]

pytestmark = pytest.mark.anyio

LARGE = 3_000_000  # bytes that are announced, and never sent
SECRET = f"whsec_{base64.b64encode(b'k' * 32).decode()}"
SIGNATURE = "v1," + "A" * 43 + "="


@pytest.fixture(scope="module")
async def client(shared_settings: Settings) -> AsyncIterator[Client]:
    settings = shared_settings
    sold = EventInbound(skill="getPet", secret=SECRET, principal="shop")
    guarded: dict[str, Any] = {
        "auth": replace(settings.auth, mode="keys"),
        "console": replace(settings.console, enabled=True),
        "events": replace(settings.events, enabled=True, inbound={"sold": sold}),
    }
    async with running(replace(settings, **guarded)) as client:
        yield client


async def status_of(client: Client, path: str, headers: dict[str, str]) -> int:
    """The status of the answer to a request whose body never comes."""
    address = urlsplit(client.url)
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    sent = {"Host": "localhost", "Content-Length": str(LARGE), **headers}
    lines = "".join(f"{name}: {value}\r\n" for name, value in sent.items())
    writer.write(f"POST {path} HTTP/1.1\r\n{lines}\r\nbegin".encode())
    try:
        with anyio.fail_after(DEADLINE_S):
            return int((await reader.readline()).split()[1])
    finally:
        writer.close()


def signed_headers(**changes: str) -> dict[str, str]:
    given = {"id": "msg_1", "timestamp": str(int(time.time())), "signature": SIGNATURE, **changes}
    return {f"webhook-{name}": value for name, value in given.items() if value}


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        ("/events/hooks/nobody", {}, 404),
        ("/events/hooks/nobody", signed_headers(), 404),
        ("/events/hooks/sold", {}, 401),
        ("/events/hooks/sold", signed_headers(timestamp="12"), 401),
        ("/events/hooks/sold", signed_headers(signature="v1,short"), 401),
        ("/console/login", {"Content-Type": "application/x-www-form-urlencoded"}, 413),
        ("/console/do/createKey", {"Content-Type": "application/x-www-form-urlencoded"}, 413),
        ("/rpc", {"Content-Type": "application/json"}, 401),
        ("/mcp", {"Content-Type": "application/json"}, 401),
        ("/admin/v1/keys", {"Content-Type": "application/json"}, 401),
        ("/events/v1", {"Content-Type": "application/json"}, 401),
    ],
)
async def test_no_large_body_of_a_stranger_is_waited_for(
    client: Client, path: str, headers: dict[str, str], status: int
) -> None:
    """The answer comes while the body is still to come (mending 9)."""
    assert await status_of(client, path, headers) == status
