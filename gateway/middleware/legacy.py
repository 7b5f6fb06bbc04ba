"""Legacy payload usage: counted per path, and logged once per client."""

import logging
from collections import Counter
from collections.abc import Iterator
from typing import Any

from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

from gateway.abc import Handler, Route
from gateway.context import Context
from schemas.jsonrpc import Request
from schemas.memo import Memo

log = logging.getLogger("toolgate.legacy")

CLIENTS_REMEMBERED = 1000


class LegacyUse(Collector):
    def __init__(self) -> None:
        self._count: Counter[str] = Counter()
        self._clients: Memo[tuple[str, str], bool] = Memo(CLIENTS_REMEMBERED)  # already logged

    def collect(self) -> Iterator[Metric]:
        total = CounterMetricFamily(
            "toolgate_legacy_requests", "Legacy hybrid payloads, by path.", labels=("path",)
        )
        for path, count in list(self._count.items()):
            total.add_metric((path,), count)
        yield total

    def middleware(self, handler: Handler, route: Route) -> Handler:
        if not route.revision.text_results:
            return handler

        async def counted(context: Context, request: Request) -> Any:
            self._seen(context, request)
            return await handler(context, request)

        return counted

    def _seen(self, context: Context, request: Request) -> None:
        path, address = context.letter.side or "rpc", context.letter.client
        self._count[path] += 1
        client = (context.principal.id if context.identity.verified else "", address)
        if self._clients.use(client):
            return
        self._clients.put(client, True)
        log.warning(
            "legacy_payload_deprecated",
            extra={
                "client": client[0] or address,
                "path": path,
                "method": request.method[:100],
                "instead": "send JSON-RPC 2.0",
            },
        )
