"""Keys that sign tokens: an unreadable one takes no node away."""

from datetime import datetime, timedelta, tzinfo
from typing import Self

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from psycopg import OperationalError

from config.settings import DatabaseSettings
from registry.access.column_encryption import Vault
from registry.access.secrets import Keys
from registry.database.postgres import Database
from registry.login import LOGIN, signing_keys
from registry.login.signing_keys import SigningKeys
from tests.gateway.login.company import browsing, company

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


async def test_a_clock_ahead_of_the_database_replaces_no_key(
    database_settings: DatabaseSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    class ClockAhead(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> Self:
            return super().now(tz) + timedelta(days=31)

    async with Database.open(database_settings, wait=False, components=(LOGIN,)) as database:
        keys = SigningKeys(database.pool, HOST, Vault(Keys(bytes(32)), HOST))
        (first,) = await keys.load(1000.0, 900.0)
        monkeypatch.setattr(signing_keys, "datetime", ClockAhead)
        assert [key.id for key in await keys.load(1000.0, 900.0)] == [first.id]


async def test_a_lost_database_refuses_no_token_that_may_be_good(
    database_settings: DatabaseSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A key that this node does not know may be another node's: 503 while nobody can look, where
    401 would make the client throw its login away."""
    async with company(database_settings) as made, browsing() as browser:
        _, tokens = await made.grant_tokens(browser)
        token = jwt.encode({"exp": 2**40}, generate_private_key(SECP256R1()), "ES256",
                           {"kid": "another", "typ": "at+jwt"})  # fmt: skip
        assert await made.status(token) == 401

        async def fail(*_: object) -> None:
            raise OperationalError("the database is away")

        with monkeypatch.context() as outage:
            outage.setattr(SigningKeys, "load", fail)
            outage.setattr("gateway.login.access_tokens.RELOAD_S", 0.0)
            assert await made.status(token) == 503
            outage.setattr("gateway.login.access_tokens.RELOAD_S", 1000.0)  # nobody looks again
            assert await made.status(token) == 503
            assert await made.status(tokens["access_token"]) == 200
