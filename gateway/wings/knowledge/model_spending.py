"""Tokens of chat models that tenants use in a day. What a request may use at most is reserved
before it is sent, and replaced by what it used; a process that is killed leaves the reservation."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Literal

import anyio

from config.knowledge import KnowledgeSettings
from gateway.wings.interface import Concern, Sentence
from gateway.wings.models.usage import Budget, BudgetExhausted
from registry.database.postgres import Pool
from registry.database.tables import Tables

Purpose = Literal["extraction", "answers"]


class DailySpending(Tables):
    def __init__(self, pool: Pool, purpose: Purpose, limit: int) -> None:
        """`limit`: tokens of a tenant in a day."""
        self._pool = pool
        self._purpose = purpose
        self._limit = limit

    @asynccontextmanager
    async def reserve(self, tenant: str, worst: int) -> AsyncIterator[Budget]:
        """The account of one request. Raises BudgetExhausted."""
        values = {"host": tenant, "purpose": self._purpose, "limit": self._limit}
        days = await self._fetch(_RESERVE, {**values, "tokens": worst})
        if not days:
            text = f"the tenant's {self._limit:,} tokens of the day for {self._purpose} are used"
            raise BudgetExhausted(text)
        budget = Budget()
        try:
            yield budget
        finally:
            with anyio.CancelScope(shield=True):
                overspent = budget.used.total - worst
                await self._execute(_SETTLE, {**values, "tokens": overspent, "day": days[0][0]})


_RESERVE = b"""
    INSERT INTO knowledge_spent_t AS had (host_id, day, purpose, tokens)
    SELECT %(host)s, (now() AT TIME ZONE 'UTC')::date, %(purpose)s, %(tokens)s::bigint
    WHERE %(tokens)s::bigint <= %(limit)s
    ON CONFLICT (host_id, day, purpose) DO UPDATE SET tokens = had.tokens + excluded.tokens
        WHERE had.tokens + excluded.tokens <= %(limit)s
    RETURNING day
"""
_SETTLE = b"""
    UPDATE knowledge_spent_t SET tokens = tokens + %(tokens)s::bigint
    WHERE (host_id, day, purpose) = (%(host)s, %(day)s, %(purpose)s)
"""


class UsedBudgets(Tables):
    def __init__(self, pool: Pool, settings: KnowledgeSettings) -> None:
        super().__init__(pool)
        self._limits: Mapping[str, int] = {
            "extraction": settings.extraction.tokens_per_day,
            "answers": settings.answers.tokens_per_day,
        }

    async def concerns(self, tenant: str) -> Sequence[Concern]:
        """The budgets of a tenant on this day."""
        rows = await self._fetch(
            "SELECT purpose, tokens, day::text FROM knowledge_spent_t"
            " WHERE host_id = %s AND day = (now() AT TIME ZONE 'UTC')::date",
            [tenant],
        )
        return [self._concern(*row) for row in rows]

    def _concern(self, purpose: str, tokens: int, day: str) -> Concern:
        limit = self._limits[purpose]
        share, key = tokens / limit, f"knowledge {purpose} {day}"
        title = Sentence(
            "{share} of the documents' budget for {purpose} is used",
            {"share": f"{share:.0%}", "purpose": purpose},
        )
        detail = Sentence(
            "{used} of {limit} {unit} of this day.",
            {"used": f"{tokens:,}", "limit": f"{limit:,}", "unit": "tokens"},
        )
        return Concern("budgets", key, title, detail, "collections", share)
