"""Keys of machines: made, listed, revoked; and what a gateway knows of them."""

from datetime import UTC, datetime, timedelta

import anyio
import pytest

from registry.access.api_keys import ApiKey, ApiKeys, KeyExists, KeyRefused, known_keys, note_uses
from registry.access.secret_digests import secret_digest
from registry.database.postgres import Database, borrow
from registry.database.tenants import lock_tenant
from tests.fixtures_database import HOST

pytestmark = pytest.mark.anyio

OTHER = "00000000-0000-0000-0000-000000000002"
SOON = datetime.now(UTC) + timedelta(hours=1)


async def test_a_key_from_its_making_to_its_revocation(database: Database) -> None:
    keys = ApiKeys(database.pool, HOST)
    key, text = await keys.create("deploy", None, ["a.r", "a.w", "a.r"], ["ops"], expires=SOON)
    assert (key.principal, key.scopes, key.roles) == ("key:deploy", ("a.r", "a.w"), ("ops",))
    prefix, id_, secret = text.split("_", 2)
    assert (prefix, id_, len(id_), len(secret)) == ("tgk", key.id, 12, 43)
    assert await keys.all() == [key]
    assert await keys.get(key.id) == key
    (known,) = await known_keys(database.pool)
    assert (known.tenant, known.key, known.digest) == (HOST, key, secret_digest(secret))
    assert secret.encode() not in known.digest

    await note_uses(database.pool, {(HOST, key.id): 1_800_000_000.0, (HOST, "gone"): 1.0})
    # of a node that was slower to write
    await note_uses(database.pool, {(HOST, key.id): 1_700_000_000.0})
    used = await keys.get(key.id)
    assert used is not None
    assert used.last_used == datetime.fromtimestamp(1_800_000_000, UTC)

    assert await keys.revoke(key.id)
    assert not await keys.revoke(key.id)
    assert await known_keys(database.pool) == []
    (gone,) = await keys.all()
    assert gone.revoked is not None
    again, other = await keys.create("deploy")  # a name is free again
    assert again.id != key.id
    assert other != text
    assert [one.id for one in await keys.all()] == [key.id, again.id]


async def test_a_key_named_like_a_revoked_key_is_a_new_principal(database: Database) -> None:
    keys = ApiKeys(database.pool, HOST)
    first, _ = await keys.create("deploy")
    await keys.revoke(first.id)
    second, _ = await keys.create("deploy")
    await keys.revoke(second.id)
    third, _ = await keys.create("deploy")
    assert first.principal == "key:deploy"
    assert second.principal == f"key:deploy#{second.id}"
    assert len({one.principal for one in (first, second, third)}) == 3
    assert await keys.get(second.id) is not None
    assert [one.principal for one in await keys.all()][1] == second.principal


async def test_nobody_is_given_the_principal_of_another_key_by_a_name(database: Database) -> None:
    keys = ApiKeys(database.pool, HOST)
    await keys.create("a", "key:robot")
    named, _ = await keys.create("robot")
    assert named.principal != "key:robot"


async def test_a_key_knows_its_makers_of_whom_there_may_be_so_many(database: Database) -> None:
    keys = ApiKeys(database.pool, HOST)
    key, _ = await keys.create("deploy", makers=["key:b", "ada", "ada"])
    assert key.makers == ("ada", "key:b")
    (known,) = await known_keys(database.pool)
    assert known.key.makers == key.makers
    with pytest.raises(KeyRefused, match="too often"):
        await keys.create("long", makers=map(str, range(21)))


async def test_one_tenant_has_nothing_to_do_with_the_keys_of_another(database: Database) -> None:
    ours, theirs = ApiKeys(database.pool, HOST), ApiKeys(database.pool, OTHER)
    key, _ = await ours.create("deploy")
    await theirs.create("deploy", "robot")
    assert await theirs.get(key.id) is None
    assert not await theirs.revoke(key.id)
    assert [one.principal for one in await theirs.all()] == ["robot"]
    assert {known.tenant for known in await known_keys(database.pool)} == {HOST, OTHER}


async def test_invalid_keys_are_refused(database: Database) -> None:
    keys = ApiKeys(database.pool, HOST)
    await keys.create("deploy")
    with pytest.raises(KeyExists, match="'deploy' already"):
        await keys.create("deploy")
    past = datetime.now(UTC) - timedelta(seconds=1)
    cases: list[tuple[tuple[object, ...], str]] = [
        (("",), "is no name"),
        ((" ",), "is no name"),
        (("a\nb",), "is no name"),
        (("a" * 127,), "is no name"),
        (("a", "b" * 256), "is no principal"),
        (("a", None, ["x y"]), "is no scope"),
        (("a", None, [], ['x"']), "is no role"),
        (("a", None, ["x"] * 101), "at most 100 scopes"),
    ]
    for arguments, expected in cases:
        with pytest.raises(KeyRefused, match=expected):
            await keys.create(*arguments)  # type: ignore[arg-type]
    for expires, expected in (
        (past, "a time to come"),
        (datetime(2999, 1, 1), "with its zone"),  # noqa: DTZ001
    ):
        with pytest.raises(KeyRefused, match=expected):
            await keys.create("a", expires=expires)
    assert len(await keys.all()) == 1


async def test_a_rotated_key_keeps_its_principal(database: Database) -> None:
    """A rotation keeps the identity, and both keys are valid for the overlap (mending 41)."""
    keys = ApiKeys(database.pool, HOST)
    first, _ = await keys.create("ann", None, ["a.r"], ["ops"], expires=SOON, makers=["eve"])
    second, text = await keys.rotate(first.id, timedelta(minutes=5), makers=["bob"])
    assert (second.name, second.principal) == ("ann", "key:ann")
    assert (second.scopes, second.roles, second.makers) == (("a.r",), ("ops",), ("bob", "eve"))
    assert text.startswith(f"tgk_{second.id}_")
    assert second.expires is not None
    assert second.expires >= SOON
    valid = {known.key.id for known in await known_keys(database.pool)}
    assert valid == {first.id, second.id}
    earlier = await keys.get(first.id)
    assert earlier is not None
    assert earlier.expires is not None
    assert earlier.expires < SOON
    assert earlier.name == f"ann (earlier {first.id})"
    third, _ = await keys.rotate(second.id, timedelta(days=9))
    assert third.principal == "key:ann"
    again = await keys.get(second.id)
    assert again is not None
    assert again.expires == second.expires  # an overlap prolongs nothing


async def test_rotation_sets_an_expiry_on_an_endless_key(database: Database) -> None:
    keys = ApiKeys(database.pool, HOST)
    first, _ = await keys.create("n" * 126)
    second, _ = await keys.rotate(first.id, timedelta(0))
    assert second.expires is None
    assert [known.key.id for known in await known_keys(database.pool)] == [second.id]
    with pytest.raises(KeyRefused, match="no valid key"):
        await keys.rotate(first.id, timedelta(minutes=1))
    with pytest.raises(KeyRefused, match="no valid key"):
        await ApiKeys(database.pool, OTHER).rotate(second.id, timedelta(minutes=1))


async def test_of_rotations_at_once_one_succeeds(database: Database) -> None:
    """A rotation that waited for its turn finds the key as the one before has left it."""
    keys = ApiKeys(database.pool, HOST)
    first, _ = await keys.create("twice")
    outcomes: list[ApiKey | KeyRefused] = []

    async def rotate() -> None:
        try:
            key, _ = await keys.rotate(first.id, timedelta(0))
        except KeyRefused as refused:
            outcomes.append(refused)
        else:
            outcomes.append(key)

    async with (
        anyio.create_task_group() as tasks,
        borrow(database.pool) as connection,
        connection.transaction(),
    ):
        await lock_tenant(connection, HOST)
        for _ in range(4):
            tasks.start_soon(rotate)
        await waits(database, 4)
    assert sorted(type(outcome).__name__ for outcome in outcomes) == ["ApiKey"] + ["KeyRefused"] * 3


async def test_a_key_that_is_revoked_meanwhile_is_not_rotated(database: Database) -> None:
    keys = ApiKeys(database.pool, HOST)
    first, _ = await keys.create("stolen")
    revoking = "UPDATE api_key_t SET revoked_ts = current_timestamp WHERE key_id = %s"
    async with borrow(database.pool) as connection, anyio.create_task_group() as tasks:
        refused = anyio.Event()

        async def rotate() -> None:
            with pytest.raises(KeyRefused, match="no valid key"):
                await keys.rotate(first.id, timedelta(days=1))
            refused.set()

        async with connection.transaction():
            await connection.execute(revoking, [first.id])
            tasks.start_soon(rotate)
            await waits(database)
        with anyio.fail_after(5):
            await refused.wait()
    assert not await known_keys(database.pool)


async def waits(database: Database, number: int = 1) -> None:
    """Wait until so many statements wait for locks."""
    with anyio.fail_after(5):
        while True:
            async with borrow(database.pool) as connection:
                blocked = await connection.execute(
                    "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
                    " AND datname = current_database()"
                )
                if blocked.rowcount >= number:
                    return
