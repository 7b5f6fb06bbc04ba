"""The client programs of PostgreSQL, and what they are given: addresses, and tables to count.

Addresses with their passwords are passed to the programs in a service file, which is for its owner
only: arguments of processes are readable by everyone.
"""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
from anyio.abc import Process
from psycopg import AsyncConnection, sql
from psycopg.conninfo import conninfo_to_dict

from registry.database.embedded_server import (
    DatabaseError,
    Embedded,
    find_programs,
    program_environment,
)

SERVICE_PREFIX = "toolgate-service-"  # of temporary folders
SNAPSHOT = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY"
TABLES = """
SELECT n.nspname, c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
 WHERE c.relkind = 'r' AND c.relpersistence <> 't' AND c.relname <> %s
   AND n.nspname NOT IN ('pg_catalog', 'information_schema') AND n.nspname NOT LIKE 'pg\\_%%'
 ORDER BY 1, 2
"""


async def count_rows(connection: AsyncConnection, excluded: str = "") -> dict[str, int]:
    """Rows of each table but one, in one snapshot."""
    async with connection.transaction():
        await connection.execute(SNAPSHOT)
        return await count_in_snapshot(connection, excluded)


async def count_in_snapshot(connection: AsyncConnection, excluded: str = "") -> dict[str, int]:
    """Rows of each table but one, in the transaction of the connection."""
    counts = {}
    for schema, name in await (await connection.execute(TABLES, [excluded])).fetchall():
        query = sql.SQL("SELECT count(*) FROM {}").format(sql.Identifier(schema, name))
        row = await (await connection.execute(query)).fetchone()
        counts[name if schema == "public" else f"{schema}.{name}"] = int(row[0]) if row else 0
    return counts


@contextmanager
def service_file(addresses: Mapping[str, str]) -> Iterator[Path]:
    """A file of libpq's with addresses by name."""
    with tempfile.TemporaryDirectory(prefix=SERVICE_PREFIX) as folder:
        file = Path(folder, "pg_service.conf")
        file.touch(mode=0o600)
        lines = []
        for name, conninfo in addresses.items():
            lines.append(f"[{name}]")
            lines += [f"{key}={value}" for key, value in conninfo_to_dict(conninfo).items()]
        file.write_text("\n".join(lines) + "\n", encoding="utf-8")
        yield file


@dataclass(frozen=True, slots=True)
class ClientProgram:
    command: Sequence[str]
    environment: Mapping[str, str]

    async def start(self, **files: Any) -> Process:
        return await anyio.open_process(
            self.command, stderr=subprocess.PIPE, env=self.environment, **files
        )


def client_program(
    name: str, server: Embedded | None, services: Path, arguments: Sequence[str]
) -> ClientProgram:
    folder = server.programs if server else find_programs()
    path = shutil.which(name, path=str(folder) if folder else None)
    if path is None:
        raise DatabaseError(
            f"{name} was not found: install the client programs of PostgreSQL, in the version of "
            "the servers or newer"
        )
    # Beside a managed server PGPASSFILE, PGSSLROOTCERT and the like are the operator's.
    environment = dict(program_environment() if server else os.environ)
    return ClientProgram(
        [path, *arguments], {**environment, "PGSERVICEFILE": str(services), "LC_ALL": "C"}
    )
