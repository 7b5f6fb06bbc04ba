"""Revocations of tokens: added, listed, taken back, and forgotten when they are of no use."""

from datetime import UTC, datetime, timedelta

import pytest

from registry.access.revocations import (
    Revocation,
    RevocationRefused,
    Revocations,
    load_revocations,
    purge,
)
from registry.database.postgres import Database
from tests.fixtures_database import HOST

pytestmark = pytest.mark.anyio

OTHER = "00000000-0000-0000-0000-000000000002"
NOW = datetime.now(UTC)
SOON, LATER = NOW + timedelta(hours=1), NOW + timedelta(hours=2)


async def test_revocations_of_all_tenants_are_loaded(database: Database) -> None:
    ours, theirs = Revocations(database.pool, HOST), Revocations(database.pool, OTHER)
    token = Revocation("abc", None, issued_before=None, expires=SOON, reason="stolen")
    await ours.add(token)
    for before in (NOW, LATER, SOON):
        await theirs.add(Revocation(None, "ada", issued_before=before, expires=SOON))
    assert await ours.all() == [token]
    assert await ours.get(token.id) == token
    assert [one.issued_before for one in await theirs.all()].count(LATER) == 1
    known = await load_revocations(database.pool)
    assert known.tokens == {(HOST, "abc")}
    assert known.subjects == {(OTHER, "ada"): LATER.timestamp()}

    assert not await theirs.remove(token.id)
    assert not await ours.remove("no id")
    assert await ours.remove(token.id)
    assert not await ours.remove(token.id)
    assert (await load_revocations(database.pool)).tokens == set()


async def test_a_revocation_ends_with_the_tokens(database: Database) -> None:
    ours = Revocations(database.pool, HOST)
    await ours.add(Revocation("abc", None, issued_before=None, expires=SOON))
    await ours.add(Revocation("kept", None, issued_before=None, expires=SOON))
    async with database.pool.connection() as connection:
        await connection.execute(
            "UPDATE revocation_t SET expires_ts = current_timestamp WHERE jti = 'abc'"
        )
    assert (await load_revocations(database.pool)).tokens == {(HOST, "kept")}
    assert [one.jti for one in await ours.all()] == ["kept"]
    await purge(database.pool)
    async with database.pool.connection() as connection:
        found = await connection.execute("SELECT jti FROM revocation_t")
        assert await found.fetchall() == [("kept",)]


FIELDS = ("jti", "subject", "issued_before", "expires", "reason")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ((None, None, None, SOON), "expected a jti, or a subject"),
        (("a", "ada", NOW, SOON), "expected a jti, or a subject"),
        ((None, "ada", None, SOON), "the time before which"),
        (("a", None, NOW, SOON), "no time beside a jti"),
        (("", None, None, SOON), "1 to 255 characters as jti"),
        ((None, "a" * 256, NOW, SOON), "1 to 255 characters as subject"),
        (("a\0", None, None, SOON), "as jti"),
        (("a", None, None, NOW - timedelta(days=1)), "a time to come"),
        (("a", None, None, SOON, "x" * 256), "as reason"),
    ],
)
async def test_invalid_revocations_are_refused(given: tuple[object, ...], expected: str) -> None:
    with pytest.raises(RevocationRefused, match=expected):
        await Revocations(None, HOST).add(Revocation(**dict(zip(FIELDS, given, strict=False))))  # type: ignore[arg-type]
