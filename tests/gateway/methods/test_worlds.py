"""Plans of calls against a plain evaluation of all that could hold, in random worlds that change:
rules of tenants, settings, catalogs. Each call of anybody is judged alike, whatever came before."""

import dataclasses
import re
from functools import partial

import anyio
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Raw
from msgspec.structs import replace

from config.access import Guardrail, Rate, Rule
from config.load import load
from gateway.context import Context, Identity, Principal
from gateway.interfaces import ToolCall
from gateway.methods.call_plans import CallPlans
from gateway.middleware.circuit_breaker import Breaker
from gateway.middleware.guardrails import Guardrails
from gateway.middleware.policy_guard import PolicyGuard, arguments_for_approvers
from gateway.middleware.rate_limits import RateLimits
from gateway.policy.approval_gate import ApprovalGate
from gateway.policy.engine import Engine, Subject
from gateway.policy.visibility import PolicyView
from gateway.state.rate_windows import LocalRates
from registry.catalog.catalog import Catalog
from schemas.binding import McpBinding
from schemas.errors import Denied, Fault, SourceDown
from schemas.jsonrpc import encode
from schemas.mcp.revisions import JSON_RPC
from schemas.tool import ToolResult
from tests.gateway.methods.federation import source
from tests.gateway.policy import oracle
from tests.properties import examples

LEVELS = 50
AGAIN = re.compile(r"; try again in \d+ s")  # as the clock goes
DEFAULTS = load(None, {})
TENANTS = ("t", "other", "third")
SOURCES = [source(name) for name in oracle.SOURCES]
BREAKER = replace(DEFAULTS.breaker, enabled=True, calls=2, failures=0.5)
RULES = {
    "no": Guardrail("arguments", "deny", tools=("pay",), pattern="much", reason="Not so much."),
    "hide": Guardrail("result", "redact", sources=("pets",), fields=("said",), pattern="ada"),
}

effects = st.sampled_from(("allow", "deny", "approve"))
broad = st.builds(Rule, effect=effects, tools=oracle.some("*", "pay", "*_pet"))
rates = st.sampled_from(({}, {"pay": Rate(calls=2)}, {"*pet*": Rate(calls=1), "#red": Rate(2)}))
calls = st.tuples(
    st.just("call"),
    st.sampled_from(TENANTS),
    oracle.principals(),
    st.sampled_from(oracle.ARGUMENTS),
)
ruled = st.tuples(
    st.just("rules"),
    st.sampled_from(TENANTS),
    st.lists(st.one_of(broad, oracle.rules()), max_size=3),
)
reloaded = st.tuples(
    st.just("settings"),
    st.one_of(st.just(oracle.usual()), oracle.policies()),
    rates,
    st.sampled_from(({}, {"bank": Rate(calls=3)})),
    st.sampled_from(({}, {"no": RULES["no"]}, RULES)),
)
imported = st.tuples(st.just("catalog"), st.sampled_from(TENANTS), oracle.tools())
often = [calls, calls, calls, ruled, ruled, calls, calls, reloaded, imported]
steps = st.lists(st.one_of(*often), min_size=12, max_size=30)


class Server:
    """Fails for much; else says who called it, with what."""

    async def call(self, tool, _source, arguments, context):
        if arguments.get("amount") == 1000:
            raise SourceDown("It does not answer")
        said = [context.principal.tenant, context.principal.id, tool.name, arguments]
        return ToolResult((), Raw(encode({"said": said})))


class World:
    """Guards of their own for the plans and for the plain evaluation, with equal settings."""

    def __init__(self):
        self.stored = {}
        self.catalogs = dict.fromkeys(TENANTS, Catalog([], SOURCES))
        self.principals = {}  # of credentials that stay in use
        self.policy, self.view = oracle.usual(), PolicyView(oracle.usual(), LEVELS)
        limits = replace(DEFAULTS.limits, principal_calls=0)
        self.limits = [RateLimits(limits, LocalRates()) for _ in range(2)]
        self.breakers = [Breaker(BREAKER, clock=lambda: 0.0, jitter=lambda: 1.0) for _ in range(2)]
        self.configure(self.policy, {}, {}, {})

    def rules(self, tenant, rules):
        self.stored[tenant] = {f"s{number}": rule for number, rule in enumerate(rules)}
        self.view.apply(tenant, self.stored[tenant])

    def settings(self, policy, tools, sources, guardrails):
        self.view.reconfigure(policy, LEVELS)
        self.configure(policy, tools, sources, guardrails)

    def configure(self, policy, tools, sources, guardrails):
        self.policy = policy
        limits = replace(DEFAULTS.limits, principal_calls=0, tools=tools, sources=sources)
        self.limits = [one.with_limits(limits) for one in self.limits]
        inspecting = replace(DEFAULTS.guardrails, rules=guardrails)
        fast, plain = [
            [limiting, Guardrails(inspecting), breaker]
            for limiting, breaker in zip(self.limits, self.breakers, strict=True)
        ]
        approving = ApprovalGate(policy, lambda: None, arguments_for_approvers)
        judging = PolicyGuard(self.view, approving, audited=False)
        self.plans = CallPlans({McpBinding: Server()}, [judging, *fast], self.view)
        self.plain = plain

    def catalog(self, tenant, tools):
        self.catalogs[tenant] = Catalog(tools, SOURCES)

    async def call(self, tenant, principal, arguments):
        principal = dataclasses.replace(principal, tenant=tenant)
        principal = self.principals.setdefault(repr(principal), principal)
        catalog = self.catalogs[tenant]
        context = Context(Identity(principal, verified=True), JSON_RPC, "r-1")
        for tool in catalog.tools:
            call = ToolCall(tool, catalog.sources[tool.source], arguments, context)
            planned = await outcome(self.execute_plan(catalog, call))
            assert planned == await outcome(self.plainly(call))

    async def execute_plan(self, catalog, call):
        return await self.plans.plan(catalog, call.tool).execute(call)

    async def plainly(self, call):
        principal = call.context.principal
        engine = Engine(self.policy, self.stored.get(principal.tenant, {}))
        standing, subject = engine.standing(principal, None), Subject.of(call.tool)
        values = {**engine.values(standing, subject), "arguments": call.arguments}
        decision = engine.verdict(standing, subject).decide(values)
        if decision.effect == "deny":
            raise Denied(f"{decision.rule} denies {call.tool.name}")
        if decision.effect == "approve":
            return "approve"
        execute = partial(call_server, Server())
        for guard in reversed(self.plain):
            execute = guard.guard(execute)
        return await execute(call)


async def call_server(server, call):
    return await server.call(call.tool, call.source, call.arguments, call.context)


async def outcome(work):
    try:
        return await work
    except Fault as fault:
        waits = "approval" in fault.message.lower()
        return "approve" if waits else (type(fault), AGAIN.sub("", fault.message))


async def live_through(all_steps, first):
    world = World()
    for tenant in TENANTS:
        world.catalog(tenant, first)
        await world.call(tenant, Principal("ada", tenant), {})  # before there is any rule
    for name, *values in all_steps:
        done = getattr(world, name)(*values)
        if name == "call":
            await done


@settings(max_examples=examples(40), deadline=None)
@given(all_steps=steps, first=oracle.tools())
def test_no_call_is_judged_by_stale_or_foreign_rules(all_steps, first):
    anyio.run(live_through, all_steps, first)
