"""`toolgate status` and `toolgate sessions`, which ask a gateway that runs."""

import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from config.settings import Settings
from tests.fixtures_gateway import running
from tests.gateway.admin.client import KEY, bearer
from tests.gateway.cli.conftest import Toolgate
from tests.gateway.cli.processes import ran
from tests.gateway.guards.signing import by_jwks

pytestmark = pytest.mark.anyio

OPENING = {
    "jsonrpc": "2.0",
    "id": 0,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    },
}


async def test_sessions_are_listed_and_ended(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    key = tmp_path / "ops.key"
    key.write_text(bearer()["Authorization"].removeprefix("Bearer ") + "\n")
    async with running(replace(settings, auth=by_jwks(tmp_path, [KEY.jwk()]))) as client:
        at = ("--url", client.url, "--key-file", str(key))
        assert json.loads((await ran("status", "--json", *at))[1])["ready"] is True
        await client.post("/mcp", OPENING, bearer("ada"))
        (found,) = json.loads((await ran("sessions", "list", "--json", *at))[1])
        assert (found["principal"], found["client"]) == ("ada", "test 1")
        assert (await ran("sessions", "list", "--principal", "bob", "--json", *at))[1] == "[]\n"
        assert (await ran("sessions", "end", found["id"], "--yes", *at))[0] == 0
        code, _, told = await ran("sessions", "end", found["id"], "--yes", *at)
        assert (code, "404 There is no session" in told) == (1, True)
        key.write_text(bearer(scope="pets")["Authorization"].removeprefix("Bearer "))
        code, _, told = await ran("sessions", "list", *at)
        assert (code, "403 This takes the scope admin:sessions:read" in told) == (1, True)


def test_no_gateway_and_no_key_are_told(bare: Toolgate, folder: Path) -> None:
    (folder / "key").write_text("k")
    away = bare("status", "--url", "http://127.0.0.1:9", "--key-file", "key")
    assert (away.code, "no gateway answers at http://127.0.0.1:9" in away.err) == (1, True)
    assert bare("status", "--url", "ftp://x", "--key-file", "key").code == 2
    assert bare("status", "--key-file", "-", stdin="").code == 2
