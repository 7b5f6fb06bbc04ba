"""Raw ASGI: headers, query and body of a request, and the options in its query."""

from collections.abc import Collection, Mapping
from typing import Any, get_args
from urllib.parse import parse_qs

from msgspec import ValidationError, convert
from starlette.types import Receive, Scope

from config.types import DisclosureMode
from gateway.context import NO_WISHES, CallHeaders, Identify, Identity, QueryOptions
from gateway.protocol.admission import Headers
from schemas.errors import (
    Forbidden,
    InvalidRequest,
    NotAcceptable,
    PayloadTooLarge,
    UnsupportedMediaType,
)
from schemas.hybrid import Side

MODES: tuple[str, ...] = get_args(DisclosureMode)


def wishes_of(scope: Scope, profiles: Collection[str]) -> QueryOptions:
    """The options in the query. Raises InvalidRequest for an unknown profile or mode; agents are
    resolved by the registry."""
    if not scope.get("query_string"):
        return NO_WISHES
    profile = query_value(scope, "profile")
    if profile is not None and profile not in profiles:
        raise InvalidRequest(f"There is no such profile; there is {', '.join(sorted(profiles))}")
    try:
        mode = convert(query_value(scope, "mode"), DisclosureMode | None)
    except ValidationError as error:
        raise InvalidRequest(f"There is no such mode; there is {', '.join(MODES)}") from error
    return QueryOptions(profile, mode, query_value(scope, "agent"))


_ROUTING = {
    b"mcp-protocol-version": "version",
    b"mcp-session-id": "session",
    b"mcp-method": "method",
    b"mcp-name": "name",
}
_MIRRORED = b"mcp-param-"
_LETTER = {
    b"idempotency-key": "idempotency_key",
    b"authorization": "authorization",
    b"x-scope-token": "scope_token",
    b"x-correlation-id": "correlation_id",
    b"x-traceability-id": "traceability_id",
}


def routing_headers(scope: Scope) -> Headers:
    """The headers that decide the era of a request (ASGI has lower-case names)."""
    headers = Headers()
    for name, value in scope["headers"]:
        attribute = _ROUTING.get(name)
        if attribute is None:
            if name[:10] == _MIRRORED:
                _mirror(headers, name, value)
            continue
        if getattr(headers, attribute) is not None:
            headers.duplicated = name.decode("latin-1")
        setattr(headers, attribute, value.decode("latin-1").strip(" \t"))
    return headers


def _mirror(headers: Headers, name: bytes, value: bytes) -> None:
    """Record a `Mcp-Param-*` header: the rest of its name, and its value."""
    argument = name[len(_MIRRORED) :].decode("latin-1")
    if headers.mirrored is None:
        headers.mirrored = {}
    if argument in headers.mirrored:
        headers.duplicated = name.decode("latin-1")
    headers.mirrored[argument] = value.decode("latin-1").strip(" \t")


async def caller(identify: Identify, scope: Scope) -> Identity:
    """The authenticated caller. Raises the Fault of a failed authentication."""
    identity = await identify(scope)
    if identity.refusal is not None:
        raise identity.refusal
    return identity


def letter(
    scope: Scope,
    side: Side | None = None,
    auth_first: bool = True,
    mirrored: Mapping[str, str] | None = None,
) -> CallHeaders:
    """The headers meant for a service. Raises InvalidRequest for a duplicate key."""
    carried: dict[str, Any] = {"client": (scope.get("client") or ("",))[0]}
    for name, value in scope["headers"]:
        attribute = _LETTER.get(name)
        if attribute is None:
            continue
        if attribute == "idempotency_key" and attribute in carried:
            raise InvalidRequest("Idempotency-Key is sent more than once")
        carried[attribute] = value.decode("latin-1")
    if mirrored:
        carried["mirrored"] = mirrored
    return CallHeaders(side, auth_first, **carried)


def one_command(carried: CallHeaders) -> None:
    """Raises InvalidRequest for a batch that has an Idempotency-Key."""
    if carried.idempotency_key is not None:
        raise InvalidRequest("An Idempotency-Key is for one command; send each by itself")


def header(scope: Scope, wanted: bytes) -> str:
    for name, value in scope["headers"]:
        if name == wanted:
            return str(value.decode("latin-1"))
    return ""


def require_json(scope: Scope) -> None:
    """Raises UnsupportedMediaType. Also CSRF protection: HTML forms cannot send this type."""
    found = header(scope, b"content-type")
    if found.split(";", 1)[0].strip().lower() != "application/json":
        raise UnsupportedMediaType(
            f"Content-Type must be application/json, not {found[:100] or 'missing'}"
        )


def require_same_site(scope: Scope) -> None:
    """CSRF protection of GETs. Raises Forbidden for requests made by a page of another site, by a
    link or an image: they have no Origin, but current browsers add this header (Fetch Metadata)."""
    if header(scope, b"sec-fetch-site") == "cross-site" and not header(scope, b"origin"):
        raise Forbidden("Another site may not make a browser send requests here")


def require_acceptable(accept: str, *types: str) -> None:
    """Raises NotAcceptable. The specification requires both types; we accept one of them."""
    if types[0] in accept:
        return
    ranges = {*types, *(f"{name.split('/')[0]}/*" for name in types), "*/*"}
    if accept and not any(media_range in accept.lower() for media_range in ranges):
        raise NotAcceptable(f"Accept must include {' and '.join(types)}, not only {accept[:100]}")


async def read_body(scope: Scope, receive: Receive, limit_bytes: int) -> bytes:
    """The whole request body. Raises PayloadTooLarge as early as possible, and InvalidRequest when
    the client disconnects before its end."""
    declared = header(scope, b"content-length")
    if declared.isdecimal() and int(declared) > limit_bytes:
        raise _too_large(limit_bytes)
    chunks: list[bytes] = []
    size, more = 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise InvalidRequest("The client went away before its body was complete")
        chunks.append(message.get("body", b""))
        size += len(chunks[-1])
        if size > limit_bytes:
            raise _too_large(limit_bytes)
        more = message.get("more_body", False)
    return chunks[0] if len(chunks) == 1 else b"".join(chunks)


async def read_body_of(
    identity: Identity, scope: Scope, receive: Receive, limit_bytes: int, stranger_bytes: int
) -> bytes:
    """The body, where some requests need no token: without one the limit is `stranger_bytes`, and a
    larger body is refused as unauthenticated. Raises that refusal, else as `read_body`."""
    if identity.refusal is None or stranger_bytes >= limit_bytes:
        return await read_body(scope, receive, limit_bytes)
    try:
        return await read_body(scope, receive, stranger_bytes)
    except PayloadTooLarge as large:
        raise identity.refusal from large


def _too_large(limit_bytes: int) -> PayloadTooLarge:
    return PayloadTooLarge(f"The body exceeds {limit_bytes} bytes (server.body_limit_bytes)")


def query_value(scope: Scope, name: str) -> str | None:
    """The last value of a query parameter; None when there is none."""
    query: bytes = scope["query_string"]
    values = parse_qs(query.decode("latin-1")).get(name) if query else None
    return values[-1] if values else None
