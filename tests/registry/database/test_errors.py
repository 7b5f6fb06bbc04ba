"""What errors of PostgreSQL mean, by their SQLSTATE, or by what the server says of a connection."""

import psycopg
import pytest

from registry.database.postgres import failure, refusal

errors = psycopg.errors


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (errors.InsufficientPrivilege("permission denied for table tool_t"), "lacks a right: perm"),
        (errors.ReadOnlySqlTransaction("read-only"), "takes no changes: read-only"),
        (errors.UndefinedTable("no tool_t"), "Run `toolgate migrate`"),
        (errors.UndefinedColumn("no origin"), "Run `toolgate migrate`"),
        (errors.InvalidPassword("no"), "does not let this user in: no"),
        (errors.InvalidCatalogName("no"), "there is no such database: no"),
        (errors.LockNotAvailable("timeout"), "holds a lock that the statement needs: timeout"),
        (errors.DiskFull("full"), "lacks something: full"),
        (errors.AdminShutdown("bye"), "stopped or cut the work off: bye"),
        (errors.ConnectionFailure("gone"), "was lost: gone"),
        (errors.DivisionByZero("by zero\nSTATEMENT secret"), "the database failed: by zero"),
    ],
)
def test_a_failure_is_a_sentence_without_its_statement(error: psycopg.Error, expected: str) -> None:
    assert expected in failure(error)
    assert "STATEMENT" not in failure(error)


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ('FATAL: password authentication failed for user "ada"', "the password for the user"),
        ("fe_sendauth: no password supplied", "the password for the user"),
        ('FATAL: no pg_hba.conf entry for host "::1", user "ada"', "pg_hba.conf"),
        ('FATAL: role "ada" does not exist', "no user ada"),
        ('FATAL: role "ada" is not permitted to log in', "ada may not log in"),
        ('FATAL: database "shop" does not exist', "no database shop"),
        ('FATAL: permission denied for database "shop"', "may not connect to the database shop"),
        ("FATAL: sorry, too many clients already", "no connection left"),
    ],
)
def test_a_refused_connection_suggests_a_change(said: str, expected: str) -> None:
    assert expected in (refusal(said) or "")


def test_unknown_errors_get_no_suggestion() -> None:
    assert refusal("Connection refused") is None
