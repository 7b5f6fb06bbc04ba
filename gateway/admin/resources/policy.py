"""Policy rules, and calls that wait for approval."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct
from msgspec.structs import replace as replace_members

from config.access import Policy, Rule
from config.access_conflicts import rule_problems
from config.settings import Toolset
from config.value_types import ScopeName, ToolsetName
from gateway.admin.registry_parts import RegistryParts
from gateway.admin.resources.member_texts import RULE
from gateway.audit.queries import AuditQuery, search
from gateway.audit.records import AuditEntry
from gateway.context import Principal
from gateway.operations.operation import (
    Line,
    Operation,
    OperationDependencies,
    OperationInput,
    OperationOutput,
    Time,
    ToolName,
)
from gateway.operations.paging import ListPage, Paging
from gateway.operations.problems import (
    Mistake,
    ProblemDetails,
    conflict,
    invalid,
    not_found,
    sentence,
)
from gateway.policy.engine import CompiledRule, Engine, Subject
from gateway.policy.explain import BUILT_INS, OF_OPERATOR, Explanation, explain
from gateway.policy.rule_matches import ToolMatches, ToolSelection, match_selection
from registry.access.approvals import (
    Approval,
    ApprovalRefused,
    Approvals,
    Grant,
    HeldCallView,
    NotPending,
)
from registry.access.policies import Policies, PolicyChanged, StoredRule, TooManyRules
from registry.catalog.catalogs import Catalogs
from registry.catalog.stored_toolsets import StoredToolsets
from schemas.cel_expressions import InvalidExpression
from schemas.globs import wildcards_problem
from schemas.tool import Tool

READ, WRITE = "admin:policy:read", "admin:policy:write"
AUDIT_READ = "admin:audit:read"
OF_ADMINISTRATORS = frozenset({"admin", "cli", "job"})  # fronts of records that are no calls
TRIED_MOST = 5000  # records that one trial reads
TRIED_TOOLS = 50  # that it names
GRANTED_MOST = 1000  # calls of a grant
MATCHES_NAMED = 20
CHOOSING = {name: name for name in ("effect", "tools", "sources", "tiers", "destructive", "when")}
UNRECORDED_MEMBERS = ("roles", "scopes", "toolsets", "when")  # members of rules


class RuleView(Struct, frozen=True):
    """A rule. Rules of the settings have no version, and are changed there."""

    name: str
    rule: Rule
    origin: Literal["settings", "stored"]
    version: int | None
    updated: datetime | None


class GrantedCalls(Struct, frozen=True, forbid_unknown_fields=True):
    """Further calls of a tool that a program may make in this run without another approval."""

    tool: ToolName
    calls: Annotated[int, Meta(ge=1, le=GRANTED_MOST)]
    until: Annotated[Time | None, Meta(description="as long as the approved calls, if absent")] = (
        None
    )


class Decide(Struct, frozen=True, forbid_unknown_fields=True):
    approve: bool
    grants: Annotated[
        tuple[GrantedCalls, ...],
        Meta(max_length=20, description="of tools of the pending calls of a program"),
    ] = ()


@dataclass(frozen=True, slots=True)
class ApprovalDetails(Approval):
    """An approval; of a program, with its code, the calls that it has made, and those that wait,
    by their numbers. Those without a number are granted."""

    code: str = ""
    made: Sequence[Any] = ()
    pending: Sequence[HeldCallView] = ()


class Explain(Struct, frozen=True, forbid_unknown_fields=True):
    """A call and its caller to evaluate; without `arguments` visibility is evaluated."""

    tool: ToolName
    principal: Line = "anonymous"
    roles: tuple[Line, ...] = ()
    scopes: tuple[ScopeName, ...] = ()
    claims: dict[str, Any] = {}
    toolset: ToolsetName | None = None
    arguments: dict[str, Any] | None = None


class RuleTrial(Struct, frozen=True, forbid_unknown_fields=True):
    """A rule to try on the calls of tools among the latest records of the audit log."""

    rule: Rule
    records: Annotated[int, Meta(ge=1, le=TRIED_MOST)] = 1000


class TriedTool(Struct, frozen=True):
    """Calls of a tool, recorded with this decision, that the rule is about."""

    tool: str
    decision: str
    calls: int


class TriedRule(Struct, frozen=True):
    """Calls that a rule would have matched. `undecided` are its members that records cannot
    tell, such as
    roles: with them it would have matched some of the calls, or none. `gone`: calls of tools that
    are not served any more. `tools`: the most frequent ones."""

    calls: int
    matches: int
    changed: int
    gone: int
    undecided: tuple[str, ...]
    since: datetime | None
    tools: tuple[TriedTool, ...]


class PolicyOperations:
    def __init__(
        self,
        dependencies: OperationDependencies,
        policy: Policy,
        *,
        toolsets: Mapping[str, Toolset],
        engine: Callable[[str], Engine],
        catalogs: Catalogs,
        levels: int,
    ) -> None:
        """`engine` returns the current one of a tenant; arguments nested deeper than `levels` are
        not inspected."""
        self._dependencies = dependencies
        self._policy = policy
        self._rules = policy.rules
        self._toolsets = toolsets
        self._engine = engine
        self._catalogs = catalogs
        self._levels = levels

    @classmethod
    def of(cls, parts: RegistryParts) -> "PolicyOperations":
        settings = parts.settings
        return cls(
            parts.dependencies,
            settings.policy,
            toolsets=settings.toolsets,
            engine=parts.engine,
            catalogs=parts.catalogs,
            levels=settings.limits.json_depth,
        )

    @property
    def operations(self) -> Sequence[Operation]:
        rule, approval = "/policy/rules/{rule}", "/approvals/{approval}"
        return (
            Operation(
                "listRules", "GET", "/policy/rules", "List the rules.", READ, self.list,
                ListPage[RuleView], query=Paging,
            ),
            Operation("getRule", "GET", rule, "Show a rule.", READ, self.get, RuleView),
            Operation(
                "putRule", "PUT", rule, "Create or replace a rule.", WRITE, self.put, RuleView,
                body=Rule, members=RULE, selects=CHOOSING, match="required",
                creates=True, problems=(409,),
            ),
            Operation(
                "deleteRule", "DELETE", rule, "Delete a rule.", WRITE, self.delete, status=204,
                match="required", problems=(409,),
            ),
            Operation(
                "explain",
                "POST",
                "/policy/explanations",
                "Explain the decision on a call.",
                READ,
                self.explain,
                Explanation,
                body=Explain,
                problems=(404,),
            ),
            Operation(
                "tryRule", "POST", "/policy/trials",
                "Tell which recorded calls a rule would have matched.", AUDIT_READ, self.try_rule,
                TriedRule, body=RuleTrial,
            ),
            Operation(
                "matchTools", "POST", "/policy/matches",
                "Tell which tools a rule, a guardrail or a toolset would be about.", READ,
                self.match_tools, ToolMatches, body=ToolSelection,
            ),
            Operation(
                "listApprovals", "GET", "/approvals", "List calls that wait for approval.", READ,
                self.waiting, ListPage[Approval], query=Paging,
            ),
            Operation(
                "getApproval", "GET", approval, "Show a call that waits or waited for approval.",
                READ, self.approval, ApprovalDetails,
            ),
            Operation(
                "decide", "POST", f"{approval}/decision", "Approve or deny a call.", WRITE,
                self.decide, Approval, body=Decide,
            ),
        )  # fmt: skip

    async def match_tools(self, request: OperationInput) -> ToolMatches:
        body: ToolSelection = request.body
        if problem := wildcards_problem((*body.tools, *body.exclude)):
            raise invalid(f"tools, exclude: {problem}.")
        tools = self._catalogs.of(request.tenant).tools
        try:
            return match_selection(body, tools, self._policy, limit=MATCHES_NAMED)
        except InvalidExpression as error:
            raise invalid(
                "The condition cannot be read.", Mistake(sentence(error), pointer="/when")
            ) from error

    async def list(self, request: OperationInput) -> ListPage[RuleView]:
        stored = [_rule_view(rule) for rule in await self._policies(request).all()]
        settings_rules = (
            [self._own(name) for name in self._rules] if self._is_operator(request) else []
        )
        rules = [*settings_rules, *(rule for rule in stored if rule.name not in self._rules)]
        return self._dependencies.pages.page(request.query, rules, lambda rule: rule.name)

    async def get(self, request: OperationInput) -> RuleView:
        name = request.names["rule"]
        if name in self._rules:
            if self._is_operator(request):
                return self._own(name)
            raise not_found("rule", name)
        rule = await self._policies(request).get(name)
        if rule is None:
            raise not_found("rule", name)
        return _rule_view(rule)

    async def put(self, request: OperationInput) -> OperationOutput:
        name, present = self._ours(request), request.present
        toolsets = await self._toolset_names(request)
        problems = rule_problems(request.body, self._policy, toolsets)
        mistakes = tuple(Mistake(text, pointer=f"/{member}") for member, text in problems)
        if mistakes:
            raise invalid(f"The rule cannot be used: {mistakes[0].detail}", *mistakes)
        expected = 0 if present is None else present.version
        most = self._policy.stored_rules
        try:
            written = await self._policies(request).put(name, request.body, expected, limit=most)
        except TooManyRules as error:
            raise conflict(sentence(error)) from error
        except PolicyChanged as error:
            raise _precondition_problem(error) from error
        status = 201 if present is None else 200
        return OperationOutput(
            _rule_view(written), status, f"/policy/rules/{name}" if status == 201 else ""
        )

    async def delete(self, request: OperationInput) -> None:
        name, present = self._ours(request), request.present
        try:
            await self._policies(request).delete(name, present.version)
        except PolicyChanged as error:
            raise _precondition_problem(error) from error

    async def explain(self, request: OperationInput) -> Explanation:
        """Evaluates the rules as this gateway knows them."""
        body: Explain = request.body
        toolsets = self._catalogs.toolsets_of(request.tenant)
        if body.toolset is not None and body.toolset not in toolsets:
            raise not_found("toolset", body.toolset)
        catalog = self._catalogs.of(request.tenant)
        tool = next(
            (tool for tool in catalog.tools if body.tool in (tool.name, *tool.aliases)), None
        )
        if tool is None:
            raise not_found("tool", body.tool)
        roles, scopes = frozenset(body.roles), frozenset(body.scopes)
        principal = Principal(body.principal, request.tenant, scopes, body.claims, roles=roles)
        engine, subject = self._engine(request.tenant), Subject.of(tool)
        explanation = explain(
            engine,
            principal,
            toolset=body.toolset,
            subject=subject,
            arguments=body.arguments,
            levels=self._levels,
        )
        return explanation if self._is_operator(request) else explanation.redact()

    async def try_rule(self, request: OperationInput) -> TriedRule:
        body: RuleTrial = request.body
        toolsets = await self._toolset_names(request)
        mistakes = [*rule_problems(body.rule, self._policy, toolsets)]
        if mistakes:
            raise invalid(
                f"The rule cannot be used: {mistakes[0][1]}",
                *(Mistake(text, pointer=f"/rule/{member}") for member, text in mistakes),
            )
        page = await search(self._dependencies.pool, request.tenant, AuditQuery(limit=body.records))
        entries = [
            record.entry for record in page.records if record.entry.front not in OF_ADMINISTRATORS
        ]
        catalog = self._catalogs.of(request.tenant)
        return try_on_records(body.rule, entries, catalog.tools, self._engine(request.tenant))

    async def waiting(self, request: OperationInput) -> ListPage[Approval]:
        approvals = await self._hide_operator_rules(
            request, *await self._approvals(request).waiting()
        )
        return self._dependencies.pages.page(request.query, approvals, _by_age)

    async def approval(self, request: OperationInput) -> ApprovalDetails:
        name, approvals = request.names["approval"], self._approvals(request)
        approval = await approvals.get(name)
        if approval is None:
            raise not_found("approval", name)
        (visible_approval,) = await self._hide_operator_rules(request, approval)
        if visible_approval.run is None:
            return ApprovalDetails(**asdict(visible_approval))
        program = (await approvals.program(name))[1] or {}
        return ApprovalDetails(
            **asdict(visible_approval),
            code=program.get("code", ""),
            made=program.get("calls", ()),
            pending=await approvals.calls(name),
        )

    async def decide(self, request: OperationInput) -> Approval:
        name, caller = request.names["approval"], request.principal
        approvals, approve = self._approvals(request), request.body.approve
        if request.body.grants and not approve:
            raise invalid("Expected grants with an approval alone.")
        grants = [Grant(grant.tool, grant.calls, grant.until) for grant in request.body.grants]
        try:
            decided = await approvals.decide(name, approve, caller.id, caller.makers, grants=grants)
        except ApprovalRefused as error:
            raise ProblemDetails(403, "own-call", sentence(error)) from error
        except NotPending as error:
            raise invalid(sentence(error)) from error
        if decided is None:
            present = await self.approval(request)
            raise conflict(f"It does not wait any longer: it is {present.state}, or too old.")
        (visible_approval,) = await self._hide_operator_rules(request, decided)
        return visible_approval

    async def _hide_operator_rules(
        self, request: OperationInput, *approvals: Approval
    ) -> tuple[Approval, ...]:
        """The approvals, without the details of rules of the settings."""
        if self._is_operator(request):
            return approvals
        stored = {stored_rule.name for stored_rule in await self._policies(request).all()} - set(
            self._rules
        )
        visible_rules = BUILT_INS | stored
        return tuple(
            approval
            if approval.rule in visible_rules
            else replace(approval, rule=OF_OPERATOR, reason="")
            for approval in approvals
        )

    async def _toolset_names(self, request: OperationInput) -> Sequence[str]:
        stored = StoredToolsets(self._dependencies.pool, request.tenant)
        return [*self._toolsets, *await stored.names()]

    def _is_operator(self, request: OperationInput) -> bool:
        return self._dependencies.is_operator(request)

    def _ours(self, request: OperationInput) -> str:
        name = request.names["rule"]
        if name in self._rules and self._is_operator(request):
            raise conflict(f"{name} is a rule of the settings: change or remove it there.")
        if name in self._rules:
            raise conflict(f"The gateway has taken the name {name}: choose another one.")
        return name

    def _own(self, name: str) -> RuleView:
        return RuleView(
            name=name, rule=self._rules[name], origin="settings", version=None, updated=None
        )

    def _policies(self, request: OperationInput) -> Policies:
        return Policies(self._dependencies.pool, request.tenant)

    def _approvals(self, request: OperationInput) -> Approvals:
        return Approvals(self._dependencies.pool, request.tenant)


def try_on_records(
    rule: Rule, entries: Sequence[AuditEntry], tools: Iterable[Tool], engine: Engine
) -> TriedRule:
    """The outcome of a rule on recorded calls, which have a caller and a tool, and no more."""
    undecided = tuple(name for name in UNRECORDED_MEMBERS if getattr(rule, name))
    recorded_part = replace_members(rule, roles=(), scopes=(), toolsets=(), when="")
    compiled = CompiledRule("", recorded_part, engine.policy.expression_steps)
    subjects = {name: subject for subject in map(Subject.of, tools) for name in subject.names}
    about: dict[str, bool] = {}
    counts: Counter[tuple[str, str]] = Counter()
    calls = gone = 0
    for entry in entries:
        subject = subjects.get(entry.subject)
        if subject is None:
            gone += bool(entry.source)
            continue
        calls += 1
        if entry.subject not in about:
            mismatch = compiled.subject_mismatch(subject, engine.tier(subject))
            about[entry.subject] = mismatch is None
        if about[entry.subject] and (not rule.principals or entry.principal in rule.principals):
            counts[entry.subject, entry.decision] += 1
    return TriedRule(
        calls=calls,
        matches=counts.total(),
        changed=sum(n for (_, effect), n in counts.items() if (effect or "allow") != rule.effect),
        gone=gone,
        undecided=undecided,
        since=entries[-1].recorded_ts if entries else None,
        tools=tuple(TriedTool(*pair, calls) for pair, calls in counts.most_common(TRIED_TOOLS)),
    )


def _by_age(approval: Approval) -> str:
    return f"{approval.created.isoformat()} {approval.id}"


def _rule_view(row: StoredRule) -> RuleView:
    return RuleView(
        name=row.name, rule=row.rule, origin="stored", version=row.version, updated=row.updated
    )


def _precondition_problem(error: PolicyChanged) -> ProblemDetails:
    return ProblemDetails(412, "precondition-failed", sentence(error))
