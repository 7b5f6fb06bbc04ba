"""Policy rules of one tenant, by name, in addition to those of the settings."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec
from psycopg.types.json import Jsonb

from config.access import Rule
from registry.database.postgres import Pool, borrow
from registry.database.tables import Tables
from registry.database.tenants import lock_tenant
from schemas.errors import ToolgateError

log = logging.getLogger("toolgate.policy")

MEMBERS = frozenset(Rule.__struct_fields__)


class PolicyChanged(ToolgateError):
    """Version conflict: the rule has another version than the caller expected."""


class TooManyRules(ToolgateError):
    """A tenant has reached the limit of rules in the settings."""


@dataclass(frozen=True, slots=True)
class StoredRule:
    name: str
    rule: Rule
    version: int  # number of its writes, from 1
    updated: datetime


class Policies(Tables):
    """Policy rules of one tenant. All methods raise `psycopg.OperationalError`."""

    def __init__(self, pool: Pool, host_id: str) -> None:
        self._pool = pool
        self._host_id = host_id

    async def all(self) -> list[StoredRule]:
        """All rules, ordered by name."""
        rows = await self._fetch(
            "SELECT name, rule, aggregate_version, update_ts FROM policy_rule_t"
            ' WHERE host_id = %s ORDER BY name COLLATE "C"',
            [self._host_id],
        )
        return [_stored_rule(*row) for row in rows]

    async def get(self, name: str) -> StoredRule | None:
        row = await self._fetch_first(
            "SELECT name, rule, aggregate_version, update_ts FROM policy_rule_t"
            " WHERE (host_id, name) = (%s, %s)",
            [self._host_id, name],
        )
        return None if row is None else _stored_rule(*row)

    async def put(
        self,
        name: str,
        rule: Rule,
        expected_version: int | None = None,
        *,
        limit: int | None = None,
    ) -> StoredRule:
        """Write a rule, already validated. `expected_version` is its current version; 0: it must
        not exist; None: no check. Raises PolicyChanged, and TooManyRules for a new one beyond
        `limit`."""
        async with borrow(self._pool) as connection, connection.transaction():
            await lock_tenant(connection, self._host_id)
            version = await self._version(connection, name)
            _check(name, version or 0, expected_version)
            if version is None and limit is not None:
                await self._check_count(connection, limit)
            rows = await connection.execute(
                """
                INSERT INTO policy_rule_t AS old (host_id, name, rule) VALUES (%s, %s, %s)
                ON CONFLICT (host_id, name) DO UPDATE SET rule = excluded.rule,
                    aggregate_version = old.aggregate_version + 1,
                    update_ts = current_timestamp, update_user = session_user
                RETURNING name, rule, aggregate_version, update_ts
                """,
                [self._host_id, name, Jsonb(rule_members(rule), dumps=msgspec.json.encode)],
            )
            (row,) = await rows.fetchall()
        return _stored_rule(*row)

    async def delete(self, name: str, expected_version: int | None = None) -> bool:
        """Delete a rule; returns whether it existed. Raises PolicyChanged where it has another
        version."""
        async with borrow(self._pool) as connection, connection.transaction():
            await lock_tenant(connection, self._host_id)
            version = await self._version(connection, name)
            if version is None:
                return False
            _check(name, version, expected_version)
            await connection.execute(
                "DELETE FROM policy_rule_t WHERE (host_id, name) = (%s, %s)",
                [self._host_id, name],
            )
        return True

    async def _check_count(self, connection: Any, limit: int) -> None:
        rows = await connection.execute(
            "SELECT count(*) FROM policy_rule_t WHERE host_id = %s", [self._host_id]
        )
        (count,) = await rows.fetchone()
        if count >= limit:
            raise TooManyRules(
                f"there are {count:,} stored rules, and at most {limit:,} may be stored "
                "(policy.stored_rules): remove one, or combine some of them"
            )

    async def _version(self, connection: Any, name: str) -> int | None:
        rows = await connection.execute(
            "SELECT aggregate_version FROM policy_rule_t WHERE (host_id, name) = (%s, %s)",
            [self._host_id, name],
        )
        row = await rows.fetchone()
        return None if row is None else int(row[0])


async def stored_rules(pool: Pool) -> Mapping[str, Mapping[str, Rule]]:
    """Rules of all tenants, by host_id and name."""
    by_tenant: dict[str, dict[str, Rule]] = {}
    async with borrow(pool) as connection:
        rows = await connection.execute(
            'SELECT host_id::text, name, rule FROM policy_rule_t ORDER BY name COLLATE "C"'
        )
        async for host_id, name, rule in rows:
            by_tenant.setdefault(host_id, {})[name] = _read(name, rule)
    return by_tenant


def rule_members(rule: Rule) -> dict[str, Any]:
    """The rule without its defaults: other releases know other members."""
    defaults = msgspec.to_builtins(Rule(rule.effect))
    fields = msgspec.to_builtins(rule)
    return {
        key: value for key, value in fields.items() if key == "effect" or value != defaults[key]
    }


def _check(name: str, version: int, expected_version: int | None) -> None:
    if expected_version not in {None, version}:
        state = f"has version {version}" if version else "is not there"
        raise PolicyChanged(f"the rule {name} {state}, not version {expected_version}")


def _stored_rule(name: str, rule: dict[str, Any], version: int, time: datetime) -> StoredRule:
    return StoredRule(name, _read(name, rule), version, time)


def _read(name: str, fields: dict[str, Any]) -> Rule:
    """Decode a rule, possibly with members of a newer release, failing closed: what it denies is
    denied wherever its known members match; what it allows is ignored."""
    try:
        return msgspec.convert(fields, Rule)
    except msgspec.ValidationError as error:
        log.error("rule_not_readable", extra={"rule": name, "reason": str(error)})
    members = {key: value for key, value in fields.items() if key in MEMBERS}
    try:
        rule = msgspec.convert(members, Rule)
    except msgspec.ValidationError:
        rule = Rule("deny")
    return Rule("allow", when="false") if rule.effect == "allow" else rule
