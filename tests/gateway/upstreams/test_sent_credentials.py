"""What a gateway sends to the services behind it for a caller, and what it tells nobody."""

import base64
import json
import logging
from pathlib import Path
from typing import Any

import anyio
import pytest
from msgspec.structs import replace

from config.access import SecretsSettings
from config.settings import Settings
from config.sources import SchemeSettings, SourceSettings
from registry.access.secrets import Keys, Secrets
from tests.fixtures_gateway import Client, running
from tests.gateway.guards.signing import by_jwks
from tests.gateway.guards.test_token_identity import KEY, bearer
from tests.gateway.upstreams.callers import exchange
from tests.servers.exchange import SECRET, ExchangeServer
from tests.servers.rest import Recorder

pytestmark = pytest.mark.anyio

CANARY = "hunter2-canary"
SECRETS = SecretsSettings(base64.b64encode(bytes(range(32))).decode(), ())
DESCRIPTION = {
    "openapi": "3.0.3",
    "info": {"title": "Guarded", "version": "1"},
    "security": [{"appKey": []}],
    "components": {
        "securitySchemes": {"appKey": {"type": "apiKey", "in": "header", "name": "X-K"}}
    },
}
OAUTH = {"appKey": {"type": "oauth2", "flows": {}}}


def write_description(folder: Path, operation: str, **schemes: Any) -> str:
    found = {
        **DESCRIPTION,
        "paths": {"/x": {"get": {"operationId": operation, "responses": {}}}},
        **({"components": {"securitySchemes": schemes}} if schemes else {}),
    }
    file = folder / f"{operation}.json"
    file.write_text(json.dumps(found))
    return str(file)


async def call_tool(client: Client, tool: str, headers: dict[str, str]) -> tuple[bool, str]:
    """Whether it failed, and what was said."""
    params = {"name": tool, "arguments": {}}
    _, answer = await client.modern("tools/call", params, **headers)
    return answer["result"].get("isError", False), json.dumps(answer)


async def until(client: Client, headers: dict[str, str], *, failed: bool) -> None:
    """The notice of the database is on its way."""
    with anyio.fail_after(20):
        while (await call_tool(client, "keyed", headers))[0] is not failed:  # noqa: ASYNC110
            await anyio.sleep(0.01)


async def test_credentials_reach_the_services_and_nobody_else(
    settings: Settings, tmp_path: Path, serve: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    service, tokens = Recorder(), ExchangeServer()
    url = await serve(service)
    ann = bearer("ann")
    tokens.subjects = {ann["Authorization"].removeprefix("Bearer ")}
    sources = {
        "keyed": SourceSettings(openapi=write_description(tmp_path, "keyed"), base_url=url),
        "mine": SourceSettings(
            openapi=write_description(tmp_path, "mine", **OAUTH),
            base_url=url,
            exchange=exchange(await serve(tokens)),
        ),
    }
    told: list[Any] = []
    auth = by_jwks(tmp_path, [KEY.jwk()])
    async with running(replace(settings, sources=sources, auth=auth, secrets=SECRETS)) as client:
        pool = client.gateway.feed.database.pool  # type: ignore[union-attr]
        failed, text = await call_tool(client, "keyed", ann)
        assert failed
        assert "it requires the credentials appKey" in text
        stored = Secrets(pool, settings.tenant.host_id, Keys.of(SECRETS))
        await stored.put("keyed", "appKey", SchemeSettings(value=CANARY))
        await until(client, ann, failed=False)
        assert service.seen[-1].all("x-k") == [CANARY]

        assert not (await call_tool(client, "mine", ann))[0]
        assert service.seen[-1].all("authorization")[0].endswith(">1")
        tokens.error = CANARY  # which is none of the words that may be passed on
        told += [
            await call_tool(client, "mine", bearer("bob")),
            await call_tool(client, "mine", ann),
        ]
        told += [await client.modern("tools/list", **ann)]
        await stored.delete("keyed", "appKey")
        await until(client, ann, failed=True)
    assert [failed for failed, _ in told[:2]] == [True, False]
    for secret in (CANARY, SECRET, SECRETS.key, ann["Authorization"].removeprefix("Bearer ")):
        assert secret not in str(told)
        assert secret not in caplog.text
        assert secret not in str([vars(record) for record in caplog.records])
