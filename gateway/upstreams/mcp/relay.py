"""Relays requests of our clients to other MCP servers, between any two eras.

client      server      way
handshake   handshake   passed on in a session on the client's key
stateless   stateless   passed on; the client handles the server's requestState itself
handshake   stateless   the server's input requests are sent to the client, then the call is retried
stateless   handshake   the call is parked while the client answers (`parking`)
"""

import time
from collections.abc import Awaitable, Mapping
from typing import Any, cast

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from gateway.context import Context
from gateway.interfaces import Relay, RelayRequest
from gateway.protocol.account_request_state import without_own_state
from gateway.protocol.client_features import RefusalReason, for_client
from gateway.protocol.revision_adapter import is_failure
from gateway.protocol.sealed_state import TaskIds, knows_tasks
from gateway.upstreams.auth.caller import Caller
from gateway.upstreams.auth.delegation import Headers
from gateway.upstreams.http.client import headers_of_hooks
from gateway.upstreams.http.source_pools import UpstreamFailed
from gateway.upstreams.mcp.handshake import (
    RETRY_MEMBERS,
    canonical,
    declared_capabilities,
    era_for,
    handshake_params,
    stateless_params,
)
from gateway.upstreams.mcp.link_and_handlers import (
    ClientHandler,
    Link,
    MessageHandler,
    SessionLost,
    Timeout,
    TranslatingHandler,
    wanted_level,
)
from gateway.upstreams.mcp.parked_calls import (
    INPUT_REQUIRED,
    METHODS,
    DeferredCalls,
    Members,
    answer_of,
)
from gateway.upstreams.mcp.server import McpServer
from gateway.upstreams.mcp.server_set import Servers
from gateway.upstreams.mcp.session_pool import SHARED_KEY, SessionKey
from schemas.binding import McpBinding
from schemas.errors import (
    ClientRequestFailed,
    MissingClientCapability,
    RelayedFault,
    SourceDown,
    Unreachable,
)
from schemas.jsonrpc import decode_members, encode
from schemas.mcp.headers import param_headers
from schemas.mcp.messages import LOG_LEVELS
from schemas.mcp.revisions import V2026_07_28
from schemas.source import Source
from schemas.tool import RelayedResult, Tool

RESULT_TASK = Raw(b'"task"')
RESULT_TYPES = (Raw(b'"complete"'), RESULT_TASK, Raw(b"null"))  # which demand nothing of the client


class _InputRequired(Struct, rename="camel"):
    input_requests: dict[str, "_Asked"] = {}
    request_state: str | UnsetType = UNSET


class _Asked(Struct):
    method: str
    params: dict[str, Any] = {}


class McpRelay:
    """Implements `Relay`."""

    def __init__(self, servers: Servers, deferred: DeferredCalls, requests_limit: int) -> None:
        """A relay that sends at most `requests_limit` requests to a client within one call."""
        self._servers = servers
        self._deferred = deferred
        self._requests_limit = requests_limit

    async def request(self, request: RelayRequest, context: Context) -> Members:
        server = self._servers.of(request.source)
        server.requests += 1
        server.calls += 1
        began = time.perf_counter()
        try:
            supported = await server.supported_eras()
            era = era_for(supported.eras, request.eras, context.revision.handshake)
            if era == "stateless":
                return await self._stateless(server, request, context)
            if era == "handshake":
                return await self._handshake(server, request, context)
        except UpstreamFailed as error:
            server.failures += 1
            server.watcher.check_soon()
            raise (SourceDown if error.down else Unreachable)(str(error)) from error
        finally:
            server.calls -= 1
            server.times[request.method].add(time.perf_counter() - began)
        raise Unreachable(f"{request.source.name} no longer supports the revision that listed this")

    async def watch(self, source: Source, uri: str) -> None:
        try:
            await self._servers.of(source).watcher.watch(uri)
        except UpstreamFailed as error:
            raise Unreachable(str(error)) from error

    async def unwatch(self, source: Source, uri: str) -> None:
        await self._servers.unwatch(source, uri)

    async def _stateless(
        self, server: McpServer, request: RelayRequest, context: Context
    ) -> Members:
        capabilities = declared_capabilities(context)
        params = stateless_params(request.params, context, capabilities)
        asker = self._asker(server)
        handler = TranslatingHandler(
            ClientHandler(context, server.on_change),
            client=context.revision,
            capabilities=capabilities,
            asker=asker,
            server=V2026_07_28,
        )
        link = await server.stateless()
        caller = await server.caller(context) if server.by_caller else None
        if caller is not None:
            params = without_own_state(params)

        async def send(headers: Headers) -> Members:
            headers = {**request.headers, **headers} if headers else request.headers
            if request.hooked:
                headers = server.hooked_headers(headers, request.hooked)
            return await link.request(
                request.method, params, handler, server.timeout, headers=headers
            )

        if not context.revision.handshake and context.revision.mcp:
            members = await server.authenticate(caller, send)
            if "inputRequests" in members or members.get("resultType") == INPUT_REQUIRED:
                return self._check_input_required(members, request, context, asker)
            return _check_type(members, request.source.name)
        requests_left = self._requests_limit
        while True:
            members = await server.authenticate(caller, send)
            if members.get("resultType") != INPUT_REQUIRED:
                return _check_type(members, request.source.name)
            input_required = _wanted_input(members, request.source.name)
            requests_left -= max(1, len(input_required.input_requests))
            if requests_left < 0:
                raise Unreachable(_too_many(request.source.name, self._requests_limit))
            params = await _with_answers(params, input_required, handler)

    def _check_input_required(
        self, members: Members, request: RelayRequest, context: Context, asker: str
    ) -> Members:
        """A result that requires input of a 2026-07-28 client, with each request as the client can
        be asked it. Raises MissingClientCapability, and Unreachable for what no client is asked."""
        name, input_required = request.source.name, _wanted_input(members, request.source.name)
        if not input_required.input_requests and input_required.request_state is UNSET:
            raise Unreachable(f"{name} requires input without saying which")
        if members.get("resultType") == INPUT_REQUIRED and request.method not in METHODS:
            raise Unreachable(f"{name} requires input for {request.method}, which can have none")
        if len(input_required.input_requests) > self._requests_limit:
            raise Unreachable(_too_many(name, self._requests_limit))
        missing: dict[str, Any] = {}
        requests: dict[str, Any] = (
            msgspec.json.decode(members["inputRequests"]) if "inputRequests" in members else {}
        )
        for key, question in input_required.input_requests.items():
            capabilities = dict(context.capabilities)
            params = for_client(
                question.method, question.params, context.revision, capabilities, asker=asker
            )
            if not isinstance(params, RefusalReason):
                requests[key] |= {"params": params} if params else {}
            elif params.required:
                missing |= params.required
            else:
                raise Unreachable(
                    f"{name} requires input in a way that is not known: {question.method[:100]}"
                )
        if missing:
            raise _incapable(missing)
        return {**members, "inputRequests": Raw(encode(requests))} if requests else members

    def _handshake(
        self, server: McpServer, request: RelayRequest, context: Context
    ) -> Awaitable[Members]:
        capabilities = declared_capabilities(context)
        if context.session or context.asker or not capabilities:
            handler = ClientHandler(context, server.on_change)
            return self._in_session(
                server, request, context, capabilities=capabilities, inner=handler
            )
        params = without_own_state(request.params)
        if params is not request.params:
            request = msgspec.structs.replace(request, params=params)
        if not self._deferred.possible(request, context):  # try without questions
            handler = ClientHandler(context, server.on_change)
            return self._in_session(server, request, context, capabilities={}, inner=handler)

        async def work(asker: MessageHandler) -> Members:
            return await self._in_session(
                server, request, context, capabilities=capabilities, inner=asker
            )

        return self._deferred.run(request, context, server.on_change, work)

    async def _in_session(
        self,
        server: McpServer,
        request: RelayRequest,
        context: Context,
        *,
        capabilities: Mapping[str, Any],
        inner: MessageHandler,
    ) -> Members:
        """Call the server in a session. Raises MissingClientCapability, which 2026-07-28 alone
        knows, for a call that failed after its server had requested what the client does not
        support."""
        asker = self._asker(server)
        handler = TranslatingHandler(
            inner,
            client=context.revision,
            capabilities=capabilities,
            asker=asker,
            server=server.revision,
        )
        try:
            members = await self._retried_once(
                server, request, context, capabilities=capabilities, handler=handler
            )
        except RelayedFault as fault:
            if handler.missing and context.revision.result_type:
                raise _incapable(handler.missing) from fault
            raise
        if handler.missing and context.revision.result_type and is_failure(members):
            raise _incapable(handler.missing)
        return _check_type(members, request.source.name)

    async def _retried_once(
        self,
        server: McpServer,
        request: RelayRequest,
        context: Context,
        *,
        capabilities: Mapping[str, Any],
        handler: MessageHandler,
    ) -> Members:
        caller = await server.caller(context) if server.by_caller else None
        key = self._session_key(server, request, context, capabilities=capabilities, caller=caller)
        params = handshake_params(request.params, context.revision.tasks)

        async def send(headers: Headers) -> Members:
            async with server.pool.lease(key, handler, caller) as link:
                if request.hooked:
                    headers = server.hooked_headers(headers, request.hooked)
                if _asked_for_logs(context):
                    await _set_level(link, server, context)
                timeout = _patience(server, request)
                return await link.request(request.method, params, handler, timeout, headers=headers)

        try:
            return await server.authenticate(caller, send)
        except SessionLost as lost:
            if lost.sent:
                raise
            return await server.authenticate(caller, send)

    def _asker(self, server: McpServer) -> str:
        """The server's name, shown to clients that have several servers; else empty."""
        return server.source.name if len(self._servers) > 1 else ""

    def _session_key(
        self,
        server: McpServer,
        request: RelayRequest,
        context: Context,
        *,
        capabilities: Mapping[str, Any],
        caller: Caller | None,
    ) -> SessionKey:
        """The key of the session for a call. Callers that the server distinguishes share no
        session, whatever token they have. A client's own session outlives its tokens, and ends
        with the account that it was opened with."""
        options = server.source.options
        alone = options.own_sessions
        if context.session and (alone or _is_task(request)):
            account = "" if caller is None or caller.account is None else caller.account.key
            return SessionKey(canonical(capabilities), context.session.id, caller=account)
        loud = server.one_stream and _asked_for_logs(context)
        user = "" if caller is None else caller.digest
        if not capabilities and not loud:
            return SessionKey(caller=user) if user else SHARED_KEY
        return SessionKey(canonical(capabilities), exclusive_to=context.principal.key, caller=user)


_decode_input = msgspec.json.Decoder(_InputRequired).decode


def _wanted_input(members: Members, name: str) -> _InputRequired:
    """The input that a server requires (MRTR). Raises Unreachable for a malformed result."""
    try:
        return _decode_input(msgspec.json.encode(members))
    except (msgspec.DecodeError, RecursionError) as error:
        raise Unreachable(f"{name} requests input in an unknown form") from error


def _check_type(members: Members, name: str) -> Members:
    """Raises Unreachable for a result that is none: of an unknown type, or a requirement of input
    in a session, where servers have to ask."""
    type_ = members.get("resultType", RESULT_TYPES[0])
    if type_ not in RESULT_TYPES:
        text = bytes(type_).decode(errors="replace")[:100]
        raise Unreachable(f"{name} answered with a result of the type {text}, which is not known")
    return members


async def _with_answers(
    params: dict[str, Any], input_required: _InputRequired, handler: MessageHandler
) -> dict[str, Any]:
    """The request to send again, with the client's answers (MRTR)."""
    again = {name: value for name, value in params.items() if name not in RETRY_MEMBERS}
    if input_required.request_state is not UNSET:
        again["requestState"] = input_required.request_state
    again["inputResponses"] = {
        key: await _answer_question(handler, question)
        for key, question in input_required.input_requests.items()
    }
    return again


async def _answer_question(handler: MessageHandler, question: _Asked) -> Any:
    try:
        return await handler.on_request(question.method, question.params)
    except ClientRequestFailed as failed:
        return answer_of(question.method, failed)


def _too_many(name: str, limit: int) -> str:
    return f"{name} asks for more than {limit} answers (upstream.mcp_client_requests)"


def _incapable(missing: Mapping[str, Any]) -> MissingClientCapability:
    named = ", ".join(sorted(missing))
    data = {"requiredCapabilities": missing}
    return MissingClientCapability(f"This needs a client that can do {named}", data)


def _patience(server: McpServer, request: RelayRequest) -> Timeout:
    timeout = server.timeout
    if request.method == "tasks/result":  # no message comes until the task has ended
        return Timeout(timeout.deadline_s, timeout.deadline_s)
    return timeout


def _is_task(request: RelayRequest) -> bool:
    """Whether the request is about a task, which a server may know only in the session that began
    it."""
    return request.params.get("task") is not None or request.method.startswith("tasks/")


def _asked_for_logs(context: Context) -> bool:
    if context.session is not None:
        return context.session.log_level is not None
    return wanted_level(context) is not None


async def _set_level(link: Link, server: McpServer, context: Context) -> None:
    """Lower the session's log level to what this client wants; other clients of the session are
    protected by the filters of their own handlers."""
    level = wanted_level(context)
    if level is None or "logging" not in link.capabilities:
        return
    level_set = server.levels.get(link)
    if level_set is None or level < level_set:
        await link.request("logging/setLevel", {"level": LOG_LEVELS[level]}, None, server.timeout)
        server.levels[link] = level


class McpUpstream:
    """Implements `Upstream`."""

    def __init__(self, relay: Relay, task_ids: TaskIds) -> None:
        self._relay = relay
        self._task_ids = task_ids

    async def call(
        self, tool: Tool, source: Source | None, arguments: Any, context: Context
    ) -> RelayedResult:
        # app/upstreams.py: each upstream has its own kind
        binding = cast("McpBinding", tool.binding)
        if source is None:
            raise Unreachable(f"The server of {tool.name} is not known here any more")
        params = {**context.params, "name": binding.name, "arguments": arguments}
        headers = param_headers(binding.mirrored, arguments) if binding.mirrored else {}
        request = RelayRequest(
            source, "tools/call", params=params, eras=binding.eras, headers=headers
        )
        if context.hooked is not None:
            request = msgspec.structs.replace(request, hooked=headers_of_hooks(source, context))
        members = await self._relay.request(request, context)
        if "task" in members or members.get("resultType") == RESULT_TASK:
            members = await self._with_own_task_id(members, source.name, context)
        return RelayedResult(members)

    async def _with_own_task_id(self, members: Members, source: str, context: Context) -> Members:
        if members.get("resultType") == RESULT_TASK:
            if not knows_tasks(context):
                raise Unreachable(f"{source} began a task, which this client does not know")
            return await self._rename(members, source, context)
        if not context.revision.tasks or "task" not in context.params:
            return members  # not a task of 2025-11-25: the client requested none
        task = decode_members(members["task"])
        return {**members, "task": Raw(encode(await self._rename(task, source, context)))}

    async def _rename(self, members: Members, source: str, context: Context) -> Members:
        task = msgspec.json.decode(members.get("taskId", b"null"))
        if not isinstance(task, str):
            raise Unreachable(f"{source} began a task without saying its id")
        return {
            **members,
            "taskId": Raw(encode(await self._task_ids.expose(source, task, context))),
        }
