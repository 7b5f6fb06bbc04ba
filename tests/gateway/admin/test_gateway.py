"""The admin API of a whole gateway: what is done by it holds for those who call tools."""

import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from msgspec.structs import replace

from config.settings import Settings
from registry.access.access_feed import AccessFeed
from registry.database.postgres import Database
from tests import polling
from tests.fixtures_gateway import Client, pets, running
from tests.gateway.admin.client import KEY, ROOT, Admin, bearer, open_admin
from tests.gateway.guards.signing import by_jwks

pytestmark = pytest.mark.anyio


async def tools(client: Client, headers: dict[str, str]) -> list[str]:
    request = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    _, answer, _ = await client.post("/rpc", request, headers)
    return [tool["name"] for tool in answer["result"]["tools"]]


async def until(expected: object, ask: Callable[[], Awaitable[object]]) -> None:
    """What the database is told reaches the rest a moment later."""

    async def is_reached() -> bool:
        return await ask() == expected

    await polling.until(is_reached)


async def test_admin_changes_take_effect_for_callers(settings: Settings, tmp_path: Path) -> None:
    audit = replace(settings.audit, spool_dir=str(tmp_path / "audit"), flush_s=0.05)
    auth = by_jwks(tmp_path, [KEY.jwk()])
    admin = replace(settings.admin, requests=0)  # `until` asks often
    async with running(replace(settings, auth=auth, audit=audit, admin=admin)) as client:
        api = await open_admin(client.url, client.http)
        async with client.http.get(client.url) as response:
            assert (await response.json())["endpoints"]["admin"] == ROOT
        await tools_come_and_go(client, api)
        await no_server_inside_is_asked(client, api)
        await a_session_is_ended(client, api)
        await a_key_opens_until_it_is_revoked(client, api)
        await what_was_done_is_in_the_audit_log(api)
        odd = await api.raw("GET", "/tools/a%0Ab", None, bearer())
        assert odd.headers["content-type"] == "application/problem+json"


async def test_the_role_of_operators_and_the_tiers_are_read_again(
    settings: Settings, tmp_path: Path
) -> None:
    settings = replace(settings, auth=by_jwks(tmp_path, [KEY.jwk()]))
    wanted = replace(
        settings,
        admin=replace(settings.admin, operator_role="boss"),
        policy=replace(settings.policy, tiers=("open", "closed")),
    )
    async with running(settings) as client:
        api = await open_admin(client.url, client.http)
        boss, tier = bearer(roles=["boss"]), {"tier": "closed"}
        assert (await api("GET", "/status", **boss)).json["sessions"] is None
        assert (await api("PUT", "/tools/getPet/metadata", tier)).status == 422
        await client.gateway.reconfigure(wanted)
        assert (await api("GET", "/status", **boss)).json["sessions"] == 0
        assert (await api("PUT", "/tools/getPet/metadata", tier)).json["tier"] == "closed"


async def test_operators_restart_the_gateway(settings: Settings, tmp_path: Path) -> None:
    settings = replace(settings, auth=by_jwks(tmp_path, [KEY.jwk()]))
    async with running(settings) as client:
        api = await open_admin(client.url, client.http)
        operator = bearer(roles=["operator"])  # started by a test, not by `toolgate serve`
        assert (await api.raw("POST", "/restart", None, operator)).status == 409
        assert (await api.raw("POST", "/restart", None, bearer())).status == 403


async def count(client: Client) -> int:
    return len(await tools(client, bearer()))


async def status(api: Admin, headers: dict[str, str]) -> int:
    return (await api.raw("GET", "/keys", None, headers)).status


async def entries(api: Admin) -> list[dict[str, Any]]:
    found = (await api("GET", "/audit?principal=root&limit=500")).json["items"]
    return [one["entry"] for one in found]


async def has_record(api: Admin, method: str) -> bool:
    return any(one["method"] == method for one in await entries(api))


async def tools_come_and_go(client: Client, api: Admin) -> None:
    names = ["createPet", "deletePet", "getPet", "listPets", "slow"]
    assert await tools(client, bearer()) == names
    await api("POST", "/tools/slow/disable")
    await until(names[:-1], lambda: tools(client, bearer()))
    wanted = {"kind": "openapi", "name": "more", "document": json.dumps(pets())}
    assert (await api("POST", "/sources", wanted)).status == 201
    await until(9, lambda: count(client))
    assert (await api("DELETE", "/sources/more")).status == 204
    await until(names[:-1], lambda: tools(client, bearer()))


async def no_server_inside_is_asked(client: Client, api: Admin) -> None:
    """This gateway itself is one, and would answer."""
    for url in (f"{client.url}/mcp", client.url.replace("127.0.0.1", "localhost") + "/mcp"):
        answer = await api("POST", "/sources", {"kind": "mcp", "name": "inside", "url": url})
        assert answer.status == 422
        assert "private network" in answer.json["detail"]


async def a_session_is_ended(client: Client, api: Admin) -> None:
    opening = {
        "jsonrpc": "2.0",
        "id": 0,
        "method": "initialize",
        "params": {
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": {"name": "test", "version": "1"},
        },
    }
    _, _, headers = await client.post("/mcp", opening, bearer("ada"))
    mine = {
        **bearer("ada"),
        "Mcp-Session-Id": headers["mcp-session-id"],
        "MCP-Protocol-Version": "2025-06-18",
    }
    ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    assert (await client.post("/mcp", ping, mine))[0] == 200
    (found,) = (await api("GET", "/sessions?principal=ada")).json["items"]
    assert found["client"] == "test 1"
    assert (await api("DELETE", f"/sessions/{found['id']}")).status == 204
    assert (await client.post("/mcp", ping, mine))[0] == 404


async def a_key_opens_until_it_is_revoked(client: Client, api: Admin) -> None:
    made = (await api("POST", "/keys", {"name": "ci", "scopes": ["admin:keys:read"]})).json
    key = {"X-API-Key": made["secret"]}
    await until(200, lambda: status(api, key))
    assert (await api.raw("GET", "/tools", None, key)).status == 403
    await api("DELETE", f"/keys/{made['key']['id']}")
    await until(401, lambda: status(api, key))


async def what_was_done_is_in_the_audit_log(api: Admin) -> None:
    await until(True, lambda: has_record(api, "revokeKey"))
    done = await entries(api)
    methods = {one["method"] for one in done}
    assert {"disableTool", "importSource", "deleteSource", "endSession", "createKey"} <= methods
    (ended,) = [one for one in done if one["method"] == "endSession"]
    assert (ended["front"], ended["decision"], ended["outcome"]) == ("admin", "allow", "ok")
    verified = await api.await_job(await api("POST", "/audit/verification"))
    assert verified["result"]["problems"] == []


async def test_there_is_none_where_nobody_is_known(client: Client) -> None:
    async with client.http.get(f"{client.url}{ROOT}/keys") as response:
        assert response.status == 403
        assert "auth.mode" in (await response.json(content_type=None))["detail"]
    async with client.http.get(client.url) as response:
        assert "admin" not in (await response.json())["endpoints"]


async def test_a_new_key_works_as_soon_as_returned(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer with a new key comes after the gateway knows it, and that of a revocation after
    it has forgotten it, whenever notifications arrive: here, never (mending 9)."""

    async def hears_nothing(_feed: AccessFeed, _database: Database) -> None:
        await anyio.sleep_forever()

    monkeypatch.setattr(AccessFeed, "run", hears_nothing)
    async with running(replace(settings, auth=by_jwks(tmp_path, [KEY.jwk()]))) as client:
        api = await open_admin(client.url, client.http)
        made = (await api("POST", "/keys", {"name": "at-once"})).json
        headers = {"X-API-Key": made["secret"]}
        ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
        assert (await client.post("/rpc", ping, headers))[0] == 200
        await api("DELETE", f"/keys/{made['key']['id']}")
        assert (await client.post("/rpc", ping, headers))[0] == 401
