"""Stored rules as they are read: each tenant's when they have changed."""

import pytest

from config.access import Rule
from gateway.policy.visibility import PolicyView
from registry.access.policies import Policies
from registry.database.postgres import Database
from tests.fixtures_database import HOST
from tests.gateway.policy.oracle import usual

pytestmark = pytest.mark.anyio

OTHER = "00000000-0000-0000-0000-0000000000bb"
BOMB = "arguments.l.all(a, arguments.l.all(b, arguments.l.map(c, arguments.l) == []))"


async def test_only_the_rules_of_tenants_that_changed_are_compiled_again(
    database: Database,
) -> None:
    policy_view = PolicyView(usual(), 50)
    mine, theirs = Policies(database.pool, HOST), Policies(database.pool, OTHER)
    await mine.put("one", Rule("deny", when="arguments.a == 1"))
    await policy_view.load(database.pool)
    before = policy_view.engine(HOST)
    await theirs.put("bomb", Rule("deny", when=BOMB))
    await policy_view.load(database.pool)
    assert policy_view.engine(HOST) is before
    [bomb] = policy_view.engine(OTHER).rules
    assert "it may take too long" in (bomb.broken or "")
    await theirs.delete("bomb")
    await mine.delete("one")
    await policy_view.load(database.pool)
    assert policy_view.engine(OTHER).rules == policy_view.engine(HOST).rules == ()
