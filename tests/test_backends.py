"""Backends that connections of tests use one after the other."""

import psycopg
import pytest

from config.settings import DatabaseSettings

STATE = """
SELECT pg_backend_pid(), current_setting('statement_timeout'), current_user,
    (SELECT count(*) FROM pg_prepared_statements), (SELECT count(*) FROM pg_listening_channels()),
    (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()),
    to_regclass('pg_temp.left_over') IS NULL
"""
SESSION = (
    *("SET statement_timeout = 12345", "PREPARE left_over AS SELECT 1", "LISTEN left_over"),
    *("SELECT pg_advisory_lock(12345)", "CREATE TEMP TABLE left_over ()", "SET ROLE pg_monitor"),
)


def connect(settings: DatabaseSettings) -> psycopg.Connection:
    return psycopg.connect(settings.url, autocommit=True)


def state_of(connection: psycopg.Connection) -> tuple[object, ...]:
    return connection.execute(STATE).fetchone() or ()


def test_backend_is_used_again_without_the_state_of_its_session(
    database_settings: DatabaseSettings,
) -> None:
    with connect(database_settings) as connection:
        state = state_of(connection)
        for statement in SESSION:
            connection.execute(statement.encode())
        assert state_of(connection) == (state[0], "12345ms", "pg_monitor", 1, 1, 1, False)
    assert connection.closed
    with pytest.raises(psycopg.OperationalError, match="closed"):
        connection.execute("SELECT 1")
    with connect(database_settings) as connection:
        assert state_of(connection) == state


def test_backend_in_a_transaction_ends_with_its_connection(
    database_settings: DatabaseSettings,
) -> None:
    connection = connect(database_settings)
    pid = connection.info.backend_pid
    connection.execute("BEGIN")
    connection.close()
    with connect(database_settings) as connection:
        assert connection.info.backend_pid != pid


def test_idle_backend_that_the_server_has_ended_is_not_used(
    database_settings: DatabaseSettings,
) -> None:
    with connect(database_settings) as first, connect(database_settings) as second:
        pid = first.info.backend_pid
        first.close()
        second.execute("SELECT pg_terminate_backend(%s, 30000)", [pid])
        with connect(database_settings) as third:
            assert third.info.backend_pid != pid


def test_databases_of_a_single_test_have_no_idle_backends(
    empty_settings: DatabaseSettings,
) -> None:
    pids = set()
    for _ in range(2):
        with connect(empty_settings) as connection:
            pids.add(connection.info.backend_pid)
    assert len(pids) == 2
