"""Errors of PostgreSQL explained to operators in a sentence; without the statement, the values in
it, and the password."""

import re

import psycopg

# A refused connection has no SQLSTATE, only the message of the server or libpq.
_REFUSED = (
    (r"password authentication failed for user|no password supplied",
     "the password for the user in database.url is wrong or missing"),
    (r"no pg_hba\.conf entry",
     "the server lets this user in from here neither with nor without TLS: see its pg_hba.conf"),
    (r'role "([^"]*)" does not exist',
     "the server has no user {0}: create it (CREATE ROLE ... LOGIN), or name another one"),
    (r'role "([^"]*)" is not permitted to log in',
     "the user {0} may not log in: ALTER ROLE ... LOGIN"),
    (r'database "([^"]*)" does not exist',
     "the server has no database {0}: create it (CREATE DATABASE), or name another one"),
    (r'permission denied for database "?([^"\s]*)',
     "the user may not connect to the database {0}: GRANT CONNECT ON DATABASE"),
    (r"too many (?:clients|connections)|remaining connection slots",
     "the server has no connection left: raise its max_connections, or lower database.pool_max"),
)  # fmt: skip
# By SQLSTATE, or by its class, the first two characters.
_FAILED = {
    "42501": "the database user lacks a right: {said}. An administrator can GRANT it; `toolgate "
    "migrate` needs CREATE on the database and its schema",
    "25006": "the database takes no changes: {said}. database.url leads to a standby, perhaps",
    "42P01": "the tables are not those of this release: {said}. Run `toolgate migrate`",
    "42703": "the tables are not those of this release: {said}. Run `toolgate migrate`",
    "28": "the server does not let this user in: {said}. Check database.url",
    "3D": "there is no such database: {said}. Check database.url",
    "53": "the database server lacks something: {said}",
    "57": "the database server stopped or cut the work off: {said}. Try again",
    "08": "the connection to the database was lost: {said}. Try again",
}


def refusal(text: str) -> str | None:
    """The reason for a refused connection, from the server's message; None: unknown."""
    for pattern, meaning in _REFUSED:
        if found := re.search(pattern, text):
            return meaning.format(*found.groups())
    return None


def failure(error: psycopg.Error) -> str:
    """The reason that a statement failed."""
    said = error.diag.message_primary or str(error).partition("\n")[0]
    state = error.sqlstate or ""
    meaning = _FAILED.get(state) or _FAILED.get(state[:2])
    return meaning.format(said=said) if meaning else f"the database failed: {said}"
