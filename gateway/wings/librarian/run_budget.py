"""Budget and usage of a query or a run. No I/O.

One ledger serves the whole tree of a run: requests of the root and of all children reserve what
they may cost at most before they are sent, and settle what they did cost after it.
"""

import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Literal

import anyio
from msgspec import Struct

from config.librarian import RunLimits
from gateway.wings.models.messages import ModelFailed
from gateway.wings.models.usage import Budget, TokenUsage
from schemas.errors import ToolgateError

Limit = Literal[
    "depth", "iterations", "calls", "lookups", "tokens", "cost", "seconds", "errors"
]  # fmt: skip
BudgetUnit = Literal["iterations", "calls", "lookups"]
_UNITS: Mapping[str, BudgetUnit] = {
    "model": "iterations",
    "llm": "calls",
    "library": "lookups",
    "context": "lookups",
}
REFUSALS = 100  # of what a limit forbids, after which the run ends


class LimitReached(ToolgateError):
    """A limit forbids what was asked for."""

    def __init__(self, limit: Limit) -> None:
        super().__init__(f"the limit of {limit} is reached")
        self.limit = limit


class RunSpent(Struct, frozen=True):
    """Usage of a run."""

    iterations: int = 0
    calls: int = 0
    lookups: int = 0
    tokens: int = 0
    cost: float = 0.0
    seconds: float = 0.0
    cached: int = 0  # calls that were answered by the cache


class RunLedger:
    def __init__(self, limits: RunLimits, *, currency: str = "USD", seconds: float = 0.0) -> None:
        """`seconds`: that were used before, by another process."""
        self.limits = limits
        self.hit: Limit | None = None  # the first limit that forbade something
        self.budget = Budget(limits.tokens, limits.cost or None, currency)
        self._slots = anyio.CapacityLimiter(limits.concurrency)
        self._began = time.monotonic() - seconds
        self._used = {"iterations": 0, "calls": 0, "lookups": 0, "cached": 0}
        self._carried_tokens, self._carried_cost = 0, 0.0
        self._refusals = 0

    @property
    def spending(self) -> RunSpent:
        return RunSpent(
            **self._used,
            tokens=self.budget.used.total + self._carried_tokens,
            cost=round(self.budget.spent + self._carried_cost, 9),
            seconds=round(time.monotonic() - self._began, 3),
        )

    @property
    def left_s(self) -> float:
        return max(self.limits.seconds - (time.monotonic() - self._began), 0.0)

    @property
    def is_exhausted(self) -> bool:
        """Whether code goes on asking for what limits forbid."""
        return self._refusals > REFUSALS

    def count(self, unit: BudgetUnit) -> None:
        """Reserve one. Raises LimitReached."""
        if self._is_used_up(unit):
            raise self.limit_reached(unit)
        self._used[unit] += 1

    def count_cached(self) -> None:
        self._used["calls"] -= 1
        self._used["cached"] += 1

    def limit_reached(self, limit: Limit) -> LimitReached:
        self.hit = self.hit or limit
        self._refusals += 1
        return LimitReached(limit)

    @asynccontextmanager
    async def request(self, worst: TokenUsage) -> AsyncIterator[Budget]:
        """A place among the requests that are made at once, and the budget for one that takes
        `worst` at most. Raises LimitReached for one that the budget forbids."""
        async with self._slots:
            forbids = worst.total > (self.budget.tokens or 0)
            try:
                yield self.budget
            except ModelFailed as error:
                if error.kind != "budget":
                    raise
                raise self.limit_reached("tokens" if forbids else "cost") from error

    def carry(
        self, kind: str, tokens: int, cost: float, *, cached: bool, limit: Limit | None = None
    ) -> None:
        """Count a step of this run that another process made. `limit`: what refused it, where the
        step tells it; those of a budget were counted before."""
        unit = _UNITS.get(kind)
        self.hit = self.hit or limit
        if cached:
            self._used["cached"] += 1
        elif unit is not None and (limit == unit or self._is_used_up(unit)):  # it was refused
            self.hit = self.hit or unit
        elif unit is not None:
            self._used[unit] += 1
        self._carried_tokens += tokens
        self._carried_cost += cost
        if self.budget.tokens is not None:
            self.budget.tokens -= tokens
        if self.budget.money is not None:
            self.budget.money -= cost

    def _is_used_up(self, unit: BudgetUnit) -> bool:
        return self._used[unit] >= int(getattr(self.limits, unit))
