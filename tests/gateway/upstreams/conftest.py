"""A client with short idle_timeout, and sources for it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from msgspec.structs import replace

from config.load import load
from config.settings import UpstreamSettings as Limits
from config.sources import SourceSettings
from gateway.upstreams.http.client import Client, HttpRequest
from gateway.upstreams.http.source_pools import UpstreamFailed
from schemas.source import Source
from tests.clock import LoopClock

GET = HttpRequest("GET", "/x", {})


def limits(**changes: Any) -> Limits:
    values = {
        "timeout_s": 30,
        "connect_timeout_s": 30,
        "connections": 10,
        "response_limit_bytes": 1000,
        "retries": 2,
        "retry_backoff_s": 0.001,
        "upload_limit_bytes": 10_000,
        "upload_private_networks": False,
        "connection_idle_s": 15,
        "dns_ttl_s": 10,
        "head_limit_bytes": 65536,
        "headers_limit": 128,
        "token_private_networks": False,
        "python_threads": 1,
        "python_calls": 1,
        "mcp_sessions": 4,
        "mcp_idle_s": 60,
        "mcp_call_max_s": 60,
        "mcp_probe_s": 60,
        "mcp_refresh_s": 60,
        "mcp_list_pages": 10,
        "mcp_list_items": 100,
        "mcp_list_bytes": 2**22,
        "mcp_client_requests": 3,
        "mcp_cookies_bytes": 200,
        "stdio": True,
        "stdio_processes": 4,
        "stdio_memory_bytes": 2**32,
        "stdio_restart_max_s": 60,
    }
    return replace(load(None, {}).upstream, **(values | changes))


@pytest.fixture
async def clock(anyio_backend: str) -> LoopClock:
    return LoopClock()


def source(base_url: str | None, trusted: bool = True, name: str = "pets") -> Source:
    return Source("id", name, "openapi", "file", base_url, trusted)


@asynccontextmanager
async def open_client(
    settings: SourceSettings | None = None, **changes: Any
) -> AsyncIterator[Client]:
    client = Client(limits(**changes), {} if settings is None else {"pets": settings})
    try:
        yield client
    finally:
        await client.close()


async def failure(client: Client, of: Source, request: HttpRequest = GET) -> str:
    """Why there was no answer; checks that no address is told."""
    with pytest.raises(UpstreamFailed) as caught:
        await client.send(of, request)
    text = str(caught.value)
    assert text.startswith("pets ")
    assert "127.0.0.1" not in text
    assert "localhost" not in text
    return text


@pytest.fixture
async def client(anyio_backend: str) -> AsyncIterator[Client]:
    async with open_client() as client:
        yield client
