"""Drafts and claims for tests of the journal."""

from typing import Any

from msgspec import Raw

from gateway.wings.events.invocation_journal import (
    AcceptedInvocation,
    Conflict,
    Delivery,
    Draft,
    End,
    Journal,
)
from gateway.wings.events.sweeper import JournalSweeper
from tests.fixtures_database import HOST

OTHER = "00000000-0000-0000-0000-000000000002"


def draft(number: int = 0, **changes: Any) -> Draft:
    values: dict[str, Any] = {
        "host_id": HOST,
        "skill_name": "report",
        "arguments": Raw(b'{"number":%d}' % number),
        "principal_id": "ada",
        "principal": Raw(b'{"id":"ada"}'),
        "repeatable": True,
        "max_attempts": 3,
    }
    return Draft(**{**values, **changes})


async def accept_draft(journal: Journal, **changes: Any) -> str:
    [one] = await journal.accept([draft(**changes)])
    assert isinstance(one, AcceptedInvocation)
    return one.invocation_id


async def refusal_of(journal: Journal, **changes: Any) -> str:
    [one] = await journal.accept([draft(**changes)])
    assert isinstance(one, Conflict)
    return str(one)


async def claim_calls(
    journal: Journal, limit: int = 1, lease_s: float = 60, host: str = HOST, **changes: Any
) -> list[Delivery]:
    return await journal.claim(host, "w", limit=limit, lease_s=lease_s, **changes)


def end(delivery: Delivery, **changes: Any) -> End:
    return delivery.end(**{"result": b'"done"', **changes})


def handle(delivery: Delivery) -> tuple[str, str, int]:
    return delivery.host_id, delivery.invocation_id, delivery.fence


def upkeep(journal: Journal) -> JournalSweeper:
    return JournalSweeper(journal._pool)
