"""Rules that are kept in the database."""

import pytest

from config.access import Rule
from registry.access.access_feed import CHANNEL
from registry.access.policies import Policies, PolicyChanged, TooManyRules, stored_rules
from registry.database.postgres import Database, borrow
from tests.fixtures_database import HOST

pytestmark = pytest.mark.anyio

OTHER = "00000000-0000-0000-0000-000000000002"
RULE = Rule("deny", tools=("pay",), destructive=True, when="arguments.amount > 1", reason="no")


@pytest.fixture
def policies(database: Database) -> Policies:
    return Policies(database.pool, HOST)


async def test_a_rule_is_read_as_written(policies: Policies) -> None:
    made = await policies.put("one", RULE)
    assert (made.rule, made.version) == (RULE, 1)
    assert await policies.get("one") == made
    assert [one.name for one in await policies.all()] == ["one"]
    assert (await policies.put("one", Rule("allow"))).version == 2
    assert await policies.delete("one")
    assert not await policies.delete("one")
    assert await policies.get("one") is None


async def test_a_write_may_require_a_known_version(policies: Policies) -> None:
    with pytest.raises(PolicyChanged, match="is not there, not version 1"):
        await policies.put("one", RULE, 1)
    await policies.put("one", RULE, 0)
    for version in (0, 2):
        with pytest.raises(PolicyChanged, match="has version 1"):
            await policies.put("one", RULE, version)
        with pytest.raises(PolicyChanged, match="has version 1"):
            await policies.delete("one", version)
    assert (await policies.put("one", Rule("allow"), 1)).version == 2
    assert await policies.delete("one", 2)


async def test_tenants_have_rules_of_their_own(database: Database, policies: Policies) -> None:
    await policies.put("one", RULE)
    other = Policies(database.pool, OTHER)
    assert await other.all() == []
    await other.put("one", Rule("allow"))
    assert await policies.delete("one")
    assert await stored_rules(database.pool) == {OTHER: {"one": Rule("allow")}}


async def test_a_tenant_has_only_so_many_rules(database: Database, policies: Policies) -> None:
    for name in ("one", "two"):
        await policies.put(name, RULE, limit=2)
    with pytest.raises(TooManyRules, match="there are 2 stored rules, and at most 2 may be"):
        await policies.put("three", RULE, limit=2)
    assert (await policies.put("two", Rule("allow"), limit=2)).version == 2  # it is there already
    await Policies(database.pool, OTHER).put("three", RULE, limit=2)


@pytest.mark.parametrize(
    ("said", "read"),
    [
        ('{"effect": "deny", "tools": ["pay"], "moon": "full"}', Rule("deny", tools=("pay",))),
        ('{"effect": "allow", "moon": "full"}', Rule("allow", when="false")),
        ('{"effect": "perhaps", "tools": ["pay"]}', Rule("deny")),
    ],
    ids=["deny", "allow", "unheard"],
)
async def test_unreadable_rules_of_newer_releases_never_allow(
    database: Database, policies: Policies, said: str, read: Rule
) -> None:
    await policies.put("one", RULE)
    async with borrow(database.pool) as connection:
        await connection.execute("UPDATE policy_rule_t SET rule = %s::jsonb", [said])
    assert (await stored_rules(database.pool))[HOST]["one"] == read


async def test_gateways_are_told_of_each_write(database: Database, policies: Policies) -> None:
    async with borrow(database.pool) as connection:
        await connection.execute(f"LISTEN {CHANNEL}")
        await connection.commit()
        await policies.put("one", RULE)
        await policies.delete("one")
        told = [notice.payload async for notice in connection.notifies(timeout=30, stop_after=2)]
    assert told == ["policy", "policy"]
