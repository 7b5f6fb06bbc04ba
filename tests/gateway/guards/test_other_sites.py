"""What pages of other sites, proxies and clients elsewhere get of a gateway."""

import asyncio
from urllib.parse import urlsplit

import anyio
import pytest
from msgspec.structs import replace

from config.settings import Settings
from tests.fixtures_gateway import DEADLINE_S, Client, running
from tests.gateway.events import listening

pytestmark = pytest.mark.anyio

TOKEN = "numbers-are-for-operators"
PASSED_ON = {"X-Forwarded-For": "203.0.113.9"}
CROSS_SITE = {"Accept": "text/event-stream", "Sec-Fetch-Site": "cross-site"}


@pytest.mark.parametrize("path", ["/mcp/sse", "/mcp"])
async def test_a_page_of_another_site_opens_no_session(client: Client, path: str) -> None:
    sessions = client.gateway.shared.sessions
    async with client.http.get(client.url + path, headers=CROSS_SITE) as response:
        assert response.status == 403
        assert "Another site" in (await response.json())["error"]["message"]
    assert len(sessions) == 0
    for site in ("same-origin", "none"):
        async with listening(client, path, {**CROSS_SITE, "Sec-Fetch-Site": site}) as events:
            assert (await events.next())[0] == "endpoint"


async def test_a_page_of_an_allowed_origin_opens_a_stream(client: Client) -> None:
    page = {**CROSS_SITE, "Origin": "http://localhost:3000"}
    async with listening(client, "/mcp/sse", page) as events:
        assert (await events.next())[0] == "endpoint"
    foreign = {**CROSS_SITE, "Origin": "https://evil.example.com"}
    async with client.http.get(client.url + "/mcp/sse", headers=foreign) as response:
        assert response.status == 403


async def test_metrics_are_for_local_clients_and_token_holders(settings: Settings) -> None:
    async def metrics(**headers: str) -> tuple[int, str | None]:
        async with client.http.get(client.url + "/metrics", headers=headers) as response:
            return response.status, response.headers.get("www-authenticate")

    async with running(settings) as client:
        assert await metrics() == (200, None)
        assert await metrics(**PASSED_ON) == (403, None)
    told = replace(settings.metrics, token=TOKEN)
    async with running(replace(settings, metrics=told)) as client:
        assert (await metrics(**PASSED_ON))[0] == 401
        assert (await metrics(**PASSED_ON))[1] == 'Bearer realm="toolgate metrics"'
        assert await metrics(**PASSED_ON, Authorization=f"Bearer {TOKEN}") == (200, None)
    async with running(replace(settings, metrics=replace(told, public=True))) as client:
        assert await metrics(**PASSED_ON) == (200, None)


async def test_remote_clients_learn_only_the_readiness(client: Client) -> None:
    async with client.http.get(client.url + "/ready", headers=PASSED_ON) as response:
        assert (response.status, await response.json()) == (200, {"status": "ok"})
    async with client.http.get(client.url + "/ready") as response:
        assert (await response.json())["sources"] == {"pets": "ok"}


@pytest.mark.parametrize("hosts", [[], ["localhost", "localhost"], ["localhost", "evil.com"]])
async def test_a_request_without_one_host_is_a_bad_request(
    client: Client, hosts: list[str]
) -> None:
    address = urlsplit(client.url)
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    head = "".join(f"Host: {host}\r\n" for host in hosts)
    writer.write(f"GET / HTTP/1.1\r\n{head}\r\n".encode())
    with anyio.fail_after(DEADLINE_S):
        assert b" 400 " in await reader.readline()
    writer.transport.abort()
