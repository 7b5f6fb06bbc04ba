"""HTTP client for services that names the trace of each call, where there are traces."""

from collections.abc import Mapping

from gateway.traces import CURRENT, TRACEPARENT, SpanContext
from gateway.upstreams.http.client import Client, HttpRequest, HttpResponse, Reader, replaced
from gateway.upstreams.http.connections import SourcePool, read


class TracedClient(Client):
    """Adds `traceparent` to the requests of sampled messages."""

    async def forward(
        self,
        pool: SourcePool,
        request: HttpRequest,
        reader: Reader = read,
        *,
        headers: Mapping[str, str] | None = None,
        inline_bytes: int = 0,
    ) -> HttpResponse:
        own = CURRENT.get()
        if isinstance(own, SpanContext):
            if headers is None:
                headers = pool.with_configured(request.headers)
            headers = replaced(headers, {TRACEPARENT: own.traceparent})
        return await super().forward(
            pool, request, reader, headers=headers, inline_bytes=inline_bytes
        )
