"""Builds the HTTP request from a binding and the arguments of a call. Pure."""

import math
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, cast
from urllib.parse import quote

from msgspec import UNSET, Struct, UnsetType
from msgspec.json import decode
from msgspec.structs import replace
from yarl import URL

from gateway.context import CallHeaders, Context
from gateway.http_client.http1 import FixedHeaders
from gateway.interfaces import Execute, ToolCall
from gateway.state.stored_answers import uri_of
from gateway.telemetry.traces import TRACEPARENT, parse
from gateway.upstreams.auth.credentials import Credentials, account_headers, fixed_credentials
from gateway.upstreams.auth.personal_accounts import SourceAccount
from gateway.upstreams.http import responses_as_results
from gateway.upstreams.http.client import (
    CREDENTIALS_REFUSED,
    Client,
    Download,
    HttpRequest,
    HttpResponse,
    Reader,
    address_of,
    headers_of_hooks,
    replace_headers,
)
from gateway.upstreams.http.downloads import Downloads
from gateway.upstreams.http.file_arguments import StreamedBody
from gateway.upstreams.http.responses_as_results import failed_call, failure_result
from gateway.upstreams.http.source_pools import SourcePool, UpstreamFailed
from gateway.upstreams.http.source_pools import read as whole
from gateway.upstreams.http.uploads import REDIRECT_LIMIT, REDIRECTS, Uploads
from gateway.upstreams.rest.next_page import following, with_next
from gateway.upstreams.rest.parameter_styles import (
    in_cookie,
    in_header,
    in_path,
    in_query,
    in_querystring,
)
from gateway.upstreams.rest.request_bodies import body_content
from registry.documents.ssrf_protection import read_url
from schemas.binding import Body, OpenAPIBinding, Parameter
from schemas.errors import InvalidParams
from schemas.source import Source
from schemas.tool import RelayedResult, ResourceLink, TextContent, Tool, ToolResult

# framing and routing headers are set by the gateway, whatever a description declares (RFC 9110, 7)
_NOT_FROM_ARGUMENTS = frozenset(
    {
        "host",
        "connection",
        "keep-alive",
        "proxy-connection",
        "upgrade",
        "te",
        "trailer",
        "expect",
        "transfer-encoding",
        "content-length",
        "content-encoding",
        "content-type",
        "cookie",
    }
)

IDEMPOTENCY_KEY = "Idempotency-Key"  # of the caller; services may take a repetition for one by it
_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})  # methods
_NAMED_BY_MEMBERS = frozenset({"query", "querystring", "cookie"})

# Headers in the result of HEAD; none of them contains an address.
_HEAD_HEADERS = ("Content-Type", "Content-Length", "Last-Modified", "ETag")


class _Slot(Struct, frozen=True):
    """A parameter of a request that is sent again and again."""

    parameter: Parameter
    argument: Any  # its name; None: the value is fixed, whatever the arguments are
    fixed: Any  # UNSET: the caller gives the value
    prefix: str  # "name=" of a query parameter whose text and numbers are only percent-encoded


def _slot(parameter: Parameter) -> _Slot:
    fixed = UNSET if isinstance(parameter.fixed, UnsetType) else decode(parameter.fixed)
    bare = parameter.media_type is None and not parameter.allow_reserved
    prefix = f"{quote(parameter.name, safe='')}=" if bare and parameter.location == "query" else ""
    argument = parameter.argument if fixed is UNSET else None
    return _Slot(parameter, argument, fixed, prefix)


JSON = "application/json"
_BY_REQUEST = frozenset({"accept", "content-type"})


class PreparedCalls(Struct, frozen=True):
    """Common part of the requests of one tool to one source."""

    source: Source
    pool: SourcePool
    tokens: int  # version of those that the gateway has fetched for the source
    added: Mapping[str, str] | None = None  # headers to send beside those of a request
    headers: FixedHeaders | None = None  # all of a request without a body
    json_headers: FixedHeaders | None = None  # of one with a body of JSON
    ends: float = math.inf  # when a token among the headers expires, in monotonic time


class RequestTemplate:
    """The requests of one tool, prepared for their arguments. The same for all callers: it contains
    no credentials."""

    def __init__(self, binding: OpenAPIBinding) -> None:
        self.binding = binding
        self._slots = tuple(_slot(parameter) for parameter in binding.parameters)
        self._headers = {} if binding.accept is None else {"Accept": binding.accept}
        self._plain_headers = all(
            slot.parameter.location not in ("header", "cookie") for slot in self._slots
        )
        self._prepared: PreparedCalls | None = None

    def prepare(self, source: Source, client: Client) -> PreparedCalls:
        """Prepared part of calls of `source`. It is made again when the source, its
        settings or secrets, or a fetched token have changed, or a token has expired."""
        prepared = self._prepared
        if (
            prepared is not None
            and prepared.source is source
            and not prepared.pool.retired
            and prepared.tokens == prepared.pool.tokens.version
            and prepared.ends > time.monotonic()
        ):
            return prepared
        prepared = self._prepared = self._make_prepared(source, client.connections.of(source))
        return prepared

    def _make_prepared(self, source: Source, pool: SourcePool) -> PreparedCalls:
        """Without headers if arguments, callers or requests may change them."""
        credentials = (
            fixed_credentials(pool, self.binding.security) if self._plain_headers else None
        )
        version = pool.tokens.version
        if credentials is None:
            return PreparedCalls(source, pool, version)
        if not {name.lower() for name in credentials.headers}.isdisjoint(_BY_REQUEST):
            return PreparedCalls(source, pool, version)
        headers = {**self._headers, **credentials.headers}
        return PreparedCalls(
            source,
            pool,
            version,
            credentials.headers,
            FixedHeaders(headers),
            FixedHeaders({**headers, "Content-Type": JSON}),
            ends=credentials.ends,
        )

    def headers_for(
        self, account: SourceAccount, pool: SourcePool, request: HttpRequest
    ) -> FixedHeaders | None:
        """All headers of a request for a person; None where arguments may change them."""
        kind = request.headers.get("Content-Type")
        if not self._plain_headers or (request.body is not None and kind != JSON):
            return None
        headers_by_body = account.prepared.get(self)
        if headers_by_body is None:
            headers_by_body = account.prepared[self] = self._make_headers(account, pool)
        return headers_by_body[request.body is not None]

    def _make_headers(
        self, account: SourceAccount, pool: SourcePool
    ) -> tuple[FixedHeaders | None, FixedHeaders | None]:
        """Headers of requests without a body, and of those with one of JSON."""
        added = account_headers(pool, self.binding.security, account)
        if added is None or not {name.lower() for name in added}.isdisjoint(_BY_REQUEST):
            return None, None
        headers = pool.call_headers({**self._headers, **added}, tuple(added))
        return FixedHeaders(headers), FixedHeaders({**headers, "Content-Type": JSON})

    def request(self, arguments: Mapping[str, Any]) -> HttpRequest:
        """The request for `arguments`. Raises InvalidParams for values that cannot be sent."""
        binding, path = self.binding, self.binding.path
        query: list[str] = []
        headers = self._headers if self._plain_headers else {}
        for slot in self._slots:
            value = arguments.get(slot.argument, slot.fixed)
            if value is UNSET:
                continue
            if slot.prefix and type(value) in _BARE:  # as most are
                query.append(slot.prefix + quote(str(value), safe=""))
                continue
            parameter = slot.parameter
            if isinstance(value, dict) and parameter.location in _NAMED_BY_MEMBERS:
                _check_members(binding, parameter, value)
            if parameter.location == "path":
                path = path.replace(f"{{{parameter.name}}}", in_path(parameter, value))
            elif parameter.location == "query":
                query.append(in_query(parameter, value))
            else:
                _elsewhere(parameter, value, headers, query)
        if "." in path and _climbs(path.partition("?")[0]):
            raise InvalidParams("a path must not hold the segments '.' or '..'")  # RFC 3986, 5.2.4
        if query and (text := "&".join(filter(None, query))):
            path = f"{path}{'&' if '?' in path else '?'}{text}"
        if not self._plain_headers:
            headers = self._accepting(headers)
        if binding.body is None:
            return HttpRequest(binding.method, path, headers, server=binding.server)
        return self._with_body(binding.body, path, headers, arguments)

    def _accepting(self, headers: dict[str, str]) -> dict[str, str]:
        """`headers` with an Accept header, unless an argument sets one."""
        named = any(name.lower() == "accept" for name in headers)
        return headers if named else {**headers, **self._headers}

    def _with_body(
        self, body: Body, path: str, headers: Mapping[str, str], arguments: Mapping[str, Any]
    ) -> HttpRequest:
        binding, content = self.binding, body_content(body, arguments)
        if content is None:
            return HttpRequest(binding.method, path, headers, server=binding.server)
        if isinstance(content, StreamedBody):
            return HttpRequest(binding.method, path, headers, server=binding.server, upload=content)
        headers = {**headers, "Content-Type": content.media_type}
        return HttpRequest(
            binding.method, path, headers=headers, body=content.data, server=binding.server
        )


_BARE = frozenset({str, int})


def _check_members(binding: OpenAPIBinding, parameter: Parameter, value: Mapping[str, Any]) -> None:
    """Reject object members, sent under their own names, that collide with a hidden parameter or a
    credential. Raises InvalidParams."""
    place = parameter.location
    if place == "querystring":
        place = "query"
    elif not parameter.explode or parameter.style == "deepObject" or parameter.media_type:
        return
    hidden = {
        parameter.name
        for parameter in binding.parameters
        if parameter.location == place and not isinstance(parameter.fixed, UnsetType)
    }
    hidden |= {
        credential.name
        for each in binding.security
        for credential in each
        if credential.location == place
    }
    if clash := sorted(value.keys() & hidden):
        raise InvalidParams(f"{parameter.argument}: {clash[0][:80]} cannot be given")


def _elsewhere(parameter: Parameter, value: Any, headers: dict[str, str], query: list[str]) -> None:
    if parameter.location == "querystring":
        query.append(in_querystring(parameter, value))
    elif parameter.location == "cookie":
        if text := in_cookie(parameter, value):
            before = headers.get("Cookie")
            headers["Cookie"] = f"{before}; {text}" if before else text
    elif parameter.name.lower() not in _NOT_FROM_ARGUMENTS and (
        text := in_header(parameter, value)
    ):
        headers[parameter.name] = text


def _passed_headers(headers: CallHeaders, method: str) -> Mapping[str, str]:
    """The caller's headers that are passed on to a service, without credentials."""
    passed = {
        IDEMPOTENCY_KEY: None if method in _SAFE else headers.idempotency_key,
        TRACEPARENT: None if parse(headers.traceparent) is None else headers.traceparent,
    }
    return {name: value for name, value in passed.items() if value is not None}


def _climbs(path: str) -> bool:
    """Whether the path has dot segments. Encoded slashes count: some proxies decode them before
    they resolve the dots. So does `..;x`, which servlets read as `..` with a parameter."""
    segments = path.replace("%2F", "/").replace("%5C", "/").split("/")
    return any(segment.partition(";")[0] in (".", "..") for segment in segments)


class OpenAPIUpstream:
    def __init__(
        self,
        client: Client,
        uploads: Uploads | None = None,
        downloads: Downloads | None = None,
    ) -> None:
        """An upstream on `connections`. Without `uploads`, files can only be sent inside arguments;
        without `downloads`, no answer is stored."""
        self._client = client
        self._uploads = uploads
        self._downloads = downloads
        self._inline_bytes = downloads.inline_bytes if downloads is not None else sys.maxsize
        self._credentials = Credentials(client.connections)

    def prepare(self, tool: Tool) -> Execute:
        # app/upstreams.py passes every upstream the bindings of its own kind
        return partial(self._execute_call, RequestTemplate(cast("OpenAPIBinding", tool.binding)))

    async def call(
        self, tool: Tool, source: Source | None, arguments: dict[str, Any], context: Context
    ) -> ToolResult | RelayedResult:
        return await self.prepare(tool)(ToolCall(tool, source, arguments, context))

    async def _execute_call(self, template: RequestTemplate, call: ToolCall) -> ToolResult:
        tool, source, arguments, context = call.tool, call.source, call.arguments, call.context
        if source is None:
            return failure_result(f"The source of {tool.name} is gone")
        binding, request = template.binding, template.request(arguments)
        carried: Mapping[str, str] = {}
        if context.headers.idempotency_key is not None or context.headers.traceparent is not None:
            carried = _passed_headers(context.headers, binding.method)
            request = replace(request, headers=replace_headers(request.headers, carried))
        if context.hooked is not None:
            request = replace(request, hooked=headers_of_hooks(source, context))
        reader: Reader = whole
        if self._downloads is not None:
            reader = partial(self._downloads.read, context.identity.principal, tool.id)
        try:
            prepared = template.prepare(source, self._client)
            pool, added = prepared.pool, prepared.added
            proves = bool(binding.security) or pool.by_caller
            if request.upload is not None or (added is None and proves):
                calling = _Calling(source, reader, context)
                send = self._send if carried else self._send_prepared
                response = await send(calling, template, request)
            else:
                headers: Mapping[str, str] | None = prepared.headers
                if added is not None and (carried or request.body is not None):
                    prepares = not carried and request.headers.get("Content-Type") == JSON
                    headers = prepared.json_headers if prepares else {**request.headers, **added}
                response = await self._client.forward(
                    pool, request, reader, headers=headers, inline_bytes=self._inline_bytes
                )
                if response.status == 401 and self._is_invalidated(binding, source, headers):
                    calling = _Calling(source, reader, context)
                    response = await self._send(calling, template, request)
            if response.status in REDIRECTS:
                calling = _Calling(source, reader, context)
                response = await self._follow(calling, template, request, response)
                if binding.redirects and response.status in REDIRECTS:
                    return _redirection(response, binding)
        except UpstreamFailed as error:
            return failed_call(error)
        result = read(response, context.request_id)
        if binding.pagination is None or result.is_error:
            return result
        following_page = following(binding, arguments, response.headers, response.body)
        return result if following_page is None else with_next(result, following_page)

    async def _follow(
        self,
        calling: "_Calling",
        template: RequestTemplate,
        request: HttpRequest,
        response: HttpResponse,
    ) -> HttpResponse:
        """The answer at the end of the redirects of a GET or HEAD inside one origin."""
        if request.method not in ("GET", "HEAD"):
            return response
        pool = self._client.connections.of(calling.source)
        for _ in range(REDIRECT_LIMIT):
            step = _redirect_request(address_of(pool, request.server), request, response)
            if step is None:
                break
            request = step
            response = await self._send(calling, template, request)
        return response

    def _is_invalidated(
        self, binding: OpenAPIBinding, source: Source, headers: Mapping[str, str] | None
    ) -> bool:
        """Whether a retry after a 401 gets new credentials."""
        if headers is None or not binding.security:
            return False
        return self._credentials.invalidate(source, binding.security, headers)

    async def _send(
        self, calling: "_Calling", template: RequestTemplate, request: HttpRequest
    ) -> HttpResponse:
        """Send the request with credentials; after a refusal of a fetched token, retry once with a
        new one."""
        source, security = calling.source, template.binding.security
        context = calling.context
        proved = await self._credentials.apply(source, security, request, context)
        response = await self._deliver(calling, proved)
        refused = response.status in CREDENTIALS_REFUSED
        if refused and await self._credentials.renew(source, security, proved, response):
            proved = await self._credentials.apply(source, security, request, context)
            response = await self._deliver(calling, proved)
        return response

    async def _send_prepared(
        self, calling: "_Calling", template: RequestTemplate, request: HttpRequest
    ) -> HttpResponse:
        """`_send`, with headers of a person that are encoded once, where there are such."""
        pool, security = self._client.connections.of(calling.source), template.binding.security
        connector, account, headers = pool.connector, None, None
        if connector is not None and request.upload is None:
            account = await connector.account(calling.source, security, calling.context)
        if account is not None:
            headers = template.headers_for(account, pool, request)
        if connector is None or account is None or headers is None:
            return await self._send(calling, template, request)
        response = await self._client.forward(
            pool, request, calling.reader, headers=headers, inline_bytes=self._inline_bytes
        )
        if response.status not in CREDENTIALS_REFUSED:
            return response
        challenge = response.headers.get("WWW-Authenticate", "")
        renewed = await connector.renew(account, status=response.status, challenge=challenge)
        return response if renewed is None else await self._send(calling, template, request)

    async def _deliver(self, calling: "_Calling", request: HttpRequest) -> HttpResponse:
        """Send one attempt: remote files are opened for each, as a stream is read once."""
        if request.upload is None:
            return await self._client.send(calling.source, request, calling.reader)
        if self._uploads is None:
            raise UpstreamFailed("Files can be sent as base64 only")
        async with self._uploads.open(request, calling.context) as ready:
            return await self._client.send(calling.source, ready, calling.reader)


@dataclass(frozen=True, slots=True)
class _Calling:
    """One call: its source, response reader and context."""

    source: Source
    reader: Reader
    context: Context


def _redirect_request(
    base: str, request: HttpRequest, response: HttpResponse
) -> HttpRequest | None:
    """The request that a redirect asks for; None where it leaves the origin of `base`."""
    location = response.headers.get("Location")
    if response.status not in REDIRECTS or not location:
        return None
    try:
        here = URL(base + request.target, encoded=True)
        there = here.join(read_url(location, encoded=True))
        if there.origin() != here.origin():
            return None
    except ValueError:
        return None
    target = there.raw_path_qs
    if not target.isascii() or not target.isprintable() or " " in target:
        return None
    return replace(request, server=str(here.origin()), target=target)


def _redirection(response: HttpResponse, binding: OpenAPIBinding) -> ToolResult:
    """The result of an operation whose description has redirects: where they lead."""
    location = responses_as_results.public_location(response)
    if any(credential.location == "query" for each in binding.security for credential in each):
        location = location.partition("?")[0]  # the query may repeat the key
    if not location:
        return responses_as_results.error(response)
    status = f"{response.status} {responses_as_results.ascii_text(response.reason)}".strip()
    return ToolResult((TextContent(f"{status}\nLocation: {location}"),))


def read(response: HttpResponse, request_id: str) -> ToolResult:
    """The result in `response`. Anything but 2xx is an error that a model can read."""
    if not 200 <= response.status < 300:
        return responses_as_results.error(response)
    if response.download is not None:
        return ToolResult((_link(response.download),))
    if not response.body:
        return ToolResult((TextContent(_bodiless(response)),))
    if responses_as_results.is_json(
        responses_as_results.essence(response.headers.get("Content-Type", ""))
    ):
        return responses_as_results.structured_result(response)
    return ToolResult((responses_as_results.content(response, request_id),))


def _link(download: Download) -> ResourceLink:
    return ResourceLink(
        uri_of(download.handle), download.name, mime_type=download.mime_type, size=download.size
    )


def _bodiless(response: HttpResponse) -> str:
    lines = [f"{response.status} {responses_as_results.ascii_text(response.reason)}".strip()]
    if response.headers.get("Content-Length", "0") != "0":  # an answer to HEAD
        lines += [
            f"{name}: {responses_as_results.ascii_text(response.headers[name])}"
            for name in _HEAD_HEADERS
            if name in response.headers
        ]
    return "\n".join(lines)
