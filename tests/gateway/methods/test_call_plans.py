"""Which guards stand before a call, and when that is decided anew."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from config.access import Rule
from gateway.context import Context, Identity, Principal
from gateway.interfaces import ToolCall
from gateway.methods.call_plans import CallPlans
from gateway.middleware.policy_guard import PolicyGuard, arguments_for_approvers
from gateway.policy.approval_gate import ApprovalGate
from gateway.policy.visibility import PolicyView
from registry.catalog.catalog import Catalog
from registry.catalog.catalogs import Catalogs
from schemas.errors import Denied
from schemas.mcp.revisions import JSON_RPC
from tests.gateway.policy.oracle import tool, usual

pytestmark = pytest.mark.anyio

PAY = tool("pay")
DENY = {"no": Rule("deny", tools=("pay",))}
OTHERS = Principal("bob", "another tenant")


class Upstream:
    async def call(self, *_call):
        return "paid"


def judging_of(policy_view, *, audited):
    approvals = ApprovalGate(usual(), lambda: None, arguments_for_approvers)
    return PolicyGuard(policy_view, approvals, audited=audited)


def plans_of(policy_view, *, audited=False):
    judging = judging_of(policy_view, audited=audited)
    return CallPlans({type(PAY.binding): Upstream()}, [judging], policy_view)


async def execute_payment(plans, catalog, principal=None):
    identity = Identity(principal or Principal("ada", "t"), verified=True)
    call = ToolCall(PAY, None, {}, Context(identity, JSON_RPC, "r-1"))
    return await plans.plan(catalog, PAY).execute(call)


def test_a_plan_is_made_once_for_each_catalog():
    plans, catalog, later = plans_of(PolicyView(usual(), 50)), Catalog([PAY]), Catalog([PAY])
    plan = plans.plan(catalog, PAY)
    assert plans.of(catalog) == {"pay": plan}
    assert plans.of(later) == {}
    assert plans.plan(catalog, PAY) is plan


async def test_a_rule_that_is_stored_applies_to_the_next_call():
    policy_view, catalog = PolicyView(usual(), 50), Catalog([PAY])
    plans = plans_of(policy_view)
    assert await execute_payment(plans, catalog) == "paid"
    policy_view.apply("t", DENY)
    with pytest.raises(Denied):
        await execute_payment(plans, catalog)
    assert await execute_payment(plans, catalog, OTHERS) == "paid"
    policy_view.apply("t", {})
    assert await execute_payment(plans, catalog) == "paid"


async def test_a_rule_of_new_settings_applies_to_the_next_call_of_every_tenant():
    policy_view, catalog = PolicyView(usual(), 50), Catalog([PAY])
    plans = plans_of(policy_view)
    assert await execute_payment(plans, catalog) == "paid"
    policy_view.reconfigure(replace(usual(), rules=DENY), 50)
    for principal in (None, OTHERS):
        with pytest.raises(Denied):
            await execute_payment(plans, catalog, principal)


def test_calls_pass_no_policy_while_no_tenant_has_a_rule():
    policy_view = PolicyView(usual(), 50)
    judging = PolicyGuard(
        policy_view, ApprovalGate(usual(), lambda: None, arguments_for_approvers), audited=False
    )
    assert not judging.applies(PAY, None)
    policy_view.apply("another tenant", DENY)
    assert judging.applies(PAY, None)


def test_audited_calls_pass_the_policy_whose_decision_is_recorded():
    policy_view = PolicyView(usual(), 50)
    judging = PolicyGuard(
        policy_view, ApprovalGate(usual(), lambda: None, arguments_for_approvers), audited=True
    )
    assert judging.applies(PAY, None)


class Lists:
    """Lists of callers, each of whom sees a catalog of their own."""

    def __init__(self):
        self.catalogs = Catalogs()
        self.seen = {}

    def catalog(self, context):
        key = (context.principal.id, context.toolset, self.catalogs.version)
        return self.seen.setdefault(key, Catalog([PAY]))


CALLERS = [Identity(Principal(name, "t"), verified=True) for name in ("ada", "ada", "bob")]


@given(
    st.lists(
        st.one_of(
            st.tuples(st.sampled_from(CALLERS), st.sampled_from([None, "one"])),
            st.sampled_from(["catalog", "rules"]),
        ),
        max_size=20,
    )
)
def test_callers_are_given_the_catalog_and_the_plans_that_are_theirs_now(steps):
    policy_view, lists = PolicyView(usual(), 50), Lists()
    plans = plans_of(policy_view)
    for step in steps:
        if step == "catalog":
            lists.catalogs.version += 1
        elif step == "rules":
            policy_view.apply("t", DENY if policy_view.allows_all else {})
        else:
            identity, toolset = step
            context = Context(identity, JSON_RPC, "r-1", toolset=toolset)
            catalog, found = plans.of_caller(context, lists)
            assert catalog is lists.catalog(context)
            assert found is plans.of(catalog)
            plans.plan(catalog, PAY)
