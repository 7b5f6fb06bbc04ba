"""REST operations: arguments to an HTTP request, its answer to a tool's result.

`build` and `read` are pure. What goes where stands in the binding; values passed the input schema.
Multi-part files, XML and `encoding` objects are not mapped yet: such a body goes out as text parts.
"""

from collections.abc import Mapping
from typing import Any, cast
from urllib.parse import urlencode

from msgspec.structs import replace

from gateway.context import Context
from gateway.upstreams import answers
from gateway.upstreams.answers import failed
from gateway.upstreams.client import Client, HttpRequest, HttpResponse
from gateway.upstreams.connections import UpstreamFailed
from gateway.upstreams.serialize import (
    in_cookie,
    in_header,
    in_path,
    in_query,
    is_json,
    plain,
)
from schemas.binding import Body, OpenAPIBinding
from schemas.errors import InvalidParams
from schemas.jsonrpc import encode
from schemas.source import Source
from schemas.tool import TextContent, Tool, ToolResult

# what frames or routes the request is ours to say, whatever a description declares (RFC 9110, 7)
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


class OpenAPIUpstream:
    def __init__(self, client: Client) -> None:
        self._client = client

    async def call(
        self, tool: Tool, source: Source | None, arguments: dict[str, Any], context: Context
    ) -> ToolResult:
        if source is None:
            return failed(f"The source of {tool.name} is gone")
        try:
            # app.py hands every upstream the bindings of its own kind
            request = build(cast("OpenAPIBinding", tool.binding), arguments)
            response = await self._client.send(source, request)
        except UpstreamFailed as error:
            return failed(str(error))
        return read(response, context.request_id)


def build(binding: OpenAPIBinding, arguments: Mapping[str, Any]) -> HttpRequest:
    """The request that `arguments` ask for. Raises InvalidParams for values that cannot be sent."""
    path, query, cookies = binding.path, [], []
    headers: dict[str, str] = {}
    for parameter in binding.parameters:
        if parameter.argument not in arguments:
            continue
        value = arguments[parameter.argument]
        match parameter.location:
            case "path":
                path = path.replace(f"{{{parameter.name}}}", in_path(parameter, value))
            case "query":
                query.append(in_query(parameter, value))
            case "header" if parameter.name.lower() not in _NOT_FROM_ARGUMENTS:
                headers[parameter.name] = in_header(parameter, value)
            case "cookie":
                cookies.append(in_cookie(parameter, value))
    if "." in path and _climbs(path):
        raise InvalidParams("a path must not hold the segments '.' or '..'")  # RFC 3986, 5.2.4
    headers["Cookie"] = "; ".join(filter(None, cookies))
    headers = {name: value for name, value in headers.items() if value}
    target = "?".join(filter(None, (path, "&".join(filter(None, query)))))
    request = HttpRequest(binding.method, target, headers, server=binding.server)
    return request if binding.body is None else _with_body(request, binding.body, arguments)


def _climbs(path: str) -> bool:
    """Encoded slashes count: some proxies decode them before they resolve the dots."""
    segments = path.replace("%2F", "/").replace("%5C", "/").split("/")
    return not {".", ".."}.isdisjoint(segments)


def _with_body(request: HttpRequest, body: Body, arguments: Mapping[str, Any]) -> HttpRequest:
    value: Any
    if body.properties is not None:
        value = {name: arguments[key] for key, name in body.properties if key in arguments}
        if not value and not body.required:
            return request
    elif body.argument is not None and body.argument in arguments:
        value = arguments[body.argument]
    else:
        return request
    if body.media_type == "multipart/form-data":  # its Content-Type names the boundary
        fields = _fields(value if isinstance(value, dict) else {"value": value})
        return replace(request, form=fields)
    headers = {**request.headers, "Content-Type": body.media_type}
    return replace(request, headers=headers, body=_encoded(body.media_type, value))


def _encoded(media_type: str, value: Any) -> bytes:
    if is_json(media_type):
        return encode(value)
    if media_type == "application/x-www-form-urlencoded" and isinstance(value, dict):
        return urlencode(_fields(value)).encode()
    return plain(value).encode()


def _fields(value: dict[str, Any]) -> list[tuple[str, str]]:
    """Form fields: an array is one field for each member, an object is JSON, null is none."""
    fields: list[tuple[str, str]] = []
    for name, item in value.items():
        members = item if isinstance(item, list) else [item]
        fields += [(name, plain(member)) for member in members if member is not None]
    return fields


def read(response: HttpResponse, request_id: str) -> ToolResult:
    """The result that `response` is. Anything but 2xx is an error that a model can read."""
    if not 200 <= response.status < 300:
        return answers.error(response)
    if not response.body:
        said = f"{response.status} {answers.printable(response.reason)}"
        return ToolResult((TextContent(said.strip()),))
    if is_json(answers.media_type(response)):
        content = TextContent(answers.text(response))
        return ToolResult((content,), answers.structure(response.body))
    return ToolResult((answers.content(response, request_id),))
