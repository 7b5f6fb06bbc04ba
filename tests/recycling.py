"""Databases that tests use one after the other, each as if it were new.

One that a test has left is emptied row by row. Whatever it changed besides rows (tables, indexes,
functions), or rows that every new database has, or very many rows: then it is dropped, and the next
test gets a new one.
"""

import itertools
import os
from collections.abc import Callable
from dataclasses import dataclass

import psycopg

from tests.backends import idle_backends

USES = 60  # of one database: dead rows and catalogs grow
TRIES = 20  # to end connections, of which some are about to begin or to end by themselves
ROWS = 5000  # that a test may leave; more are dropped faster than deleted

_numbers = itertools.count(1)

# Of all that is no row: names of relations with their files, functions, triggers, settings.
_SHAPE = """
SELECT md5(concat(
    (SELECT string_agg(concat(oid, relname, relkind, reltuples > 500), ',' ORDER BY oid)
       FROM pg_class WHERE relnamespace = 'public'::regnamespace),
    (SELECT string_agg(md5(prosrc), ',' ORDER BY oid)
       FROM pg_proc WHERE pronamespace = 'public'::regnamespace AND prokind <> 'a'
        AND probin IS NULL),
    (SELECT string_agg(concat(tgrelid, tgname, tgenabled), ',' ORDER BY oid) FROM pg_trigger),
    (SELECT string_agg(setconfig::text, ',' ORDER BY setrole) FROM pg_db_role_setting
      WHERE setdatabase = (SELECT oid FROM pg_database WHERE datname = current_database())))
)"""
_TABLES = """
SELECT c.oid::regclass::text FROM pg_class c
 WHERE c.relnamespace = 'public'::regnamespace AND c.relkind = 'r'
   AND NOT EXISTS (SELECT 1 FROM pg_depend d WHERE d.objid = c.oid AND d.deptype = 'e')
 ORDER BY 1"""
_OTHERS = """
  FROM pg_stat_activity
 WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'
   AND pid <> ALL(%s)
"""
# False for what has just ended by itself: only the list tells whether all have ended.
_TERMINATE = f"SELECT bool_and(pg_terminate_backend(pid, 20000)) {_OTHERS}"
_LEFT = f"SELECT count(*) {_OTHERS}"
_RESTART = """
SELECT count(setval(format('%I.%I', schemaname, sequencename)::regclass, start_value, false))
  FROM pg_sequences WHERE last_value IS NOT NULL
"""


@dataclass(slots=True)
class Recycled:
    name: str
    url: str
    shape: str
    connection: psycopg.Connection  # kept: a new one would read all catalogs again
    uses: int = 0


class Recycling:
    def __init__(
        self, url: Callable[[str], str], execute: Callable[[str], None], template: str
    ) -> None:
        """`url` of a database by its name; `execute` runs a statement in another one."""
        self._url = url
        self._execute = execute
        self._template = template
        self._free: list[Recycled] = []
        self._tables: list[str] = []
        self._kept: dict[str, str] = {}  # tables that have rows when new, and what is in them

    def take(self) -> Recycled:
        database = self._free.pop() if self._free else self._make()
        database.uses += 1
        return database

    def give_back(self, database: Recycled) -> None:
        if database.uses < USES and self._is_empty(database):
            self._free.append(database)
        else:
            self._drop(database)

    def close(self) -> None:
        for database in self._free:
            self._drop(database)

    def _make(self) -> Recycled:
        name = f"test_{os.getpid()}_r{next(_numbers)}"
        self._execute(f"CREATE DATABASE {name} TEMPLATE {self._template} STRATEGY file_copy")
        url = self._url(name)
        connection = psycopg.connect(url, autocommit=True)
        idle_backends.allow(name)
        connection.execute("SET session_replication_role = replica; SET lock_timeout = '9s'")
        if not self._tables:
            self._tables = [row[0] for row in connection.execute(_TABLES)]
            filled = [one for one in self._tables if _count(connection, one, 1)]
            self._kept = {one: _content(connection, one) for one in filled}
        return Recycled(name, url, _value(connection, _SHAPE), connection)

    def _drop(self, database: Recycled) -> None:
        idle_backends.forbid(database.name)
        database.connection.close()
        self._execute(f"DROP DATABASE {database.name} WITH (FORCE)")

    def _is_empty(self, database: Recycled) -> bool:
        connection = database.connection
        try:
            return (
                any(_is_alone(connection) for _ in range(TRIES))
                and _value(connection, _SHAPE) == database.shape
                and all(_content(connection, one) == was for one, was in self._kept.items())
                and self._empty(connection)
            )
        except psycopg.Error:  # a test that stops the server, or ends all its connections
            return False

    def _empty(self, connection: psycopg.Connection) -> bool:
        """Delete all rows, unless they are too many."""
        emptied = [one for one in self._tables if one not in self._kept]
        query = " UNION ALL ".join(
            f"SELECT '{one}' WHERE EXISTS (SELECT 1 FROM {one})" for one in emptied
        )
        # Prepared: to plan it takes ten times as long as to run it.
        filled = [row[0] for row in connection.execute(query.encode(), prepare=True)]
        if sum(_count(connection, one, ROWS) for one in filled) >= ROWS:
            return False
        for one in filled:
            connection.execute(f"DELETE FROM {one}".encode())
        connection.execute(_RESTART)
        return True


def _is_alone(connection: psycopg.Connection) -> bool:
    """End all other connections to the database but idle ones; whether there are none now."""
    idle = idle_backends.pids()
    _value(connection, _TERMINATE, idle)
    return _value(connection, _LEFT, idle) == "0"


def _count(connection: psycopg.Connection, table: str, most: int) -> int:
    return int(
        _value(connection, f"SELECT count(*) FROM (SELECT 1 FROM {table} LIMIT {most}) AS few")
    )


def _content(connection: psycopg.Connection, table: str) -> str:
    return _value(
        connection, f"SELECT md5(string_agg(t::text, ',' ORDER BY t::text)) FROM {table} t"
    )


def _value(connection: psycopg.Connection, query: str, *parameters: object) -> str:
    row = connection.execute(query.encode(), parameters or None, prepare=True).fetchone()
    return str(row[0]) if row else ""
