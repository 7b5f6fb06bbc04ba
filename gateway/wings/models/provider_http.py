"""Transports of requests to providers: HTTP, and the replay of a transcript."""

import asyncio
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import aiohttp
import msgspec

from gateway.http_client.failure_texts import failure_text
from gateway.http_client.http1 import ConnectFailed, Http1Response, Site, TooLarge
from gateway.http_client.pool import Pool
from gateway.wings.models.dialect import ProviderError
from gateway.wings.models.messages import ModelExchange

LIMIT = "models.response_limit_bytes"


class ProviderRequest(NamedTuple):
    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes | None
    until: float  # deadline, time of the event loop
    silence_s: float  # longest wait for the head of the answer, and for each of its chunks


@dataclass(frozen=True, slots=True)
class ProviderResponse:
    status: int
    content_type: str  # lower case, without parameters
    retry_after: str
    chunks: AsyncIterator[bytes]  # raises ProviderError

    async def read(self) -> bytes:
        return b"".join([chunk async for chunk in self.chunks])


class ModelTransport(Protocol):
    def send(self, request: ProviderRequest) -> AbstractAsyncContextManager[ProviderResponse]:
        """The response, whose connection is closed on exit unless it was read to its end. Raises
        ProviderError."""


class ProviderHttp:
    def __init__(self, pool: Callable[[], Pool], site: Site, limit_bytes: int) -> None:
        """`pool` is made with the first request; `limit_bytes` bounds an answer."""
        self._pool = pool
        self._site = site
        self._limit_bytes = limit_bytes

    @asynccontextmanager
    async def send(self, request: ProviderRequest) -> AsyncIterator[ProviderResponse]:
        with _Failures(request):
            async with _in_time(request):
                response = await self._pool().request(
                    self._site, request.method, request.path, request.headers, body=request.body
                )
        try:
            after = response.headers.get("Retry-After", "")
            with _Silence(response, request) as silence:
                chunks = self._chunks(response.iter_any(), silence, request)
                yield ProviderResponse(response.status, response.content_type, after, chunks)
        finally:
            response.close()

    async def _chunks(
        self, body: AsyncIterator[bytes], silence: "_Silence", request: ProviderRequest
    ) -> AsyncIterator[bytes]:
        budget_bytes = self._limit_bytes
        with _Failures(request):
            while chunk := await silence.bounds(body):
                budget_bytes -= len(chunk)
                if budget_bytes < 0:
                    raise TooLarge(self._limit_bytes, LIMIT)
                yield chunk


class _Silence:
    """Bounds each wait for a chunk of a response, with one timer for all of them: a timeout around
    each would cost more than the rest of reading it."""

    def __init__(self, response: Http1Response, request: ProviderRequest) -> None:
        self._response = response
        self._request = request
        self._loop = asyncio.get_running_loop()
        self._due: float | None = None  # None: nobody waits

    def __enter__(self) -> "_Silence":
        self._timer = self._loop.call_later(self._request.silence_s, self._look)
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()

    async def bounds(self, body: AsyncIterator[bytes]) -> bytes:
        """The next chunk; empty at the end. Raises TimeoutError."""
        now = self._loop.time()
        if now >= self._request.until:
            raise TimeoutError
        self._due = min(self._request.until, now + self._request.silence_s)
        if self._due < self._timer.when():
            self._timer.cancel()
            self._timer = self._loop.call_at(self._due, self._look)
        try:
            return await anext(body, b"")
        finally:
            self._due = None

    def _look(self) -> None:
        now = self._loop.time()
        if self._due is not None and now >= self._due:
            self._response.fail(TimeoutError())
        due = self._due or 0.0
        after = due if due > now else now + self._request.silence_s
        self._timer = self._loop.call_at(after, self._look)


def _in_time(request: ProviderRequest) -> asyncio.Timeout:
    now = asyncio.get_running_loop().time()
    return asyncio.timeout_at(min(request.until, now + request.silence_s))


class _Failures:
    """Turns failures of HTTP into ProviderError."""

    def __init__(self, request: ProviderRequest) -> None:
        self._request = request

    def __enter__(self) -> None:
        pass

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        if isinstance(error, TimeoutError):
            late = asyncio.get_running_loop().time() >= self._request.until
            name = "timeout_s" if late else "silence_s"
            text = f"did not answer in time (models.{name})"
            raise ProviderError(text, "late", retryable=not late) from error
        if isinstance(error, TooLarge):
            raise ProviderError(str(error), "malformed") from error
        if isinstance(error, aiohttp.ClientPayloadError | aiohttp.ServerDisconnectedError):
            text = "closed the connection before its answer was complete"
            raise ProviderError(text, "cut", retryable=True) from error
        if isinstance(error, aiohttp.ClientError | OSError):
            again = isinstance(error, ConnectFailed)
            raise ProviderError(failure_text(error, 0), "unreachable", retryable=again) from error


class Replay:
    """Answers requests from a transcript; equal ones in their order, the last one again."""

    def __init__(self, exchanges: Sequence[ModelExchange]) -> None:
        self._answers: defaultdict[tuple[str, bytes], deque[ModelExchange]] = defaultdict(deque)
        for exchange in exchanges:
            self._answers[exchange.path, _canonical(bytes(exchange.request))].append(exchange)

    @asynccontextmanager
    async def send(self, request: ProviderRequest) -> AsyncIterator[ProviderResponse]:
        recordings = self._answers.get((request.path, _canonical(request.body or b"null")))
        if not recordings:
            raise ProviderError("was not asked this in the transcript", "refused")
        exchange = recordings.popleft() if len(recordings) > 1 else recordings[0]

        async def chunks() -> AsyncIterator[bytes]:
            yield exchange.answer

        yield ProviderResponse(exchange.status, exchange.content_type, "0", chunks())


def _canonical(body: bytes) -> bytes:
    """A body without what JSON leaves open, as spaces and the order of members."""
    return msgspec.json.encode(msgspec.json.decode(body), order="sorted")
