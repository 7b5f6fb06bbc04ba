"""Visibility index: which catalog entries the rules hide, computed once for all callers.

Sets of entries are bitmaps in an integer, so that the hidden ones of ten thousand tools take some
microseconds. Results equal `Engine.verdict` of each entry; tests compare the two.
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from operator import or_
from typing import Any
from weakref import WeakKeyDictionary, ref

from anyio import to_thread

from config.access import Policy, Rule
from config.value_types import CallWay
from gateway.context import Context
from gateway.interfaces import Events
from gateway.policy.engine import (
    BUILT_IN,
    DEFAULT,
    NO_CALLERS,
    NO_RUN,
    CallersRule,
    CallerStanding,
    CompiledRule,
    Decision,
    Engine,
    Subject,
    ToolVerdict,
    is_judged,
    values_of_run,
)
from registry.access.policies import stored_rules
from registry.catalog.catalog import Catalog
from registry.catalog.catalogs import Catalogs
from registry.catalog.resources import ResourceLocation
from registry.database.postgres import Pool
from schemas.cel_expressions import too_large
from schemas.errors import InvalidParams
from schemas.memo import Memo
from schemas.tool import Tool

log = logging.getLogger("toolgate.policy")


STANDINGS = 4096  # cached hidden parts of a catalog, by standing
VERDICTS = 20_000  # cached, by standing and tool
PREPARED: Mapping[CallWay, str] = {"direct": "policy", "code": "policy of programs"}
TOOLSETS = 64  # of one caller
JUDGED = "verdicts"
CALLED = 16  # tools at an endpoint, whose verdicts are cached with a credential

ALLOWED, OWN = Decision("allow", DEFAULT), Decision("allow", BUILT_IN)
_Judged = tuple[Tool, ToolVerdict]
_OWN, _ALLOWED = ToolVerdict(OWN), ToolVerdict(ALLOWED)
_NOT_JUDGED: tuple[Any, Any] = (None, {})
NO_RULES: Mapping[str, Rule] = {}


class RuleIndex:
    def __init__(self, engine: Engine, catalog: Catalog) -> None:
        """An index whose bits are the catalog's tools, then its items."""
        self._engine = engine
        self._subjects: Sequence[Subject] = [
            *map(Subject.of, catalog.tools),
            *map(Subject.of_item, catalog.items),
        ]
        self._all = (1 << len(self._subjects)) - 1
        self._tools = (1 << len(catalog.tools)) - 1
        self._forwarders = [at for at, subject in enumerate(self._subjects) if subject.forwards]
        self._of_rules: dict[str, int] = {}
        self._groups: dict[str, Sequence[tuple[Subject, list[int]]]] = {}  # by rule; see _grouped

    def hidden_entries(self, standing: CallerStanding) -> int:
        denied, opened = self._above.get(standing.clearance, 0), 0
        for rule in standing.rules:
            fitting = self._fitting(rule)
            if rule.by_principal and rule.by_subject:
                fitting = self._satisfying(rule, fitting, standing)
            if rule.effect == "deny":
                denied |= 0 if rule.by_arguments else fitting
            elif rule.effect == "approve":
                opened |= fitting & self._tools
                denied |= fitting & ~self._tools
            else:
                opened |= fitting
        if self._engine.policy.default == "deny":
            denied |= self._all & ~opened
        return denied

    def _fitting(self, rule: CompiledRule) -> int:
        """Entries that a rule matches, for any caller."""
        bits = self._of_rules.get(rule.name)
        if bits is None:
            bits = self._by_attributes(rule)
            if rule.rule.tools:
                bits = self._where(bits, rule.names)
            for place in self._forwarders:
                if not rule.judges_forwarder(self._subjects[place]):
                    bits &= ~(1 << place)
            if rule.by_subject and not rule.by_principal:
                bits = self._satisfying(rule, bits, None)
            self._of_rules[rule.name] = bits
        return bits

    def _by_attributes(self, rule: CompiledRule) -> int:
        """Entries matching the rule's sources, tiers and `destructive`, for any name."""
        conditions, bits = rule.rule, self._tools if rule.by_arguments else self._all
        if conditions.sources:
            bits &= self._having("source", conditions.sources)
        if conditions.tiers:
            bits &= self._having("tier", conditions.tiers)
        if conditions.destructive is not None:
            bits &= self._having("destroys", [conditions.destructive])
        return bits

    def _having(self, fact: str, values: Iterable[str | bool]) -> int:
        return reduce(or_, (self._facts.get((fact, value), 0) for value in values), 0)

    @cached_property
    def _facts(self) -> Mapping[tuple[str, str | bool], int]:
        """Entries by fact: (kind, value)."""
        places: dict[tuple[str, str | bool], list[int]] = {}
        for place, subject in enumerate(self._subjects):
            places.setdefault(("source", subject.source), []).append(place)
            places.setdefault(("tier", self._engine.tier(subject)), []).append(place)
            places.setdefault(("destroys", subject.destructive), []).append(place)
        return {fact: _at(fact_places) for fact, fact_places in places.items()}

    def _satisfying(
        self, rule: CompiledRule, candidates: int, standing: CallerStanding | None
    ) -> int:
        """Entries for which the rule's expression holds: evaluated once per group of `_grouped`."""

        def holds(subject: Subject) -> bool:
            if standing is None:
                return rule.holds(subject.values(self._engine.tier(subject)))
            return rule.holds(self._engine.values(standing, subject))

        groups = self._groups.get(rule.name)
        if groups is None:
            groups = self._groups[rule.name] = self._group(rule, candidates)
        return _at([place for first, places in groups if holds(first) for place in places])

    def _group(self, rule: CompiledRule, candidates: int) -> Sequence[tuple[Subject, list[int]]]:
        """Candidates grouped by the values that a rule reads: (first entry, all positions)."""
        groups: dict[str, tuple[Subject, list[int]]] = {}
        fitting = flags(candidates, len(self._subjects))
        for place, (subject, fits) in enumerate(zip(self._subjects, fitting, strict=True)):
            if fits:
                key = rule.relevant(subject.values(self._engine.tier(subject)))
                groups.setdefault(key, (subject, []))[1].append(place)
        return list(groups.values())

    def _where(self, candidates: int, holds: Callable[[Subject], bool]) -> int:
        fitting = flags(candidates, len(self._subjects))
        pairs = zip(self._subjects, fitting, strict=True)
        return _bits([fits and holds(subject) for subject, fits in pairs])

    @cached_property
    def _above(self) -> dict[int, int]:
        """Entries above each clearance."""
        ranks = [self._engine.rank(subject) for subject in self._subjects]
        highest = max(ranks, default=0)
        return {at: _bits([rank > at for rank in ranks]) for at in range(-1, highest)}


def flags(bits: int, count: int) -> list[bool]:
    """The lowest `count` bits, as booleans."""
    return [digit == "1" for digit in reversed(f"{bits:0{max(count, 1)}b}")][:count]


def _at(places: Sequence[int]) -> int:
    bits = bytearray(max(places, default=0) // 8 + 1)
    for place in places:
        bits[place // 8] |= 1 << place % 8
    return int.from_bytes(bits, "little")


def _bits(flags: Sequence[bool]) -> int:
    text = "".join("1" if is_set else "0" for is_set in reversed(flags))
    return int(text, 2) if text else 0


@dataclass(slots=True)
class _CatalogCache:
    """Cache of one catalog under one set of rules."""

    reach: RuleIndex
    hidden: Memo[tuple[Any, ...], int]  # by standing
    views: Memo[tuple[int, int], Catalog]  # by bits hidden in it, and in the whole catalog


class _Rules:
    """The rules of one tenant, and caches of their results."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.generation = object()  # what callers compare: it keeps none of the caches alive
        self.verdicts: Memo[tuple[Any, ...], _Judged] = Memo(VERDICTS)
        self.caches: WeakKeyDictionary[Catalog, _CatalogCache] = WeakKeyDictionary()


class PolicyView:
    def __init__(
        self,
        policy: Policy,
        levels: int,
        events: Events | None = None,
        callers: Mapping[str, CallersRule] = NO_CALLERS,
    ) -> None:
        """The rules of all tenants. `levels`: nesting limit of arguments; `callers`: rules of all,
        see `callers_rules`. Raises InvalidExpression."""
        self._policy, self._callers = policy, callers
        self._limits = (policy.argument_values, policy.argument_bytes, levels)
        self._usual = Engine(policy, NO_RULES, callers)
        self._of: dict[str, _Rules] = {}
        self._stored: dict[str, Mapping[str, Rule]] = {}
        self.allows_all = self._usual.allows_all  # whether no tenant has a rule that could deny
        self.generation = object()  # replaced when the rules of a tenant change
        self._rules_changed = (events or Events()).rules_changed

    def reconfigure(
        self, policy: Policy, levels: int, callers: Mapping[str, CallersRule] = NO_CALLERS
    ) -> None:
        """Replace the policy, keeping stored rules. Raises InvalidExpression and then changes
        no state."""
        usual = Engine(policy, NO_RULES, callers)
        self._policy, self._callers, self._usual = policy, callers, usual
        self._limits = (policy.argument_values, policy.argument_bytes, levels)
        for tenant in list(self._of):
            self.apply(tenant, self._stored.get(tenant, NO_RULES))
        self._renew()

    async def load(self, pool: Pool) -> None:
        """Reload the stored rules of all tenants; changed ones are compiled in a thread, tenants
        with few rules first. Raises `psycopg.OperationalError`."""
        stored_by_tenant = await stored_rules(pool)
        stored = {
            tenant: stored_by_tenant.get(tenant, NO_RULES)
            for tenant in {*stored_by_tenant, *self._of}
        }
        for tenant, rules in sorted(stored.items(), key=lambda pair: len(pair[1])):
            if rules != self._stored.get(tenant, NO_RULES):
                engine = await to_thread.run_sync(self._engine, rules)
                current = engine.policy is self._policy  # unless the settings changed meanwhile
                self._take(tenant, rules, engine if current else self._engine(rules))

    def apply(self, tenant: str, rules: Mapping[str, Rule]) -> None:
        """Replace the stored rules of `tenant`."""
        self._take(tenant, rules, self._engine(rules))

    def _engine(self, rules: Mapping[str, Rule]) -> Engine:
        return Engine(self._policy, rules, self._callers) if rules else self._usual

    def _take(self, tenant: str, rules: Mapping[str, Rule], engine: Engine) -> None:
        self._stored[tenant] = rules
        before = self._of[tenant].engine if tenant in self._of else self._usual
        if engine.digest == before.digest:
            return
        for name in sorted(rules.keys() & self._policy.rules.keys()):
            log.warning("rule_overridden", extra={"rule": name, "tenant": tenant})
        for rule in engine.rules:
            if rule.broken is not None:
                facts = {"rule": rule.name, "tenant": tenant, "reason": rule.broken}
                log.error("rule_not_evaluated", extra=facts)
        self._of[tenant] = _Rules(engine)
        self._renew()
        log.info("policy_loaded", extra={"tenant": tenant, "rules": len(engine.rules)})
        self._rules_changed.publish(tenant)

    def _renew(self) -> None:
        of_tenants = (rules.engine.allows_all for rules in self._of.values())
        self.allows_all = self._usual.allows_all and all(of_tenants)
        self.generation = object()

    def engine(self, tenant: str) -> Engine:
        return self._rules(tenant).engine

    def version(self, tenant: str) -> bytes:
        """Digest of the tenant's rules, equal on all gateways; empty if they allow everything."""
        engine = self.engine(tenant)
        return b"" if engine.allows_all else engine.digest

    def view(self, context: Context, catalog: Catalog, full_catalog: Catalog) -> Catalog:
        """The caller's view of `catalog`, which is `full_catalog` or a toolset of it."""
        principal = context.identity.principal
        rules = self._of.get(principal.tenant) or self._rules(principal.tenant)
        if rules.engine.allows_all:
            return catalog
        caller = _caller(rules, context)
        if caller.catalog() is catalog and caller.whole() is full_catalog:
            current = caller.view()
            if current is not None:
                return current
        view = self._view(rules, caller.standing, catalog, full_catalog)
        caller.catalog, caller.whole, caller.view = ref(catalog), ref(full_catalog), ref(view)
        return view

    def _view(
        self, rules: _Rules, standing: CallerStanding, catalog: Catalog, full_catalog: Catalog
    ) -> Catalog:
        hidden = self._hide(rules, catalog, standing)
        if not hidden:
            return catalog
        elsewhere = hidden if full_catalog is catalog else self._hide(rules, full_catalog, standing)
        views = rules.caches[catalog].views
        key = (hidden, elsewhere)
        view = views.use(key)
        return view or views.put(key, _view(catalog, hidden, _denied_ids(full_catalog, elsewhere)))

    def admits(self, context: Context, location: ResourceLocation) -> bool:
        """Whether the caller may read a resource. One that is not listed is judged as if listed
        under its URI; one from a template follows the template, unless a rule denies it."""
        rules = self._rules(context.principal.tenant)
        if rules.engine.allows_all:
            return True
        standing = _caller(rules, context).standing
        item, verdict = location.item, rules.engine.verdict
        if item is not None and verdict(standing, Subject.of_item(item)).is_hidden:
            return False
        if item is not None and item.kind == "resource":
            return True
        subject = Subject.item_subject("resource", location.uri, location.source.name)
        verdict_ = verdict(standing, subject)
        return not verdict_.is_hidden or (item is not None and verdict_.decision.rule == DEFAULT)

    def decide(
        self, context: Context, tool: Tool, arguments: Any, *, forwarded: bool = False
    ) -> Decision:
        """Decide on a call. `forwarded`: the tool that it calls later is judged by itself, and here
        count the rules that are about this one. Raises InvalidParams for arguments too large for
        the rules."""
        if self.allows_all:
            return ALLOWED if is_judged(tool) else OWN
        verdict = self._cached_verdict(context, tool, forwarded)
        if not verdict.later:
            return verdict.decide(None) if verdict.approved else verdict.decision
        if (too_much := too_large(arguments, *self._limits)) is not None:
            raise InvalidParams(
                f"The arguments are too large for the rules of this gateway: {too_much}"
            )
        if verdict.by_arguments_alone:
            return verdict.decide({"arguments": arguments})
        # per caller: callers of one standing are alike only until arguments are known
        rules = self._rules(context.identity.principal.tenant)
        values = rules.engine.values(_caller(rules, context).standing, Subject.of(tool))
        run = values_of_run(context.run or NO_RUN)
        call_values = {"context": run, "connection": {"shared": bool(context.borrows)}}
        return verdict.decide({**values, "arguments": arguments, **call_values})

    def _cached_verdict(self, context: Context, tool: Tool, forwarded: bool) -> ToolVerdict:
        """The verdict on a call, cached with the credential unless a run makes the call."""
        if forwarded or context.run is not None:
            return self._judge(context, tool, forwarded)[1]
        prepared, key = context.identity.principal.prepared, (context.toolset, tool.id)
        verdicts: dict[tuple[str | None, str], _Judged]
        rules, verdicts = prepared.get(JUDGED, _NOT_JUDGED)
        if rules is self.generation:
            entry = verdicts.get(key)
            if entry is not None and entry[0] is tool:
                return entry[1]
        if rules is not self.generation or len(verdicts) >= CALLED:
            verdicts = {}
            prepared[JUDGED] = (self.generation, verdicts)
        verdicts[key] = entry = self._judge(context, tool)
        return entry[1]

    def _judge(self, context: Context, tool: Tool, forwarded: bool = False) -> _Judged:
        if not is_judged(tool):
            return tool, _OWN
        rules = self._rules(context.identity.principal.tenant)
        if rules.engine.allows_all:
            return tool, _ALLOWED
        standing = _caller(rules, context).standing
        if forwarded:
            return tool, rules.engine.verdict(standing, Subject.of(tool), forwarded=True)
        return _verdict(rules, standing, tool)

    def denial(self, context: Context, subject: Subject) -> Decision | None:
        """The decision that hides `subject` from the caller; None: visible."""
        rules = self._rules(context.principal.tenant)
        if rules.engine.allows_all:
            return None
        standing = _caller(rules, context).standing
        verdict = rules.engine.verdict(standing, subject, forwarded=subject.forwards)
        return verdict.decision if verdict.is_hidden else None

    def _rules(self, tenant: str) -> _Rules:
        rules = self._of.get(tenant)
        if rules is None:
            rules = self._of[tenant] = _Rules(self._usual)
        return rules

    def _hide(self, rules: _Rules, catalog: Catalog, standing: CallerStanding) -> int:
        cache = rules.caches.get(catalog)
        if cache is None:
            cache = _CatalogCache(
                RuleIndex(rules.engine, catalog), Memo(STANDINGS), Memo(self._policy.views)
            )
            rules.caches[catalog] = cache
        hidden = cache.hidden.get(standing.key)
        if hidden is None:
            hidden = cache.hidden.put(standing.key, cache.reach.hidden_entries(standing))
        return hidden


class _Caller:
    """Cached verdicts of a tenant's rules for a principal at an endpoint."""

    __slots__ = ("catalog", "standing", "view", "whole")

    def __init__(self, standing: CallerStanding) -> None:
        self.standing = standing
        # of the last catalog that it saw; references are weak, so that no old catalog stays
        self.catalog: Callable[[], Catalog | None] = _nothing
        self.whole: Callable[[], Catalog | None] = _nothing
        self.view: Callable[[], Catalog | None] = _nothing


def _nothing() -> None:
    return None


def _caller(rules: _Rules, context: Context) -> _Caller:
    """The caller under these rules; what other rules made of the principal is forgotten."""
    principal, toolset, run = context.identity.principal, context.toolset, context.run
    way: CallWay = "direct" if run is None or not run.code else "code"
    prepared = PREPARED[way]
    callers: dict[str | None, _Caller]
    generation, callers = principal.prepared.get(prepared, (None, {}))
    if generation is not rules.generation or (len(callers) > TOOLSETS and toolset not in callers):
        callers = {}
        principal.prepared[prepared] = (rules.generation, callers)
    caller = callers.get(toolset)
    if caller is None:
        caller = callers[toolset] = _Caller(rules.engine.standing(principal, toolset, way))
    return caller


def _verdict(rules: _Rules, standing: CallerStanding, tool: Tool) -> _Judged:
    key = (tool.id, standing.key)
    entry = rules.verdicts.get(key)
    if entry is None or entry[0] is not tool:
        entry = rules.verdicts.put(key, (tool, rules.engine.verdict(standing, Subject.of(tool))))
    return entry


def _view(catalog: Catalog, hidden: int, denied: frozenset[str]) -> Catalog:
    bits = flags(hidden, len(catalog.tools) + len(catalog.items))
    tools = {tool.id for tool, is_hidden in zip(catalog.tools, bits, strict=False) if is_hidden}
    beyond = bits[len(catalog.tools) :]
    items = {
        (item.kind, item.name)
        for item, is_hidden in zip(catalog.items, beyond, strict=True)
        if is_hidden
    }
    return catalog.without(tools, items, denied)


def _denied_ids(full_catalog: Catalog, hidden: int) -> frozenset[str]:
    bits = flags(hidden, len(full_catalog.tools) + len(full_catalog.items))
    return frozenset(
        tool.id for tool, is_hidden in zip(full_catalog.tools, bits, strict=False) if is_hidden
    )


class Denials:
    def __init__(self, policy_view: PolicyView, catalogs: Catalogs) -> None:
        self._policy_view = policy_view
        self._catalogs = catalogs

    def __call__(self, context: Context, method: str, name: str) -> Decision | None:
        """The decision that hides the subject of a request from the caller; None if it is visible,
        or does not exist."""
        subject = _subject(self._of(context), method, name)
        return None if subject is None else self._policy_view.denial(context, subject)

    def tool(self, context: Context, name: str) -> Tool | None:
        """The tool of this name, even if hidden from the caller."""
        return _tool(self._of(context), name)

    def _of(self, context: Context) -> Catalog:
        return self._catalogs.addressable(context.principal.tenant, context.toolset)


def _subject(catalog: Catalog, method: str, name: str) -> Subject | None:
    if method == "prompts/get":
        prompt = catalog.prompt(name)
        return None if prompt is None else Subject.of_item(prompt)
    if method.startswith("resources/"):
        located = catalog.locate(name)
        if located is None:
            return None
        return Subject.item_subject("resource", located.uri, located.source.name)
    tool = _tool(catalog, name)
    return None if tool is None else Subject.of(tool)


def _tool(catalog: Catalog, name: str) -> Tool | None:
    return catalog.find(name) or catalog.service(name)
