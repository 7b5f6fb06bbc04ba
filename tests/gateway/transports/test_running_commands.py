"""Commands that still run: sent again, left by their clients, met by a gateway that stops."""

import asyncio
import time
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint
from msgspec.structs import replace

from config.settings import Settings
from gateway.app.gateway import Gateway
from tests.fixtures_gateway import running
from tests.gateway.portal import COMMAND, DATA, QUERY, Portal, legacy, portal, rpc, with_rules
from tests.gateway.shared import anyio_backend, open_portal, shared_portal
from tests.servers import rules

__all__ = ["anyio_backend", "open_portal", "shared_portal"]
pytestmark = pytest.mark.anyio


async def test_a_twin_of_a_running_command_is_refused(open_portal: Portal) -> None:
    def send() -> Any:
        return open_portal.post(COMMAND, legacy("hold", data=1), idempotency_key="k")

    with anyio.fail_after(30):
        first = asyncio.create_task(send())
        await rules.state.holding.wait()
        assert (await send()).brief == (409, "ERR18409 409")
        rules.state.release.set()
        assert (await first).brief == (await send()).brief == (200, {"done": 1})


async def test_a_client_that_goes_away_finds_its_command_done(open_portal: Portal) -> None:
    def send(**headers: str) -> Any:
        return open_portal.post(COMMAND, rpc("hold", params={"n": 1}), **headers)

    with anyio.fail_after(30):
        leaving = asyncio.create_task(send(idempotency_key="k"))
        await rules.state.holding.wait()
        leaving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await leaving
        metrics = b""
        while b'outcome="cancelled"' not in metrics:  # until the gateway has noticed
            metrics = (await open_portal.send("GET", "/metrics", b"", {})).body
        rules.state.release.set()
        await open_portal.client.gateway.upstreams.python.finishing.settle(time.monotonic() + 30)
        assert (await send(idempotency_key="k")).brief == (200, (1, {"done": 1}))
    assert not rules.state.stopped


async def test_beyond_so_many_running_commands_none_is_begun(settings: Settings) -> None:
    one = replace(settings, upstream=replace(settings.upstream, python_calls=1))
    async with portal(one) as to:
        with anyio.fail_after(30):
            first = asyncio.create_task(to.post(COMMAND, legacy("hold")))
            await rules.state.holding.wait()
            refused = await to.post(COMMAND, legacy("deleteRule", data=DATA), idempotency_key="k")
            assert refused.brief == (503, "ERR18503 503")
            assert refused.headers["retry-after"] == "1"
            assert (await to.post(QUERY, rpc("echo", params={}))).brief[0] == 503
            rules.state.release.set()
            assert (await first).brief == (200, {"done": 1})
        again = await to.post(COMMAND, legacy("deleteRule", data=DATA), idempotency_key="k")
        assert again.brief == (200, "OK")


async def test_a_gateway_that_stops_lets_a_command_end(settings: Settings) -> None:
    rules.state = rules.State()

    async def release_when_it_stops(gateway: Gateway) -> None:
        while not gateway.health.draining:
            await checkpoint()
        for _ in range(100):  # nothing is left but to wait for the command
            await checkpoint()
        rules.state.release.set()

    body = legacy("hold", data=1)
    with anyio.fail_after(30):
        async with running(with_rules(settings)) as client:
            sending = asyncio.create_task(Portal(client).post(COMMAND, body, idempotency_key="k"))
            await rules.state.holding.wait()
            sending.cancel()
            stopping = asyncio.create_task(release_when_it_stops(client.gateway))
        await stopping
        async with portal(settings) as to:
            assert (await to.post(COMMAND, body, idempotency_key="k")).brief == (200, {"done": 1})
    assert rules.state.done == []  # by this gateway


async def test_shutdown_waits_for_commands_only_up_to_drain_s(settings: Settings) -> None:
    rules.state = rules.State()
    hasty = replace(settings, server=replace(settings.server, drain_s=0.05))
    with anyio.fail_after(30):
        async with running(with_rules(hasty)) as client:
            sending = asyncio.create_task(Portal(client).post(COMMAND, legacy("hold")))
            await rules.state.holding.wait()
            client.gateway.drain()
            patient = replace(hasty.server, drain_s=600)  # would be the deadline of a second drain
            client.gateway.settings = replace(client.gateway.settings, server=patient)
            sending.cancel()
        assert not rules.state.stopped
        rules.state.release.set()
        await client.gateway.upstreams.python.finishing.settle(time.monotonic() + 30)
    assert not rules.state.stopped
