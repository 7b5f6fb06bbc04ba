"""The gateway's fronts, while keys and tokens are made, revoked and ended behind them."""

from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import anyio
import pytest
from msgspec.structs import replace

from config.settings import Settings
from registry.access.api_keys import ApiKeys
from registry.access.revocations import Revocation, Revocations
from tests.fixtures_database import HOST
from tests.fixtures_gateway import META, MODERN, Client, running
from tests.gateway.events import Events, listening
from tests.gateway.guards.signing import FOREVER, NOW, by_jwks, by_key, signer
from tests.gateway.guards.test_token_identity import INITIALIZE, LIST

pytestmark = pytest.mark.anyio

KEY = signer("ES256", kid="2026")
SOON = datetime.now(UTC) + timedelta(days=1)
LISTEN = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "subscriptions/listen",
    "params": {"_meta": META, "notifications": {}},
}


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


async def outcome(client: Client, headers: dict[str, str], path: str = "/rpc") -> int:
    return (await client.post(path, LIST, headers))[0]


async def until(client: Client, headers: dict[str, str], status: int) -> None:
    """What is written to the registry takes effect by a notice: nearly at once."""
    with anyio.fail_after(30):
        while True:
            if await outcome(client, headers) == status:
                return
            await anyio.sleep(0.02)


async def streams(client: Client, stack: AsyncExitStack, who: dict[str, str]) -> list[Events]:
    """One of each kind, open."""
    _, _, headers = await client.post("/mcp", INITIALIZE, who)
    session = {"Mcp-Session-Id": headers["mcp-session-id"], "MCP-Protocol-Version": "2025-06-18"}
    modern = {"MCP-Protocol-Version": MODERN, "Mcp-Method": "subscriptions/listen"}
    opened: list[tuple[str, dict[str, str], Any]] = [
        ("/mcp", session, None),
        ("/mcp/sse", {}, None),
        ("/mcp", modern, LISTEN),
    ]
    found = []
    for path, sent, body in opened:
        events = await stack.enter_async_context(listening(client, path, who | sent, body))
        found.append(events)
    await found[1].event()
    await found[2].message()
    return found


async def test_a_stream_ends_with_its_credential(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    auth = by_jwks(tmp_path, [KEY.jwk()], revocation_s=0.1)
    async with running(replace(settings, auth=auth)) as client, AsyncExitStack() as stack:
        pool = client.gateway.feed.pool
        assert pool is not None
        key, text = await ApiKeys(pool, HOST).create("robot")
        await until(client, bearer(text), 200)
        soon = bearer(KEY.token(sub="soon", exp=NOW * 2))
        stolen = bearer(KEY.token(sub="stolen", exp=FOREVER, jti="abc"))
        out = bearer(KEY.token(sub="out", exp=FOREVER, iat=NOW - 10))
        kept = bearer(KEY.token(sub="kept", exp=FOREVER, jti="def"))
        callers = {"soon": soon, "stolen": stolen, "out": out, "robot": {"X-API-Key": text}}
        opened = [await streams(client, stack, who) for who in callers.values()]
        await streams(client, stack, kept)
        assert client.gateway.shared.hub.streams == 15

        revocations = Revocations(pool, HOST)
        await revocations.add(Revocation("abc", None, issued_before=None, expires=SOON))
        await revocations.add(
            Revocation(None, "out", issued_before=datetime.fromtimestamp(NOW, UTC), expires=SOON)
        )
        await ApiKeys(pool, HOST).revoke(key.id)
        tokens = client.gateway.access.authenticator._tokens
        monkeypatch.setattr(tokens, "_clock", lambda: NOW * 2 + 61)  # or it would have to wait
        for events in (one for of_caller in opened for one in of_caller):
            for sent in await events.rest():
                assert "list_changed" not in sent.data
        assert await outcome(client, kept) == 200
        assert [await outcome(client, who) for who in callers.values()] == [401] * 4


async def test_a_key_opens_every_front_until_revoked(settings: Settings, tmp_path: Path) -> None:
    auth = by_key(tmp_path, KEY.pem)
    async with running(replace(settings, auth=auth)) as client:
        pool = client.gateway.feed.pool
        assert pool is not None
        key, text = await ApiKeys(pool, HOST).create("robot", scopes=["a"])
        await until(client, {"X-API-Key": text}, 200)
        for headers in ({"X-API-Key": text}, bearer(text)):
            assert (await client.modern("tools/list", **headers))[0] == 200
            status, _, _ = await client.post("/mcp", INITIALIZE, headers)
            assert status == 200
        await ApiKeys(pool, HOST).revoke(key.id)
        await until(client, bearer(text), 401)
        wrong = bearer(f"{text[:-1]}{'A' if text[-1] != 'A' else 'B'}")
        unknown = bearer("tgk_000000000000_x")
        answers = []
        for headers in ({"X-API-Key": text}, bearer(text), wrong, unknown):
            status, answer, received = await client.post("/mcp", LIST, headers)
            del answer["error"]["data"]["requestId"]
            answers.append((status, answer, received["www-authenticate"]))
        assert all(answer == answers[0] for answer in answers)
        assert text not in str(answers)

        # and key files are read again
        token, other = bearer(KEY.token(exp=FOREVER)), signer("ES256", "other")
        assert await outcome(client, token) == 200
        (tmp_path / "key.pem").write_bytes(other.pem)
        await client.gateway.reconfigure(client.gateway.settings)
        assert await outcome(client, token) == 401
        assert await outcome(client, bearer(other.token(exp=FOREVER))) == 200


async def test_without_the_keys_of_the_issuer_nobody_can_tell(settings: Settings) -> None:
    auth = replace(settings.auth, mode="jwt", jwks_url="http://127.0.0.1:9/very/secret/jwks")
    async with running(replace(settings, auth=auth)) as client:
        token = bearer(KEY.token(exp=FOREVER))
        # on /rpc only 401 and 403 stand in the status, too
        for path, expected in (("/mcp", 503), ("/rpc", 200), ("/portal/query", 503)):
            status, answer, headers = await client.post(path, LIST, token)
            assert status == expected
            assert headers["retry-after"] == "1"
            assert answer["error"]["code"] == 1503
            assert "secret" not in str(answer)
        assert await outcome(client, {}) == 401
