"""Deliveries of completions to webhooks: they are listed, and sent again once a receiver works."""

from collections.abc import Callable
from datetime import datetime
from typing import Annotated, LiteralString

from msgspec import Meta, Struct

from config.value_types import HostId, SkillKey
from gateway.operations.operation import Operation, OperationInput
from gateway.operations.paging import ListPage, Pages, Paging, cursor, place, unknown
from gateway.operations.problems import conflict
from gateway.wings.events.invocation_journal import Status
from gateway.wings.events.member_texts import REDELIVERY
from gateway.wings.events.requests_and_views import seq_of
from gateway.wings.events.webhook_receivers import ADMIN, ONE, WebhookReceivers
from registry.database.postgres import Pool
from registry.database.tables import Tables

PAGES = Pages(50, 500)
DeliveryId = Annotated[HostId, Meta(description="the id of a delivery")]

# The row of a delivery is removed with the invocation that it is about, or after it.
_LIST: LiteralString = """
SELECT seq, outbox_id::text AS id, invocation_id::text AS invocation, status, attempt AS attempts,
    created_ts AS created, CASE WHEN status = 'PENDING' THEN due_ts END AS due,
    finished_ts AS finished, coalesce(error, '') AS error
FROM outbox_t WHERE host_id = %(host)s AND kind = 'webhook' AND target = %(webhook)s
    AND (%(status)s::text IS NULL OR status = %(status)s)
    AND (%(before)s::bigint IS NULL OR seq < %(before)s)
ORDER BY seq DESC LIMIT %(limit)s
"""
# The three days of attempts begin again. A delivery that is being sent goes on, and those that wait
# for their first attempt are left out of "all", so that a further request takes the next ones. What
# cannot be sent takes no place: its invocation is gone, erased, or runs again.
_RESEND: LiteralString = """
WITH picked AS MATERIALIZED (
    SELECT outbox_id FROM outbox_t AS o
    WHERE host_id = %(host)s AND kind = 'webhook' AND target = %(webhook)s
        AND status IN ('PENDING', 'FAILED', 'ACKED')
        AND CASE WHEN %(ids)s::uuid[] IS NULL
            THEN status = 'FAILED' OR (status = 'PENDING' AND attempt > 0)
            ELSE outbox_id = ANY (%(ids)s) END
        AND (SELECT finished_ts IS NOT NULL AND arguments::text <> 'null' FROM invocation_v AS i
            WHERE i.host_id = %(host)s AND i.invocation_id = o.invocation_id LIMIT 1)
    ORDER BY seq LIMIT %(limit)s FOR UPDATE SKIP LOCKED)
UPDATE outbox_t SET status = 'PENDING', attempt = 0, created_ts = now(), due_ts = now(),
    finished_ts = NULL, error = NULL
WHERE host_id = %(host)s AND outbox_id IN (SELECT outbox_id FROM picked)
RETURNING outbox_id::text
"""


class DeliveryQuery(Paging, frozen=True):
    status: Annotated[
        Status | None,
        Meta(description="PENDING: waits for an attempt; ACKED: was accepted; all if absent"),
    ] = None


class WebhookDelivery(Struct, frozen=True, omit_defaults=True):
    """The sending of a completion. `created`: when its attempts began; `due`: the next of them;
    `error`: of the last one."""

    id: str
    invocation: str
    status: Status
    attempts: int
    created: datetime
    due: datetime | None = None
    finished: datetime | None = None
    error: str = ""


class Redelivery(Struct, frozen=True, forbid_unknown_fields=True):
    """Deliveries that are sent again."""

    ids: Annotated[
        tuple[DeliveryId, ...],
        Meta(max_length=1000, description="deliveries; all that FAILED or are PENDING if absent"),
    ] = ()
    limit: Annotated[int, Meta(ge=1, le=1000, description="the oldest first")] = 1000


class Redelivered(Struct, frozen=True):
    """Deliveries that are sent now: their number, and their ids."""

    count: int
    ids: tuple[str, ...]


class DeliveryRow(WebhookDelivery, frozen=True, kw_only=True):
    seq: int


class WebhookDeliveries(Tables):
    def __init__(self, pool: Pool, receivers: WebhookReceivers, wake: Callable[[], None]) -> None:
        """`wake` is called when there is something to send."""
        super().__init__(pool)
        self._receivers = receivers
        self._wake = wake

    @property
    def operations(self) -> tuple[Operation, ...]:
        types = {"webhook": SkillKey}
        return (
            Operation(
                "events_deliveries", "GET", f"{ONE}/deliveries",
                "List what was sent to a webhook, the newest first, and what was not.", ADMIN,
                self.list, ListPage[WebhookDelivery], query=DeliveryQuery, types=types,
            ),
            Operation(
                "events_redeliver", "POST", f"{ONE}/redeliveries",
                "Send deliveries of a webhook again: some by id, or all that failed or wait.",
                ADMIN, self.redeliver, Redelivered, body=Redelivery, members=REDELIVERY,
                types=types, problems=(409,),
            ),
        )  # fmt: skip

    async def list(self, request: OperationInput) -> ListPage[WebhookDelivery]:
        """Deliveries of a deleted webhook are listed, too."""
        query: DeliveryQuery = request.query
        limit, before = PAGES.limit(query), seq_of(place(query.after))
        if query.after is not None and before is None:
            raise unknown()
        rows = await self._fetch_rows(
            DeliveryRow,
            _LIST,
            {
                "host": request.tenant,
                "webhook": request.names["webhook"],
                "status": query.status,
                "before": before,
                "limit": limit + 1,
            },
        )
        if not rows:
            await self._receivers.get(request)
        views = tuple(_view(row) for row in rows[:limit])
        return ListPage(views, cursor(str(rows[limit - 1].seq)) if len(rows) > limit else "")

    async def redeliver(self, request: OperationInput) -> Redelivered:
        host, name, body = request.tenant, request.names["webhook"], request.body
        if (await self._receivers.get(request)).disabled:
            raise conflict(
                f"The webhook {name} is disabled: its receiver answered 410. A test event that it "
                "accepts enables it (events_test_webhook)."
            )
        values = {"host": host, "webhook": name, "ids": [*body.ids] or None, "limit": body.limit}
        ids = tuple(id_ for (id_,) in await self._fetch(_RESEND, values))
        if ids:
            self._wake()
        return Redelivered(len(ids), ids)


def _view(row: DeliveryRow) -> WebhookDelivery:
    names = WebhookDelivery.__struct_fields__
    return WebhookDelivery(*(getattr(row, name) for name in names))
