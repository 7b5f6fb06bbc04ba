"""Wiring of the ledger of costs, where it is switched on."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import anyio

from config.settings import Settings
from gateway.middleware.cost_ledger import CostLedger
from gateway.wings.models.messages import OnModelUsed, Payer
from gateway.wings.models.usage import ModelCost, TokenUsage
from registry.database.postgres import Pool


def listener_of(ledger: CostLedger) -> OnModelUsed:
    """Adds requests to chat models to a ledger."""

    def on_used(payer: Payer, model: str, usage: TokenUsage, cost: ModelCost | None) -> None:
        money = None if cost is None else (cost.amount, cost.currency)
        ledger.count_model(payer, model, read=usage.input, written=usage.output, cost=money)

    return on_used


@asynccontextmanager
async def count_models(
    settings: Settings, pool: Callable[[], Pool | None]
) -> AsyncIterator[OnModelUsed]:
    """A listener for a process that serves nothing, and the task that writes what it hears."""
    ledger = CostLedger(settings.costs, settings.tenant.host_id, pool)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ledger.run)
        yield listener_of(ledger)
        await ledger.flush()
        tasks.cancel_scope.cancel()
