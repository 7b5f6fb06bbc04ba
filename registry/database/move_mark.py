"""Mark of a database that is being moved, or was moved to another server."""

from datetime import datetime

import msgspec
from msgspec import Struct
from psycopg import AsyncConnection

MARK_PREFIX = "toolgate database move: "


class ClosedMark(Struct, frozen=True):
    """The comment of a database that is being moved, or was moved, and is closed.

    Owners may set comments; settings of our own are for superusers, which managed servers lack.
    """

    move: str
    target: str  # HOST:PORT/NAME
    begun: datetime
    finished: bool
    comment: str | None = None  # of the database, before

    def __str__(self) -> str:
        if self.finished:
            return (
                f"this database was moved to {self.target} on {self.begun:%Y-%m-%d}: set "
                "database.url to that one. `toolgate database reopen` lets this one be used again"
            )
        return (
            f"this database is being moved to {self.target}, or the move was interrupted: run "
            "`toolgate database move` again to finish it, or `toolgate database reopen` to use "
            "this one"
        )


async def closed_mark(connection: AsyncConnection) -> ClosedMark | None:
    text = await database_comment(connection)
    if text is None or not text.startswith(MARK_PREFIX):
        return None
    return msgspec.json.decode(text.removeprefix(MARK_PREFIX), type=ClosedMark)


async def database_comment(connection: AsyncConnection) -> str | None:
    rows = await connection.execute(
        "SELECT shobj_description(oid, 'pg_database') FROM pg_database "
        "WHERE datname = current_database()"
    )
    row = await rows.fetchone()
    text: str | None = row[0] if row else None
    return text
