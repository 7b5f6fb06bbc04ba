"""The keys that sign access tokens: ES256, made by the first node that needs one, for all nodes."""

import logging
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import msgspec
from cryptography.hazmat.primitives.asymmetric.ec import (
    SECP256R1,
    EllipticCurvePrivateKey,
    generate_private_key,
)
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_der_private_key,
)
from jwt.algorithms import ECAlgorithm
from psycopg import AsyncConnection
from psycopg.types.json import Jsonb

from registry.access.column_encryption import SealedColumn, Vault
from registry.access.secrets import SecretRefused, key_id
from registry.database.postgres import Pool, borrow, read_clock
from registry.database.tenants import lock_tenant

log = logging.getLogger("toolgate.login")

ALGORITHM = "ES256"


@dataclass(frozen=True, slots=True)
class SigningKey:
    id: str
    public: dict[str, Any]  # as a JWK (RFC 7517)
    private: EllipticCurvePrivateKey
    created: datetime


class SigningKeys:
    def __init__(self, pool: Pool, host_id: str, vault: Vault) -> None:
        self._pool = pool
        self._host_id = host_id
        self._vault = vault

    async def load(self, key_s: float, token_s: float) -> list[SigningKey]:
        """All keys whose tokens may be good, newest first; makes one where the newest is older
        than `key_s`. `token_s`: lifetime of a token. Raises SecretRefused, and
        psycopg.OperationalError."""
        async with borrow(self._pool) as connection:
            keys = await self._read(connection)
            due = await read_clock(connection) - timedelta(seconds=key_s)
        if keys and keys[0].created > due:
            return keys
        async with borrow(self._pool) as connection, connection.transaction():
            await lock_tenant(connection, self._host_id)
            keys = await self._read(connection)
            if not keys or keys[0].created <= due:  # no other node was faster
                keys.insert(0, await self._add(connection))
            ended = due - timedelta(seconds=token_s)
            await connection.execute(
                "DELETE FROM login_key_t WHERE host_id = %s AND created_ts < %s",
                [self._host_id, ended],
            )
        return [key for key in keys if key.created >= ended]

    async def _read(self, connection: AsyncConnection) -> list[SigningKey]:
        rows = await connection.execute(
            "SELECT key_id, public, sealed, created_ts FROM login_key_t WHERE host_id = %s"
            " ORDER BY created_ts DESC",
            [self._host_id],
        )
        keys = []
        async for id_, public, sealed, created in rows:
            try:
                private = _private(self._vault.unseal(sealed, SealedColumn.SIGNING_KEY, id_))
            except SecretRefused as error:  # its tokens are refused, and a new key is made
                log.error("signing_key_unreadable", extra={"key": id_, "reason": str(error)})
                continue
            keys.append(SigningKey(id_, public, private, created))
        return keys

    async def _add(self, connection: AsyncConnection) -> SigningKey:
        private = generate_private_key(SECP256R1())
        plain = private.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())
        jwk = ECAlgorithm.to_jwk(private.public_key(), as_dict=True)
        id_ = key_id(msgspec.json.encode([jwk["x"], jwk["y"]]))
        public = {**jwk, "kid": id_, "alg": ALGORITHM, "use": "sig"}
        sealed = self._vault.seal(plain, SealedColumn.SIGNING_KEY, id_)
        now = await read_clock(connection)
        await connection.execute(
            "INSERT INTO login_key_t (host_id, key_id, public, sealed, created_ts)"
            " VALUES (%s, %s, %s, %s, %s)",
            [self._host_id, id_, Jsonb(public), sealed, now],
        )
        return SigningKey(id_, public, private, now)


def _private(der: bytes) -> EllipticCurvePrivateKey:
    key = load_der_private_key(der, None)
    if not isinstance(key, EllipticCurvePrivateKey):
        raise SecretRefused("a signing key of the login is of another kind")
    return key
