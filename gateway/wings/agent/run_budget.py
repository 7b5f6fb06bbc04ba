"""Budgets of a run: what it may use, alone, with its conversation, and on its owner's day. No I/O.

The worst case of a request is reserved with the step that begins it. What it used replaces that
with the next step that counts, also where it failed or was cancelled; a process that is killed
leaves the worst case.
"""

import time
from datetime import date

from config.agent import AgentBudget, AgentSettings
from gateway.wings.agent.conversation_and_run_store import NOTHING, Run, UsageAmounts, UsageTotals
from gateway.wings.models.usage import Budget, BudgetExhausted, ModelCost, TokenUsage

WORTH_S = 1.0  # working time from which the end of a run is counted by itself


class RunMeter:
    def __init__(
        self, settings: AgentSettings, run: Run, others: UsageAmounts, day: UsageAmounts
    ) -> None:
        """`others`: what the other runs of the conversation used."""
        self._currency = settings.currency
        self._budgets = settings.budgets
        self._others = others
        self._spent = UsageTotals(run.usage, day)
        self._since = self._measured = time.monotonic()  # what is counted and stored; counted
        self._reserved = NOTHING
        self._request: Budget | None = None

    def worst(self, usage: TokenUsage, cost: ModelCost | None) -> UsageAmounts:
        counts = cost is not None and cost.currency == self._currency
        return UsageAmounts(usage.total, cost.amount if cost is not None and counts else 0.0)

    def check(self, totals: UsageTotals) -> None:
        """Raises BudgetExhausted."""
        for used, limit in self._limits(totals):
            if (limit.tokens and used.tokens > limit.tokens) or (
                limit.money and used.money > limit.money
            ):
                raise BudgetExhausted("a budget of tokens or money is used up")

    def request(self, worst: UsageAmounts) -> Budget:
        """The account of a request whose worst case was stored."""
        self._reserved = worst
        self._request = Budget(currency=self._currency)
        return self._request

    @property
    def calls_used(self) -> bool:
        """Whether models have asked for more calls than may be made."""
        return any(limit.calls and used.calls > limit.calls for used, limit in self._limits())

    @property
    def calls_left(self) -> int | None:
        """Calls that may be made; None: any number."""
        left = [limit.calls - used.calls for used, limit in self._limits() if limit.calls]
        return min(left, default=None)

    @property
    def left_s(self) -> float | None:
        """Working time that is left; None: any."""
        left = [limit.seconds - used.seconds for used, limit in self._limits() if limit.seconds]
        return min(left, default=None)

    def outstanding(self) -> UsageAmounts:
        """Usage that is not stored yet; negative where more was reserved."""
        self._measured = time.monotonic()
        request = self._request or Budget()
        used = UsageAmounts(request.used.total, request.spent, self._measured - self._since)
        return used.minus(self._reserved)

    @property
    def reserved_on(self) -> date | None:
        """The day that the reservation was counted on, which may be over; None: there is none."""
        return self._spent.counted_on if self._reserved != NOTHING else None

    @property
    def owes(self) -> bool:
        return self._reserved != NOTHING or time.monotonic() - self._since > WORTH_S

    def settle(self, totals: UsageTotals) -> None:
        """Mark the outstanding usage as stored."""
        self._spent, self._since = totals, self._measured
        self._reserved, self._request = NOTHING, None

    def _limits(self, totals: UsageTotals | None = None) -> list[tuple[UsageAmounts, AgentBudget]]:
        now = totals or self._spent
        budgets = self._budgets
        return [
            (now.run, budgets.run),
            (self._others.plus(now.run), budgets.conversation),
            (now.day, budgets.day),
        ]
