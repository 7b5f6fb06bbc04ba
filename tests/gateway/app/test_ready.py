"""/ready tells what is away: Redis, pgvector, the embedding model; what can be served is."""

from typing import Any

import psycopg
import pytest
from msgspec.structs import replace
from starlette.types import Receive, Scope, Send

from config.load import load
from config.settings import DatabaseSettings, Settings
from registry.database import postgres
from registry.embedding import embedder_health
from tests import polling
from tests.fixtures_gateway import Client, running
from tests.fixtures_redis import RedisServer
from tests.fixtures_servers import Serve

pytestmark = pytest.mark.anyio


async def ready(client: Client) -> tuple[int, dict[str, Any]]:
    async with client.http.get(client.url + "/ready") as response:
        return response.status, await response.json()


async def until(client: Client, part: str, state: str) -> dict[str, Any]:
    """What /ready says, as soon as a part of it has this state."""

    async def poll_part() -> dict[str, Any] | None:
        status, said = await ready(client)
        assert status == 200
        return said if said[part] == state else None

    return await polling.until(poll_part)


async def test_an_unreachable_redis_is_reported_until_back(
    settings: Settings, redis_server: RedisServer
) -> None:
    state = replace(settings.state, backend="redis", redis_url=redis_server.url)
    async with running(replace(settings, state=state)) as client:
        assert (await until(client, "redis", "ok"))["status"] == "ok"
        redis_server.stop()
        try:
            assert (await until(client, "redis", "unreachable"))["status"] == "degraded"
        finally:
            redis_server.start()
        assert (await until(client, "redis", "ok"))["status"] == "ok"


async def test_a_database_without_its_extension_is_told(
    settings: Settings, empty_settings: DatabaseSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres, "CHECK_S", 0.1)
    async with running(replace(settings, database=empty_settings)) as client:
        await until(client, "database", "ok")
        with psycopg.connect(empty_settings.url, autocommit=True) as connection:
            connection.execute("DROP EXTENSION vector CASCADE")
        said = await until(client, "database", "without pgvector")
        assert said["status"] == "degraded"


async def test_an_unreachable_embedding_model_is_reported_until_back(
    settings: Settings, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedder_health, "ASK_S", 0.05)
    answers = {"status": 503}

    async def model(scope: Scope, receive: Receive, send: Send) -> None:
        headers = [(b"content-type", b"application/json")]
        status = answers["status"]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        vector = ",".join(["1.0", *["0.0"] * 383]).encode()
        body = b'{"data":[{"index":0,"embedding":[%b]}]}' % vector
        await send({"type": "http.response.body", "body": body if status == 200 else b"{}"})

    url = f"{await serve(model)}/v1"
    usual = load(None, {}).embedding
    remote = replace(usual, provider="openai-compatible", model="m", url=url, batch_size=1)
    quick = replace(remote, poll_s=0.1, backoff_s=0.1, backoff_max_s=0.2)
    async with running(replace(settings, embedding=quick)) as client:
        said = await until(client, "embeddings", "unavailable")
        assert said["status"] == "degraded"
        answers["status"] = 200
        assert (await until(client, "embeddings", "ok"))["status"] == "ok"


async def test_without_embeddings_nothing_is_missing(client: Client) -> None:
    status, said = await ready(client)
    assert (status, said["status"], said["embeddings"]) == (200, "ok", "disabled")
    assert "redis" not in said
