"""Invocations as clients see them, and the requests about them."""

import re
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Raw, Struct, UnsetType
from msgspec.structs import asdict

from config.value_types import END
from gateway.operations.operation import Time
from gateway.operations.paging import Paging
from gateway.wings.events.invocation_journal import (
    Delivery,
    Invocation,
    InvocationAttempt,
    Reason,
    Status,
)

CorrelationId = Annotated[
    str,
    Meta(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}" + END,
        description="an id of at most 128 letters, digits and . _ : -",
    ),
]
Text = Annotated[
    str,
    Meta(
        pattern=r"^[^\x00-\x1f\x7f]*" + END,
        min_length=1,
        max_length=255,
        description="a text on one line",
    ),
]
Key = Annotated[
    str, Meta(pattern=r"^[\x21-\x7e]{1,128}" + END, description="1 to 128 visible ASCII characters")
]
Duration = Annotated[float, Meta(ge=0, le=31_536_000, description="seconds, within a year")]
Priority = Annotated[int, Meta(ge=0, le=9, description="a whole number from 0 to 9")]
Fence = Annotated[int, Meta(ge=1, le=2**63 - 1, description="`fence` of the delivery")]
SEQ = re.compile(r"[0-9]{1,18}")  # bigint
ID = {"invocation": CorrelationId}  # of paths


class NewInvocation(
    Struct, frozen=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True
):
    """A call that is made later. `skillName` names a tool, perhaps as `SOURCE.TOOL`, or a skill of
    workers."""

    skill_name: Text
    arguments: dict[str, Any] = {}
    correlation_id: CorrelationId | None = None
    reply_to: Text | None = None
    topic: Text | None = None
    priority: Priority = 5
    delay_s: Duration = 0.0
    not_before: Time | None = None
    deadline_s: Duration | None = None
    order_key: Text | None = None
    on_failure: Literal["skip", "block"] = "skip"
    attempts: Annotated[int, Meta(ge=1, le=100)] | None = None
    retry: Literal["auto", "always", "never"] = "auto"
    idempotency_key: Key | None = None
    caused_by: CorrelationId | None = None


class AttemptView(Struct, frozen=True, omit_defaults=True):
    attempt: int
    ended: str
    worker: str = ""
    error: Raw | UnsetType = UNSET


class InvocationView(Struct, frozen=True, rename="camel", omit_defaults=True):
    """An invocation. `result` is that of the tool, once it ended; `error` says why it failed."""

    id: str
    correlation_id: str
    skill_name: str
    status: Status
    topic: str
    principal: str
    priority: int
    attempt: int
    max_attempts: int
    created: str
    due: str
    reason: Reason | UnsetType = UNSET
    reply_to: str | UnsetType = UNSET
    order_key: str | UnsetType = UNSET
    hops: int = 0
    redriven: int = 0
    cancelling: bool = False
    approval: str | UnsetType = UNSET
    worker: str | UnsetType = UNSET
    deadline: str | UnsetType = UNSET
    finished: str | UnsetType = UNSET
    arguments: Raw | UnsetType = UNSET
    result: Raw | UnsetType = UNSET
    result_bytes: int | UnsetType = UNSET
    error: Raw | UnsetType = UNSET
    attempts: tuple[AttemptView, ...] = ()


class InvocationQuery(Paging, frozen=True, rename="camel", forbid_unknown_fields=True):
    status: Status | None = None
    skill_name: Text | None = None
    reason: Reason | None = None
    everyone: Annotated[
        bool, Meta(description="Those of all callers. Required scope: events:admin.")
    ] = False


class WaitQuery(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    wait_s: Annotated[Duration, Meta(description="Wait so long for its end, seconds.")] = 0.0


class TopicQuery(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    after: (
        Annotated[
            str,
            Meta(
                pattern=r"^[0-9]{1,19}\.[0-9]{1,18}" + END,
                description="`id` of an event, as in 1718.3",
            ),
        ]
        | None
    ) = None
    limit: Annotated[int, Meta(ge=1, le=500)] | None = None
    wait_s: Duration = 0.0


class TopicPage(Struct, frozen=True):
    """CloudEvents, and where to go on."""

    items: tuple[dict[str, Any], ...]
    next: str


class Erasure(Struct, frozen=True, forbid_unknown_fields=True):
    principal: Text


class Erased(Struct, frozen=True):
    """Number of invocations that were blanked."""

    invocations: int


class Redrive(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Selection of FAILED invocations."""

    ids: tuple[CorrelationId, ...] = ()
    skill_name: Text | None = None
    reason: Reason | None = None
    limit: Annotated[int, Meta(ge=1, le=1000)] = 1000


class Redriven(Struct, frozen=True):
    ids: tuple[str, ...]


class Claims(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Deliveries that a worker takes."""

    skills: Annotated[tuple[Text, ...], Meta(min_length=1, max_length=100)]
    limit: Annotated[int, Meta(ge=1, le=100)] = 1
    wait_s: Duration = 0.0
    lease_s: Annotated[float, Meta(gt=0, le=86_400)] | None = None
    worker: Text = "worker"


class DeliveryView(Struct, frozen=True, rename="camel", omit_defaults=True):
    """A delivery to a worker. It may come again: `idempotencyKey` is the same each time."""

    id: str
    fence: int
    skill_name: str
    correlation_id: str
    arguments: Raw
    attempt: int
    max_attempts: int
    idempotency_key: str
    principal: str
    deadline_s: float | None = None
    order_key: str | None = None
    traceparent: str | None = None


class DeliveryList(Struct, frozen=True):
    items: tuple[DeliveryView, ...]


class Ack(Struct, frozen=True, forbid_unknown_fields=True):
    fence: Fence
    result: Any = None


class Fail(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    fence: Fence
    error: Annotated[str, Meta(min_length=1, max_length=10_000)]
    retry: bool = True
    retry_after_s: Duration | None = None


class Extend(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    fence: Fence
    lease_s: Annotated[float, Meta(gt=0, le=86_400)] | None = None


class Release(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    fence: Fence
    delay_s: Duration = 0.0


class Settled(Struct, frozen=True, omit_defaults=True):
    """The state after a report."""

    status: Status
    cancelling: bool = False


class JournalStats(Struct, frozen=True, rename="camel"):
    """The journal of the tenant, and what this process has done for it since its start."""

    pending: int
    delayed: int
    dispatched: int
    acked: int
    failed: int
    unsent: int
    oldest_s: float
    running: int
    outcomes: dict[str, int]
    swept: dict[str, int]


def view_of(
    row: Invocation, most_bytes: int, attempts: list[InvocationAttempt] | None = None
) -> Any:
    """`most_bytes`: of a result that is shown; others are read by themselves."""
    size = None if row.result is None else len(row.result.encode())
    members = {
        **asdict(row),
        "id": row.invocation_id,
        "principal": row.principal_id,
        "approval": row.approval_id,
        **{
            name: _time_text(getattr(row, name))
            for name in ("created", "due", "deadline", "finished")
        },
        **{name: _raw(getattr(row, name)) for name in ("arguments", "result", "error")},
        "result_bytes": size,
        "attempts": tuple(
            AttemptView(
                attempt.attempt,
                stamp(attempt.ended),
                attempt.worker or "",
                _raw(attempt.error) or UNSET,
            )
            for attempt in attempts or ()
        ),
    }
    if size is not None and size > most_bytes:
        members["result"] = None
    view_fields = InvocationView.__struct_fields__
    return InvocationView(
        **{name: members[name] for name in view_fields if members[name] is not None}
    )


def seq_of(text: str) -> int | None:
    """The place of an invocation in the journal; None: it is not one."""
    return int(text) if SEQ.fullmatch(text) else None


def delivery_view(delivery: Delivery, principal: str) -> DeliveryView:
    members = {**asdict(delivery), "id": delivery.invocation_id, "principal": principal}
    members["idempotency_key"] = delivery.invocation_id  # callers' keys are unique to each
    members["arguments"] = Raw(delivery.arguments.encode())
    return DeliveryView(**{name: members[name] for name in DeliveryView.__struct_fields__})


def stamp(time: datetime) -> str:
    """A time as RFC 3339 has it."""
    return time.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _time_text(time: datetime | None) -> str | None:
    return None if time is None else stamp(time)


def _raw(text: str | None) -> Raw | None:
    return None if text is None else Raw(text.encode())
