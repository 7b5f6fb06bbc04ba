"""Encryption of columns: AES-256-GCM with `secrets.key`, bound to the row that they are in."""

import os
from collections.abc import Sequence
from enum import Enum

import msgspec
from psycopg import AsyncConnection
from psycopg.sql import SQL, Identifier

from registry.access.secrets import KEY_ID_LENGTH, NONCE_BYTES, Keys, SecretRefused
from registry.database.postgres import Pool, borrow


class SealedColumn(Enum):
    """All columns that a vault encrypts: table, column, and the columns of the row that the text is
    bound to. A rotation of keys goes over all of them."""

    SIGNING_KEY = ("login_key_t", "sealed", ("key_id",))
    PROVIDER_REFRESH_TOKEN = ("login_t", "upstream", ("login_id",))
    TOTP_SECRET = ("login_user_t", "totp", ("name",))
    CONNECTION = (
        "connection_t",
        "sealed",
        ("connection_id", "tenant_id", "principal", "source", "scheme", "label"),
    )
    CONNECTION_ATTEMPT = ("connection_attempt_t", "sealed", ("digest",))
    UPSTREAM_CLIENT = ("upstream_client_t", "sealed", ("issuer", "callback"))
    NOTIFICATION_TARGET = ("notification_target_t", "sealed", ("name",))

    def __init__(self, table: str, column: str, place: Sequence[str]) -> None:
        self.table = table
        self.column = column
        self.place = place

    def __str__(self) -> str:
        return f"{self.table}.{self.column}"


class Vault:
    def __init__(self, keys: Keys, host_id: str) -> None:
        self._keys = keys
        self._host_id = host_id

    def seal(self, plain: bytes, column: SealedColumn, *place: str) -> bytes:
        """`place` has the values of the columns of that name: in another row the text cannot be
        opened. Raises SecretRefused without a key."""
        key_id, cipher = self._keys.sealing()
        nonce = os.urandom(NONCE_BYTES)
        bound = self._place_key(column, place)
        return key_id.encode() + nonce + cipher.encrypt(nonce, plain, bound)

    def unseal(self, sealed: bytes, column: SealedColumn, *place: str) -> bytes:
        """Raises SecretRefused."""
        from cryptography.exceptions import InvalidTag  # as in `registry.access.secrets`

        key_id, nonce = sealed[:KEY_ID_LENGTH].decode("ascii", "replace"), sealed[KEY_ID_LENGTH:]
        nonce, text = nonce[:NONCE_BYTES], nonce[NONCE_BYTES:]
        try:
            return self._keys.opening(key_id).decrypt(nonce, text, self._place_key(column, place))
        except (InvalidTag, ValueError) as error:
            raise SecretRefused("an encrypted column is not what was stored there") from error

    async def rotate(self, pool: Pool) -> int:
        """Encrypt all columns with the first key; returns how many values had another. Raises
        SecretRefused for those that no key opens, after all others were encrypted."""
        self._keys.sealing()
        count, refused = 0, {}
        for column in SealedColumn:
            async with borrow(pool) as connection, connection.transaction():
                if not await _has_table(connection, column):
                    continue
                for place, sealed in await self._read_former(connection, column):
                    try:
                        plain = self.unseal(sealed, column, *place)
                    except SecretRefused as error:
                        refused[column] = str(error)
                        continue
                    await self._replace(connection, column, place, plain)
                    count += 1
        if refused:
            reasons = "; ".join(f"{column}: {reason}" for column, reason in refused.items())
            raise SecretRefused(f"all but these were encrypted, which cannot be read: {reasons}")
        return count

    async def _read_former(
        self, connection: AsyncConnection, column: SealedColumn
    ) -> list[tuple[list[str], bytes]]:
        """Places and texts that are encrypted with another key than the first, locked."""
        place = SQL(", ").join(SQL("{}::text").format(Identifier(name)) for name in column.place)
        rows = await connection.execute(
            SQL(
                "SELECT {sealed}, {place} FROM {table} WHERE host_id = %s"
                " AND substr({sealed}, 1, %s) <> %s ORDER BY {order} FOR UPDATE"
            ).format(
                sealed=Identifier(column.column),
                place=place,
                table=Identifier(column.table),
                order=SQL(", ").join(map(Identifier, column.place)),
            ),
            [self._host_id, KEY_ID_LENGTH, (self._keys.current or "").encode()],
        )
        return [([*place], bytes(sealed)) async for sealed, *place in rows]

    async def _replace(
        self, connection: AsyncConnection, column: SealedColumn, place: Sequence[str], plain: bytes
    ) -> None:
        same = SQL(" AND ").join(
            SQL("{}::text = %s").format(Identifier(name)) for name in column.place
        )
        await connection.execute(
            SQL("UPDATE {} SET {} = %s WHERE host_id = %s AND {}").format(
                Identifier(column.table), Identifier(column.column), same
            ),
            [self.seal(plain, column, *place), self._host_id, *place],
        )

    def _place_key(self, column: SealedColumn, place: Sequence[str]) -> bytes:
        return msgspec.json.encode([self._host_id, str(column), *place])


async def _has_table(connection: AsyncConnection, column: SealedColumn) -> bool:
    rows = await connection.execute("SELECT to_regclass(%s) IS NOT NULL", [column.table])
    return (await rows.fetchone() or (False,))[0] is True
