"""Two gateways whose agents are each other's tools."""

from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import pytest
from msgspec.structs import replace

from config.a2a import A2AAgent
from config.settings import DatabaseSettings, Settings
from config.sources import SourceSettings
from tests.fixtures_database import HOST
from tests.fixtures_gateway import Client, running, wordless
from tests.fixtures_servers import free_ports
from tests.polling import until

pytestmark = pytest.mark.anyio


def settings_of(database: DatabaseSettings, own: int, peer: int) -> Settings:
    """A gateway at the port `own`, whose tool `peer` is the agent of the one at `peer`."""
    settings = wordless()
    upstream = replace(settings.upstream, a2a_poll_s=0.02, a2a_poll_max_s=0.1)
    agents = {"desk": A2AAgent(description="Makes calls", kind="tools")}
    a2a = replace(
        settings.a2a, enabled=True, agents=agents, url=f"http://127.0.0.1:{own}", poll_s=0.02
    )
    source = SourceSettings(a2a=f"http://127.0.0.1:{peer}/a2a/desk")
    return replace(
        settings, database=database, upstream=upstream, a2a=a2a, sources={"peer": source}
    )


@pytest.fixture
async def gateways(
    database_settings: DatabaseSettings, shared_database: DatabaseSettings
) -> AsyncIterator[tuple[Client, Client]]:
    one, two = free_ports(2)
    async with (
        running(settings_of(database_settings, one, two), one) as first,
        running(settings_of(shared_database, two, one), two) as second,
    ):
        for client in (first, second):
            await client.gateway.wait_for_wings()
        for client in (first, second):  # the other was not there yet when this one began
            await client.gateway.events.source_changed.publish("peer")
            await until(partial(has_peer, client))
        yield first, second


def has_peer(client: Client) -> bool:
    return client.gateway.catalogs.of(HOST).find("peer") is not None


def nested_call(depth: int) -> dict[str, Any]:
    """Arguments that have `depth` further agents called, one by the other."""
    if depth == 0:
        return {"data": {"tool": "none", "arguments": {}}}
    return {"data": {"tool": "peer", "arguments": nested_call(depth - 1)}}


async def count_tasks(client: Client) -> int:
    pool = client.gateway.feed.pool
    assert pool is not None
    async with pool.connection() as connection:
        rows = await connection.execute("SELECT count(*) FROM a2a_task_t")
        return int((await rows.fetchall())[0][0])


async def test_a_request_ends_after_three_agents(gateways: tuple[Client, Client]) -> None:
    first, second = gateways
    call = {"name": "peer", "arguments": nested_call(6)}
    _, answer = await first.modern("tools/call", call)
    assert "3 agents have handed this request on" in str(answer["result"])
    assert (await count_tasks(first), await count_tasks(second)) == (1, 2)
