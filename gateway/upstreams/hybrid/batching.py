"""JSON-RPC to a hybrid service, and several calls as one batch where the service allows that.

Calls that begin in the same turn of the event loop travel together: no timer, so a lone call does
not wait for others. A batch answers when its slowest member does, and `upstream.timeout_s` and
`upstream.response_limit_bytes` hold for the whole of it.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from gateway.upstreams.auth.caller import Caller
from gateway.upstreams.http.answers import lost
from gateway.upstreams.http.client import Client, HttpRequest
from gateway.upstreams.http.connections import UpstreamFailed
from gateway.upstreams.hybrid.replies import read_batch, read_single
from schemas.jsonrpc import Request, encode
from schemas.source import Source
from schemas.tool import ToolResult

log = logging.getLogger("toolgate.upstream")

CORRELATION_ID = "X-Correlation-Id"
_Key = tuple[int, str, bool, tuple[tuple[str, str], ...], tuple[str, str | None] | None]


@dataclass(frozen=True, slots=True)
class Post:
    """Where requests go, and what goes with them besides their bodies."""

    source: Source
    target: str
    headers: Mapping[str, str]  # from the caller: the ids of a trace
    request_id: str  # ours; it stands in for a correlation id
    idempotent: bool  # may be repeated
    caller: Caller | None = None  # where the source wants to know

    def request(self, body: bytes) -> HttpRequest:
        headers = {"Content-Type": "application/json", CORRELATION_ID: self.request_id}
        return HttpRequest(
            "POST",
            self.target,
            {**headers, **self.headers},
            body,
            idempotent=self.idempotent,
            caller=self.caller,
        )

    @property
    def key(self) -> _Key:
        """Only what is the same for both may travel together; ids of our own do not count."""
        who = (self.caller.token, self.caller.scope_token) if self.caller else None
        return id(self.source), self.target, self.idempotent, tuple(self.headers.items()), who


async def exchange(client: Client, post: Post, requests: Sequence[Request]) -> list[ToolResult]:
    """The results of `requests`, which have ids; a single one goes without an array around it."""
    alone = len(requests) == 1
    try:
        response = await client.send(
            post.source, post.request(encode(requests[0] if alone else requests))
        )
    except UpstreamFailed as error:
        return [lost(error)] * len(requests)
    ids = [request.id for request in requests if isinstance(request.id, int)]
    if alone:
        return [read_single(response, ids[0], post.source.name)]
    return read_batch(response, ids, post.source.name)


@dataclass(slots=True, eq=False)
class _Batch:
    """Calls that wait for one answer; each caller holds the future of its own."""

    post: Post
    members: list[tuple[Request, asyncio.Future[ToolResult]]] = field(default_factory=list)
    task: asyncio.Task[None] | None = None

    def leave(self) -> None:
        """A caller has gone; with the last one the batch ends."""
        if self.task is not None and all(future.done() for _, future in self.members):
            self.task.cancel()

    def settle(self, task: asyncio.Task[None]) -> None:
        """Nobody waits for ever, whatever became of the task."""
        for _, future in self.members:
            if future.done():
                continue
            if task.cancelled():
                future.cancel()
            else:
                future.set_exception(task.exception() or RuntimeError("a call was forgotten"))


class Batching:
    """Gathers calls into batches."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._open: dict[_Key, _Batch] = {}  # of this turn of the event loop

    async def ask(self, post: Post, request: Request, limit: int) -> ToolResult:
        """The result of `request`, sent in a batch of at most `limit`.

        Cancelling it leaves the batch to the others.
        """
        loop = asyncio.get_running_loop()
        key = post.key
        batch = self._open.get(key)
        if batch is None:
            batch = self._open[key] = _Batch(post)  # keeps the source, whose id is in the key
            loop.call_soon(self._send, key, batch)
        future: asyncio.Future[ToolResult] = loop.create_future()
        batch.members.append((request, future))
        if len(batch.members) >= limit:
            self._send(key, batch)
        try:
            return await future
        except asyncio.CancelledError:
            batch.leave()
            raise

    def _send(self, key: _Key, batch: _Batch) -> None:
        if self._open.get(key) is not batch:
            return  # it was full before the turn ended
        del self._open[key]
        batch.members = [member for member in batch.members if not member[1].done()]
        if batch.members:
            batch.task = asyncio.create_task(self._run(batch))
            batch.task.add_done_callback(batch.settle)

    async def _run(self, batch: _Batch) -> None:
        requests = [request for request, _ in batch.members]
        results = await exchange(self._client, batch.post, requests)
        log.debug("batch_sent", extra={"source": batch.post.source.name, "calls": len(requests)})
        for (_, future), result in zip(batch.members, results, strict=True):
            if not future.done():
                future.set_result(result)
