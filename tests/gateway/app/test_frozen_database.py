"""A gateway whose database stops to answer, with all connections open, or has a locked table."""

from pathlib import Path

import anyio
import pytest
from msgspec.structs import replace
from psycopg import AsyncConnection

from config.settings import DatabaseSettings, Settings
from registry.catalog.feed import CHANNEL
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


async def test_locked_table_is_not_called_an_unreachable_database(
    settings: Settings, database_settings: DatabaseSettings
) -> None:
    bounded = replace(database_settings, lock_timeout_s=0.2)
    async with (
        running(replace(settings, database=bounded)) as client,
        await AsyncConnection.connect(bounded.url) as holder,
        await AsyncConnection.connect(bounded.url, autocommit=True) as other,
    ):

        async def is_database(state: str) -> bool:
            async with client.http.get(client.url + "/ready") as response:
                return bool((await response.json())["database"] == state)

        await holder.execute("LOCK TABLE tool_t IN ACCESS EXCLUSIVE MODE")
        await other.execute("SELECT pg_notify(%s, %s)", [CHANNEL, settings.tenant.host_id])
        await polling.until(lambda: is_database("locked"))
        await holder.rollback()
        await polling.until(lambda: is_database("ok"))


async def test_requests_for_a_locked_table_end_with_503(
    settings: Settings, database_settings: DatabaseSettings, tmp_path: Path
) -> None:
    audit = replace(settings.audit, spool_dir=str(tmp_path / "audit"))
    secured = replace(settings, auth=by_jwks(tmp_path, [KEY.jwk()]), audit=audit)
    bounded = replace(database_settings, lock_timeout_s=0.2)
    async with (
        running(replace(secured, database=bounded)) as client,
        await AsyncConnection.connect(bounded.url) as holder,
    ):
        api = await open_admin(client.url, client.http)
        assert (await api("GET", "/tools")).status == 200
        await holder.execute("LOCK TABLE tool_t IN ACCESS EXCLUSIVE MODE")
        with anyio.fail_after(30):
            answer = await api("GET", "/tools")
            assert await call(client, "listPets")
        assert (answer.status, answer.headers["retry-after"]) == (503, "1")
        assert "Another transaction holds a lock" in answer.json["detail"]
        await holder.execute("LOCK TABLE command_idempotency_t IN ACCESS EXCLUSIVE MODE")
        with anyio.fail_after(30):
            answer = await api("POST", "/keys", {"name": "a"}, **{"Idempotency-Key": "a"})
        assert answer.status == 503
        assert "Another transaction holds a lock" in answer.json["detail"]
        assert "nothing was done" in answer.json["detail"]
        await holder.rollback()
        assert (await api("GET", "/tools")).status == 200
