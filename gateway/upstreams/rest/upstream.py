"""Executes REST operations: arguments to an HTTP request, its response to a tool's result.

`read` is pure. The binding maps arguments to places; values passed the input schema.
"""

from dataclasses import dataclass
from typing import Any, cast

from msgspec.structs import replace

from gateway.context import Context
from gateway.state.stored_answers import uri_of
from gateway.upstreams.auth.credentials import Credentials
from gateway.upstreams.http import answers
from gateway.upstreams.http.answers import failed, unanswered
from gateway.upstreams.http.client import Client, Download, HttpRequest, HttpResponse, Reader
from gateway.upstreams.http.connections import UpstreamFailed
from gateway.upstreams.http.connections import read as whole
from gateway.upstreams.http.downloads import Downloads
from gateway.upstreams.http.uploads import Uploads
from gateway.upstreams.rest.paging import following, with_next
from gateway.upstreams.rest.requests import build
from gateway.upstreams.rest.serialize import is_json
from schemas.binding import OpenAPIBinding
from schemas.source import Source
from schemas.tool import ResourceLink, TextContent, Tool, ToolResult


class OpenAPIUpstream:
    def __init__(
        self,
        client: Client,
        uploads: Uploads | None = None,
        downloads: Downloads | None = None,
    ) -> None:
        """Without `uploads`, files can only be sent inside arguments; without `downloads`, no
        answer is stored."""
        self._client = client
        self._uploads = uploads
        self._downloads = downloads
        self._credentials = Credentials(client.connections)

    async def call(
        self, tool: Tool, source: Source | None, arguments: dict[str, Any], context: Context
    ) -> ToolResult:
        if source is None:
            return failed(f"The source of {tool.name} is gone")
        # app.py passes every upstream the bindings of its own kind
        binding = cast("OpenAPIBinding", tool.binding)
        request = _asking(binding.accept, build(binding, arguments))
        reader = self._downloads.of(context.principal, tool.id) if self._downloads else whole
        calling = _Calling(source, reader, context)
        try:
            response = await self._send(calling, binding, request)
        except UpstreamFailed as error:
            return unanswered(error)
        result = read(response, context.request_id)
        if binding.pagination is None or result.is_error:
            return result
        found = following(binding, arguments, response.headers, response.body)
        return with_next(result, found)

    async def _send(
        self, calling: "_Calling", binding: OpenAPIBinding, request: HttpRequest
    ) -> HttpResponse:
        """Send with credentials; after a 401 to a fetched token, retry once with a new one."""
        source, security, context = calling.source, binding.security, calling.context
        proved = await self._credentials.apply(source, security, request, context)
        response = await self._deliver(calling, proved)
        if response.status == 401 and self._credentials.renewed(source, security, proved):
            proved = await self._credentials.apply(source, security, request, context)
            response = await self._deliver(calling, proved)
        return response

    async def _deliver(self, calling: "_Calling", request: HttpRequest) -> HttpResponse:
        """Remote files are opened for each attempt: a stream is read once."""
        if request.upload is None:
            return await self._client.send(calling.source, request, calling.reader)
        if self._uploads is None:
            raise UpstreamFailed("Files can be sent as base64 only")
        async with self._uploads.opened(request, calling.context) as ready:
            return await self._client.send(calling.source, ready, calling.reader)


@dataclass(frozen=True, slots=True)
class _Calling:
    """Source, response reader and context of one call."""

    source: Source
    reader: Reader
    context: Context


def _asking(accept: str | None, request: HttpRequest) -> HttpRequest:
    """`request` with an Accept header, unless an argument sets one."""
    if accept is None or any(name.lower() == "accept" for name in request.headers):
        return request
    return replace(request, headers={**request.headers, "Accept": accept})


def read(response: HttpResponse, request_id: str) -> ToolResult:
    """The result in `response`. Anything but 2xx is an error that a model can read."""
    if not 200 <= response.status < 300:
        return answers.error(response)
    if response.kept is not None:
        return ToolResult((_link(response.kept),))
    if not response.body:
        return ToolResult((TextContent(_bodiless(response)),))
    if is_json(answers.media_type(response)):
        content = TextContent(answers.text(response))
        return ToolResult((content,), answers.structure(response.body))
    return ToolResult((answers.content(response, request_id),))


def _link(kept: Download) -> ResourceLink:
    return ResourceLink(uri_of(kept.handle), kept.name, mime_type=kept.mime_type, size=kept.size)


# What HEAD is asked for; none of them contains an address.
_TOLD = ("Content-Type", "Content-Length", "Last-Modified", "ETag")


def _bodiless(response: HttpResponse) -> str:
    lines = [f"{response.status} {answers.printable(response.reason)}".strip()]
    if response.headers.get("Content-Length", "0") != "0":  # an answer to HEAD
        lines += [
            f"{name}: {answers.printable(response.headers[name])}"
            for name in _TOLD
            if name in response.headers
        ]
    return "\n".join(lines)
