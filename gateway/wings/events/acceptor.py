"""Accepts invocations: what is judged, limited and counted before a row is stored."""

import fnmatch
import uuid
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta

from msgspec import Raw
from msgspec.structs import replace

from config.events import EventsSettings
from gateway.context import Context
from gateway.operations.request_parsing import has_nul
from gateway.operations.stored_callers import caller_of
from gateway.state.quotas import COUNT_S, Quota, Usage, UsageQuotas
from gateway.telemetry.traces import CURRENT, ActiveTrace, parse
from gateway.wings.events.invocation_journal import AcceptedInvocation, Conflict, Draft, Journal
from gateway.wings.events.requests_and_views import NewInvocation
from gateway.wings.events.webhook_receivers import WebhookReceivers
from gateway.wings.interface import WingParts
from registry.database.group_commit import GroupCommit
from schemas.errors import InvalidParams, TooManyRequests
from schemas.jsonrpc import encode
from schemas.tool import Tool

OWN = "events"  # source of the wing's own tools
BATCH = 100
LONGEST_DELAY = timedelta(days=365)
REPLY_TO = (
    "Not accepted: replyTo: expected a topic of events.topics, `session` for the open one,"
    " or `webhook:` with the name of one that is registered"
)
SESSION, TOPIC, WEBHOOK = "session:", "topic:", "webhook:"


class CorrelationConflict(InvalidParams):
    """The id of the request was given to another one (409)."""


class InvocationAcceptor:
    def __init__(
        self,
        parts: WingParts,
        journal: Journal,
        settings: EventsSettings,
        *,
        receivers: WebhookReceivers,
        accepted: Callable[[str, str], None],
    ) -> None:
        """`accepted` is called with each invocation, of (tenant, id), after its
        commit."""
        self._parts = parts
        self._journal = journal
        self.settings = settings
        self._receivers = receivers
        self._accepted = accepted
        self._commits = GroupCommit(self._journal.accept, most=BATCH)
        self.usage = UsageQuotas()

    async def run(self) -> None:
        """Store what is accepted, until cancelled."""
        await self._commits.run()

    async def accept(
        self,
        context: Context,
        request: NewInvocation,
        *,
        id_: str = "",
        task_id: str | None = None,
        shows_forms: bool = False,
    ) -> AcceptedInvocation:
        """Accept an invocation: it is committed when this returns. `id_` is that of the invocation
        if it has one, `task_id` of its MCP task, whose client may show forms. Raises Fault."""
        caller = caller_of(context, shows_forms=shows_forms)
        draft = replace(
            self._draft(context, request, caller),
            invocation_id=id_ or str(uuid.uuid4()),
            task_id=task_id,
        )
        await self._check_webhook(draft)
        draft = replace(draft, hops=await self._hops(context, request))
        await self._count(draft)
        stored = await self._commits.put(draft)
        if isinstance(stored, Conflict):
            raise CorrelationConflict(f"Not accepted: {stored}")
        if stored.is_new:
            self._accepted(draft.host_id, stored.invocation_id)
        return stored

    def tool(self, context: Context, name: str) -> Tool | None:
        catalog = self._parts.catalogs.of(context.principal.tenant, context.toolset)
        return catalog.find(name)

    def _draft(self, context: Context, request: NewInvocation, caller: bytes) -> Draft:
        arguments = encode(request.arguments)
        most = self.settings.payload_bytes
        if len(arguments) > most:
            text = f"the arguments have {len(arguments)} bytes, expected at most {most}"
            raise InvalidParams(f"Not accepted: {text} (events.payload_bytes)")
        if b"\\u0000" in arguments and has_nul(request.arguments):
            raise InvalidParams("Not accepted: no text in the arguments may have a NUL character")
        name, queue, repeatable, attempts = self._target(context, request)
        return Draft(
            host_id=context.principal.tenant,
            skill_name=name,
            queue=queue,
            arguments=Raw(arguments),
            principal_id=context.principal.id,
            principal=Raw(caller),
            repeatable=repeatable,
            max_attempts=min(request.attempts or attempts, attempts),
            correlation_id=request.correlation_id or "",
            topic=self._topic(request.topic),
            reply_to=self._reply_to(context, request.reply_to),
            traceparent=_traceparent(context),
            order_key=request.order_key,
            on_failure=request.on_failure,
            idempotency_key=request.idempotency_key,
            priority=request.priority,
            due_ts=_due(request.not_before),
            delay_s=request.delay_s,
            deadline_s=request.deadline_s,
        )

    def _target(self, context: Context, request: NewInvocation) -> tuple[str, str, bool, int]:
        """Name, queue, whether it is repeatable, and attempts. Raises InvalidParams."""
        name, always, auto = request.skill_name, request.retry == "always", request.retry == "auto"
        skill = self.settings.skills.get(name)
        if skill is not None:
            attempts = skill.attempts or self.settings.attempts
            return name, name, always or (auto and skill.repeatable), attempts
        tool = self._parts.check(context, name, request.arguments)
        if tool.source == OWN or tool.binding.facts.own:
            raise InvalidParams(f"Not accepted: {tool.name} is called at once only")
        hints = tool.annotations
        harmless = hints.idempotent_hint is True or hints.read_only_hint is True
        return name, "", always or (auto and harmless), self.settings.attempts

    def _topic(self, topic: str | None) -> str:
        topics = self.settings.topics
        if topic and topic not in topics:
            raise InvalidParams(f"Not accepted: topic: expected one of {', '.join(topics)}")
        return topic or (topics[0] if topics else "agent-commands")

    def _reply_to(self, context: Context, reply_to: str | None) -> str | None:
        """Where the completion goes, with its kind. Raises InvalidParams."""
        session = context.session
        if not reply_to:
            return None
        if reply_to in self.settings.topics:
            return TOPIC + reply_to
        if session is not None and reply_to in ("session", SESSION + session.id):
            return SESSION + session.id
        if reply_to.startswith(WEBHOOK):
            return reply_to
        raise InvalidParams(REPLY_TO)

    async def _check_webhook(self, draft: Draft) -> None:
        """Check that a webhook is registered. Raises InvalidParams."""
        kind, _, name = (draft.reply_to or "").partition(":")
        if kind == "webhook" and not await self._receivers.is_known(draft.host_id, name):
            raise InvalidParams(REPLY_TO)

    async def _hops(self, context: Context, request: NewInvocation) -> int:
        """How many invocations led to this one. Raises InvalidParams for too many."""
        tenant = context.principal.tenant
        cause = request.caused_by or context.headers.correlation_id
        if cause is None or cause == request.correlation_id:
            return 0
        before = await self._journal.find_correlated(tenant, cause, context.principal.id)
        hops = 0 if before is None else before.hops + 1
        if hops > self.settings.max_hops:
            text = f"{hops} invocations led to this one, expected at most {self.settings.max_hops}"
            raise InvalidParams(f"Not accepted: {text} (events.max_hops)")
        return hops

    async def _count(self, draft: Draft) -> None:
        """Check the quotas of open invocations. Raises TooManyRequests."""
        tenant = draft.host_id
        excess = await self.usage.take(
            tenant,
            draft.principal_id,
            Usage(1, len(bytes(draft.arguments))),
            quotas=_quotas(self.settings),
            count=lambda: self._journal.open_usage(tenant, self.settings.tenant_open),
        )
        if excess is not None:
            setting = excess.quota.setting
            text = f"Not accepted: {excess.sentence('caller', 'open invocations')} ({setting})"
            raise TooManyRequests(text, COUNT_S, setting)


def _quotas(settings: EventsSettings) -> tuple[Quota, ...]:
    return (
        Quota("events.principal_open", "number", settings.principal_open, shared=False),
        Quota("events.principal_open_bytes", "bytes", settings.principal_open_bytes, shared=False),
        Quota("events.tenant_open", "number", settings.tenant_open, shared=True),
        Quota("events.tenant_open_bytes", "bytes", settings.tenant_open_bytes, shared=True),
    )


def _traceparent(context: Context) -> str | None:
    """The span that the call belongs to: that of this message, else the caller's."""
    active = CURRENT.get()
    if active is not None:
        return (active.context if isinstance(active, ActiveTrace) else active).traceparent
    meta = context.params.get("_meta")
    traceparent = meta.get("traceparent") if isinstance(meta, dict) else context.headers.traceparent
    return traceparent if parse(traceparent) is not None else None


def _due(time: datetime | None) -> datetime | None:
    """Raises InvalidParams for one that is too far off."""
    if time is not None and time - datetime.now(UTC) > LONGEST_DELAY:
        raise InvalidParams("Not accepted: notBefore: expected a time within a year")
    return time


def matches(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)
