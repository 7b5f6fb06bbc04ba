"""The decisions of the engine, and what of a catalog is hidden, against a second way to work them
out."""

import dataclasses
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Raw
from msgspec.structs import replace

from config.access import Policy, Rule
from gateway.context import AuditDraft, Context, Identity, Principal, RunMark
from gateway.policy.engine import (
    CLAIMS,
    DEFAULT,
    DESTRUCTIVE,
    TIERS,
    CallerStanding,
    CompiledRule,
    Engine,
    Subject,
    Values,
)
from gateway.policy.explain import explain
from gateway.policy.visibility import (
    CALLED,
    JUDGED,
    PREPARED,
    TOOLSETS,
    PolicyView,
    RuleIndex,
    flags,
)
from registry.catalog.catalog import Catalog
from schemas.binding import WingBinding
from schemas.errors import InvalidParams
from schemas.mcp.revisions import JSON_RPC
from schemas.mcp.snapshot import ItemKind, SnapshotItem
from schemas.tool import Annotations, Tool
from tests.gateway.policy import oracle
from tests.gateway.policy.oracle import TENANT, tool, usual
from tests.properties import examples

ADA = Principal("ada", TENANT, roles=frozenset({"finance"}), mark="1")
BOB = Principal("bob", TENANT, mark="2")


def policy_of(default: str = "allow", **rules: Rule) -> Policy:
    return replace(usual(), default=default, rules=rules)


def nest_lists(levels: int) -> Any:
    deep: Any = []
    for _ in range(levels):
        deep = [deep]
    return deep


def context(principal: Principal = ADA, toolset: str | None = None) -> Context:
    return Context(Identity(principal, verified=True), JSON_RPC, "1", toolset=toolset)


def decide_call(policy: Policy, one: Tool, arguments: Any, principal: Principal = ADA) -> Any:
    return PolicyView(policy, 50).decide(context(principal), one, arguments)


@settings(max_examples=examples(100), deadline=None)
@given(
    policy=oracle.policies(),
    principal=oracle.principals(),
    toolset=st.sampled_from((None, "front")),
    tools=oracle.tools(),
    arguments=st.sampled_from(oracle.ARGUMENTS),
)
def test_engine_and_views_decide_as_the_rules_say(
    policy: Policy, principal: Principal, toolset: str | None, tools: list[Tool], arguments: Any
) -> None:
    policy_view, catalog = PolicyView(policy, 50), Catalog(tools)
    asking = context(principal, toolset)
    view = policy_view.view(asking, catalog, catalog)
    for one in tools:
        wanted = oracle.expect_outcome(policy, principal, toolset, one, arguments)
        found = policy_view.decide(asking, one, arguments)
        assert found.effect == wanted.effect, one.name
        assert (view.by_id(one.id) is not None) == wanted.visible, one.name
        told = explain(
            policy_view.engine(TENANT),
            principal,
            toolset=toolset,
            subject=Subject.of(one),
            arguments=arguments,
            levels=50,
        )
        assert (told.effect, told.visible) == (wanted.effect, wanted.visible)
        if not wanted.visible:
            assert found.effect == "deny"


@settings(max_examples=examples(60), deadline=None)
@given(policy=oracle.policies(), principal=oracle.principals(), tools=oracle.tools())
def test_hidden_tools_agree_with_single_verdicts(
    policy: Policy, principal: Principal, tools: list[Tool]
) -> None:
    """Of one that calls another tool later, by rules about itself (mending 36)."""
    later = WingBinding("pets", "later", forwards="skillName")
    tools = [*tools, oracle.tool("pay_later", binding=later)]
    kinds: tuple[ItemKind, ...] = ("prompt", "resource", "template")
    items = [
        SnapshotItem(kind, name, f"{name}_{kind}", Raw(b"{}"), source)
        for kind in kinds
        for name, source in (("pay", "bank"), ("notes", "pets"), ("some_pet", "pets"))
    ]
    engine, catalog = Engine(policy, {}), Catalog(tools, items=items)
    standing = engine.standing(principal, None)
    subjects = [*map(Subject.of, catalog.tools), *map(Subject.of_item, catalog.items)]
    hidden = flags(RuleIndex(engine, catalog).hidden_entries(standing), len(subjects))
    verdicts = [engine.verdict(standing, one, forwarded=one.forwards) for one in subjects]
    assert hidden == [verdict.is_hidden for verdict in verdicts]


def test_equal_conditions_are_evaluated_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is work that each new token brings: for thousands of tools, while everybody waits."""
    policy = policy_of(own=Rule("deny", when="principal.claims.team != tool.source"))
    engine, catalog = Engine(policy, {}), Catalog([tool(f"t{number}") for number in range(50)])
    asked: list[Values | None] = []
    holds = CompiledRule.holds

    def count_evaluation(rule: CompiledRule, values: Values | None) -> bool:
        asked.append(values)
        return holds(rule, values)

    monkeypatch.setattr(CompiledRule, "holds", count_evaluation)

    def standing(team: str, mark: str) -> CallerStanding:
        claims = {"team": team, "since": mark}
        return engine.standing(Principal("ada", TENANT, claims=claims, mark=mark), None)

    RuleIndex(engine, catalog).hidden_entries(standing("bank", "m1"))
    assert len(asked) == 1
    assert standing("bank", "m1").key == standing("bank", "m2").key != standing("pets", "m3").key


def test_deny_goes_before_approve_and_that_before_allow() -> None:
    policy = policy_of(
        "deny",
        everything=Rule("allow"),
        pays=Rule("approve", tools=("pay",)),
        never=Rule("deny", when="has(arguments.amount) && arguments.amount > 100"),
    )
    pay = tool("pay")
    assert decide_call(policy, tool("notes"), {}).effect == "allow"
    assert decide_call(policy, pay, {"amount": 1}).rule == "pays"
    assert decide_call(policy, pay, {"amount": 101}).rule == "never"


@pytest.mark.parametrize(
    ("effect", "becomes"), [("deny", "deny"), ("approve", "approve"), ("allow", "deny")]
)
def test_an_expression_that_fails_never_allows(effect: Any, becomes: str) -> None:
    policy = policy_of("deny", one=Rule(effect, when="arguments.amount > 100"))
    assert decide_call(policy, tool("pay"), {"sum": 5}).effect == becomes
    assert decide_call(policy, tool("pay"), {"amount": "5"}).effect == becomes


def test_a_rule_that_another_release_wrote_never_allows() -> None:
    stored = {"a": Rule("allow", when="nobody(knows)"), "d": Rule("deny", when="nobody(knows)")}
    engine = Engine(policy_of("deny"), {"a": stored["a"]})
    verdict = engine.verdict(engine.standing(ADA, None), Subject.of(tool("pay")))
    assert verdict.is_hidden
    engine = Engine(policy_of("allow"), {"d": stored["d"]})
    verdict = engine.verdict(engine.standing(ADA, None), Subject.of(tool("pay")))
    assert (verdict.is_hidden, verdict.decision.rule) == (True, "d")


BOMB = f"[{','.join('1' * 40)}].all(a, [{','.join('1' * 40)}].all(b, arguments.l.all(c, b == c)))"


@pytest.mark.parametrize("default", ["allow", "deny"])
@pytest.mark.parametrize("effect", ["deny", "approve", "allow"])
def test_a_stored_rule_that_would_take_too_long_never_lets_more_through(
    effect: Any, default: str
) -> None:
    """One that allows decides nothing: without it, another rule or the default does."""
    policy_view = PolicyView(policy_of(default), 50)
    policy_view.apply(TENANT, {"bomb": Rule(effect, when=BOMB)})
    for arguments in ({"l": [1] * 900}, {"l": []}):
        found = policy_view.decide(context(), tool("pay"), arguments)
        assert found.effect == ("deny" if effect != "allow" else default)


@pytest.mark.parametrize("effect", ["deny", "approve", "allow"])
def test_a_stored_rule_that_would_take_too_long_is_not_evaluated(
    effect: Any, caplog: pytest.LogCaptureFixture
) -> None:
    policy_view = PolicyView(policy_of("deny"), 50)
    policy_view.apply(TENANT, {"bomb": Rule(effect, when=BOMB)})
    found = policy_view.decide(context(), tool("pay"), {"l": [1] * 900})
    assert found.effect == "deny"
    [said] = [one for one in caplog.records if one.getMessage() == "rule_not_evaluated"]
    assert (vars(said)["rule"], vars(said)["tenant"]) == ("bomb", TENANT)
    assert "it may take too long" in vars(said)["reason"]
    explained = explain(
        policy_view.engine(TENANT),
        ADA,
        toolset=None,
        subject=Subject.of(tool("pay")),
        arguments={"l": [1] * 900},
        levels=50,
    )
    [opinion] = [one for one in explained.outcomes if one.rule == "bomb"]
    assert (opinion.outcome, opinion.why.startswith("when: `when` cannot be evaluated")) == (
        "failed",
        True,
    )


@pytest.mark.parametrize(("effect", "found"), [("deny", "deny"), ("allow", "deny")])
def test_arguments_that_a_rule_has_no_steps_for_count_against_the_call(
    effect: Any, found: str
) -> None:
    rule = Rule(effect, when="arguments.l.filter(x, x > 0).size() == 1")
    policy = policy_of("deny" if effect == "allow" else "allow", quadratic=rule)
    assert decide_call(policy, tool("pay"), {"l": [1] * 990}).effect == found
    few = decide_call(policy, tool("pay"), {"l": [1] * 90})
    assert few.effect == ("deny" if effect == "allow" else "allow")


def test_rules_of_the_settings_precede_stored_rules() -> None:
    engine = Engine(policy_of(one=Rule("allow")), {"one": Rule("deny"), "two": Rule("approve")})
    assert [(rule.name, rule.effect) for rule in engine.rules] == [
        ("two", "approve"),
        ("one", "allow"),
    ]


def test_no_rule_opens_a_tool_above_the_clearance() -> None:
    policy = replace(
        policy_of(one=Rule("allow")),
        default_clearance="internal",
        clearances={"finance": "confidential"},
    )
    for tier, ada, bob in [
        (None, "allow", "allow"),
        ("confidential", "allow", "deny"),
        ("restricted", "deny", "deny"),
        ("nobody knows", "deny", "deny"),
    ]:
        pay = tool("pay", tier=tier)
        assert decide_call(policy, pay, {}).effect == ada
        assert decide_call(policy, pay, {}, BOB).effect == bob
    assert decide_call(policy, tool("pay", tier="restricted"), {}).rule == TIERS


@pytest.mark.parametrize(
    ("hints", "effect"),
    [
        (Annotations(), "approve"),  # MCP: destructive, where it does not say otherwise
        (Annotations(destructive_hint=True), "approve"),
        (Annotations(destructive_hint=False), "allow"),
        (Annotations(read_only_hint=True), "allow"),
    ],
    ids=["silent", "destroys", "adds", "reads"],
)
def test_destructive_tools_require_an_approval(hints: Annotations, effect: str) -> None:
    policy = replace(usual(), approve_destructive=True)
    found = decide_call(policy, tool("pay", annotations=hints), {})
    assert (found.effect, found.rule) == (effect, DESTRUCTIVE if effect == "approve" else DEFAULT)
    denied = replace(policy, default="deny")
    assert decide_call(denied, tool("pay", annotations=hints), {}).effect == "deny"


def test_a_rule_speaks_of_names_that_a_tool_had_before() -> None:
    policy = policy_of(one=Rule("deny", tools=("old_*",)))
    assert decide_call(policy, tool("pay", aliases=("old_pay",)), {}).effect == "deny"
    assert decide_call(policy, tool("pay"), {}).effect == "allow"


@pytest.mark.parametrize("pattern", ["*refund*", "tag:money", "domain:SALES"])
def test_the_case_of_letters_lets_nothing_through(pattern: str) -> None:
    policy = policy_of(one=Rule("deny", tools=(pattern,)))
    refunds = tool("PostRefunds", tags=("Money",), domain="Sales")
    assert decide_call(policy, refunds, {}).effect == "deny"
    assert decide_call(policy, tool("pay", tags=("x",), domain="x"), {}).effect == "allow"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"items": list(range(1001))}, "more than 1,000 values"),
        ({"text": "x" * 65537}, "more than 65,536 bytes"),
        ({"x" * 65537: 1}, "more than 65,536 bytes"),
        ({"text": "é" * 40000}, "more than 65,536 bytes"),
    ],
    ids=["many", "long", "names", "letters"],
)
def test_arguments_too_large_for_expressions_are_refused(arguments: Any, told: str) -> None:
    policy = policy_of(one=Rule("deny", tools=("pay",), when="has(arguments.secret)"))
    with pytest.raises(InvalidParams, match=told):
        decide_call(policy, tool("pay"), arguments)
    assert decide_call(policy, tool("notes"), arguments).effect == "allow"  # nobody looks at these


def test_arguments_nested_thousands_deep_are_refused_at_once() -> None:
    policy = policy_of(one=Rule("deny", when="size(arguments) > 5"))
    with pytest.raises(InvalidParams, match="nested more than 50 deep"):
        decide_call(policy, tool("pay"), {"deep": nest_lists(100_000)})


@pytest.mark.parametrize("claims", [{"deep": nest_lists(CLAIMS[2])}, {"groups": [0] * CLAIMS[0]}])
def test_unknown_claims_of_a_token_allow_nothing(claims: dict[str, Any]) -> None:
    eve = Principal("eve", TENANT, claims=claims, mark="3")
    rule = Rule("allow", when="!has(principal.claims.blocked)")
    assert decide_call(policy_of("deny", one=rule), tool("pay"), {}).effect == "allow"
    assert decide_call(policy_of("deny", one=rule), tool("pay"), {}, eve).effect == "deny"
    denying = Rule("deny", when="has(principal.claims) && has(principal.claims.blocked)")
    assert decide_call(policy_of(one=denying), tool("pay"), {}).effect == "allow"
    assert decide_call(policy_of(one=denying), tool("pay"), {}, eve).effect == "deny"


def test_prompts_and_resources_are_judged_without_arguments() -> None:
    policy = policy_of(
        one=Rule("deny", when="arguments.amount > 1"),
        two=Rule("approve", sources=("bank",)),
        three=Rule("deny", tools=("secret*",)),
    )
    engine = Engine(policy, {})
    standing = engine.standing(ADA, None)
    hidden = {
        name: engine.verdict(standing, Subject.item_subject("prompt", name, source)).is_hidden
        for name, source in (("notes", "pets"), ("secrets", "pets"), ("notes2", "bank"))
    }
    assert hidden == {"notes": False, "secrets": True, "notes2": True}  # nobody could agree to it
    items = [
        SnapshotItem("prompt", name, name, Raw(b"{}"), source)
        for name, source in (("notes", "pets"), ("secrets", "pets"), ("notes2", "bank"))
    ]
    catalog = Catalog(items=items)
    view = PolicyView(policy, 50).view(context(), catalog, catalog)
    assert [one.name for one in view.prompts] == ["notes"]


def test_a_rule_on_arguments_looks_at_the_caller_of_the_call() -> None:
    """However alike two callers are to the rules before there are arguments."""
    rule = Rule("deny", when="arguments.owner != principal.id")
    policy_view, one = PolicyView(policy_of(own=rule), 50), tool("a")
    for principal in (ADA, BOB, ADA):
        for owner in ("ada", "bob"):
            found = policy_view.decide(context(principal), one, {"owner": owner})
            assert (found.effect == "allow") == (owner == principal.id), (principal.id, owner)


def test_prepared_views_hold_only_under_their_rules() -> None:
    denying, allowing = policy_of(no=Rule("deny", when="arguments.n > 1")), policy_of("deny")
    principal, one = Principal("eve", TENANT, mark="3"), tool("a")
    first, second = PolicyView(denying, 50), PolicyView(allowing, 50)
    catalog = Catalog([one])
    for _ in range(2):
        assert first.decide(context(principal), one, {"n": 1}).effect == "allow"
        assert first.view(context(principal), catalog, catalog) is catalog
        assert second.decide(context(principal), one, {"n": 1}).effect == "deny"
        assert second.view(context(principal), catalog, catalog) is not catalog
    first.apply(TENANT, {"shut": Rule("deny")})
    assert first.decide(context(principal), one, {"n": 1}).rule == "shut"
    assert list(first.view(context(principal), catalog, catalog).tools) == []
    first.apply(TENANT, {})
    assert first.decide(context(principal), one, {"n": 1}).effect == "allow"
    assert first.view(context(principal), catalog, catalog) is catalog


def test_another_token_of_a_caller_is_judged_by_itself() -> None:
    """Even one whose mark and id are the same."""
    rules = {"of": Rule("deny", roles=("guest",)), "at": Rule("deny", toolsets=("front",))}
    policy_view, one = PolicyView(policy_of(**rules), 50), tool("a")
    principal = Principal("ada", TENANT, roles=frozenset({"staff"}), mark="1")
    as_guest = dataclasses.replace(principal, roles=frozenset({"guest"}))
    for _ in range(2):
        assert policy_view.decide(context(principal), one, {}).effect == "allow"
        assert policy_view.decide(context(as_guest), one, {}).rule == "of"
        assert policy_view.decide(context(principal, "front"), one, {}).rule == "at"
        assert dataclasses.replace(principal).prepared == {}


def test_toolsets_that_a_caller_names_do_not_pile_up() -> None:
    policy_view, principal = PolicyView(policy_of(no=Rule("deny")), 50), Principal("ada", TENANT)
    for number in range(10 * TOOLSETS):
        policy_view.decide(context(principal, str(number)), tool("a"), {})
    assert len(principal.prepared[PREPARED["direct"]][1]) <= TOOLSETS + 1
    assert len(principal.prepared[JUDGED][1]) <= CALLED


def test_a_changed_tool_is_judged_by_its_new_members() -> None:
    rules = {"red": Rule("deny", tools=("tag:red",)), "old": Rule("deny", tools=("old_*",))}
    policy_view, principal = PolicyView(policy_of(**rules), 50), Principal("ada", TENANT)
    a = tool("a")
    versions = [
        a,
        tool("a", tags=("red",)),
        tool("old_a", id=a.id),
        a,
        tool("a", aliases=("old_a",)),
    ]
    for _ in range(2):
        decisions = [policy_view.decide(context(principal), one, {}) for one in versions]
        assert [one.rule for one in decisions] == [DEFAULT, "red", "old", DEFAULT, "old"]


def test_tenants_with_the_same_names_are_judged_by_their_own_rules() -> None:
    policy_view, one = PolicyView(policy_of(), 50), tool("a")
    strict, open_ = Principal("ada", "strict"), Principal("ada", "open")
    policy_view.apply("strict", {"no": Rule("deny")})
    for _ in range(2):
        assert policy_view.decide(context(strict), one, {}).rule == "no"
        assert policy_view.decide(context(open_), one, {}).rule == DEFAULT
    policy_view.apply("open", {"none": Rule("deny", roles=("guest",)), "no": Rule("deny")})
    assert policy_view.decide(context(open_), one, {}).rule == "no"


def test_calls_of_programs_are_judged_by_their_own_rules() -> None:
    callers = {"only": ("code", Rule("deny")), "never": ("direct", Rule("deny", tools=("b",)))}
    policy_view, principal = PolicyView(policy_of(), 50, callers=callers), Principal("ada", TENANT)
    direct, program = context(principal), context(principal)
    program.run = RunMark(code=True)
    a, b = tool("a"), tool("b")
    for _ in range(2):
        assert policy_view.decide(direct, a, {}).effect == "allow"
        assert policy_view.decide(program, a, {}).rule == "only"
        assert policy_view.decide(direct, b, {}).rule == "never"


def test_the_argument_limit_applies_to_encoded_arguments() -> None:
    policy = replace(policy_of(big=Rule("deny", when="arguments.n > 9")), argument_bytes=8)
    asking = context()
    asking.note = AuditDraft(arguments=b'{"n": "0123456789"}')
    with pytest.raises(InvalidParams, match="too large"):
        PolicyView(policy, 50).decide(asking, tool("a"), {"n": "0123456789"})
