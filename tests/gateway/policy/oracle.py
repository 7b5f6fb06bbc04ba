"""What the rules say, worked out again in plain Python, one rule after the other; and strategies
for rules, callers and tools."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from hypothesis import strategies as st
from msgspec import Raw
from msgspec.structs import replace

from config.access import Policy, Rule
from config.load import load
from gateway.context import Principal
from schemas.binding import McpBinding
from schemas.tool import Annotations, Tool

TENANT = "00000000-0000-0000-0000-000000000001"
NAMES = ("list_pets", "get_pet", "delete_pet", "pay", "refund", "notes")
SOURCES = ("pets", "bank")
TIERS = ("public", "internal", "confidential", "restricted")
TOOLSETS = ("front", "back")

Judge = Callable[[Principal, Tool, Any], bool]

# Expressions, and what they mean; what raises is an expression that fails.
OF_ARGUMENTS: Mapping[str, Judge] = {
    "arguments.amount > 100": lambda _p, _t, a: a["amount"] > 100,
    "has(arguments.amount) && arguments.amount > 100": lambda _p, _t, a: a.get("amount", 0) > 100,
    "has(arguments.id) && arguments.id > 100": lambda _p, _t, a: a.get("id", 0) > 100,
    "arguments.owner == principal.id": lambda p, _t, a: a["owner"] == p.id,
    "arguments.names.exists(name, name == tool.name)": lambda _p, t, a: t.name in a["names"],
}
OTHERS: Mapping[str, Judge] = {
    "": lambda _p, _t, _a: True,
    "false": lambda _p, _t, _a: False,
    "principal.id == 'ada'": lambda p, _t, _a: p.id == "ada",
    "principal.claims.team == 'red'": lambda p, _t, _a: p.claims["team"] == "red",
    "'admin' in principal.roles": lambda p, _t, _a: "admin" in p.roles,
    "tool.readOnly": lambda _p, t, _a: t.annotations.read_only_hint is True,
    "source == 'bank' && !tool.destructive": lambda _p, t, _a: (
        t.source == "bank" and not destroys(t)
    ),
    "tool.tags.exists(tag, tag == principal.claims.team)": (
        lambda p, t, _a: any(tag == p.claims["team"] for tag in t.tags)
    ),
    "principal.id + 1 == tool.name": lambda _p, _t, _a: bool(1 / 0),
}
JUDGES = {**OTHERS, **OF_ARGUMENTS}
ARGUMENTS = (
    {},
    {"amount": 1},
    {"amount": 1000},
    {"amount": "much"},
    {"owner": "ada", "amount": 5},
    {"names": ["pay", "notes"]},
)


@dataclass(frozen=True)
class Expected:
    effect: str
    visible: bool


def destroys(tool: Tool) -> bool:
    hints = tool.annotations
    return hints.read_only_hint is not True and hints.destructive_hint is not False


def expect_outcome(
    policy: Policy, principal: Principal, toolset: str | None, tool: Tool, arguments: Any
) -> Expected:
    """`arguments` None: not known; then the effect is meaningless."""
    order = list(policy.tiers)
    cleared = [policy.default_clearance]
    cleared += [policy.clearances[role] for role in principal.roles if role in policy.clearances]
    tier = tool.tier or policy.default_tier
    rank = order.index(tier) if tier in order else len(order) - 1
    if rank > max(map(order.index, cleared)):
        return Expected("deny", visible=False)
    spoken = {
        effect: _speaks(policy, effect, principal, toolset, tool, arguments)
        for effect in ("deny", "approve", "allow")
    }
    found = next((effect for effect, speaks in spoken.items() if speaks), policy.default)
    if found == "allow" and policy.approve_destructive and destroys(tool):
        found = "approve"
    forbidden = _speaks(policy, "deny", principal, toolset, tool, None)
    possible = policy.default == "allow" or any(
        _speaks(policy, effect, principal, toolset, tool, None, maybe=True)
        for effect in ("approve", "allow")
    )
    return Expected(found, possible and not forbidden)


def _speaks(
    policy: Policy,
    effect: str,
    principal: Principal,
    toolset: str | None,
    tool: Tool,
    arguments: Any,
    *,
    maybe: bool = False,
) -> bool:
    """`maybe`: whether it would with some arguments."""
    for rule in policy.rules.values():
        if rule.effect != effect or not _fits(policy, rule, principal, toolset, tool):
            continue
        if rule.when in OF_ARGUMENTS and arguments is None:
            if maybe:
                return True
            continue
        try:
            held = JUDGES[rule.when](principal, tool, arguments)
        except (ArithmeticError, LookupError, TypeError, AttributeError):
            held = effect != "allow"
        if held:
            return True
    return False


def _fits(
    policy: Policy, rule: Rule, principal: Principal, toolset: str | None, tool: Tool
) -> bool:
    names = (tool.name, *tool.aliases)
    return (
        (not rule.toolsets or toolset in rule.toolsets)
        and (not rule.principals or principal.id in rule.principals)
        and (not rule.roles or bool(set(rule.roles) & principal.roles))
        and (not rule.scopes or bool(set(rule.scopes) & principal.scopes))
        and (not rule.sources or tool.source in rule.sources)
        and (not rule.tiers or (tool.tier or policy.default_tier) in rule.tiers)
        and rule.destructive in (None, destroys(tool))
        and (
            not rule.tools
            or any(fnmatchcase(n.casefold(), one.casefold()) for n in names for one in rule.tools)
        )
    )


def usual() -> Policy:
    return load(None, {}).policy


def tool(name: str, **members: Any) -> Tool:
    about = {
        "id": f"id-{name}",
        "name": name,
        "title": None,
        "description": f"{name} it",
        "input_schema": Raw(b'{"type":"object"}'),
        "output_schema": None,
        "annotations": Annotations(),
        "binding": McpBinding(name),
        "source": "pets",
        "digest": f"digest of {name}",
    }
    return Tool(**{**about, **members})


def some(*values: str) -> st.SearchStrategy[tuple[str, ...]]:
    return st.lists(st.sampled_from(values), max_size=2, unique=True).map(tuple)


def rules(expressions: Mapping[str, Judge] = JUDGES) -> st.SearchStrategy[Rule]:
    return st.builds(
        Rule,
        effect=st.sampled_from(("allow", "deny", "approve")),
        tools=some("*", "*_pet*", "pay", "[rn]*", "old_*"),
        sources=some(*SOURCES),
        toolsets=some(*TOOLSETS),
        tiers=some(*TIERS, "unheard"),
        destructive=st.sampled_from((None, None, True, False)),
        roles=some("admin", "finance"),
        scopes=some("read", "write"),
        principals=some("ada", "bob"),
        when=st.sampled_from(tuple(expressions)),
    )


def policies(rule: st.SearchStrategy[Rule] | None = None) -> st.SearchStrategy[Policy]:
    def make_policy(rules: list[Rule], default: str, clearance: str, destructive: bool) -> Policy:
        named = {f"r{number}": one for number, one in enumerate(rules)}
        return replace(
            usual(),
            rules=named,
            default=default,
            default_clearance=clearance,
            clearances={"finance": "restricted", "admin": "confidential"},
            approve_destructive=destructive,
        )

    return st.builds(
        make_policy,
        st.lists(rule or rules(), max_size=6),
        st.sampled_from(("allow", "deny")),
        st.sampled_from(TIERS),
        st.booleans(),
    )


def principals() -> st.SearchStrategy[Principal]:
    claims = st.sampled_from(({}, {"team": "red"}, {"team": "blue"}, {"team": 3}))
    return st.builds(
        Principal,
        id=st.sampled_from(("ada", "bob", "eve")),
        tenant=st.just(TENANT),
        scopes=some("read", "write").map(frozenset),
        claims=claims,
        roles=some("admin", "finance").map(frozenset),
        mark=st.uuids().map(str),
    )


def tools() -> st.SearchStrategy[list[Tool]]:
    hints = st.builds(
        Annotations,
        read_only_hint=st.booleans(),
        destructive_hint=st.booleans(),
    )
    one = st.fixed_dictionaries(
        {
            "source": st.sampled_from(SOURCES),
            "tier": st.sampled_from((None, *TIERS, "unheard")),
            "annotations": st.one_of(st.just(Annotations()), hints),
            "tags": some("red", "blue"),
            "aliases": some("old_pay", "old_pet"),
        }
    )
    several = st.fixed_dictionaries(dict.fromkeys(NAMES, one))
    return several.map(lambda made: [tool(name, **about) for name, about in made.items()])
