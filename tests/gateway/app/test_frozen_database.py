"""A gateway whose database stops to answer, with all connections open."""

from pathlib import Path

import anyio
import pytest
from msgspec.structs import replace

from config.settings import DatabaseSettings, Settings
from registry.database import postgres
from tests import polling
from tests.fixtures_gateway import Client, running
from tests.gateway.admin.client import KEY, bearer, open_admin
from tests.gateway.guards.signing import by_jwks
from tests.servers.freezing import freezing

pytestmark = pytest.mark.anyio


async def call(client: Client, tool: str, **arguments: str) -> bool:
    """Whether a tool of this name answers."""
    parameters = {"name": tool, "arguments": arguments}
    request = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": parameters}
    _, answer, _ = await client.post("/rpc", request, bearer())
    return "result" in answer and not answer["result"].get("isError", False)


async def test_a_frozen_database_stops_no_call_and_other_requests_end_with_503(
    settings: Settings,
    database_settings: DatabaseSettings,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(postgres, "CHECK_S", 0.2)
    audit = replace(settings.audit, spool_dir=str(tmp_path / "audit"))
    secured = replace(settings, auth=by_jwks(tmp_path, [KEY.jwk()]), audit=audit)
    async with (
        freezing(database_settings, tmp_path) as (through, relay),
        running(replace(secured, database=through)) as client,
    ):
        api = await open_admin(client.url, client.http)
        statuses: list[int] = []

        async def list_tools() -> None:
            statuses.append((await api("GET", "/tools")).status)

        async def is_database(state: str) -> bool:
            async with client.http.get(client.url + "/ready") as response:
                assert response.status == 200
                return bool((await response.json())["database"] == state)

        await list_tools()
        relay.freeze()
        with anyio.fail_after(30):
            async with anyio.create_task_group() as tasks:
                for _ in range(12):  # more than the pool has connections
                    tasks.start_soon(list_tools)
                assert await call(client, "listPets")
                assert await call(client, "search_tools", query="pets")  # by names alone
        assert statuses == [200, *[503] * 12]
        await polling.until(lambda: is_database("unreachable"))
        relay.thaw()
        await polling.until(lambda: is_database("ok"))
        assert (await api("GET", "/tools")).status == 200
