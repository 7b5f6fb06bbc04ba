"""Metrics of calls by source and by tool."""

from typing import Any

import pytest
from msgspec.structs import replace
from prometheus_client.core import Metric

from config.settings import Settings
from gateway.middleware.message_metrics import OTHERS, CallMetrics
from tests.fixtures_gateway import Recorder, running

pytestmark = pytest.mark.anyio


def values(found: list[Metric], name: str) -> dict[tuple[str, ...], float]:
    return {
        tuple(sample.labels.values()): sample.value
        for family in found
        for sample in family.samples
        if sample.name == name
    }


async def test_calls_of_every_front_are_counted_by_source_and_tool(
    settings: Settings, service: Recorder
) -> None:
    settings = replace(settings, metrics=replace(settings.metrics, tools=1))
    async with running(settings) as client:
        session = await client.session()
        for _ in range(2):
            await session.call("tools/call", {"name": "getPet", "arguments": {"id": 1}})
        request: dict[str, Any] = {"jsonrpc": "2.0", "id": 1, "method": "listPets"}
        await client.rpc(request)
        await client.rpc({**request, "method": "nothing"})
        await client.rpc({**request, "method": "getPet", "params": {"id": "no"}})  # not sent
        assert client.gateway.calls is not None
        found = list(client.gateway.calls.collect())
    assert values(found, "toolgate_source_calls_total") == {("pets", "ok"): 3}
    assert values(found, "toolgate_tool_calls_total") == {
        ("pets", "getPet", "ok"): 2,
        ("pets", OTHERS, "ok"): 1,
    }
    times = values(found, "toolgate_tool_call_seconds_bucket")
    assert times["pets", "getPet", "+Inf"] == 2
    assert values(found, "toolgate_source_call_seconds_count") == {("pets",): 3}


async def test_without_the_setting_no_call_is_counted(settings: Settings) -> None:
    async with running(settings) as client:
        assert client.gateway.calls is None
        text = await (await client.http.get(client.url + "/metrics")).text()
    assert "toolgate_tool_calls" not in text


def test_no_tool_has_no_samples() -> None:
    assert values(list(CallMetrics(5).collect()), "toolgate_tool_calls_total") == {}
