"""Plans of tool calls.

A plan holds what each call of a tool needs, resolved once and not per call: the guards that apply
to its tool, and no others. Plans live as long as their catalog, and are made anew when policy rules
change; new settings come with a new `CallPlans`. A plan is the same for all callers: what depends
on the caller is decided by its guards.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from weakref import WeakKeyDictionary, ref

from gateway.context import Context, Identity
from gateway.interfaces import Execute, Guard, PreparedUpstream, Upstream
from gateway.methods.call_checks import own_argument_names
from gateway.methods.lists import Lists
from gateway.operations.tool_calls import AS_JOB
from gateway.policy.visibility import PolicyView
from registry.catalog.catalog import Catalog
from schemas.binding import ServiceBinding
from schemas.json_schema.checker import Checker
from schemas.source import Source
from schemas.tool import Tool

log = logging.getLogger("toolgate.tools")

AS_JOB_KEY = f'"{AS_JOB}":'.encode()
OWN = ""  # prefix of the keys of built-in tools: another toolset may have a tool of that name


@dataclass(frozen=True, slots=True)
class CallPlan:
    """How a tool of one catalog is called."""

    tool: Tool
    source: Source | None
    execute: Execute  # behind the guards that apply to the tool
    checker: Checker | None  # of its arguments; None: its input schema is unusable
    action: ServiceBinding | None  # the hybrid action that it calls
    is_action_id: bool  # its name is the id of a hybrid action, perhaps of another tool
    is_own: bool  # built in
    is_relayed: bool  # of another MCP server
    reads_request: bool  # besides its arguments: built in, or a client may want its progress
    keeps_answers: bool
    takes_job: bool  # its call can become a job
    own_names: Mapping[str, str]  # of arguments, by those in lists of clients that reject them


Plans = dict[str | tuple[str, str], CallPlan]


@dataclass(frozen=True, slots=True)
class _Caller:
    """A caller at an endpoint, and the plans of the catalog that they see, for as long as neither
    catalogs nor rules change."""

    identity: Identity
    toolset: str | None
    catalogs: int  # versions
    rules: object
    in_program: bool
    catalog: Catalog = field(kw_only=True)
    plans: Plans = field(kw_only=True)


class CallPlans:
    def __init__(
        self,
        upstreams: Mapping[type, Upstream],
        guards: Sequence[Guard],
        policy_view: PolicyView | None,
    ) -> None:
        """`upstreams` by the class of the bindings that they execute; `guards` outermost first;
        `policy_view` None: no policy rules."""
        self._upstreams = upstreams
        self._guards = tuple(reversed(guards))
        self._policy_view = policy_view
        self._rules = None if policy_view is None else policy_view.generation
        self._by_catalog: WeakKeyDictionary[Catalog, Plans] = WeakKeyDictionary()
        self._last: Callable[[], Catalog | None] = _nothing
        self._of_last: Plans = {}
        self._unusable: set[str] = set()  # digests of tools with unusable schemas
        self._caller: _Caller | None = None  # of the last call

    def of_caller(self, context: Context, lists: Lists) -> tuple[Catalog, Plans]:
        """The catalog that the caller sees, and the plans made so far for its tools. Calls follow
        each other by one caller, in a batch above all, so that of the last one is remembered."""
        identity, toolset, version = context.identity, context.toolset, lists.catalogs.version
        rules = None if self._policy_view is None else self._policy_view.generation
        in_program = context.run is not None and context.run.code
        last = self._caller
        if (
            last is not None
            and last.identity is identity
            and last.toolset == toolset
            and last.catalogs == version
            and last.rules is rules
            and last.in_program == in_program
        ):
            return last.catalog, last.plans
        catalog = lists.catalog(context)
        plans = self.of(catalog)
        self._caller = _Caller(
            identity, toolset, version, rules, in_program, catalog=catalog, plans=plans
        )
        return catalog, plans

    def of(self, catalog: Catalog) -> Plans:
        """The plans made so far for the tools of a catalog, by name."""
        if self._policy_view is not None and self._policy_view.generation is not self._rules:
            self._rules = self._policy_view.generation
            self._by_catalog.clear()
        elif self._last() is catalog:
            return self._of_last
        plans = self._by_catalog.get(catalog)
        if plans is None:
            plans = self._by_catalog[catalog] = {}
        self._last, self._of_last = ref(catalog), plans
        return plans

    def plan(self, catalog: Catalog, tool: Tool) -> CallPlan:
        """The plan of `tool`, which is of `catalog` or built in."""
        plans = self.of(catalog)
        by_name = not tool.binding.facts.own or catalog.finds_always(tool)
        key = tool.name if by_name else (OWN, tool.digest)
        plan = plans.get(key)
        if plan is None:
            plan = plans[key] = self._make_plan(catalog, tool)
        return plan

    def _make_plan(self, catalog: Catalog, tool: Tool) -> CallPlan:
        source, facts = catalog.sources.get(tool.source), tool.binding.facts
        return CallPlan(
            tool,
            source,
            execute=self._guard_execution(tool, source),
            checker=self._checker(catalog, tool),
            action=tool.binding.action,
            is_action_id=catalog.service(tool.name) is not None,
            is_own=facts.own,
            is_relayed=facts.relayed,
            reads_request=facts.own or facts.reports,
            keeps_answers=facts.keeps_answers,
            takes_job=facts.typed and AS_JOB_KEY in bytes(tool.input_schema),
            own_names=own_argument_names(tool),
        )

    def _guard_execution(self, tool: Tool, source: Source | None) -> Execute:
        execute = _sender(self._upstreams[type(tool.binding)], tool)
        for guard in self._guards:
            if guard.applies(tool, source):
                execute = guard.guard(execute)
        return execute

    def _checker(self, catalog: Catalog, tool: Tool) -> Checker | None:
        try:
            return catalog.checker(tool)
        except ValueError as error:
            if tool.digest not in self._unusable:
                self._unusable.add(tool.digest)
                reason = str(error).split("\n", 1)[0][:300]
                log.warning("schema_unusable", extra={"tool": tool.name, "reason": reason})
            return None


def _sender(upstream: Upstream, tool: Tool) -> Execute:
    if isinstance(upstream, PreparedUpstream):
        return upstream.prepare(tool)
    send = upstream.call
    return lambda call: send(call.tool, call.source, call.arguments, call.context)


def _nothing() -> None:
    return None
