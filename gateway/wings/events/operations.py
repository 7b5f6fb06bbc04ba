"""The operations of the wing: of callers, of workers elsewhere, and of operators."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain
from typing import Any

import anyio
from anyio.lowlevel import checkpoint
from msgspec import Raw
from msgspec.structs import asdict

from config.events import EventSchedule, EventsSettings
from config.value_types import TopicName
from gateway.context import Context, Principal, new_request_id
from gateway.operations.job_declarations import AsJob
from gateway.operations.operation import Operation, OperationInput, OperationOutput
from gateway.operations.paging import ListPage, Pages, cursor, place, unknown
from gateway.operations.problems import ProblemDetails, conflict, invalid, lacks_scope, not_found
from gateway.operations.stored_callers import read_caller
from gateway.wings.events.acceptor import CorrelationConflict, InvocationAcceptor
from gateway.wings.events.asyncapi import document
from gateway.wings.events.cloudevents import completion
from gateway.wings.events.delivery_execution import backoff
from gateway.wings.events.dispatch import Dispatch, kinds_of
from gateway.wings.events.invocation_journal import (
    AcceptedInvocation,
    Delivery,
    End,
    Filter,
    Invocation,
    Journal,
)
from gateway.wings.events.member_texts import ERASURE, INVOCATION, REDRIVE
from gateway.wings.events.outbox import CompletionOutbox
from gateway.wings.events.requests_and_views import (
    ID,
    Ack,
    Claims,
    DeliveryList,
    Erased,
    Erasure,
    Extend,
    Fail,
    InvocationQuery,
    InvocationView,
    JournalStats,
    NewInvocation,
    Redrive,
    Redriven,
    Release,
    Settled,
    TopicPage,
    TopicQuery,
    WaitQuery,
    delivery_view,
    seq_of,
    view_of,
)
from gateway.wings.events.wakeups import CANCEL, ENDED, WORK, CompletionWaiters
from gateway.wings.events.webhook_deliveries import WebhookDeliveries
from gateway.wings.events.webhook_receivers import WebhookReceivers
from gateway.wings.interface import CallTool, background
from registry.database.postgres import is_uuid
from schemas.errors import TooManyRequests
from schemas.jsonrpc import decode_json, encode

INVOKE, READ = "events:invoke", "events:read"
WORK_SCOPE, ADMIN = "events:work", "events:admin"
ONE = "/invocations/{invocation}"
VERSION = "1"  # of the events
LOOK_S = 0.5  # longest pause of a waiting claim: other processes accept, too


class EventOperations:
    def __init__(
        self,
        journal: Journal,
        accepting: InvocationAcceptor,
        dispatch: Dispatch,
        waits: CompletionWaiters,
        *,
        outbox: CompletionOutbox,
        receivers: WebhookReceivers,
        deliveries: WebhookDeliveries,
        call: CallTool,
        settings: EventsSettings,
        say: Callable[[str], None],
    ) -> None:
        self._journal = journal
        self._outbox = outbox
        self._receivers = receivers
        self._deliveries = deliveries
        self._call = call
        self._accepting = accepting
        self._dispatch = dispatch
        self._waits = waits
        self.settings = settings
        self._say = say
        self._pages = Pages(50, 500)
        self._work = anyio.Event()  # replaced when work came

    def wake(self) -> None:
        """Wake the claims that wait."""
        self._work.set()
        self._work = anyio.Event()

    @property
    def operations(self) -> tuple[Operation, ...]:
        parts = (self._of_callers(), self._of_workers(), self._of_operators())
        webhooks = (*self._receivers.operations, *self._deliveries.operations)
        return (*chain(*parts), *webhooks, *self._of_schedules())

    def _of_callers(self) -> tuple[Operation, ...]:
        return (
            Operation(
                "events_invoke", "POST", "/invocations",
                "Call a tool or a skill later: the call goes on after this request.", INVOKE,
                self.invoke, InvocationView, 202, body=NewInvocation, members=INVOCATION,
                problems=(409, 429),
                forwards="skillName",
                details="events_get has its result. The same correlationId with the same request "
                "is the same invocation.",
            ),
            Operation(
                "events_list", "GET", "/invocations",
                "List invocations of the caller, the newest first.", READ,
                self.list, ListPage[InvocationView], query=InvocationQuery,
            ),
            Operation(
                "events_get", "GET", ONE,
                "Show an invocation with its result, by its id or correlationId.", READ,
                self.get, InvocationView, query=WaitQuery, types=ID, waits=True,
                details="waitS waits for its end.",
            ),
            Operation(
                "events_result", "GET", f"{ONE}/result",
                "Read the whole result of an invocation.", READ, self.result, Any, types=ID,
                no_tool="for results that are too large to be shown with the invocation",
            ),
            Operation(
                "events_cancel", "DELETE", ONE,
                "Cancel an invocation. One that runs ends a moment later, unless it has a result "
                "by then.", INVOKE, self.cancel, InvocationView, types=ID,
            ),
        )  # fmt: skip

    def _of_workers(self) -> tuple[Operation, ...]:
        return (
            Operation(
                "events_claim", "POST", "/claims",
                "Take invocations of skills, to run them elsewhere.", WORK_SCOPE,
                self.claim, DeliveryList, body=Claims, waits=True,
                details="waitS waits for one. A delivery may come again, so do it once for each "
                "idempotencyKey.",
            ),
            Operation(
                "events_topic", "GET", "/topics/{topic}",
                "Read completions that were sent to a topic, the oldest first.", WORK_SCOPE,
                self.topic, TopicPage, query=TopicQuery, types={"topic": TopicName},
                waits=True,
                details="`next` is where the next page begins, also one that is not there yet; "
                "waitS waits for it.",
            ),
            Operation(
                "events_ack", "POST", f"{ONE}/ack", "Report the result of a delivery.", WORK_SCOPE,
                self.ack, Settled, body=Ack, types=ID, problems=(409,),
            ),
            Operation(
                "events_fail", "POST", f"{ONE}/fail", "Report that a delivery failed.", WORK_SCOPE,
                self.fail, Settled, body=Fail, types=ID, problems=(409,),
            ),
            Operation(
                "events_extend", "POST", f"{ONE}/extend",
                "Keep a delivery for longer, and see whether it is to be cancelled.", WORK_SCOPE,
                self.extend, Settled, body=Extend, types=ID, problems=(409,),
            ),
            Operation(
                "events_release", "POST", f"{ONE}/release",
                "Give a delivery back. The attempt does not count.", WORK_SCOPE,
                self.release, Settled, body=Release, types=ID, problems=(409,),
            ),
        )  # fmt: skip

    def _of_operators(self) -> tuple[Operation, ...]:
        return (
            Operation(
                "events_redrive", "POST", "/redrives",
                "Run invocations that FAILED again: some by id, or all that match.", ADMIN,
                self.redrive, Redriven, body=Redrive, members=REDRIVE,
            ),
            Operation(
                "events_erase", "POST", "/erasures",
                "Erase arguments, results and errors of a caller. States and times stay.", ADMIN,
                self.erase, Erased, body=Erasure, members=ERASURE, destroys=True,
                details="Open invocations are cancelled.",
            ),
            Operation(
                "events_asyncapi", "GET", "/asyncapi.json", "Describe the events.", "",
                self.asyncapi, dict[str, Any],
                no_tool="it describes events for programs; lists describe tools",
            ),
            Operation(
                "events_stats", "GET", "/stats", "Show statistics of the journal.", ADMIN,
                self.stats, JournalStats,
            ),
        )  # fmt: skip

    def _of_schedules(self) -> Iterator[Operation]:
        for name, schedule in self.settings.schedules.items():
            yield Operation(
                f"events_schedule_{name}", "POST", f"/schedules/{name}",
                f"Accept the invocation of the schedule {name}.", ADMIN,
                partial(self.run_schedule, name, schedule), dict[str, Any],
                no_tool="it runs on a schedule",
                job=AsJob(
                    always=True, once=True, schedule=schedule.cron, timezone=schedule.timezone
                ),
            )  # fmt: skip

    async def run_schedule(
        self, name: str, schedule: EventSchedule, request: OperationInput
    ) -> Any:
        """A job that is started again after a crash accepts the same invocation. None is accepted
        while an earlier one waits for an approval: one approval lets one call run."""
        job = new_request_id() if request.context is None else request.context.request_id
        principal = Principal(
            schedule.principal,
            request.tenant,
            frozenset({INVOKE, *schedule.scopes}),
            roles=frozenset(schedule.roles),
        )
        mark = f"schedule:{name}:"
        waiting = await self._journal.awaits_approval(request.tenant, principal.id, mark)
        if waiting is not None:
            return {"id": waiting, "status": "PENDING", "skipped": "it waits for an approval"}
        arguments = {
            "skillName": schedule.skill,
            "arguments": schedule.arguments,
            "correlationId": f"{mark}{job}",
        }
        result = await self._call(background(principal), "events_invoke", arguments)
        if result.is_error or not isinstance(result.structured_content, Raw):
            raise invalid("".join(result.texts[:1]) or "The invocation was not accepted.")
        return decode_json(bytes(result.structured_content))

    async def invoke(self, request: OperationInput) -> OperationOutput:
        if request.context is None:
            raise invalid("Invocations are accepted as calls of the tool events_invoke.")
        accepted = await self._accept(request.context, request.body)
        row = accepted.row or await self._row(request.tenant, accepted.invocation_id)
        view = view_of(row, self.settings.payload_bytes)
        return OperationOutput(view, location=f"/invocations/{row.invocation_id}")

    async def _accept(self, context: Context, invocation: NewInvocation) -> AcceptedInvocation:
        """Raises ProblemDetails, and Fault."""
        try:
            return await self._accepting.accept(context, invocation)
        except CorrelationConflict as error:
            raise conflict(f"{error.message}.") from error
        except TooManyRequests as error:
            retry = {"Retry-After": str(error.retry_after)}
            raise ProblemDetails(
                429, "too-many-requests", f"{error.message}.", headers=retry
            ) from error

    async def list(self, request: OperationInput) -> ListPage[InvocationView]:
        query: InvocationQuery = request.query
        if query.everyone and not self._is_operator(request):
            raise lacks_scope(ADMIN, action="Reading those of all callers")
        filter_ = Filter(
            query.status,
            query.skill_name,
            None if query.everyone else request.principal.id,
            query.reason,
        )
        limit, before = self._pages.limit(query), seq_of(place(query.after))
        if query.after is not None and before is None:
            raise unknown()
        rows = await self._journal.page(request.tenant, filter_, before=before, limit=limit + 1)
        views = tuple(view_of(row, 0) for row in rows[:limit])
        return ListPage(views, cursor(str(rows[limit - 1].seq)) if len(rows) > limit else "")

    async def get(self, request: OperationInput) -> InvocationView:
        row = await self._find_invocation(request)
        ends_at = anyio.current_time() + min(request.query.wait_s, self.settings.wait_s)
        # a question of a task wakes its waiters, too
        while not row.has_ended and (left_s := ends_at - anyio.current_time()) > 0:
            await self._waits.until_ended(request.tenant, row.invocation_id, left_s)
            row = await self._find_invocation(request)
        attempts = await self._journal.attempts(request.tenant, row.invocation_id)
        view: InvocationView = view_of(row, self.settings.payload_bytes, attempts)
        return view

    async def result(self, request: OperationInput) -> Raw:
        row = await self._find_invocation(request)
        if row.result is None:
            raise not_found("result of the invocation", request.names["invocation"])
        return Raw(row.result.encode())

    async def cancel(self, request: OperationInput) -> InvocationView:
        row = await self._find_invocation(request)
        ended, running = await self._journal.cancel(request.tenant, [row.invocation_id])
        if running:
            self._say(CANCEL)
        if ended:
            self._waits.wake_waiters([(request.tenant, row.invocation_id)])
            self._say(ENDED)
        view: InvocationView = view_of(
            await self._find_invocation(request), self.settings.payload_bytes
        )
        return view

    async def claim(self, request: OperationInput) -> DeliveryList:
        body: Claims = request.body
        wait_s = min(body.wait_s, self.settings.wait_s)
        with anyio.CancelScope(shield=True):  # what was taken is not lost
            deliveries = await self._claim_deliveries(request.tenant, body)
        with anyio.move_on_after(wait_s):
            while not deliveries and not self._dispatch.draining:
                with anyio.move_on_after(LOOK_S):
                    await self._work.wait()
                with anyio.CancelScope(shield=True):
                    deliveries = await self._claim_deliveries(request.tenant, body)
        try:
            await checkpoint()
        except anyio.get_cancelled_exc_class():  # the worker went away
            await self._given_back(request.tenant, deliveries)
            raise
        callers = [read_caller(delivery.principal).principal.id for delivery in deliveries]
        return DeliveryList(
            tuple(
                delivery_view(delivery, id_)
                for delivery, id_ in zip(deliveries, callers, strict=True)
            )
        )

    async def _claim_deliveries(self, tenant: str, body: Claims) -> Sequence[Delivery]:
        return await self._journal.claim(
            tenant,
            body.worker,
            limit=body.limit,
            lease_s=body.lease_s or self.settings.lease_s,
            skills=[skill for skill in body.skills if skill],
        )

    async def _given_back(self, tenant: str, deliveries: Sequence[Delivery]) -> None:
        with anyio.CancelScope(shield=True):
            if deliveries and await self._journal.release(delivery.key for delivery in deliveries):
                self._say(WORK + tenant)

    async def topic(self, request: OperationInput) -> TopicPage:
        name, query = request.names["topic"], request.query
        if name not in self.settings.topics:
            raise not_found("topic", name)
        after, limit = query.after or "", self._pages.limit(query)
        invocations, after = await self._outbox.read(request.tenant, name, after, limit)
        with anyio.move_on_after(min(query.wait_s, self.settings.wait_s)):
            while not invocations:
                await anyio.sleep(LOOK_S)
                invocations, after = await self._outbox.read(request.tenant, name, after, limit)
        return TopicPage(tuple(map(completion, invocations)), after)

    async def ack(self, request: OperationInput) -> Settled:
        result = encode(request.body.result)
        most = self.settings.result_bytes
        if len(result) > most:
            raise invalid(f"The result has {len(result)} bytes, expected at most {most}.")
        row = await self._find_delivery(request)
        end = End(request.tenant, row.invocation_id, request.body.fence, result=Raw(result))
        return await self._report_end(request, row, end)

    async def fail(self, request: OperationInput) -> Settled:
        row, body = await self._find_delivery(request), request.body
        error = encode({"message": body.error})
        again = body.retry and row.attempt < row.max_attempts
        wait_s = body.retry_after_s
        end = End(
            request.tenant,
            row.invocation_id,
            body.fence,
            error=Raw(error),
            reason="attempts" if body.retry else "error",
            retry_s=(backoff(row.attempt, self.settings) if wait_s is None else wait_s)
            if again
            else None,
        )
        return await self._report_end(request, row, end)

    async def _report_end(self, request: OperationInput, row: Invocation, end: End) -> Settled:
        """Store a report; the same one again changes nothing. Raises ProblemDetails."""
        counts = await self._dispatch.end(end)
        if row.order_key is not None:  # the next one of its key may run now
            self._say(WORK + request.tenant)
        row = await self._row(request.tenant, row.invocation_id)
        as_before = row.fence == end.fence and row.has_ended and end.retry_s is None
        if not counts and not (as_before and (row.status == "ACKED") == (end.error is None)):
            raise late(row, end.fence)
        return Settled(row.status)

    async def extend(self, request: OperationInput) -> Settled:
        row, fence = await self._find_delivery(request), request.body.fence
        lease_s = request.body.lease_s or self.settings.lease_s
        extended = await self._journal.extend([(request.tenant, row.invocation_id, fence)], lease_s)
        if not extended:
            raise late(row, fence)
        return Settled("DISPATCHED", extended[row.invocation_id, fence])

    async def release(self, request: OperationInput) -> Settled:
        row, body = await self._find_delivery(request), request.body
        key = (request.tenant, row.invocation_id, body.fence)
        if not await self._journal.release([key], delay_s=body.delay_s):
            raise late(row, body.fence)
        self._say(WORK + request.tenant)
        return Settled("PENDING")

    async def redrive(self, request: OperationInput) -> Redriven:
        body: Redrive = request.body
        if not body.ids and body.skill_name is None and body.reason is None:
            raise invalid(
                "Expected ids, skillName or reason: nothing is redriven without a filter."
            )
        ids = None
        if body.ids:
            invocations = [
                await self._looked_up(request.tenant, invocation) for invocation in body.ids
            ]
            ids = [invocation.invocation_id for invocation in invocations if invocation is not None]
        redriven = await self._journal.redrive(
            request.tenant, ids, skill=body.skill_name, reason=body.reason, limit=body.limit
        )
        if redriven:
            self._say(WORK + request.tenant)
        return Redriven(tuple(redriven))

    async def erase(self, request: OperationInput) -> Erased:
        erased = await self._journal.erase(request.tenant, request.body.principal)
        self._say(CANCEL)
        return Erased(erased)

    async def asyncapi(self, _request: OperationInput) -> Any:
        return document(self.settings, VERSION)

    async def stats(self, request: OperationInput) -> JournalStats:
        counts = await self._journal.counts(request.tenant)
        tenant, dispatch = request.tenant, self._dispatch
        return JournalStats(
            **asdict(counts),
            running=dispatch.running_of(tenant),
            outcomes=kinds_of(dispatch.outcomes, tenant),
            swept=kinds_of(dispatch.swept, tenant),
        )

    def _is_operator(self, request: OperationInput) -> bool:
        context = request.context
        if context is None:
            return False
        if not context.identity.verified:
            return True  # without authentication all callers are one
        return ADMIN in context.identity.scopes

    async def _find_invocation(self, request: OperationInput) -> Invocation:
        """The invocation of the path. Raises ProblemDetails, also for that of another caller."""
        name = request.names["invocation"]
        row = await self._looked_up(request.tenant, name, request.principal.id)
        if row is None or not (
            row.principal_id == request.principal.id or self._is_operator(request)
        ):
            raise not_found("invocation", name)
        return row

    async def _find_delivery(self, request: OperationInput) -> Invocation:
        """The invocation of the path, of workers. Raises ProblemDetails."""
        name = request.names["invocation"]
        row = await self._looked_up(request.tenant, name)
        if row is None or row.skill_name not in self.settings.skills:
            raise not_found("invocation", name)
        return row

    async def _looked_up(
        self, tenant: str, name: str, principal_id: str | None = None
    ) -> Invocation | None:
        if is_uuid(name) and (row := await self._journal.get(tenant, name)) is not None:
            return row
        return await self._journal.find_correlated(tenant, name, principal_id)

    async def _row(self, tenant: str, invocation_id: str) -> Invocation:
        row = await self._journal.get(tenant, invocation_id)
        if row is None:
            raise not_found("invocation", invocation_id)
        return row


def late(row: Invocation, fence: int) -> ProblemDetails:
    """409 for a report on a delivery that is over."""
    return conflict(
        f"The delivery {fence} is not the current one: {row.invocation_id} is {row.status}, and "
        f"its last delivery is {row.fence}."
    )
