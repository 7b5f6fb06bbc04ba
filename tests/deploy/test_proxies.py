"""The proxy of docs/proxies.md in front of a gateway."""

import re
import shutil
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import anyio
import pytest
from msgspec.structs import replace

from config.load import load
from config.settings import Settings
from gateway.audit.queries import AuditQuery, search
from registry.access.api_keys import ApiKeys
from tests.fixtures_gateway import DEADLINE_S, Client, running
from tests.fixtures_servers import free_ports
from tests.polling import until
from tests.servers.tls import Authority

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(shutil.which("nginx") is None, reason="nginx is not installed"),
]
PAGE = Path(__file__).resolve().parents[2] / "docs" / "proxies.md"
CLIENT = "127.0.0.2"
MAIN = """
daemon off;
pid {folder}/nginx.pid;
error_log {folder}/error.log;
events {{}}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
{server}
}}
"""


def block(port: int, gateway: str, cert: Path, key: Path) -> str:
    """The block of the page, for these addresses and files."""
    [found] = re.findall(r"^```nginx\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    text = str(found)
    for written, ours in {
        "listen 443 ssl": f"listen 127.0.0.1:{port} ssl",
        "/etc/ssl/tools.crt": str(cert),
        "/etc/ssl/tools.key": str(key),
        "http://127.0.0.1:8765": gateway,
    }.items():
        assert written in text
        text = text.replace(written, ours)
    return text


@asynccontextmanager
async def behind_nginx(client: Client, folder: Path) -> AsyncIterator[Client]:
    """The same gateway, reached through nginx from another address."""
    authority, [port] = Authority(folder), free_ports(1)
    cert, key = authority.sign("tools.example.com")
    file = folder / "nginx.conf"
    file.write_text(MAIN.format(folder=folder, server=block(port, client.url, cert, key)))
    process = await anyio.open_process(
        ["nginx", "-p", str(folder), "-c", str(file)], stdin=None, stdout=None, stderr=None
    )
    trusting = ssl.create_default_context(cafile=str(authority.file))
    connector = aiohttp.TCPConnector(ssl=trusting, local_addr=(CLIENT, 0))
    try:
        async with aiohttp.ClientSession(
            connector=connector,
            headers={"Host": "tools.example.com"},
            timeout=aiohttp.ClientTimeout(DEADLINE_S),
        ) as http:
            proxied = Client(client.gateway, f"https://127.0.0.1:{port}", http)
            await until(lambda: answers(proxied))
            yield proxied
    finally:
        process.terminate()
        with anyio.fail_after(DEADLINE_S, shield=True):
            await process.wait()


async def answers(client: Client) -> bool:
    try:
        async with client.http.get(f"{client.url}/ready") as response:
            return response.status == 200
    except aiohttp.ClientConnectionError:
        return False


def of_chapter(folder: Path, settings: Settings, **auth: Any) -> Settings:
    """`settings` with those of the page, which are read as a gateway reads them."""
    [text] = re.findall(r"^```yaml\n(auth:.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    file = folder / "proxied.yaml"
    file.write_text(str(text))
    page = load(str(file), {})
    assert page.server.trusted_proxies == ("127.0.0.1",)
    return replace(
        settings,
        auth=replace(page.auth, **auth),
        server=page.server,
        console=replace(page.console, enabled=True),
    )


async def make_key(client: Client) -> dict[str, str]:
    """Headers with a new key that may do everything."""
    pool = client.gateway.feed.pool
    assert pool is not None
    host = client.gateway.settings.tenant.host_id
    _, secret = await ApiKeys(pool, host).create("ada", None, ["*"], [])
    return {"Authorization": f"Bearer {secret}"}


async def test_calls_and_streams_pass_nginx(settings: Settings, tmp_path: Path) -> None:
    audit = replace(settings.audit, mode="always", spool_dir=str(tmp_path / "spool"))
    async with (
        running(replace(of_chapter(tmp_path, settings), audit=audit)) as client,
        behind_nginx(client, tmp_path) as proxied,
    ):
        proxied.http.headers.update(await make_key(client))

        async def is_known() -> bool:
            return (await proxied.post("/rpc", {"jsonrpc": "2.0", "id": 1, "method": "ping"}))[
                0
            ] == 200

        await until(is_known)
        forged = {"X-Forwarded-For": "203.0.113.9"}
        request = {"jsonrpc": "2.0", "id": 1, "method": "listPets"}
        status, answer, _ = await proxied.post("/rpc", request, forged)
        assert (status, answer["result"]["heard"]["path"]) == (200, "/pets")
        session = await proxied.session("2025-11-25")
        accept = {**session.headers, "Accept": "text/event-stream"}
        async with proxied.http.get(f"{proxied.url}/mcp", headers=accept) as stream:
            assert (await stream.content.readany()).startswith(b"id: ")  # while it is open
        async with proxied.http.get(f"{proxied.url}/metrics") as response:
            assert (response.status, response.headers["Server"][:5]) == (404, "nginx")
        await client.gateway.access.settle()
        assert client.gateway.feed.pool is not None
        page = await search(client.gateway.feed.pool, settings.tenant.host_id, AuditQuery())
    assert {record.entry.client for record in page.records} == {CLIENT}


async def test_strangers_get_nothing_through_nginx(settings: Settings, tmp_path: Path) -> None:
    """With the settings of the page nobody is let in without credentials, to any front, to the
    console or to the admin API, whatever headers they send (mending 3)."""
    claims = ({}, {"X-Forwarded-For": "127.0.0.1"}, {"Forwarded": "for=127.0.0.1"})
    call = {"jsonrpc": "2.0", "id": 1, "method": "listPets"}
    async with (
        running(of_chapter(tmp_path, settings)) as client,
        behind_nginx(client, tmp_path) as proxied,
    ):
        for claim in claims:
            for path in ("/mcp", "/rpc"):
                status, answer, _ = await proxied.post(path, call, dict(claim))
                assert (status, "result" in answer) == (401, False), path
            for path in ("/admin/v1/tools", "/admin/v1/keys"):
                async with proxied.http.get(proxied.url + path, headers=claim) as response:
                    assert response.status == 401, path
            for path in ("", "/tools", "/keys", "/secrets"):
                url = f"{proxied.url}/console{path}"
                async with proxied.http.get(url, headers=claim) as response:
                    text = await response.text()
                    assert 'name="key"' in text, path  # of the login
                    assert "createPet" not in text, path


async def test_without_authentication_the_console_is_for_this_machine(
    settings: Settings, tmp_path: Path
) -> None:
    """Where `auth.allow_public` lets a proxy pass on every call, the console and the admin API stay
    closed to what it forwards (mending 3)."""
    call = {"jsonrpc": "2.0", "id": 1, "method": "listPets"}
    async with (
        running(of_chapter(tmp_path, settings, mode="none", allow_public=True)) as client,
        behind_nginx(client, tmp_path) as proxied,
    ):
        assert (await proxied.post("/rpc", call))[0] == 200
        for path in ("/console", "/console/keys", "/console/secrets", "/admin/v1/keys"):
            forged = {"X-Forwarded-For": "127.0.0.1"}
            async with proxied.http.get(proxied.url + path, headers=forged) as response:
                assert response.status == 403, path
        async with client.http.get(f"{client.url}/console/tools") as response:
            assert response.status == 200
            assert "createPet" in await response.text()
