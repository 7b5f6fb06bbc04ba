"""Client of one agent: operations of Agent2Agent over JSON-RPC and HTTP+JSON, in both versions.

Whatever an agent sends is bounded by `upstream.response_limit_bytes`, whole streams included, and
by the deadline of a call. Deviation: 0.3 over HTTP+JSON is not spoken (`registry.importers.a2a`).
"""

import uuid
from asyncio import sleep
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import quote, urlencode

from anyio import to_thread

from config.settings import UpstreamSettings
from gateway.http_client.http1 import Http1Response, TooLarge
from gateway.http_client.sse_parser import SseParser
from gateway.upstreams.auth.caller import Caller
from gateway.upstreams.http.client import Client, HttpRequest, HttpResponse
from gateway.upstreams.http.responses_as_results import OUTAGE_STATUSES, ascii_text, is_json
from gateway.upstreams.http.source_pools import UpstreamFailed, read
from schemas.a2a.errors import A2AFault
from schemas.a2a.model import (
    A2AObject,
    ListRequest,
    SendRequest,
    StreamResponse,
    Task,
    TaskList,
    TaskRequest,
)
from schemas.a2a.versions import HEADER, METHODS, Version, decode, encode
from schemas.binding import A2aBinding
from schemas.errors import ParseError, ToolgateError
from schemas.jsonrpc import decode_json
from schemas.jsonrpc import encode as encode_json
from schemas.source import Source

SSE = "text/event-stream"
TEXT = 500  # characters of an agent's error
YIELD_EVERY = 50  # events
THREAD_BYTES = 262_144
METHOD_NOT_FOUND = -32601

Json = dict[str, Any]
T = TypeVar("T", bound=A2AObject)
OnEvent = Callable[[StreamResponse], Awaitable[bool]]
"""Takes an event of a stream; returns whether more are wanted."""


class AgentRefused(ToolgateError):
    """An error that the agent answered with."""

    def __init__(self, text: str, code: int = 0) -> None:
        super().__init__(text)
        self.code = code  # of JSON-RPC, or the HTTP status


class AgentMisbehaved(UpstreamFailed):
    """An answer beyond limits, or about something else: nothing is gained by asking again."""


@dataclass(frozen=True, slots=True)
class Agent:
    """An agent, and as whom it is called."""

    source: Source
    binding: A2aBinding
    caller: Caller | None = None

    @property
    def version(self) -> Version:
        return Version(self.binding.version)


class AgentClient:
    """All methods raise UpstreamFailed without a usable answer, and AgentRefused."""

    def __init__(self, client: Client) -> None:
        self._client = client

    @property
    def limits(self) -> UpstreamSettings:
        return self._client.connections.limits

    async def send(self, agent: Agent, request: SendRequest) -> StreamResponse:
        """The task or message that answers a message."""
        return await self._ask(agent, "send", request, StreamResponse)

    async def stream(self, agent: Agent, request: SendRequest, on_event: OnEvent) -> None:
        """Send a message, and give the events of its answer to `on_event`. An agent that answers
        without a stream gives one event."""

        async def read_events(response: Http1Response, limit_bytes: int) -> bytes:
            if response.status != 200 or response.content_type != SSE:
                return await read(response, limit_bytes)
            events_left = self.limits.a2a_events
            async for data in _events(response, limit_bytes):
                if (events_left := events_left - 1) < 0:
                    raise AgentMisbehaved(_too_many(agent, self.limits.a2a_events))
                if events_left % YIELD_EVERY == 0:
                    await sleep(0)  # other calls have their turn, too
                event = await _decode(agent, StreamResponse, _result(agent, 200, data), len(data))
                if not await on_event(event):
                    break
            return b""

        call = _request(agent, "stream", request)
        response = await self._client.send(agent.source, call, read_events)
        if response.status != 200 or response.body:
            value = _result_of(agent, response)
            await on_event(await _decode(agent, StreamResponse, value, len(response.body)))

    async def task(self, agent: Agent, task_id: str) -> Task:
        return await self._ask(agent, "get", TaskRequest(task_id, history_length=0), Task)

    async def cancel(self, agent: Agent, task_id: str) -> None:
        await self._ask(agent, "cancel", TaskRequest(task_id), Task)

    async def find(self, agent: Agent, message_id: str, context_id: str) -> Task | None:
        """The task that a message of ours began or went on, among the newest; None: none."""
        query = ListRequest(context_id=context_id, history_length=10)
        tasks = (await self._ask(agent, "list", query, TaskList)).tasks
        return next(
            (
                task
                for task in tasks
                if any(message.message_id == message_id for message in task.history)
            ),
            None,
        )

    async def _ask(self, agent: Agent, operation: str, params: A2AObject, kind: type[T]) -> T:
        response = await self._client.send(agent.source, _request(agent, operation, params))
        return await _decode(agent, kind, _result_of(agent, response), len(response.body))


def _request(agent: Agent, operation: str, params: A2AObject) -> HttpRequest:
    """Raises AgentRefused for an operation that the version lacks."""
    binding, value = agent.binding, encode(agent.version, params)
    accept = f"{SSE}, " if operation == "stream" else ""
    headers = {"Accept": f"{accept}application/json", HEADER: binding.version}
    make = _rest_request if binding.transport == "HTTP+JSON" else _rpc_request
    method, target, body = make(binding, operation, value)
    if body is not None:
        headers["Content-Type"] = "application/json"
    return HttpRequest(
        method,
        target,
        headers,
        None if body is None else encode_json(body),
        idempotent=operation in ("get", "list"),
        caller=agent.caller,
    )


def _rpc_request(binding: A2aBinding, operation: str, value: Json) -> tuple[str, str, Json | None]:
    """Method, target and body of an HTTP request."""
    new, old, _ = METHODS[operation]
    name = old if binding.version == Version.V0_3.value else new
    if name is None:
        raise AgentRefused(f"there is no {operation} in A2A {binding.version}", METHOD_NOT_FOUND)
    tenant = {"tenant": binding.tenant} if binding.tenant else {}
    target = "/" if binding.url.endswith("/") else ""  # which addresses of sources lose
    body = {"jsonrpc": "2.0", "id": uuid.uuid4().hex, "method": name, "params": value | tenant}
    return "POST", target, body


_PATHS = {
    "send": ("POST", "/message:send"),
    "stream": ("POST", "/message:stream"),
    "get": ("GET", "/tasks/{id}"),
    "list": ("GET", "/tasks"),
    "cancel": ("POST", "/tasks/{id}:cancel"),
}


def _rest_request(binding: A2aBinding, operation: str, value: Json) -> tuple[str, str, Json | None]:
    """Method, target and body of an HTTP request."""
    method, template = _PATHS[operation]
    path = template.format(id=quote(value.pop("id", ""), safe=""))
    tenant = f"/{quote(binding.tenant, safe='')}" if binding.tenant else ""
    if method == "GET":
        return method, f"{tenant}{path}?{urlencode(value)}", None
    return method, tenant + path, value


async def _events(response: Http1Response, limit_bytes: int) -> AsyncIterator[bytes]:
    """The data of a stream's events. Raises TooLarge for the stream as a whole."""
    events, size = SseParser(limit_bytes), 0
    async for chunk in response.iter_any():
        size += len(chunk)
        if size > limit_bytes:
            raise TooLarge(limit_bytes)
        for event in events.feed(chunk):
            yield event.data


def _too_many(agent: Agent, limit: int) -> str:
    return f"{agent.source.name} sent more than {limit} events (upstream.a2a_events)"


def _result_of(agent: Agent, response: HttpResponse) -> Any:
    """The result in a response. Raises UpstreamFailed and AgentRefused."""
    if response.status in OUTAGE_STATUSES:
        text = f"{agent.source.name} answered HTTP {response.status}"
        raise UpstreamFailed(text, down=True)
    if 300 <= response.status < 400:
        raise AgentRefused(f"HTTP {response.status}: redirects are not followed", response.status)
    if response.status >= 400 and not is_json(response.headers.get("Content-Type", "")):
        raise AgentRefused(f"HTTP {response.status} {ascii_text(response.reason)}", response.status)
    return _result(agent, response.status, response.body)


def _result(agent: Agent, status: int, body: bytes) -> Any:
    try:
        value = decode_json(body)
    except ParseError as error:
        raise UpstreamFailed(f"{agent.source.name} did not answer with JSON") from error
    refusal = value.get("error") if isinstance(value, dict) else None
    if refusal or status >= 400:
        raise _refusal(refusal, status)
    if agent.binding.transport == "HTTP+JSON":
        return value
    if not isinstance(value, dict) or "result" not in value:
        raise UpstreamFailed(f"{agent.source.name} answered without a result")
    return value["result"]


def _refusal(error: Any, status: int) -> AgentRefused:
    members = error if isinstance(error, dict) else {}
    code, message = members.get("code"), members.get("message")
    text = message[:TEXT] if isinstance(message, str) else f"HTTP {status}"
    return AgentRefused(text, code if isinstance(code, int) else status)


async def _decode(agent: Agent, kind: type[T], value: Any, size: int) -> T:
    """An object of the model; one whose JSON has many bytes in a thread."""
    try:
        if size > THREAD_BYTES:
            return await to_thread.run_sync(decode, agent.version, kind, value)
        return decode(agent.version, kind, value)
    except (A2AFault, RecursionError) as error:
        text = f"{agent.source.name} answered with no {kind.__name__} of A2A"
        raise UpstreamFailed(f"{text} {agent.binding.version}") from error
