"""The gateway as a protected resource: what OAuth clients of every revision are told, on every
front."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from starlette.responses import JSONResponse

from config.settings import Settings, Toolset
from config.sources import SourceSettings
from tests.fixtures_gateway import Client, running
from tests.fixtures_servers import Serve
from tests.gateway.guards.signing import FOREVER, by_jwks, signer

pytestmark = pytest.mark.anyio

KEY = signer("ES256", kid="2026")
PUBLIC = "https://gate.example/tools"
WELL_KNOWN = "/.well-known/oauth-protected-resource"
LEGACY = "/.well-known/oauth-authorization-server"
REALM = 'Bearer realm="toolgate"'
LIST = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
SCOPED = """
from gateway import hybrid

@hybrid.action("a/b/write/1", scope="b.w in", side="command")
def write(data):
    return {"done": True}

@hybrid.action("a/b/open/1", skip_auth=True, side="query")
def open_to_all(data):
    return {"open": True}
"""
PORTAL = {"host": "a", "service": "b", "version": "1", "data": {}}


def bearer(scope: str = "in", **claims: Any) -> dict[str, str]:
    token = KEY.token(**{"sub": "ada", "exp": FOREVER, "scope": scope, **claims})
    return {"Authorization": f"Bearer {token}"}


@pytest.fixture
def settings(settings: Settings, tmp_path: Path) -> Settings:
    """One authorization server, one scope that all need, a hybrid service and a toolset."""
    (tmp_path / "scoped.py").write_text(SCOPED)
    oauth = replace(
        settings.oauth,
        authorization_servers=("http://127.0.0.1:1", "https://second.example"),
        required_scopes=("in",),
        scopes_supported=("in", "b.w"),
        documentation="https://docs.example/gate",
    )
    return replace(
        settings,
        auth=by_jwks(tmp_path, [KEY.jwk()]),
        oauth=oauth,
        server=replace(settings.server, public_url=PUBLIC),
        sources={"b": SourceSettings(python=str(tmp_path / "scoped.py"))},
        toolsets={"reading": Toolset()},
    )


@pytest.fixture
async def client(settings: Settings) -> AsyncIterator[Client]:
    async with running(settings) as client:
        yield client


async def get(
    client: Client, path: str, method: str = "GET", **headers: str
) -> tuple[int, Any, Any]:
    async with client.http.request(method, client.url + path, headers=headers) as response:
        body = await response.read()
        return response.status, json.loads(body) if body else None, response.headers


async def test_metadata_of_every_endpoint(client: Client) -> None:
    for prefix in ("", "/tools"):
        for endpoint in ("", "/mcp", "/mcp/reading", "/rpc", "/portal/query"):
            status, document, headers = await get(client, f"{WELL_KNOWN}{prefix}{endpoint}")
            assert (status, headers["Content-Type"]) == (200, "application/json")
            assert document == {
                "resource": PUBLIC + endpoint,
                "authorization_servers": ["http://127.0.0.1:1", "https://second.example"],
                "scopes_supported": ["in", "b.w"],
                "bearer_methods_supported": ["header"],
                "resource_name": f"Toolgate {endpoint}".strip(),
                "resource_documentation": "https://docs.example/gate",
            }
    assert headers["Cache-Control"] == "public, max-age=300"
    assert (await get(client, f"{WELL_KNOWN}/mcp/sse"))[1]["resource"] == f"{PUBLIC}/mcp"
    assert (await get(client, f"{WELL_KNOWN}/mcp", "HEAD"))[:2] == (200, None)

    status, document, _ = await get(client, f"{WELL_KNOWN}/nothing")
    assert (status, document["error"]["code"]) == (404, -32600)
    async with client.http.post(client.url + f"{WELL_KNOWN}/mcp") as response:
        assert response.status == 405
        assert set(response.headers["Allow"].split(", ")) == {"GET", "HEAD"}

    page = "http://localhost:6274"
    _, _, headers = await get(client, f"{WELL_KNOWN}/mcp", Origin=page)
    assert headers["Access-Control-Allow-Origin"] == page
    asked = {"Access-Control-Request-Headers": "mcp-protocol-version"}
    asked |= {"Origin": page, "Access-Control-Request-Method": "GET"}
    url = f"{client.url}{WELL_KNOWN}/mcp"
    async with client.http.options(url, headers=asked) as response:
        assert (response.status, response.headers["Access-Control-Allow-Origin"]) == (200, page)


async def test_every_front_says_where_to_get_a_token(client: Client) -> None:
    command = {**LIST, "method": "a/b/write/1", "params": {}}
    for path, endpoint, body in (
        ("/mcp", "/mcp", LIST),
        ("/mcp/", "/mcp", LIST),
        ("/mcp/message?session_id=x", "/mcp", LIST),
        ("/mcp/reading", "/mcp/reading", LIST),
        ("/mcp/reading/message", "/mcp/reading", LIST),
        ("/rpc", "/rpc", LIST),
        ("/portal/command", "/portal/command", command),
    ):
        told = f'resource_metadata="https://gate.example{WELL_KNOWN}/tools{endpoint}"'
        status, _, headers = await client.post(path, body)
        assert (status, headers["www-authenticate"]) == (401, f'{REALM}, scope="in", {told}')

        status, answer, headers = await client.post(path, body, bearer(exp=1))
        wrong = f'error_description="{answer["error"]["data"]["description"]}"'
        expected = f'{REALM}, error="invalid_token", {wrong}, scope="in", {told}'
        assert (status, headers["www-authenticate"]) == (401, expected)

        status, answer, headers = await client.post(path, body, bearer("other"))
        assert (status, answer["error"]["data"]["code"]) == (403, "ERR10005")
        expected = f'{REALM}, error="insufficient_scope", scope="in", {told}'
        assert headers["www-authenticate"] == expected
    for method, path in (("GET", "/mcp"), ("DELETE", "/mcp"), ("GET", "/mcp/sse")):
        status, _, headers = await get(client, path, method, **bearer("other"))
        assert status == 403
        assert 'error="insufficient_scope", scope="in"' in headers["WWW-Authenticate"]


async def test_missing_scopes_are_403_at_the_apis_of_wings(settings: Settings) -> None:
    """RFC 6750, 3.1: insufficient_scope is 403, also where a wing answers."""
    subregistry = replace(settings.subregistry, enabled=True, access="token")
    memory, events = (replace(part, enabled=True) for part in (settings.memory, settings.events))
    settings = replace(settings, memory=memory, events=events, subregistry=subregistry)
    async with running(settings) as client:
        for method, path in (
            ("GET", "/memory/v1/memories"),
            ("GET", "/events/v1/invocations"),
            ("OPTIONS", "/events/cloudevents"),
            ("GET", "/registry/v0.1/servers"),
        ):
            status, _, headers = await get(client, path, method)
            assert (status, headers["WWW-Authenticate"]) == (401, REALM), path
            status, _, headers = await get(client, path, method, **bearer(exp=1))
            assert (status, "invalid_token" in headers["WWW-Authenticate"]) == (401, True), path
            status, _, headers = await get(client, path, method, **bearer("other"))
            challenge = f'{REALM}, error="insufficient_scope", scope="in"'
            assert (status, headers["WWW-Authenticate"]) == (403, challenge), path
            admitted = bearer("in memory:read events:read")
            assert (await get(client, path, method, **admitted))[0] in (200, 204), path


async def test_portal_paths_answer_as_light_4j_does(client: Client) -> None:
    body = {**PORTAL, "action": "write"}
    status, answer, _ = await client.post("/portal/command", body, bearer("other"))
    assert (status, answer["code"]) == (403, "ERR10005")
    assert answer["description"] == (
        "Scopes [other] in authorization token and specification scopes [in] are not matched"
    )
    body = {**PORTAL, "action": "open"}
    for headers in (bearer("other"), {}):
        status, answer, _ = await client.post("/portal/query", body, headers)
        assert (status, answer) == (200, {"open": True})
    batch = [{**LIST, "method": "a/b/write/1"}, {**LIST, "id": 2}]
    status, answers, _ = await client.post("/rpc", batch, bearer("other"))
    assert (status, [one["error"]["code"] for one in answers]) == (200, [403, 403])


async def open_session(client: Client, revision: str, headers: dict[str, str]) -> dict[str, str]:
    params = {
        "protocolVersion": revision,
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    }
    request = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}
    status, answer, received = await client.post("/mcp", request, headers)
    assert status == 200, answer
    return {"Mcp-Session-Id": received["mcp-session-id"], "MCP-Protocol-Version": revision}


@pytest.fixture
def stricter(settings: Settings) -> Settings:
    """What everybody needs does not open the action."""
    text = SCOPED.replace("b.w in", "b.w b.x")
    Path(settings.sources["b"].python or "").write_text(text)
    return settings


async def test_the_scope_of_a_tool_is_asked_for_in_one_challenge(stricter: Settings) -> None:
    params = {"name": "b_write", "arguments": {}}
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    told = (
        f'{REALM}, error="insufficient_scope", scope="in b.w b.x", '
        f'resource_metadata="https://gate.example{WELL_KNOWN}/tools/mcp"'
    )
    async with running(stricter) as client:
        for revision, challenged in (("2025-11-25", True), ("2025-06-18", False)):
            session = await open_session(client, revision, bearer())
            status, answer, headers = await client.post("/mcp", call, session | bearer())
            assert answer["error"]["data"]["code"] == "ERR10005"
            assert status == (403 if challenged else 200)
            assert headers.get("www-authenticate") == (told if challenged else None)
            status, answer, _ = await client.post("/mcp", call, session | bearer("in b.w"))
            assert (status, answer["result"]["structuredContent"]) == (200, {"done": True})

        status, answer = await client.modern("tools/call", params, **bearer())
        assert (status, answer["error"]["data"]["code"]) == (403, "ERR10005")
        status, _ = await client.modern("tools/call", params, **bearer("in b.x"))
        assert status == 200

        status, _, headers = await client.post("/rpc", {**call, "method": "b_write"}, bearer())
        assert (status, headers["www-authenticate"]) == (403, told.replace("/mcp", "/rpc"))


async def test_clients_of_2025_03_26_find_the_authorization_server(
    settings: Settings, serve: Serve
) -> None:
    document: dict[str, Any] = {}

    async def metadata(scope: Any, receive: Any, send: Any) -> None:
        await JSONResponse(document)(scope, receive, send)

    issuer = await serve(metadata)
    oauth = replace(settings.oauth, authorization_servers=(issuer,))
    async with running(replace(settings, oauth=oauth)) as client:
        status, answer, headers = await get(client, LEGACY)
        assert (status, answer["error"]["code"]) == (502, 1502)
        assert issuer not in json.dumps(answer)
    document |= {"issuer": issuer, "token_endpoint": f"{issuer}/token"}
    async with running(replace(settings, oauth=oauth)) as client:
        for path in ("", "/mcp", "/tools/mcp/reading"):
            status, answer, headers = await get(client, LEGACY + path)
            assert (status, answer) == (200, document)
        assert headers["Cache-Control"] == "public, max-age=300"
        assert (await get(client, f"{LEGACY}/nothing"))[0] == 404


async def test_without_a_public_url_the_client_s_own_word_for_us_counts(
    settings: Settings,
) -> None:
    changed = replace(
        settings,
        server=replace(settings.server, public_url=""),
        oauth=replace(
            settings.oauth, legacy_metadata=False, required_scopes=(), scopes_supported=()
        ),
    )
    async with running(changed) as client:
        _, document, _ = await get(client, f"{WELL_KNOWN}/mcp")
        assert document["resource"] == f"{client.url}/mcp"
        assert "scopes_supported" not in document
        status, _, headers = await client.post("/mcp", LIST)
        told = f'resource_metadata="{client.url}{WELL_KNOWN}/mcp"'
        assert (status, headers["www-authenticate"]) == (401, f"{REALM}, {told}")
        status, _, _ = await get(client, f"{WELL_KNOWN}/mcp", Host="evil.example")
        assert status == 403
        assert (await get(client, LEGACY))[0] == 404


@pytest.mark.parametrize("which", ["auth", "oauth"])
async def test_there_is_nothing_to_tell_without_tokens_or_a_server(
    settings: Settings, which: str
) -> None:
    if which == "auth":
        changed = replace(settings, auth=replace(settings.auth, mode="none"))
    else:
        changed = replace(settings, oauth=replace(settings.oauth, authorization_servers=()))
    async with running(changed) as client:
        for path in (f"{WELL_KNOWN}/mcp", WELL_KNOWN, LEGACY):
            status, answer, _ = await get(client, path)
            assert (status, answer["error"]["code"]) == (404, -32600)
        status, _, headers = await client.post("/mcp", LIST)
        assert headers.get("www-authenticate", REALM) == REALM
