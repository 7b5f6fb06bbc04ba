"""HTTP responses as tool results: text, JSON and errors as content."""

import base64
import codecs
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import msgspec
from msgspec import UNSET, Raw, UnsetType

from gateway.upstreams.http.client import HttpResponse
from gateway.upstreams.http.source_pools import UpstreamFailed
from registry.documents.ssrf_protection import PrivateAddress, check_url_host, read_url
from schemas.hybrid import UPSTREAM_FAILED, UPSTREAM_TIMEOUT, StatusFault
from schemas.jsonrpc import encode
from schemas.retry_after import retry_after_s, whole_seconds
from schemas.tool import (
    AudioContent,
    BlobResource,
    Content,
    EmbeddedResource,
    ImageContent,
    Outage,
    TextContent,
    ToolResult,
)

_syntax = msgspec.json.Decoder(Raw)  # validates without building anything


LONGEST_WAIT_S = 3600.0  # of what a service asks for in Retry-After
OUTAGE_STATUSES = frozenset({502, 503, 504})  # sent by proxies, and by services that cannot serve


def failure_result(text: str) -> ToolResult:
    return ToolResult((TextContent(text),), is_error=True)


def failed_call(error: UpstreamFailed) -> ToolResult:
    """The result of a call that got no usable response."""
    result = failure_result(str(error))
    return outage(result) if error.down else result


def outage(result: ToolResult) -> Outage:
    """`result` as an outage: a failure that affects every call of its source."""
    return Outage(*(getattr(result, name) for name in ToolResult.__struct_fields__))


def by_status(response: HttpResponse, result: ToolResult) -> ToolResult:
    """`result`, as an outage where the status of the response means one."""
    return outage(result) if response.status in OUTAGE_STATUSES else result


CONTENT_TYPES = 64  # remembered: services send few


def media_type(response: HttpResponse) -> str:
    """Media type in lower case, without parameters; empty when the service names none."""
    return essence(response.headers.get("Content-Type", ""))


@lru_cache(CONTENT_TYPES)
def essence(content_type: str) -> str:
    """The type that a Content-Type names, in lower case and without parameters."""
    return ascii_text(content_type).split(";", 1)[0].strip().lower()


@lru_cache(CONTENT_TYPES)
def is_json(media_type: str) -> bool:
    media_type = media_type.split(";", 1)[0].strip().lower()
    return media_type == "application/json" or media_type.endswith("+json")


# names that are resolved inside a network only: RFC 6762, 6761 and 8375, and common ones
_INTERNAL = ("local", "localhost", "internal", "intranet", "lan", "corp", "home", "arpa", "test")
_LOCATION_LIMIT = 4_096  # characters


def public_location(response: HttpResponse) -> str:
    """The `Location` of a response: an http(s) URL of a public host, or a path; else ""."""
    location = ascii_text(response.headers.get("Location", "")).strip()
    if len(location) > _LOCATION_LIMIT:
        return ""
    if location.startswith("/") and not location.startswith(("//", "/\\")):
        return location
    try:
        url = read_url(location)
        check_url_host(location)
    except (ValueError, PrivateAddress):
        return ""
    named = url.scheme in ("http", "https") and url.user is None and url.password is None
    labels = (url.host or "").rstrip(".").split(".")
    public = ":" in (url.host or "") or (len(labels) > 1 and labels[-1] not in _INTERNAL)
    return location if named and public else ""


def error(response: HttpResponse) -> ToolResult:
    """The result for a response other than 2xx: an error that a model can read."""
    status = f"HTTP {response.status} {ascii_text(response.reason)}".strip()
    if 300 <= response.status < 400:
        # not the body, which may contain an internal address; nor a query, which may repeat a key
        data: dict[str, Any] = {"status": response.status}
        message = f"{status}: redirects are not followed"
        if location := public_location(response).partition("?")[0]:
            data["location"] = location
            message = f"{status}: it redirects to {location}, which is not followed"
        return ToolResult((TextContent(message),), Raw(encode(data)), is_error=True)
    kind = media_type(response)
    body: Any = text(response) if _is_text(kind, response.body) else f"[{kind}]"
    message = f"{status}\n{body}" if response.body else status
    if is_json(kind) and isinstance(raw := structure(response.body), Raw):
        body = raw
    wait_s = retry_after_s(response.headers.get("Retry-After", ""), LONGEST_WAIT_S)
    return by_status(response, failure(response.status, message, body, wait_s))


def failure(status: int, message: str, body: Any, wait_s: float | None = None) -> ToolResult:
    """A failure that has an HTTP status; `body` is the service's error body, text or JSON, and
    `wait_s` what it asks to wait."""
    data: dict[str, Any] = {"status": status, "body": body}
    if wait_s is not None:
        data["retryAfter"] = whole_seconds(wait_s)
    return ToolResult((TextContent(message),), Raw(encode(data)), is_error=True)


def status_failure(status: int, data: Any, body: Any = None) -> ToolResult:
    """A failure as a hybrid service reports it. `data`: members of the Status, or text; `body`: the
    Status as received, if it came encoded."""
    members = data if isinstance(data, Mapping) else {}
    names = " ".join(str(members[name]) for name in ("code", "message") if members.get(name))
    head = " ".join(filter(None, (f"HTTP {status}", names)))
    description = data if isinstance(data, str) else members.get("description")
    message = f"{head}: {description}" if description else head
    return failure(status, message, data if body is None else body)


def failed_hybrid_call(error: UpstreamFailed) -> ToolResult:
    """Like `failed_call`, for a hybrid call."""
    result = no_answer(str(error), error.late)
    return outage(result) if error.down else result


def no_answer(text: str, late: bool = False) -> ToolResult:
    """The result of a hybrid call that got no usable response."""
    fault = StatusFault(UPSTREAM_TIMEOUT if late else UPSTREAM_FAILED, text)
    return status_failure(fault.status, fault.data)


def structure(body: bytes) -> Raw | UnsetType:
    """`body` unchanged, if it is JSON: some services only claim it."""
    body = body.removeprefix(codecs.BOM_UTF8)  # RFC 8259, section 8.1
    try:
        _syntax.decode(body)
        body.decode()  # the syntax check skips string contents
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return UNSET
    return Raw(body)


def structured_result(response: HttpResponse) -> ToolResult:
    """The result in a JSON body: its text and, unless it only claims to be JSON, its structure."""
    if _foreign_charset(response.headers.get("Content-Type", "")):
        return ToolResult((TextContent(text(response)),), structure(response.body))
    body = response.body.removeprefix(codecs.BOM_UTF8)
    try:
        _syntax.decode(body)
        content = TextContent(body.decode())  # the syntax check skips string contents
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ToolResult((TextContent(body.decode(errors="replace")),))
    return ToolResult((content,), Raw(body))


def content(response: HttpResponse, request_id: str, lenient: bool = False) -> Content:
    """The body by its type: text, image, audio, or a resource named after the request. `lenient`:
    a body without a type may be text with invalid bytes in it."""
    kind = media_type(response)
    if _is_text(kind, response.body) and (kind or lenient or _is_utf8(response.body)):
        return TextContent(text(response))
    data = base64.b64encode(response.body).decode()
    if kind.startswith("image/"):
        return ImageContent(data, kind)
    if kind.startswith("audio/"):
        return AudioContent(data, kind)
    uri = f"toolgate://results/{request_id}"
    return EmbeddedResource(BlobResource(uri, kind or "application/octet-stream", data))


_CHARSET = re.compile(r"charset\s*=\s*[\"']?([^\s;\"']+)", re.IGNORECASE)
# charsets in use; others of Python's codecs are very slow (punycode) or no charsets
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
        "application/ndjson",
        "application/jsonl",
        "application/json-seq",
        "application/x-json-stream",
        "application/graphql",
        "application/toml",
        "application/sql",
        "application/javascript",
    }
)


def _is_text(kind: str, body: bytes) -> bool:
    return is_textual(kind) or (kind == "" and b"\0" not in body)


def _is_utf8(body: bytes) -> bool:
    try:
        body.decode()
    except UnicodeDecodeError:
        return False
    return True


def is_textual(kind: str) -> bool:
    if kind.startswith("text/") or kind.endswith(("+xml", "+json-seq", "+yaml")) or is_json(kind):
        return True
    return kind in _TEXTUAL


def charset_of(content_type: str) -> str:
    """As the service names it, in lower case; empty when it does not."""
    match = _CHARSET.search(content_type)
    return "" if match is None else match[1].lower()


@lru_cache(CONTENT_TYPES)
def _foreign_charset(content_type: str) -> str:
    """The charset that a Content-Type names, if it is one that is decoded; else text is UTF-8."""
    charset = charset_of(content_type)
    return charset if _CHARSETS.fullmatch(charset) else ""


def text(response: HttpResponse) -> str:
    if charset := _foreign_charset(response.headers.get("Content-Type", "")):
        try:
            decoded = response.body.decode(charset, errors="replace")
            decoded.encode()  # some codecs of Python make lone surrogates, which cannot be sent
            return decoded
        except (LookupError, ValueError):
            pass
    return response.body.removeprefix(codecs.BOM_UTF8).decode("utf-8", errors="replace")


def ascii_text(header: str) -> str:
    """A header value in ASCII: other bytes, which have no agreed meaning there, become ?."""
    return header.encode("ascii", errors="replace").decode()
