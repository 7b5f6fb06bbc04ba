"""A service that fails behind a whole gateway: it is spared, and everybody can see that."""

from urllib.parse import urlsplit

import pytest
from anyio import to_thread
from msgspec.structs import replace

from config.load import load
from config.settings import Settings
from gateway.cli.doctor.registry import serving
from tests.fixtures_gateway import Recorder, running

pytestmark = pytest.mark.anyio


async def test_a_service_that_is_away_is_spared(settings: Settings, service: Recorder) -> None:
    breaker = replace(settings.breaker, calls=4, open_s=600, longest_s=600)
    limits = replace(settings.limits, json_depth=10)
    source = replace(settings.sources["pets"], base_url="http://127.0.0.1:1")
    settings = replace(settings, breaker=breaker, limits=limits, sources={"pets": source})
    async with running(settings) as client:
        call = {"name": "listPets", "arguments": {}}
        texts = []
        for _ in range(6):
            status, answer = await client.modern("tools/call", call)
            assert (status, answer["result"]["isError"]) == (200, True)
            texts.append(answer["result"]["content"][0]["text"])
        assert all("could not be reached" in text for text in texts[:4])
        assert all("does not answer at the moment" in text for text in texts[4:])
        assert answer["result"]["structuredContent"]["retryAfter"] >= 480

        async with client.http.get(client.url + "/ready") as response:
            ready = await response.json()
        assert (response.status, ready["status"]) == (200, "degraded")
        assert ready["breakers"] == {"pets": "open"}
        async with client.http.get(client.url + "/metrics") as response:
            metrics = await response.text()
        assert 'toolgate_breaker{source="pets"} 1.0' in metrics
        assert 'toolgate_refusals_total{limit="breaker"} 2.0' in metrics

        deep = b'{"jsonrpc":"2.0","id":1,"method":"x","params":' + b"[" * 10 + b"]" * 10 + b"}"
        for path in ("/mcp", "/rpc", "/portal/query"):
            status, answer, _ = await client.post(path, deep)
            told = answer["error"]["message"] if "error" in answer else answer["description"]
            assert "more than 10 levels (limits.json_depth)" in told, path
            assert 200 <= status < 500
        [check] = await to_thread.run_sync(lambda: list(serving(served_at(settings, client.url))))
        assert check.detail == "pets: its circuit breaker is open, so calls to it are refused"
    assert service.requests == []


def served_at(settings: Settings, url: str) -> Settings:
    address = urlsplit(url)
    server = replace(settings.server, host=str(address.hostname), port=address.port)
    return replace(settings, server=server)


def test_without_a_gateway_there_is_nothing_to_report() -> None:
    settings = load(None, {})
    assert list(serving(replace(settings, server=replace(settings.server, port=1)))) == []
