"""Registrations of the gateway as a client at authorization servers of services, sealed."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import msgspec
from msgspec import Struct
from psycopg import AsyncConnection

from registry.access.column_encryption import SealedColumn, Vault
from registry.access.secrets import SecretRefused
from registry.database.postgres import Pool, borrow
from registry.database.tables import Tables

CLAIM_S = 60.0  # after which a node that registers is taken for dead
POLL_S = 0.2  # while another node registers
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


class RegisteredClients(Tables):
    """Registrations of one tenant. All methods raise `psycopg.OperationalError`."""

    def __init__(self, pool: Pool, host_id: str, vault: Vault) -> None:
        self._pool = pool
        self.host_id = host_id
        self._vault = vault

    async def find(self, issuer: str, callback: str) -> Registration | None:
        """The registration, also one whose secret has ended. None as well for one that cannot be
        decrypted: it is replaced."""
        async with borrow(self._pool) as connection:
            registration, *_ = await self._read(connection, issuer, callback)
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
        wait for one another, with no connection to the database. Raises SecretRefused, and what
        `register` raises."""
        place = [self.host_id, issuer, callback]
        while True:
            async with borrow(self._pool) as connection:
                stored, client_id, age_s = await self._read(connection, issuer, callback)
                is_dead = stored is not None and stored.client_id == dead and age_s >= AGAIN_S
                if stored is not None and stored.is_good and not is_dead:
                    return stored
                claimed = await connection.execute(
                    "INSERT INTO upstream_client_t AS old (host_id, issuer, callback, client_id,"
                    " sealed) VALUES (%s, %s, %s, '', '') ON CONFLICT (host_id, issuer, callback)"
                    " DO UPDATE SET client_id = '', sealed = '', created_ts = now() WHERE"
                    " old.client_id = %s AND (old.client_id <> ''"
                    " OR old.created_ts < now() - make_interval(secs => %s))",
                    [*place, client_id, CLAIM_S],
                )
            if claimed.rowcount:
                break
            await asyncio.sleep(POLL_S)
        try:
            registration = await register()
            plain = msgspec.json.encode(registration)
            sealed = self._vault.seal(plain, SealedColumn.UPSTREAM_CLIENT, issuer, callback)
        except BaseException:
            with anyio.CancelScope(shield=True):
                await self._execute(
                    "DELETE FROM upstream_client_t WHERE client_id = ''"
                    " AND (host_id, issuer, callback) = (%s, %s, %s)",
                    place,
                )
            raise
        await self._execute(
            "UPDATE upstream_client_t SET client_id = %s, sealed = %s, created_ts = now()"
            " WHERE (host_id, issuer, callback) = (%s, %s, %s)",
            [registration.client_id, sealed, *place],
        )
        return registration

    async def _read(
        self, connection: AsyncConnection[Any], issuer: str, callback: str
    ) -> tuple[Registration | None, str, float]:
        """The registration, its id also where the rest cannot be read ("": a node registers, or
        none has), and its age in seconds."""
        rows = await connection.execute(
            "SELECT sealed, client_id, extract(epoch FROM now() - created_ts)::float"
            " FROM upstream_client_t WHERE (host_id, issuer, callback) = (%s, %s, %s)",
            [self.host_id, issuer, callback],
        )
        row = await rows.fetchone()
        if row is None:
            return None, "", 0.0
        try:
            plain = self._vault.unseal(row[0], SealedColumn.UPSTREAM_CLIENT, issuer, callback)
            return msgspec.json.decode(plain, type=Registration), *row[1:]
        except (SecretRefused, msgspec.MsgspecError):
            return None, *row[1:]
