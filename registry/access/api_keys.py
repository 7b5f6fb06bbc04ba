"""API keys of machines: `tgk_<id>_<secret>`.

Only the SHA-256 of a secret, which is 256 random bits, is stored (`secret_digests`).
"""

import re
import secrets
import string
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, LiteralString

import psycopg
from psycopg import AsyncConnection

from registry.access.secret_digests import secret_digest
from registry.database.postgres import Pool, borrow
from registry.database.tables import Tables
from registry.database.tenants import lock_tenant
from schemas.errors import ToolgateError

PREFIX = "tgk_"
ID_LENGTH = 12  # of 62 letters and digits: 71 bits
SECRET_BYTES = 32
NAME_LIMIT, PRINCIPAL_LIMIT = 126, 255  # characters
WORDS_LIMIT = 100  # scopes, and roles, of one key
MAKERS_LIMIT = 20  # of one key: length of a chain of keys, each made with the one before
_EARLIER = " (earlier "
_ID_LETTERS = string.ascii_letters + string.digits
# RFC 6749, section 3.3
_WORD = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]{1,255}")

_READ = (
    "SELECT host_id::text, secret_digest, key_id, name, principal, scopes, roles, makers,"
    " created_ts, expires_ts, revoked_ts, last_used_ts FROM api_key_t"
)


class KeyRefused(ToolgateError):
    """An invalid key request; the message gives the reason."""


class KeyExists(KeyRefused):
    """A key of this name exists."""


@dataclass(frozen=True, slots=True)
class ApiKey:
    """A key without its secret. All times have a time zone."""

    id: str
    name: str
    principal: str  # the identity of its callers
    scopes: tuple[str, ...]
    roles: tuple[str, ...]
    # principal who made the key; where that one came with a key, also the makers of that key
    makers: tuple[str, ...]
    created: datetime
    expires: datetime | None = None  # None: never
    revoked: datetime | None = None
    last_used: datetime | None = None  # to the minute


@dataclass(frozen=True, slots=True)
class KnownKey:
    """A key as a gateway verifies it."""

    tenant: str
    key: ApiKey
    digest: bytes  # SHA-256 of the secret


class ApiKeys(Tables):
    """Keys of one tenant. All methods raise `psycopg.OperationalError`."""

    def __init__(self, pool: Pool, host_id: str) -> None:
        self._pool = pool
        self._host_id = host_id

    async def create(
        self,
        name: str,
        principal: str | None = None,
        scopes: Sequence[str] = (),
        roles: Sequence[str] = (),
        *,
        expires: datetime | None = None,
        makers: Iterable[str] = (),
    ) -> tuple[ApiKey, str]:
        """Create a key; returns it with its text, which cannot be shown again. `principal` None:
        "key:NAME", or, where an earlier key had that, with "#" and the new id appended: a new key
        inherits no permissions. Raises KeyRefused."""
        makers = tuple(sorted(set(makers)))
        _check(name, principal or f"key:{name}", scopes, roles, expires=expires)
        if len(makers) > MAKERS_LIMIT:
            raise KeyRefused("keys have made keys too often: make this one with another credential")
        key, secret = _fresh(
            ApiKey(
                "",
                name,
                principal or "",
                tuple(dict.fromkeys(scopes)),
                roles=tuple(dict.fromkeys(roles)),
                makers=makers,
                created=datetime.now(UTC),
                expires=expires,
            )
        )
        try:
            key = await self._insert(key, secret_digest(secret))
        except psycopg.errors.UniqueViolation as error:
            hint = "revoke it first, or choose another name"
            raise KeyExists(f"there is a key {name!r} already; {hint}") from error
        return key, f"{PREFIX}{key.id}_{secret}"

    async def all(self) -> list[ApiKey]:
        """All keys, by name, then by age; revoked ones, too."""
        order = ' WHERE host_id = %s ORDER BY name COLLATE "C", created_ts, key_id'
        return [stored_key.key for stored_key in await _read(self._pool, order, [self._host_id])]

    async def get(self, key_id: str) -> ApiKey | None:
        condition = " WHERE (host_id, key_id) = (%s, %s)"
        keys = await _read(self._pool, condition, [self._host_id, key_id])
        return keys[0].key if keys else None

    async def revoke(self, key_id: str) -> bool:
        """Revoke a key; returns whether it existed and was not revoked before."""
        changed = await self._execute(
            "UPDATE api_key_t SET revoked_ts = current_timestamp,"
            " aggregate_version = aggregate_version + 1,"
            " update_ts = current_timestamp, update_user = session_user"
            " WHERE (host_id, key_id) = (%s, %s) AND revoked_ts IS NULL",
            [self._host_id, key_id],
        )
        return changed > 0

    async def rotate(
        self,
        key_id: str,
        overlap: timedelta,
        *,
        expires: datetime | None = None,
        makers: Iterable[str] = (),
    ) -> tuple[ApiKey, str]:
        """A new key in place of a usable one, with its name, principal, scopes and roles; returns
        it with its text. The earlier one gets a name of its own, and expires after `overlap`.
        `expires` None: the new one lives as long as the earlier one. Raises KeyRefused."""
        async with borrow(self._pool) as connection, connection.transaction():
            await lock_tenant(connection, self._host_id)
            earlier = await self._usable(connection, key_id)
            key, secret = _rotate(earlier, expires, makers)
            await connection.execute(
                "UPDATE api_key_t SET name = %s,"
                " expires_ts = least(expires_ts, clock_timestamp() + %s),"
                " aggregate_version = aggregate_version + 1,"
                " update_ts = current_timestamp, update_user = session_user"
                " WHERE (host_id, key_id) = (%s, %s)",
                [earlier_name(earlier), overlap, self._host_id, key_id],
            )
            await self._store(connection, key, secret_digest(secret))
        return key, f"{PREFIX}{key.id}_{secret}"

    async def _usable(self, connection: AsyncConnection, key_id: str) -> ApiKey:
        """A valid key, which stays so until the end of the transaction. Raises KeyRefused."""
        rows = await connection.execute(
            _READ + " WHERE (host_id, key_id) = (%s, %s) AND revoked_ts IS NULL"
            # not the time at which the transaction began to wait for its turn
            " AND coalesce(expires_ts > clock_timestamp(), true) FOR UPDATE",
            [self._host_id, key_id],
        )
        row = await rows.fetchone()
        if row is None:
            raise KeyRefused(f"there is no valid key {key_id!r} to rotate")
        return _known_key(*row).key

    async def _insert(self, key: ApiKey, digest: bytes) -> ApiKey:
        """The key as stored: with a principal."""
        async with borrow(self._pool) as connection:
            await lock_tenant(connection, self._host_id)
            if not key.principal:
                key = replace(key, principal=await self._unused_principal(connection, key))
            await self._store(connection, key, digest)
        return key

    async def _store(self, connection: AsyncConnection, key: ApiKey, digest: bytes) -> None:
        await connection.execute(
            "INSERT INTO api_key_t (host_id, key_id, name, principal, secret_digest, scopes,"
            " roles, makers, created_ts, expires_ts)"
            " VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s)",
            [
                *(self._host_id, key.id, key.name, key.principal, digest),
                *(list(key.scopes), list(key.roles), list(key.makers)),
                *(key.created, key.expires),
            ],
        )

    async def _unused_principal(self, connection: AsyncConnection, key: ApiKey) -> str:
        """A principal that no key has had, revoked ones included."""
        principal_id = f"key:{key.name}"
        earlier = await connection.execute(
            "SELECT FROM api_key_t WHERE (host_id, principal) = (%s, %s) LIMIT 1",
            [self._host_id, principal_id],
        )
        return f"{principal_id}#{key.id}" if earlier.rowcount else principal_id


async def known_keys(pool: Pool) -> list[KnownKey]:
    """Keys of all tenants that have neither expired nor been revoked."""
    usable = " WHERE revoked_ts IS NULL AND coalesce(expires_ts > current_timestamp, true)"
    return await _read(pool, usable, [])


async def note_uses(pool: Pool, used: Mapping[tuple[str, str], float]) -> None:
    """Record the last uses of keys, by tenant and id (s since the epoch)."""
    async with borrow(pool) as connection:
        await connection.execute(
            """
            UPDATE api_key_t SET last_used_ts = greatest(last_used_ts, to_timestamp(used.moment))
            FROM unnest(%s::uuid[], %s::text[], %s::float8[]) AS used (host_id, id, moment)
            WHERE (api_key_t.host_id, key_id) = (used.host_id, used.id)
            """,
            [[tenant for tenant, _ in used], [id_ for _, id_ in used], list(used.values())],
        )


def earlier_name(key: ApiKey) -> str:
    """The name of a key after its rotation: names of usable keys are unique."""
    mark = earlier_mark(key.name)
    return f"{mark}{key.id})"


def earlier_mark(name: str) -> str:
    """The beginning of the names of the keys that a rotation replaced by the key of this name."""
    return f"{name[: NAME_LIMIT - ID_LENGTH - len(_EARLIER) - 1]}{_EARLIER}"


def _rotate(earlier: ApiKey, expires: datetime | None, makers: Iterable[str]) -> tuple[ApiKey, str]:
    """The key in place of an earlier one, and its secret. Raises KeyRefused."""
    now = datetime.now(UTC)
    if expires is None and earlier.expires is not None:
        expires = now + (earlier.expires - earlier.created)
    _check(earlier.name, earlier.principal, earlier.scopes, earlier.roles, expires=expires)
    all_makers = tuple(sorted({*earlier.makers, *makers}))
    if len(all_makers) > MAKERS_LIMIT:
        raise KeyRefused("too many have made this key: revoke it, and make another one")
    return _fresh(replace(earlier, makers=all_makers, created=now, expires=expires, last_used=None))


def _fresh(key: ApiKey) -> tuple[ApiKey, str]:
    """The key with an id of its own, and a secret."""
    key_id = "".join(secrets.choice(_ID_LETTERS) for _ in range(ID_LENGTH))
    return replace(key, id=key_id), secrets.token_urlsafe(SECRET_BYTES)


async def _read(pool: Pool, where: LiteralString, values: Sequence[str]) -> list[KnownKey]:
    async with borrow(pool) as connection:
        rows = await connection.execute(_READ + where, values)
        return [_known_key(*row) async for row in rows]


def _known_key(tenant: str, digest: bytes, *row: Any) -> KnownKey:
    id_, name, principal, scopes, roles, makers, *times = row
    created, expires, revoked, last_used = times
    key = ApiKey(
        id=id_,
        name=name,
        principal=principal,
        scopes=tuple(scopes),
        roles=tuple(roles),
        makers=tuple(makers),
        created=created,
        expires=expires,
        revoked=revoked,
        last_used=last_used,
    )
    return KnownKey(tenant, key, digest)


def _check(
    name: str,
    principal: str,
    scopes: Sequence[str],
    roles: Sequence[str],
    *,
    expires: datetime | None,
) -> None:
    """Raises KeyRefused."""
    texts = (("name", name, NAME_LIMIT), ("principal", principal, PRINCIPAL_LIMIT))
    for kind, text, limit in texts:
        if not text.strip() or len(text) > limit or not text.isprintable():
            expected = f"expected 1 to {limit} printable characters"
            raise KeyRefused(f"{text[:80]!r} is no {kind}: {expected}")
    for kind, words in (("scope", scopes), ("role", roles)):
        if len(words) > WORDS_LIMIT:
            raise KeyRefused(f"expected at most {WORDS_LIMIT} {kind}s, found {len(words)}")
        for word in words:
            if not _WORD.fullmatch(word):
                expected = "visible characters without quotes and backslashes"
                raise KeyRefused(f"{word[:80]!r} is no {kind}: expected {expected}")
    if expires is not None and (expires.tzinfo is None or expires <= datetime.now(UTC)):
        expectation = "expected a time to come, with its zone, at which the key expires"
        raise KeyRefused(f"{expectation}, found {expires.isoformat()}")
