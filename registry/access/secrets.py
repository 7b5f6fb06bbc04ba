"""Credentials of sources in the registry, encrypted: access to the database alone reveals none.

AES-256-GCM with a unique nonce for each (NIST SP 800-38D). Tenant, source and scheme are
authenticated as associated data, so a row copied to another source, or to another tenant, cannot be
decrypted.
"""

import base64
import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import ValidationError
from psycopg import AsyncConnection

from config.access import SecretsSettings
from config.source_conflicts import credential_kind, credential_problem
from config.sources import SchemeSettings
from config.value_types import SchemeName, SourceName
from registry.database.postgres import Pool, borrow
from registry.database.tables import Tables
from registry.database.tenants import lock_tenant
from registry.documents.ssrf_protection import check_host
from schemas.errors import ToolgateError

if TYPE_CHECKING:  # loaded with the first secret: it takes 9 MB
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

NONCE_BYTES = 12
KEY_ID_LENGTH = 16
ENTRY_LIMIT_BYTES = 60_000  # as JSON; encrypted it has to fit into 65,536
_PLAIN = str.maketrans("-_", "+/")  # RFC 4648, section 5: the other alphabet of base64

Entries = dict[str, dict[str, SchemeSettings]]  # source -> scheme -> credentials


class SecretRefused(ToolgateError):
    """A secret cannot be stored, or not be decrypted; the message gives the reason, and contains no
    secret."""


class Keys:
    """Encryption keys of the settings; the first one encrypts."""

    def __init__(self, *keys: bytes) -> None:
        self._keys = {key_id(key): key for key in keys}
        self.current = key_id(keys[0]) if keys else None

    @classmethod
    def of(cls, settings: SecretsSettings) -> "Keys":
        written = [settings.key, *settings.old_keys] if settings.key else []
        return cls(*(base64.b64decode(key.translate(_PLAIN)) for key in written if key))

    @property
    def key_ids(self) -> list[str]:
        return list(self._keys)

    def sealing(self) -> "tuple[str, AESGCM]":
        """The key to encrypt with, and its id. Raises SecretRefused."""
        if self.current is None:
            raise SecretRefused(
                "there is no key to encrypt secrets with: set TOOLGATE_SECRETS__KEY, or "
                "secrets.key as ${file:PATH}, to 32 bytes in base64 (openssl rand -base64 32)"
            )
        return self.current, _cipher(self._keys[self.current])

    def opening(self, id_: str) -> "AESGCM":
        """The key to decrypt with. Raises SecretRefused."""
        key = self._keys.get(id_)
        if key is None:
            raise SecretRefused(
                f"it is encrypted with the key {id_}, which is neither secrets.key nor one of "
                "secrets.old_keys"
            )
        return _cipher(key)


def _cipher(key: bytes) -> "AESGCM":
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    return AESGCM(key)


def key_id(key: bytes) -> str:
    return hashlib.sha256(key).hexdigest()[:KEY_ID_LENGTH]


@dataclass(frozen=True, slots=True)
class StoredSecret:
    """Metadata of a secret, safe to display."""

    source: str
    scheme: str
    kind: str  # which keys it has
    key_id: str
    updated: datetime
    readable: bool  # with the keys configured here


@dataclass(frozen=True, slots=True)
class _Row:
    source: str
    scheme: str
    key_id: str
    nonce: bytes
    sealed: bytes


class Secrets(Tables):
    """Secrets of one tenant. All methods raise `psycopg.OperationalError`."""

    def __init__(self, pool: Pool, host_id: str, keys: Keys) -> None:
        self._pool = pool
        self._host_id = host_id
        self._keys = keys

    async def put(self, source: str, scheme: str, entry: SchemeSettings) -> bool:
        """Insert or replace a secret; returns whether it is new. Raises SecretRefused."""
        kind = check_secret(source, scheme, entry)
        id_, cipher = self._keys.sealing()
        nonce, sealed = self._seal(cipher, source, scheme, msgspec.json.encode(entry))
        async with borrow(self._pool) as connection, connection.transaction():
            await lock_tenant(connection, self._host_id)
            rows = await connection.execute(
                """
                INSERT INTO secret_t AS old
                    (host_id, source, scheme, kind, key_id, nonce, sealed)
                VALUES (%s, %s, %s, %s, %s, %s, %s)
                ON CONFLICT (host_id, source, scheme) DO UPDATE SET
                    kind = excluded.kind, key_id = excluded.key_id, nonce = excluded.nonce,
                    sealed = excluded.sealed, update_ts = current_timestamp,
                    update_user = session_user
                WHERE old.key_id = ANY(%s)
                RETURNING xmax = 0
                """,
                [self._host_id, source, scheme, kind, id_, nonce, sealed, self._keys.key_ids],
            )
            row = await rows.fetchone()
        if row is None:
            raise SecretRefused(
                f"the secret {scheme} of {source} is there, encrypted with a key that the settings "
                "do not have: is secrets.key the right one? Remove that secret first if it is"
            )
        return bool(row[0])

    async def all(self) -> list[StoredSecret]:
        """Metadata by source and scheme; never the secrets."""
        async with borrow(self._pool) as connection:
            rows = await connection.execute(
                "SELECT source, scheme, kind, key_id, update_ts FROM secret_t"
                " WHERE host_id = %s ORDER BY source, scheme",
                [self._host_id],
            )
            key_ids = self._keys.key_ids
            return [
                StoredSecret(source, scheme, kind, id_, updated=updated, readable=id_ in key_ids)
                async for source, scheme, kind, id_, updated in rows
            ]

    async def get(self, source: str, scheme: str) -> SchemeSettings | None:
        """One decrypted secret. Raises SecretRefused."""
        found_row = await self._fetch_first(
            "SELECT source, scheme, key_id, nonce, sealed FROM secret_t"
            " WHERE host_id = %s AND source = %s AND scheme = %s",
            [self._host_id, source, scheme],
        )
        if found_row is None:
            return None
        row = _Row(*found_row)
        return _decode_secret(row, self._unseal(row))

    async def delete(self, source: str, scheme: str) -> bool:
        """Delete a secret; returns whether it existed."""
        changed = await self._execute(
            "DELETE FROM secret_t WHERE host_id = %s AND source = %s AND scheme = %s",
            [self._host_id, source, scheme],
        )
        return changed > 0

    async def rotate(self) -> int:
        """Re-encrypt all with the first key; returns how many had another. Raises SecretRefused,
        with no row changed."""
        id_, cipher = self._keys.sealing()
        async with borrow(self._pool) as connection, connection.transaction():
            await lock_tenant(connection, self._host_id)
            old = [row for row in await self._rows(connection) if row.key_id != id_]
            for row in old:
                opened = self._unseal(row)
                nonce, sealed = self._seal(cipher, row.source, row.scheme, opened)
                await connection.execute(
                    "UPDATE secret_t SET key_id = %s, nonce = %s, sealed = %s,"
                    " update_ts = current_timestamp, update_user = session_user"
                    " WHERE host_id = %s AND source = %s AND scheme = %s",
                    [id_, nonce, sealed, self._host_id, row.source, row.scheme],
                )
        return len(old)

    async def read(self) -> tuple[Entries, list[SecretRefused]]:
        """The decrypted secrets, and the reasons why some are unreadable."""
        async with borrow(self._pool) as connection:
            rows = await self._rows(connection)
        entries: Entries = {}
        refused: list[SecretRefused] = []
        for row in rows:
            try:
                entries.setdefault(row.source, {})[row.scheme] = _decode_secret(
                    row, self._unseal(row)
                )
            except SecretRefused as error:
                refused.append(error)
        return entries, refused

    async def _rows(self, connection: AsyncConnection) -> Sequence[_Row]:
        rows = await connection.execute(
            "SELECT source, scheme, key_id, nonce, sealed FROM secret_t"
            " WHERE host_id = %s ORDER BY source, scheme",
            [self._host_id],
        )
        return [_Row(*row) async for row in rows]

    def _seal(
        self, cipher: "AESGCM", source: str, scheme: str, plain: bytes
    ) -> tuple[bytes, bytes]:
        nonce = os.urandom(NONCE_BYTES)
        return nonce, cipher.encrypt(nonce, plain, self._belonging(source, scheme))

    def _unseal(self, row: _Row) -> bytes:
        from cryptography.exceptions import InvalidTag

        try:
            cipher = self._keys.opening(row.key_id)
            return cipher.decrypt(row.nonce, row.sealed, self._belonging(row.source, row.scheme))
        except SecretRefused as error:
            raise _unreadable(row, str(error)) from error
        except InvalidTag as error:
            raise _unreadable(row, "it is not what was stored there") from error

    def _belonging(self, source: str, scheme: str) -> bytes:
        return msgspec.json.encode([self._host_id, source, scheme])


def _unreadable(row: _Row, reason: str) -> SecretRefused:
    return SecretRefused(f"the secret {row.scheme} of {row.source} cannot be read: {reason}")


def _decode_secret(row: _Row, plain: bytes) -> SchemeSettings:
    try:
        return msgspec.json.decode(plain, type=SchemeSettings)
    except (msgspec.DecodeError, ValidationError) as error:
        raise _unreadable(row, "it was stored by another release") from error


def check_secret(source: str, scheme: str, entry: SchemeSettings) -> str:
    """The kind of a secret. Raises SecretRefused unless it is valid in settings, too."""
    names: Mapping[str, tuple[str, Any]] = {
        "the name of a source": (source, SourceName),
        "the name of a security scheme": (scheme, SchemeName),
    }
    for expected, (value, kind) in names.items():
        if not _fits(value, kind):
            raise SecretRefused(f"expected {expected}, found {value[:60]!r}")
    if not _fits(msgspec.to_builtins(entry), SchemeSettings):
        raise SecretRefused(
            "expected text on one line as a secret, and an http:// or https:// URL as token_url"
        )
    _check_host(entry.token_url)
    size = len(msgspec.json.encode(entry))
    if size > ENTRY_LIMIT_BYTES:
        raise SecretRefused(f"expected at most {ENTRY_LIMIT_BYTES} bytes of a secret, found {size}")
    if text := credential_problem(entry):
        raise SecretRefused(text)
    way = credential_kind(entry)
    if way is None:
        raise SecretRefused("expected a secret, found nothing")
    return way


def _check_host(token_url: str | None) -> None:
    """Check that the host of a token URL is allowed. Raises SecretRefused."""
    try:
        if token_url is not None:
            check_host(token_url)
    except ValueError as error:
        raise SecretRefused(f"token_url: {error}") from error


def _fits(value: object, kind: Any) -> bool:
    try:
        msgspec.convert(value, kind)
    except ValidationError:
        return False
    return True
