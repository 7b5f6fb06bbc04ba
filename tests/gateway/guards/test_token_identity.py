"""The gateway with `auth.mode: jwt`: nobody without a token, and everybody in their own session."""

import json
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp.client.client import Client as McpClient
from mcp.client.streamable_http import streamable_http_client
from msgspec.structs import replace

from config.settings import Settings
from config.sources import SourceSettings
from tests.fixtures_gateway import META, MODERN, Client, running
from tests.gateway.events import listening
from tests.gateway.guards.signing import FOREVER, NOW, by_jwks, signer
from tests.gateway.shared import anyio_backend, client, service

__all__ = ["anyio_backend", "client", "service"]
pytestmark = pytest.mark.anyio

KEY = signer("ES256", kid="2026")
REALM = 'Bearer realm="toolgate"'
LIST = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 0,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    },
}


def bearer(name: str = "ada", **claims: Any) -> dict[str, str]:
    token = KEY.token(sub=name, **{"exp": FOREVER, **claims})
    return {"Authorization": f"Bearer {token}"}


@pytest.fixture(scope="module")
def shared_settings(
    shared_settings: Settings, tmp_path_factory: pytest.TempPathFactory
) -> Settings:
    folder = tmp_path_factory.mktemp("keys")
    return replace(shared_settings, auth=by_jwks(folder, [KEY.jwk()]))


async def open_session(client: Client, name: str) -> dict[str, str]:
    """The headers of a session that `name` has opened."""
    status, answer, headers = await client.post("/mcp", INITIALIZE, bearer(name))
    assert status == 200, answer
    return {"Mcp-Session-Id": headers["mcp-session-id"], "MCP-Protocol-Version": "2025-06-18"}


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/mcp"),
        ("GET", "/mcp"),
        ("DELETE", "/mcp"),
        ("PUT", "/mcp"),
        ("GET", "/mcp/sse"),
        ("POST", "/mcp/message?session_id=a"),
    ],
)
async def test_nobody_gets_anywhere_without_a_token(client: Client, method: str, path: str) -> None:
    async with client.http.request(method, client.url + path, data=b"{}") as response:
        assert response.status == 401
        assert response.headers.getall("WWW-Authenticate") == [REALM]
        answer = json.loads(await response.read())
    assert (answer["jsonrpc"], answer["id"]) == ("2.0", None)
    assert answer["error"]["code"] == 401
    assert answer["error"]["data"]["code"] == "ERR10002"
    assert answer["error"]["data"]["requestId"] == response.headers["X-Request-Id"]


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        (bearer(exp=1), "ERR10001"),
        (bearer(nbf=FOREVER - 1), "ERR10000"),
        ({"Authorization": "Bearer x"}, "ERR10000"),
        ({"Authorization": f"Bearer {signer('ES256', 'eve', '2026').token()}"}, "ERR10000"),
    ],
)
async def test_an_unusable_token_is_refused_with_the_reason(
    client: Client, headers: dict[str, str], code: str
) -> None:
    status, answer, received = await client.post("/mcp", LIST, headers)
    assert (status, answer["error"]["data"]["code"]) == (401, code)
    description = answer["error"]["data"]["description"]
    assert received["www-authenticate"] == (
        f'{REALM}, error="invalid_token", error_description="{description}"'
    )


async def test_with_a_token_tools_are_listed_and_called_in_both_eras(client: Client) -> None:
    session = await open_session(client, "ada") | bearer()
    status, answer, _ = await client.post("/mcp", LIST, session)
    assert (status, len(answer["result"]["tools"])) == (200, 5)
    params = {"name": "getPet", "arguments": {"id": 3}}
    status, answer = await client.modern("tools/call", params, **bearer())
    assert status == 200
    assert answer["result"]["structuredContent"]["heard"]["path"] == "/pets/3"


async def test_the_caller_s_token_does_not_reach_the_service(client: Client, service: Any) -> None:
    params = {"name": "getPet", "arguments": {"id": 3}}
    await client.modern("tools/call", params, **bearer())
    (request,) = service.requests
    assert "authorization" not in request["headers"]


async def test_a_session_is_accessible_only_to_its_owner(client: Client) -> None:
    session = await open_session(client, "ada")
    status, answer, _ = await client.post("/mcp", LIST, session | bearer("eve"))
    assert (status, answer["error"]["code"]) == (404, -32001)
    for method in ("GET", "DELETE"):
        headers = session | bearer("eve")
        async with client.http.request(method, client.url + "/mcp", headers=headers) as response:
            assert response.status == 404
    renewed = bearer("ada", exp=FOREVER - 1, scope="more")
    assert (await client.post("/mcp", LIST, session | renewed))[0] == 200
    assert (await client.post("/mcp", LIST, session))[0] == 401


async def test_an_event_stream_is_accessible_only_to_its_owner(client: Client) -> None:
    async with client.http.get(client.url + "/mcp/sse", headers=bearer("ada")) as stream:
        assert stream.status == 200
        await stream.content.readline()
        address = (await stream.content.readline()).decode().removeprefix("data: ").strip()
        assert (await client.post(address, INITIALIZE, bearer("eve")))[0] == 404
        assert (await client.post(address, INITIALIZE))[0] == 401
        assert (await client.post(address, INITIALIZE, bearer("ada")))[0] == 202


async def test_nobody_listens_on_all_streams(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client.gateway.shared.hub, "_owner_limit", 2)
    method = "subscriptions/listen"
    headers = {"MCP-Protocol-Version": MODERN, "Mcp-Method": method}
    params = {"_meta": META, "notifications": {}}
    listen = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    async with AsyncExitStack() as streams:
        for _ in range(2):
            opened = listening(client, "/mcp", headers | bearer("ada"), listen)
            await (await streams.enter_async_context(opened)).message()
        _, answer, _ = await client.post("/mcp", listen, headers | bearer("ada"))
        assert "2 open streams" in answer["error"]["message"]
        async with listening(client, "/mcp", headers | bearer("bob"), listen) as events:
            await events.message()


async def test_probes_need_no_token(client: Client) -> None:
    for path in ("/health", "/ready"):
        async with client.http.get(client.url + path) as response:
            assert response.status == 200


async def test_an_expired_token_is_refused_despite_the_cache(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    headers = bearer(exp=NOW * 2)
    assert (await client.modern("tools/list", **headers))[0] == 200
    tokens = client.gateway.access.authenticator._tokens
    monkeypatch.setattr(tokens, "_clock", lambda: NOW * 2 + 61)  # or the test would have to wait
    status, answer = await client.modern("tools/list", **headers)
    assert (status, answer["error"]["data"]["code"]) == (401, "ERR10001")


@pytest.mark.parametrize(("mode", "revision"), [("legacy", "2025-11-25"), ("auto", "2026-07-28")])
async def test_the_official_client_with_a_token(client: Client, mode: Any, revision: str) -> None:
    async with httpx2.AsyncClient(headers=bearer()) as http:
        transport = streamable_http_client(client.url + "/mcp", http_client=http)
        async with McpClient(transport, mode=mode) as mcp:
            assert mcp.protocol_version == revision
            assert len((await mcp.list_tools()).tools) == 5
            assert not (await mcp.call_tool("getPet", {"id": 3})).is_error


SCOPED = """
from gateway import hybrid

@hybrid.action("a/b/read/1", scope="b.r b.w", side="query")
def read(data): ...

@hybrid.action("a/b/write/1", scope="b.w")
def write(data): ...

@hybrid.action("a/b/open/1", skip_auth=True, scope="b.w")
def open_to_all(data): ...
"""


@pytest.mark.parametrize(
    ("claims", "expected"),
    [
        ({}, ["b_open"]),
        ({"scope": "other"}, ["b_open"]),
        ({"scope": "b.r"}, ["b_open", "b_read"]),
        ({"scp": ["b.w"]}, ["b_open", "b_read", "b_write"]),
    ],
)
async def test_nobody_is_shown_the_actions_that_their_token_does_not_open(
    settings: Settings, tmp_path: Path, claims: Any, expected: list[str]
) -> None:
    (tmp_path / "scoped.py").write_text(SCOPED)
    sources = {"b": SourceSettings(python=str(tmp_path / "scoped.py"))}
    auth = by_jwks(tmp_path, [KEY.jwk()])
    async with running(replace(settings, auth=auth, sources=sources)) as client:
        session = await open_session(client, "ada")
        who = bearer("ada", **claims)
        for headers in (session, {}):
            path = "/mcp" if headers else "/rpc"
            _, answer, _ = await client.post(path, LIST, {**who, **headers})
            assert [tool["name"] for tool in answer["result"]["tools"]] == expected
