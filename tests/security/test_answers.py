"""What answers give away, whatever is asked: no server, no path, no secret, no markup, no page of
another site."""

import logging
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from config.settings import Settings
from config.sources import SourceSettings
from tests.fixtures_gateway import META, MODERN, Client, Recorder, running
from tests.gateway.guards.signing import FOREVER, by_jwks, signer

pytestmark = pytest.mark.anyio

KEY = signer("ES256", kid="2026")
CANARY = "hunter2-canary"
MARKUP = "<script>alert(1)</script>"
ORIGIN = "https://app.example.com"
# All that an answer may tell about itself.
HEADERS = {
    *("content-type", "content-length", "date", "x-request-id", "www-authenticate", "allow"),
    *("cache-control", "mcp-session-id", "transfer-encoding", "retry-after", "vary", "connection"),
    *("etag", "x-content-type-options", "x-accel-buffering", "link", "location", "accept"),
}
KINDS = {"application/json", "application/problem+json", "text/event-stream"}
PATHS = (
    *("/", "/mcp", "/mcp/sse", "/rpc", "/portal/query", "/portal/command", "/health", "/ready"),
    *("/admin/v1", "/admin/v1/sources", "/admin/v1/openapi.json", "/.well-known/x", "/nowhere"),
    *(f"/{MARKUP}", f"/mcp/{MARKUP}", "/..%2f..%2fetc/passwd", "/mcp/..%2fadmin", "//evil.com"),
    *("/.well-known/oauth-protected-resource", "/.well-known/oauth-authorization-server"),
)
FOREIGN = (
    *("null", "https://evil.com", f"{ORIGIN}.evil.com", "https://evilapp.example.com"),
    *("http://app.example.com", "https://app.example.com:444", "https://APP.example.com@evil.com"),
    *(f"{ORIGIN}/", "https://sub.app.example.com", "http://localhost.evil.com", "*"),
)


def bearer(**claims: Any) -> dict[str, str]:
    token = KEY.token(**{"exp": FOREVER, "scope": "admin", **claims})
    return {"Authorization": f"Bearer {token}"}


async def test_answers_tell_little_about_us(settings: Settings, tmp_path: Path) -> None:
    auth = by_jwks(tmp_path, [KEY.jwk()])
    server = replace(settings.server, allowed_origins=(ORIGIN,))
    async with running(replace(settings, auth=auth, server=server)) as client:
        for path in PATHS:
            for method in ("GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "HEAD"):
                for headers in ({}, bearer()):
                    if path == "/mcp/sse" and headers:
                        continue  # a stream
                    await check_answer(client, method, path, headers)
        await check_origins(client)


async def check_answer(client: Client, method: str, path: str, headers: dict[str, str]) -> None:
    about = (method, path)
    async with client.http.request(
        method, client.url + path, headers=headers, data=b"{", allow_redirects=False
    ) as response:
        text = (await response.read()).decode()
        names = {name.lower() for name in response.headers}
    assert response.status < 500, about
    assert not 300 <= response.status < 400, about
    assert names <= HEADERS, (about, names - HEADERS)
    kind = response.headers.get("Content-Type", "")
    kind = kind.partition(";")[0]
    assert kind in {"", *KINDS} or (kind == "text/plain" and "<" not in text), (about, kind)
    for told in ("Traceback", 'File "', "uvicorn", "starlette", "python/", str(Path.cwd())):
        assert told.lower() not in text.lower(), about


async def check_origins(client: Client) -> None:
    """The one that may is named; nobody else is, and no answer is for all."""
    wanted = {"Access-Control-Request-Method": "POST"}
    for method, more in (("POST", {}), ("OPTIONS", wanted)):
        for origin in FOREIGN:
            headers = {"Origin": origin, **bearer(), **more}
            async with client.http.request(method, client.url + "/rpc", headers=headers) as answer:
                told = [name for name in answer.headers if name.lower().startswith("access-")]
                assert (answer.status, told) == (403, []), (method, origin)
        headers = {"Origin": ORIGIN, **bearer(), **more}
        async with client.http.request(method, client.url + "/rpc", headers=headers) as answer:
            assert answer.headers.getall("Access-Control-Allow-Origin") == [ORIGIN]
            assert "Origin" in answer.headers["Vary"]


async def test_secrets_are_in_no_log_error_list_or_export(
    settings: Settings,
    service: Recorder,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    description = str(tmp_path / "pets.json")
    secret = {"Authorization": f"Bearer {CANARY}", "X-Key": CANARY}
    sources = {
        "pets": SourceSettings(openapi=description, base_url=service.url, headers=secret),
        "away": SourceSettings(
            openapi=description,
            base_url="http://127.0.0.1:1",
            headers=secret,
            include=("getPet",),
        ),
    }
    auth = by_jwks(tmp_path, [KEY.jwk()])
    told: list[str] = []
    async with running(replace(settings, auth=auth, sources=sources)) as client:
        for name in ("getPet", "getPet_away", "away_getPet", "nosuch"):
            sent = {"MCP-Protocol-Version": MODERN, "Mcp-Method": "tools/call", "Mcp-Name": name}
            params = {"name": name, "arguments": {"id": 1}, "_meta": META}
            body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
            await client.post("/mcp", body, {**sent, **bearer()})
        for path in ("/admin/v1/sources", "/admin/v1/secrets", "/metrics", "/ready", "/"):
            async with client.http.get(client.url + path, headers=bearer()) as response:
                told.append(await response.text())
        for method in ("tools/list", "rpc.discover"):
            body = {"jsonrpc": "2.0", "id": 1, "method": method}
            told.append(str((await client.post("/rpc", body, bearer()))[1]))
    assert service.requests[0]["headers"]["x-key"] == CANARY
    assert CANARY not in "".join(told)
    assert CANARY not in caplog.text
    assert CANARY not in str([vars(record) for record in caplog.records])
