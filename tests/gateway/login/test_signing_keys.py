"""Keys that sign tokens: an unreadable one takes no node away."""

import pytest

from config.settings import DatabaseSettings
from registry.access.secrets import Keys
from registry.access.vault import Vault
from registry.database.postgres import Database
from registry.login import LOGIN
from registry.login.keys import SigningKeys

pytestmark = pytest.mark.anyio

HOST = "01964b05-0000-7000-8000-000000000001"


async def test_a_key_of_another_secret_is_replaced(database_settings: DatabaseSettings) -> None:
    async with Database.open(database_settings, wait=False, components=(LOGIN,)) as database:
        former, present = (
            SigningKeys(database.pool, HOST, Vault(Keys(bytes([number]) * 32), HOST))
            for number in (1, 2)
        )
        (first,) = await former.load(1000.0, 900.0)
        (second,) = await present.load(1000.0, 900.0)
        assert first.id != second.id
        assert [key.id for key in await present.load(1000.0, 900.0)] == [second.id]
