"""`toolgate serve` with `auth.mode: jwt`."""

from pathlib import Path

import aiohttp
import pytest

from config.settings import DatabaseSettings
from tests.gateway.cli.conftest import Toolgate
from tests.gateway.cli.processes import serving
from tests.gateway.guards.signing import by_key, signer

pytestmark = pytest.mark.anyio


async def test_with_authentication_any_address_is_served(
    folder: Path, database_settings: DatabaseSettings
) -> None:
    settings = {
        "TOOLGATE_DATABASE__URL": database_settings.url,
        "TOOLGATE_AUTH__MODE": "jwt",
        "TOOLGATE_AUTH__KEY_FILE": by_key(folder, signer("ES256").pem).key_file,
    }
    async with serving("--host", "0.0.0.0", **settings) as gateway:
        await gateway.ready()
        local = gateway.url.replace("0.0.0.0", "127.0.0.1")
        async with aiohttp.ClientSession() as http, http.get(local + "/mcp") as answer:
            assert answer.status == 401
        assert (await gateway.stop())[0] == 0


def test_an_unusable_key_ends_serve_before_anything_is_served(bare: Toolgate, folder: Path) -> None:
    key = by_key(folder, signer("ES256").private_pem).key_file
    ran = bare("serve", "--port", "0", TOOLGATE_AUTH__MODE="jwt", TOOLGATE_AUTH__KEY_FILE=key)
    assert ran.code == 2
    assert ran.err == (
        f"toolgate: auth.key_file: {key}: found a private key; "
        "expected a PEM file with one public key, or with a certificate\n"
    )
