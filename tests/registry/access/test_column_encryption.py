"""Encrypted columns: a rotation of keys reaches all of them."""

import base64
import re
from importlib.resources.abc import Traversable
from uuid import UUID

import pytest

from config.load import load
from config.settings import DatabaseSettings
from gateway.admin.resources.secrets import SecretOperations
from gateway.app.components import components_of
from gateway.context import Principal
from gateway.operations.operation import OperationDependencies, OperationInput
from gateway.operations.paging import Pages
from gateway.wings.notifications.wing import WING as NOTIFICATIONS
from registry.access.column_encryption import SealedColumn, Vault
from registry.access.secrets import Keys, SecretRefused
from registry.connections import CONNECTIONS
from registry.database.postgres import Database
from registry.login import LOGIN
from registry.login.logins_and_grants import add_login
from registry.login.signing_keys import SigningKeys

pytestmark = pytest.mark.anyio

HOST = "01964b05-0000-7000-8000-000000000002"
OLD, NEW, LOST = (bytes([number]) * 32 for number in (11, 12, 13))
ANN = UUID("01964b05-0000-7000-8000-0000000000aa")


def vault(*keys: bytes) -> Vault:
    return Vault(Keys(*keys), HOST)


async def rotate(database: Database, *keys: bytes) -> int:
    """The operation behind `toolgate secrets rotate`."""
    ground = OperationDependencies(lambda: database.pool, Pages(10, 10), HOST, "admin")
    secrets = SecretOperations(ground, Keys(*keys), host_id=HOST, settings_sources=dict)
    operator = Principal("key:root", HOST, frozenset())
    asked = OperationInput(operator, {}, query=None, body=None)
    return (await secrets.rotate(asked)).encrypted


async def add(database: Database, login: UUID, sealed: bytes) -> None:
    async with database.pool.connection() as connection:
        await add_login(
            connection, HOST, login=login, tenant=HOST, principal="corp:ann", provider="corp",
            person={}, upstream=sealed, lasts_s=1000.0,
        )  # fmt: skip


async def upstream(database: Database, login: UUID) -> bytes:
    async with database.pool.connection() as connection:
        rows = await connection.execute("SELECT upstream FROM login_t WHERE login_id = %s", [login])
        return bytes((await rows.fetchone() or (b"",))[0])


async def test_a_rotation_encrypts_keys_and_tokens_of_the_login_anew(
    database_settings: DatabaseSettings,
) -> None:
    column = SealedColumn.PROVIDER_REFRESH_TOKEN
    async with Database.open(database_settings, wait=False, components=(LOGIN,)) as database:
        (key,) = await SigningKeys(database.pool, HOST, vault(OLD)).load(1000.0, 900.0)
        await add(database, ANN, vault(OLD).seal(b"refresh", column, str(ANN)))
        assert await rotate(database, NEW, OLD) == 2
        assert await rotate(database, NEW, OLD) == 0
        (same,) = await SigningKeys(database.pool, HOST, vault(NEW)).load(1000.0, 900.0)
        assert same.id == key.id
        sealed = await upstream(database, ANN)
        assert vault(NEW).unseal(sealed, column, str(ANN)) == b"refresh"


async def test_a_rotation_names_columns_that_no_key_opens(
    database_settings: DatabaseSettings,
) -> None:
    column, bob = SealedColumn.PROVIDER_REFRESH_TOKEN, UUID(int=7)
    async with Database.open(database_settings, wait=False, components=(LOGIN,)) as database:
        lost = vault(LOST).seal(b"lost", column, str(bob))
        await add(database, bob, lost)
        await add(database, ANN, vault(OLD).seal(b"refresh", column, str(ANN)))
        with pytest.raises(SecretRefused, match=r"login_t\.upstream: .*secrets\.old_keys"):
            await rotate(database, NEW, OLD)
        assert await upstream(database, bob) == lost
        sealed = await upstream(database, ANN)
        assert vault(NEW).unseal(sealed, column, str(ANN)) == b"refresh"


async def test_sealed_columns_exist_in_migrations() -> None:
    """A column that is not in a migration would be left out of each rotation."""
    env = {
        "TOOLGATE_AUTH__MODE": "jwt",
        "TOOLGATE_LOGIN__ENABLED": "true",
        "TOOLGATE_LOGIN__USERS": "true",
        "TOOLGATE_SECRETS__KEY": base64.b64encode(NEW).decode(),
        "TOOLGATE_SERVER__PUBLIC_URL": "https://gateway.example",
    }
    settings = load(None, env)
    components = {*components_of(settings), CONNECTIONS, NOTIFICATIONS.migrations}
    texts = [read(file) for part in components for file in part.folder.iterdir()]
    for column in SealedColumn:
        (table,) = (text for text in texts if f"CREATE TABLE {column.table} (" in text)
        body = table.split(f"CREATE TABLE {column.table} (")[1].split("\n);")[0]
        names = {line.split()[0]: line.split()[1].rstrip(",") for line in body.splitlines()[1:]}
        later = rf"ALTER TABLE {column.table} ADD COLUMN (\w+) (\w+)"
        names |= dict(re.findall(later, "\n".join(texts)))
        assert names[column.column] == "bytea", column
        assert {"host_id", *column.place} <= names.keys(), column


def read(file: Traversable) -> str:
    return file.read_text() if file.name.endswith(".sql") else ""
