"""Rows that tables hold of a person: counted, and deleted or blanked in batches.

Erasing twice is the same as erasing once: a condition matches no row that is blank already.
"""

import re
from collections.abc import Awaitable, Callable
from typing import Any, LiteralString

import msgspec
from msgspec import Struct
from psycopg import sql

from registry.database.postgres import Pool, borrow
from registry.database.sql_fragments import compose

BATCH = 500  # rows of a transaction
_LETTER, _JOINT = "[[:alnum:]_]", "[-.:@+]"  # of ids


class ErasedPerson(Struct, frozen=True):
    """A person whose data is counted or erased."""

    tenant: str
    id: str  # of the principal
    pseudonym: str  # takes the place of the id in what stays
    addresses: tuple[str, ...] = ()  # of mail

    @property
    def values(self) -> dict[str, Any]:
        """Parameters of statements. `word` is a regular expression of the id, as text or in JSON,
        where it is no part of another id: ann in "user:ann" and "Ask ann.", but not in "corp:ann",
        "ann-marie" or "ann@corp"."""
        ids = "|".join(map(re.escape, (self.id, msgspec.json.encode(self.id).decode()[1:-1])))
        return {
            "host": self.tenant,
            "person": self.id,
            "pseudonym": self.pseudonym,
            "addresses": [self.id, *self.addresses],
            "word": rf"(?:(?<!{_LETTER}{_JOINT}?)|(?<=user:))(?:{ids})(?!{_JOINT}?{_LETTER})",
        }


class HeldRows(Struct, frozen=True, kw_only=True):
    """Rows of a table, which is r in its condition. Implements `PersonEraser`."""

    place: str
    table: LiteralString
    pool: Callable[[], Pool | None]
    condition: LiteralString = "r.host_id = %(host)s AND r.owner = %(person)s"
    blanks: LiteralString = ""  # assignments; "": the rows are deleted
    remains: str = ""
    is_copy: bool = True
    before: Callable[[ErasedPerson], Awaitable[object]] | None = None  # of the first batch

    async def count_person(self, person: ErasedPerson) -> int:
        statement = compose(
            "SELECT count(*) FROM {table} AS r WHERE {condition}", **self._fragments
        )
        if (pool := self.pool()) is None:
            return 0
        async with borrow(pool) as connection:
            row = await (await connection.execute(statement, person.values)).fetchone()
        return 0 if row is None else int(row[0])

    async def erase_person(self, person: ErasedPerson) -> int:
        if (pool := self.pool()) is None:
            return 0
        if self.before is not None:
            await self.before(person)
        verb = "UPDATE {table} AS r SET {blanks}" if self.blanks else "DELETE FROM {table} AS r"
        # The condition stands twice: rows of other partitions have the same ctid.
        rows = " WHERE r.ctid = ANY (ARRAY(SELECT r.ctid FROM {table} AS r WHERE {condition}"
        statement = compose(verb + rows + " LIMIT {batch})) AND {condition}", **self._fragments)
        total = 0
        while True:
            async with borrow(pool) as connection:
                changed = (await connection.execute(statement, person.values)).rowcount
            total += changed
            if not changed:
                return total

    @property
    def _fragments(self) -> dict[str, sql.Composable]:
        return {
            "table": sql.Identifier(self.table),
            "condition": sql.SQL(self.condition),
            "blanks": sql.SQL(self.blanks),
            "batch": sql.Literal(BATCH),
        }
