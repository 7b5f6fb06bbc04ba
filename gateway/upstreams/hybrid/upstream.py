"""Hybrid services behind the gateway: actions as JSON-RPC or legacy requests, alone or in batches.

An invalid response (no envelope, another call's id) becomes an error that describes the fault
without the service's address.

Calls that begin in the same turn of the event loop are batched: no timer, so a lone call is not
delayed. A batch ends with its slowest member, and `upstream.timeout_s` and
`upstream.response_limit_bytes` apply to the whole of it.

Tracing headers of a call are passed on, the caller's credentials as the source's settings allow.
"""

import asyncio
import codecs
import itertools
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from gateway.context import Context
from gateway.upstreams.auth.caller import Caller
from gateway.upstreams.http import responses_as_results
from gateway.upstreams.http.client import Client, HttpRequest, HttpResponse
from gateway.upstreams.http.responses_as_results import (
    by_status,
    failed_hybrid_call,
    is_json,
    no_answer,
    status_failure,
)
from gateway.upstreams.http.source_pools import UpstreamFailed
from schemas.binding import HybridBinding
from schemas.errors import ToolgateError
from schemas.hybrid import UPSTREAM_FAILED, Status, StatusFault, split, status_members
from schemas.jsonrpc import Request, encode, json_type
from schemas.source import HybridOptions, Source
from schemas.tool import TextContent, Tool, ToolResult

VOID = ToolResult(())
MESSAGE_BYTES = 500  # a longer text is a page, or a stack trace
_NO_RESULTS = frozenset({"text/html", "application/xhtml+xml"})
_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)

log = logging.getLogger("toolgate.upstream")


CORRELATION_ID = "X-Correlation-Id"

IDEMPOTENCY_KEY = "Idempotency-Key"
PATHS = {"query": "/portal/query", "command": "/portal/command"}


class _Envelope(Struct):
    jsonrpc: Any = UNSET
    id: Any = UNSET
    result: Raw | UnsetType = UNSET
    error: Raw | UnsetType = UNSET


class _Error(Struct):
    code: Any = None
    message: Any = None
    data: Raw | UnsetType = UNSET


_envelope = msgspec.json.Decoder(_Envelope)
_members = msgspec.json.Decoder(list[Raw])
_error = msgspec.json.Decoder(_Error)
_anything = msgspec.json.Decoder()
_string = msgspec.json.Decoder(str)


def read_legacy(response: HttpResponse, source: str, request_id: str) -> ToolResult:
    """The result in a response of the legacy dialect: JSON where the body is JSON, whatever its
    declared type."""
    if not _fine(response):
        return _refusal(response, source)
    if not response.body:
        return VOID
    raw = responses_as_results.structure(response.body)
    if isinstance(raw, Raw):
        return _success(raw)
    kind = responses_as_results.media_type(response)
    if kind in _NO_RESULTS or is_json(kind):
        return no_answer(
            f"{source} answered with {_type_text(kind)}, and no result can be read in it"
        )
    return ToolResult((responses_as_results.content(response, request_id, lenient=True),))


def read_single(response: HttpResponse, id_: int, source: str) -> ToolResult:
    """The result of a JSON-RPC request that was sent alone and is no notification."""
    if _fine(response) and not response.body.strip():
        return VOID  # light-hybrid-4j sends no body where a handler returned no value
    envelope = None if _redirects(response) else _decode(response.body)
    if envelope is None or (envelope.error is UNSET and not _fine(response)):
        return _no_envelope(response, source)
    if envelope.id is None and envelope.error is not UNSET:
        return _read(envelope, response.status, source)  # the id was unreadable to the service
    if not _same(envelope.id, id_):
        return no_answer(f"{source} answered with the id of another call")
    return _read(envelope, response.status, source)


def read_batch(response: HttpResponse, ids: Sequence[int], source: str) -> list[ToolResult]:
    """The results of the calls `ids`, in their order, whatever the order of the responses."""
    members = _split(response)
    if members is None:
        return [_refused_batch(response, source)] * len(ids)
    answered: dict[int, list[_Envelope]] = {id_: [] for id_ in ids}
    for member in members:
        envelope = _decode(member)
        if envelope is not None and type(envelope.id) in (int, float) and envelope.id in answered:
            answered[int(envelope.id)].append(envelope)
    return [_only(answered[id_], source) for id_ in ids]


def _split(response: HttpResponse) -> list[Raw] | None:
    """The members of a batch response; None for any other response."""
    if not _fine(response):
        return None
    body = response.body.removeprefix(codecs.BOM_UTF8)
    try:
        body.decode()  # the decoder skips the parts that it passes on
        return _members.decode(body or b"[]")  # empty: every call lacks a response
    except _UNREADABLE:
        return None


def _only(envelopes: list[_Envelope], source: str) -> ToolResult:
    if len(envelopes) == 1:
        return _read(envelopes[0], 200, source)
    count = "this call more than once" if envelopes else "every call of a batch but this one"
    return no_answer(f"{source} answered {count}")


def _refused_batch(response: HttpResponse, source: str) -> ToolResult:
    """The result for each call of a batch that got a single response."""
    envelope = None if _redirects(response) else _decode(response.body)
    if envelope is not None and envelope.error is not UNSET:
        return _read(envelope, response.status, source)
    if _fine(response):
        return no_answer(f"{source} did not answer a batch with an array of JSON-RPC responses")
    return _refusal(response, source)


def _decode(body: bytes | Raw) -> _Envelope | None:
    """The decoded JSON-RPC 2.0 response (section 5), or None; an `error` of null counts as
    absent."""
    try:
        if isinstance(body, bytes):
            body = body.removeprefix(codecs.BOM_UTF8)
            body.decode()
        envelope = _envelope.decode(body)
    except _UNREADABLE:
        return None
    if envelope.error is not UNSET and bytes(envelope.error) == b"null":
        envelope.error = UNSET
    is_complete = (envelope.result is UNSET) != (envelope.error is UNSET)
    return envelope if envelope.jsonrpc == "2.0" and is_complete else None


def _same(response_id: object, id_: int) -> bool:
    return type(response_id) in (int, float) and response_id == id_


def _read(envelope: _Envelope, status: int, source: str) -> ToolResult:
    if isinstance(envelope.result, Raw):
        return _success(envelope.result)
    try:
        error = _error.decode(envelope.error or b"")
    except msgspec.DecodeError:
        return no_answer(f"{source} answered with an error that is no JSON-RPC error object")
    return _rpc_failure(error, status)


def _success(raw: Raw) -> ToolResult:
    """The result of a value; a string is text only: structured content would merely repeat it."""
    text = str(memoryview(raw), "utf-8")
    match text.lstrip()[:1]:
        case '"':
            return ToolResult((TextContent(_string.decode(raw)),))
        case "n":
            return VOID
    return ToolResult((TextContent(text),), raw)


def _rpc_failure(error: _Error, status: int) -> ToolResult:
    status_object = _status_object(error.data)
    if status_object is not None and isinstance(error.data, Raw):
        if not _is_error(status):
            status = next(filter(_is_error, (status_object.get("statusCode"), error.code)), 500)
        return status_failure(status, status_object, error.data)
    if not _is_error(status):
        status = error.code if _is_error(error.code) else 500
    built = _status_of_error(error, status)
    return status_failure(status, built, built)


def _status_of_error(error: _Error, status: int) -> dict[str, Any]:
    """A Status built from an error without one."""
    message = error.message if isinstance(error.message, str) else "The call failed"
    data = _plain(error.data)
    description = data if isinstance(data, str) and data else message
    metadata: dict[str, Any] | UnsetType = UNSET
    if data is not None and not isinstance(data, str):
        metadata = data if isinstance(data, dict) else {"data": data}
    return status_members(
        Status(status, str(error.code), message=message, description=description, metadata=metadata)
    )


def _refusal(response: HttpResponse, source: str) -> ToolResult:
    """The result of an HTTP error, with or without a Status. light-hybrid-4j often omits its
    content type."""
    status = response.status
    if not _is_error(status):  # a redirect, which comes from no action: its status is not passed on
        return no_answer(f"{source} answered HTTP {status}: redirects are not followed")
    raw = responses_as_results.structure(response.body)
    status_object = _status_object(raw)
    if status_object is not None and isinstance(raw, Raw):
        return by_status(response, status_failure(status, status_object, raw))
    if isinstance(raw, Raw) or _is_message(response):
        return responses_as_results.error(response)
    # a page of some proxy, whose text is for its operators
    kind = _type_text(responses_as_results.media_type(response)) if response.body else "nothing"
    fault = StatusFault(
        UPSTREAM_FAILED._replace(http=status), f"{source} answered HTTP {status} with {kind}"
    )
    return by_status(response, status_failure(status, fault.data))


def _is_message(response: HttpResponse) -> bool:
    """Whether the error body is a message that an action wrote for its caller."""
    kind = responses_as_results.media_type(response)
    return kind in {"", "text/plain"} and 0 < len(response.body) <= MESSAGE_BYTES


def _type_text(kind: str) -> str:
    return kind or "text of no type"


def _no_envelope(response: HttpResponse, source: str) -> ToolResult:
    if not _fine(response):
        return _refusal(response, source)
    return no_answer(f"{source} did not answer with a JSON-RPC response")


def _status_object(raw: Raw | UnsetType) -> dict[str, Any] | None:
    """The members of the Status in `raw`: an object with a code or a statusCode; else None."""
    value = _plain(raw)
    if not isinstance(value, dict):
        return None
    has_code = isinstance(value.get("code"), str) or type(value.get("statusCode")) is int
    return value if has_code else None


def _plain(raw: Raw | UnsetType) -> Any:
    """`raw` decoded; None where it holds an invalid value, such as 1e400."""
    try:
        return None if raw is UNSET else _anything.decode(raw)
    except _UNREADABLE:
        return None


def _fine(response: HttpResponse) -> bool:
    return 200 <= response.status < 300


def _redirects(response: HttpResponse) -> bool:
    return 300 <= response.status < 400  # its body may contain an internal address


def _is_error(status: object) -> bool:
    return type(status) is int and 400 <= status <= 599


_Key = tuple[int, str, bool, tuple[tuple[str, str], ...], tuple[str, str | None] | None]


@dataclass(frozen=True, slots=True)
class Post:
    """Target of a request, and all of it but the body."""

    source: Source
    target: str
    headers: Mapping[str, str]  # from the caller: the ids of a trace
    request_id: str  # ours; the default correlation id
    idempotent: bool  # may be retried
    caller: Caller | None = None  # where the source authenticates callers

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
        """Batch key: calls share a batch if all but our own ids is equal."""
        owner = (self.caller.digest, self.caller.scope_token) if self.caller else None
        return id(self.source), self.target, self.idempotent, tuple(self.headers.items()), owner


async def exchange(client: Client, post: Post, requests: Sequence[Request]) -> list[ToolResult]:
    """The results of `requests`, which have ids; a single one is sent without an array."""
    is_single = len(requests) == 1
    try:
        response = await client.send(
            post.source, post.request(encode(requests[0] if is_single else requests))
        )
    except UpstreamFailed as error:
        return [failed_hybrid_call(error)] * len(requests)
    ids = [request.id for request in requests if isinstance(request.id, int)]
    if is_single:
        return [read_single(response, ids[0], post.source.name)]
    return read_batch(response, ids, post.source.name)


@dataclass(slots=True, eq=False)
class _Batch:
    """One batch of calls that share a response; each caller holds a future of its own."""

    post: Post
    members: list[tuple[Request, asyncio.Future[ToolResult]]] = field(default_factory=list)
    task: asyncio.Task[None] | None = None

    def leave(self) -> None:
        """Remove a cancelled caller; the last one cancels the batch."""
        if self.task is not None and all(future.done() for _, future in self.members):
            self.task.cancel()

    def settle(self, task: asyncio.Task[None]) -> None:
        """Complete the remaining futures when the task has ended, in whatever way."""
        for _, future in self.members:
            if future.done():
                continue
            if task.cancelled():
                future.cancel()
            else:
                future.set_exception(task.exception() or RuntimeError("a call was forgotten"))


class Batcher:
    """Batches the calls of one turn of the event loop."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._open: dict[_Key, _Batch] = {}  # of this turn of the event loop

    async def ask(self, post: Post, request: Request, limit: int) -> ToolResult:
        """Send `request` in a batch of at most `limit`; returns its result.

        Cancelling it does not affect the others in the batch.
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
            return  # sent already: it was full before the turn ended
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


class Unsendable(ToolgateError):
    """A call that cannot be expressed in its source's dialect."""


class HybridUpstream:
    def __init__(self, client: Client) -> None:
        self._client = client
        self._batching = Batcher(client)
        # Not 1 each time: a response to another call would be taken for ours.
        self._ids = itertools.count(1)

    async def call(
        self, tool: Tool, source: Source | None, arguments: Any, context: Context
    ) -> ToolResult:
        if source is None:
            return no_answer(f"The source of {tool.name} is gone")
        # app/upstreams.py: each upstream has its own kind
        binding = cast("HybridBinding", tool.binding)
        options = cast("HybridOptions", source.options)  # of their kind of source
        data = data_of(binding, arguments)
        try:
            caller = None
            pool = self._client.connections.of(source)
            # public actions may be called by unauthenticated callers, but for people's accounts
            if pool.by_caller and (context.identity.verified or pool.connector is not None):
                caller = await self._client.caller(source, context)
            post = self._post(binding, source, context, caller)
            if options.dialect == "legacy":
                body = encode(legacy(binding.service, data))
                response = await self._client.send(source, post.request(body))
                return read_legacy(response, source.name, context.request_id)
            request = rpc(binding.service, data, next(self._ids))
        except UpstreamFailed as error:
            return failed_hybrid_call(error)
        except Unsendable as error:
            return no_answer(str(error))
        if options.batch > 1 and IDEMPOTENCY_KEY not in post.headers:
            return await self._batching.ask(post, request, options.batch)
        [result] = await exchange(self._client, post, [request])
        return result

    def _post(
        self, binding: HybridBinding, source: Source, context: Context, caller: Caller | None
    ) -> Post:
        query = binding.side == "query"
        # a base URL with a path of its own is the whole address, whatever the side
        target = "" if self._client.base_path(source) else PATHS[binding.side or "command"]
        headers = passed_headers(context, query)
        return Post(
            source,
            target,
            headers=headers,
            request_id=context.request_id,
            idempotent=query,
            caller=caller,
        )


def passed_headers(context: Context, query: bool) -> dict[str, str]:
    """The caller's headers that are passed on to a service, without credentials."""
    call_headers = context.headers
    headers = {
        CORRELATION_ID: call_headers.correlation_id,
        "X-Traceability-Id": call_headers.traceability_id,
        "traceparent": call_headers.traceparent,
        IDEMPOTENCY_KEY: None if query else call_headers.idempotency_key,
    }
    return {name: value for name, value in headers.items() if value}


def data_of(binding: HybridBinding, arguments: Any) -> Any:
    """The `data` of an action's call; UNSET when there is none."""
    if not binding.validated:
        return UNSET if arguments is None or arguments == {} else arguments
    if binding.argument is not None:
        return arguments.get(binding.argument, UNSET)
    return arguments


def legacy(service: str, data: Any) -> dict[str, Any]:
    """The payload of the legacy dialect. Raises Unsendable for an id that does not have four
    parts."""
    parts = split(service)
    if parts is None:
        raise Unsendable(
            f"{service} is not host/service/action/version, which the legacy payload needs: "
            "its source must have the dialect jsonrpc"
        )
    return parts if data is UNSET else {**parts, "data": data}


def rpc(service: str, data: Any, id_: int) -> Request:
    """The JSON-RPC request. Raises Unsendable for data that JSON-RPC 2.0 has no params for."""
    if data is None:
        data = UNSET
    if data is not UNSET and not isinstance(data, dict | list):
        raise Unsendable(
            f"{service} takes an object or an array in JSON-RPC (section 4.2), "
            f"not {json_type(data)}: its source must have the dialect legacy"
        )
    return Request("2.0", service, data, id_)
