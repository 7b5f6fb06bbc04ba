"""A gateway that embeds its tools by itself."""

import subprocess
import sys
from collections.abc import AsyncIterator

import psycopg
import pytest
from msgspec.structs import replace

from config.load import load
from config.settings import Settings
from tests.fixtures_gateway import Client, running
from tests.polling import until

pytestmark = pytest.mark.anyio


@pytest.fixture
async def embedding(settings: Settings) -> AsyncIterator[Client]:
    bundled = replace(load(None, {}).embedding, poll_s=0.1)
    async with running(replace(settings, embedding=bundled)) as client:
        yield client


async def test_the_tools_of_a_gateway_get_their_vectors(
    embedding: Client, settings: Settings
) -> None:
    with psycopg.connect(settings.database.url, autocommit=True) as database:
        counted = "SELECT FROM entity_embedding_t WHERE status = 'ready'"
        await until(lambda: database.execute(counted).rowcount == 5)
    embeddings = embedding.gateway.embeddings
    await until(lambda: embeddings.embedder("tools") is not None)
    (gauge,) = embeddings.collect()
    assert {sample.labels["status"] for sample in gauge.samples} == {"pending", "running", "failed"}


async def test_tools_are_callable_without_embeddings(client: Client) -> None:
    """Tools are callable without embeddings (E1)."""
    assert client.gateway.embeddings.embedder("tools") is None
    note = client.gateway.embeddings.missing("tools")
    assert note == "Embeddings are disabled (embedding.provider)."
    with psycopg.connect(client.gateway.settings.database.url) as database:
        found = database.execute("SELECT status, count(*) FROM entity_embedding_t GROUP BY 1")
        assert found.fetchall() == [("disabled", 5)]
    _, listed = await client.modern("tools/list")
    assert len(listed["result"]["tools"]) == 5
    _, answer = await client.modern("tools/call", {"name": "listPets", "arguments": {}})
    assert not answer["result"].get("isError")


async def test_vectors_serve_on_where_the_next_provider_is_dead(settings: Settings) -> None:
    bundled = replace(load(None, {}).embedding, poll_s=0.1)
    async with running(replace(settings, embedding=bundled)) as client:
        await until(lambda: client.gateway.embeddings.embedder("tools") is not None)
        model = client.gateway.embeddings.embedder("tools").model
        with psycopg.connect(settings.database.url, autocommit=True) as database:
            counted = "SELECT FROM entity_embedding_t WHERE status = 'ready'"
            await until(lambda: database.execute(counted).rowcount == 5)
    dead = replace(bundled, provider="openai-compatible", model="m", url="http://127.0.0.1:9/v1")
    async with running(replace(settings, embedding=dead)) as client:
        embeddings = client.gateway.embeddings
        await until(lambda: embeddings.embedder("tools") is not None)
        assert (embeddings.embedder("tools").model, embeddings.missing("tools")) == (model, None)


async def test_a_provider_that_lacks_a_setting_stops_no_gateway(settings: Settings) -> None:
    wrong = replace(settings.embedding, provider="openai-compatible", model="", url="")
    async with running(replace(settings, embedding=wrong)) as client:
        note = client.gateway.embeddings.missing("tools")
        assert note is not None
        assert "embedding." in note


def test_a_gateway_without_work_loads_no_model() -> None:
    code = (
        "import sys; from gateway.app.gateway import Gateway; from config.load import load;"
        " Gateway(load(None, {})); print('onnxruntime' in sys.modules, 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    assert done.stdout == "False False\n"
