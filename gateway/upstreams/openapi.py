"""REST operations: arguments to an HTTP request, its answer to a tool's result.

`build` and `read` are pure. What goes where stands in the binding; values passed the input schema.
Multi-part files, XML and `encoding` objects are not mapped yet: such a body goes out as text parts.
"""

import base64
import codecs
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

import msgspec
from msgspec import UNSET, Raw, UnsetType
from msgspec.structs import replace

from gateway.context import Context
from gateway.upstreams.client import Client, HttpRequest, HttpResponse, UpstreamFailed
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
from schemas.tool import (
    AudioContent,
    BlobResource,
    Content,
    EmbeddedResource,
    ImageContent,
    TextContent,
    Tool,
    ToolResult,
)

_syntax = msgspec.json.Decoder(Raw)  # reads without building anything
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
            request = build(tool.binding, arguments)
            response = await self._client.send(source, request)
        except UpstreamFailed as error:
            return failed(str(error))
        return read(response, context.request_id)


def failed(text: str) -> ToolResult:
    return ToolResult((TextContent(text),), is_error=True)


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
    media_type = _printable(response.headers.get("Content-Type", "")).split(";", 1)[0]
    media_type = media_type.strip().lower()
    if not 200 <= response.status < 300:
        return _error(response, media_type)
    if not response.body:
        return ToolResult(
            (TextContent(f"{response.status} {_printable(response.reason)}".strip()),)
        )
    if is_json(media_type):
        return ToolResult((TextContent(_text(response)),), _structure(response.body))
    return ToolResult((_content(response, media_type, request_id),))


def _error(response: HttpResponse, media_type: str) -> ToolResult:
    status = f"HTTP {response.status} {_printable(response.reason)}".strip()
    if 300 <= response.status < 400:
        # not where to, and not the body that says it: that may be an address of the inside
        content = TextContent(f"{status}: redirects are not followed")
        structure = Raw(encode({"status": response.status}))
        return ToolResult((content,), structure, is_error=True)
    body: Any = _text(response) if _is_text(media_type, response.body) else f"[{media_type}]"
    content = TextContent(f"{status}\n{body}" if response.body else status)
    if is_json(media_type) and isinstance(raw := _structure(response.body), Raw):
        body = raw
    structure = Raw(encode({"status": response.status, "body": body}))
    return ToolResult((content,), structure, is_error=True)


def _structure(body: bytes) -> Raw | UnsetType:
    """`body` as it came, if it is JSON: some services only say that it is."""
    body = body.removeprefix(codecs.BOM_UTF8)  # RFC 8259, section 8.1
    try:
        _syntax.decode(body)
        body.decode()  # the syntax check does not look into strings
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return UNSET
    return Raw(body)


def _content(response: HttpResponse, media_type: str, request_id: str) -> Content:
    if _is_text(media_type, response.body):
        return TextContent(_text(response))
    data = base64.b64encode(response.body).decode()
    if media_type.startswith("image/"):
        return ImageContent(data, media_type)
    if media_type.startswith("audio/"):
        return AudioContent(data, media_type)
    uri = f"toolgate://results/{request_id}"
    return EmbeddedResource(BlobResource(uri, media_type or "application/octet-stream", data))


_CHARSET = re.compile(r"charset\s*=\s*[\"']?([^\s;\"']+)", re.IGNORECASE)
# what services send; others of Python's codecs are slow beyond reason (punycode) or no charsets
_CHARSETS = re.compile(
    r"(us-)?ascii|latin-?1|iso-8859-\d+|windows-\d+|cp\d+|utf-?(16|32)([lb]e)?|koi8-[ru]"
    r"|shift_?jis|euc-(jp|kr)|iso-2022-(jp|kr)|gb(2312|k|18030)|big5"
)
_TEXTUAL = frozenset(
    {
        "application/xml",
        "application/yaml",
        "application/x-yaml",
        "application/x-ndjson",
        "application/jsonl",
        "application/javascript",
    }
)


def _is_text(media_type: str, body: bytes) -> bool:
    if media_type.startswith("text/") or media_type.endswith("+xml") or is_json(media_type):
        return True
    return media_type in _TEXTUAL or (media_type == "" and b"\0" not in body)


def _text(response: HttpResponse) -> str:
    charset = _CHARSET.search(response.headers.get("Content-Type", ""))
    if charset is not None and _CHARSETS.fullmatch(charset[1].lower()):
        try:
            text = response.body.decode(charset[1], errors="replace")
            text.encode()  # some of Python's codecs make half characters, which nobody can send on
            return text
        except (LookupError, ValueError):
            pass
    return response.body.removeprefix(codecs.BOM_UTF8).decode("utf-8", errors="replace")


def _printable(text: str) -> str:
    """What a header says; bytes that are no ASCII, which have no agreed meaning there, become ?."""
    return text.encode("ascii", errors="replace").decode()
