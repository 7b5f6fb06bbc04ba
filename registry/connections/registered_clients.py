"""Registrations of the gateway as a client at authorization servers of services, sealed."""

import time
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from msgspec import Struct
from psycopg import AsyncConnection

from registry.access.secrets import SecretRefused
from registry.access.vault import SealedColumn, Vault
from registry.database.postgres import Pool, borrow

LOCK = 0x636F6E6E  # "conn": the first half of the keys of its advisory locks
AGAIN_S = 3600.0  # least time between two registrations at one issuer, but for ended secrets


class Registration(Struct, frozen=True):
    """One answer of a registration endpoint (RFC 7591, 3.2.1)."""

    client_id: str
    secret: str = ""
    method: str = "none"  # of the gateway's: basic, post, private_key_jwt or none
    ends: float = 0.0  # of the secret, Unix time in seconds; 0: never

    @property
    def is_good(self) -> bool:
        return not self.ends or time.time() < self.ends


class RegisteredClients:
    """Registrations of one tenant. All methods raise `psycopg.OperationalError`."""

    def __init__(self, pool: Pool, host_id: str, vault: Vault) -> None:
        self._pool = pool
        self.host_id = host_id
        self._vault = vault

    async def find(self, issuer: str, callback: str) -> Registration | None:
        """The registration, also one whose secret has ended. None as well for one that cannot be
        decrypted: it is replaced."""
        async with borrow(self._pool) as connection:
            registration, _ = await self._read(connection, issuer, callback)
        return registration

    async def find_or_add(
        self,
        issuer: str,
        callback: str,
        register: Callable[[], Awaitable[Registration]],
        *,
        dead: str = "",
    ) -> Registration:
        """The registration; made by `register` where there is none, or one whose secret has ended,
        or that of the client id `dead`, unless that was made within AGAIN_S. Callers of all nodes
        wait for one another. Raises SecretRefused, and what `register` raises."""
        async with borrow(self._pool) as connection, connection.transaction():
            place = msgspec.json.encode([self.host_id, issuer, callback]).decode()
            await connection.execute(
                "SELECT pg_advisory_xact_lock(%s, hashtext(%s))", [LOCK, place]
            )
            stored, age_s = await self._read(connection, issuer, callback)
            is_dead = stored is not None and stored.client_id == dead and age_s >= AGAIN_S
            if stored is not None and stored.is_good and not is_dead:
                return stored
            registration = await register()
            plain = msgspec.json.encode(registration)
            await connection.execute(
                "INSERT INTO upstream_client_t (host_id, issuer, callback, client_id, sealed)"
                " VALUES (%s, %s, %s, %s, %s) ON CONFLICT (host_id, issuer, callback) DO UPDATE"
                " SET client_id = excluded.client_id, sealed = excluded.sealed,"
                " created_ts = excluded.created_ts",
                [
                    *(self.host_id, issuer, callback, registration.client_id),
                    self._vault.seal(plain, SealedColumn.UPSTREAM_CLIENT, issuer, callback),
                ],
            )
        return registration

    async def _read(
        self, connection: AsyncConnection[Any], issuer: str, callback: str
    ) -> tuple[Registration | None, float]:
        """The registration and its age in seconds."""
        rows = await connection.execute(
            "SELECT sealed, extract(epoch FROM now() - created_ts)::float FROM upstream_client_t"
            " WHERE (host_id, issuer, callback) = (%s, %s, %s)",
            [self.host_id, issuer, callback],
        )
        row = await rows.fetchone()
        if row is None:
            return None, 0.0
        try:
            plain = self._vault.unseal(row[0], SealedColumn.UPSTREAM_CLIENT, issuer, callback)
            return msgspec.json.decode(plain, type=Registration), row[1]
        except (SecretRefused, msgspec.MsgspecError):
            return None, row[1]
