"""Ledger of tokens and money: sums of a process, which are added to the database every few seconds.

A request adds to a sum in memory. Knows the messages of clients, and takes the use of models as it
is told.
"""

import logging
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import anyio
import psycopg
from msgspec import UNSET, Raw

from config.settings import CostsSettings
from gateway.audit.records import storable_text
from gateway.context import Context
from gateway.interfaces import Handler, Route
from gateway.protocol.dispatcher import OTHER, encode_result
from registry.costs.daily_costs import MICROS, OTHERS, CostKey, CostSum, DailyCosts, Kind
from registry.database.postgres import AWAY, Pool
from registry.display.token_budgets import tokens
from schemas.jsonrpc import Request

log = logging.getLogger("toolgate.costs")

PRUNE_S = 3600.0
WRITE_S = 30.0  # longest time of a write
METHODS: dict[str, Kind] = {
    **dict.fromkeys(
        ("tools/list", "prompts/list", "resources/list", "resources/templates/list", "skills/list",
         "rpc.discover"),
        "definitions",
    ),
    **dict.fromkeys(
        ("tools/call", "prompts/get", "resources/read", "skills/get", "tasks/result"), "answers"
    ),
}  # fmt: skip
"""What clients are sent for their models, by method; in other dialects a tool is a method, too."""


class CostLedger:
    def __init__(
        self, settings: CostsSettings, tenant: str, pool: Callable[[], Pool | None]
    ) -> None:
        """`tenant`: of the gateway. `pool`: None until the database has answered."""
        self._settings = settings
        self._tenant = tenant
        self._pool = pool
        self._sums: dict[CostKey, CostSum] = {}
        self._writing = anyio.Lock()
        self._pruned = -PRUNE_S

    def middleware(self, handler: Handler, route: Route) -> Handler:
        """Outermost middleware of the fronts: it sees results as clients get them. Calls of parts
        of the gateway are not counted: what they read is in the answer to a client, or is read by a
        model, which is counted."""
        revision = route.revision
        is_other = route.method == OTHER and not revision.mcp
        kind = METHODS.get(route.method, "answers" if is_other else None)
        if kind is None or not revision.asks_people:
            return handler

        async def count_tokens(context: Context, request: Request) -> Any:
            result = await handler(context, request)
            if request.id is UNSET and not revision.text_results:
                return result  # of a notification, which nobody gets
            encoded: Raw = encode_result(result)
            principal = context.identity.principal
            key = self._key(principal.tenant, kind, principal.id, context.toolset or "")
            self._add(key, CostSum(1, 0, tokens(bytes(encoded))))
            return result if revision.text_results else encoded

        return count_tokens

    def count_model(
        self,
        caller: tuple[str, str, str],
        model: str,
        *,
        read: int,
        written: int,
        cost: tuple[float, str] | None,
    ) -> None:
        """Count a request to a model. `caller`: tenant, principal and toolset. `cost`: amount and
        currency; None: it has no price."""
        amount, currency = cost or (0.0, "")
        tenant, principal, toolset = caller
        key = self._key(tenant or self._tenant, "model", principal, toolset)
        key = key._replace(model=storable_text(model), currency=currency)
        self._add(key, CostSum(1, read, written, amount * MICROS))

    async def run(self) -> None:
        """Write until cancelled, and delete what is too old."""
        while True:
            await anyio.sleep(self._settings.flush_s)
            await self.flush()

    async def flush(self) -> None:
        """Write the sums, unless the database is away: then they wait for the next time."""
        async with self._writing:
            pool = self._pool()
            if pool is None:
                return
            sums, self._sums = self._sums, {}
            try:
                with anyio.fail_after(WRITE_S):
                    await self._write(DailyCosts(pool), sums)
            except (*AWAY, TimeoutError) as error:
                self._warn("costs_not_written", error)
                for key, waiting in sums.items():
                    self._add(key, waiting)
            except (psycopg.Error, UnicodeEncodeError) as error:
                self._warn("costs_lost", error)

    async def _write(self, costs: DailyCosts, sums: dict[CostKey, CostSum]) -> None:
        if sums:
            await costs.add(sums)
            sums.clear()
        if time.monotonic() - self._pruned >= PRUNE_S:
            self._pruned = time.monotonic()
            await costs.prune(self._settings.retention_days)

    def _key(self, tenant: str, kind: Kind, caller: str, toolset: str) -> CostKey:
        return CostKey(tenant, datetime.now(UTC).date(), kind, storable_text(caller), toolset)

    def _add(self, key: CostKey, more: CostSum) -> None:
        if key not in self._sums and len(self._sums) >= self._settings.rows:
            key = key._replace(caller=OTHERS)
        self._sums.setdefault(key, CostSum()).add(more)

    def _warn(self, event: str, error: Exception) -> None:
        log.warning(event, extra={"reason": str(error).split("\n", 1)[0][:200] or "no answer"})
