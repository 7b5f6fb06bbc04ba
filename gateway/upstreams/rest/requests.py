"""Builds the HTTP request from a binding and the arguments of a call. Pure."""

from collections.abc import Mapping
from typing import Any

from msgspec import UNSET, UnsetType
from msgspec.json import decode

from gateway.upstreams.http.client import HttpRequest
from gateway.upstreams.rest.bodies import EncodedBody, written
from gateway.upstreams.rest.files import StreamedBody
from gateway.upstreams.rest.serialize import in_cookie, in_header, in_path, in_query, in_querystring
from schemas.binding import Body, OpenAPIBinding, Parameter
from schemas.errors import InvalidParams

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


def build(binding: OpenAPIBinding, arguments: Mapping[str, Any]) -> HttpRequest:
    """The request for `arguments`. Raises InvalidParams for values that cannot be sent."""
    path = binding.path
    query: list[str] = []
    headers: dict[str, str] = {}
    for parameter in binding.parameters:
        value = arguments.get(parameter.argument, UNSET)
        if value is UNSET:
            if isinstance(parameter.fixed, UnsetType):
                continue
            value = decode(parameter.fixed)
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
    content = None if binding.body is None else _content(binding.body, arguments)
    if content is None:
        return HttpRequest(binding.method, path, headers, server=binding.server)
    if isinstance(content, StreamedBody):
        return HttpRequest(binding.method, path, headers, server=binding.server, upload=content)
    headers["Content-Type"] = content.media_type
    return HttpRequest(binding.method, path, headers, content.data, binding.server)


def _check_members(binding: OpenAPIBinding, parameter: Parameter, value: Mapping[str, Any]) -> None:
    """Reject object members, sent under their own names, that collide with a hidden parameter or a
    credential. Raises InvalidParams."""
    place = parameter.location
    if place == "querystring":
        place = "query"
    elif not parameter.explode or parameter.style == "deepObject" or parameter.media_type:
        return
    hidden = {
        one.name
        for one in binding.parameters
        if one.location == place and not isinstance(one.fixed, UnsetType)
    }
    hidden |= {one.name for each in binding.security for one in each if one.location == place}
    if clash := sorted(value.keys() & hidden):
        raise InvalidParams(f"{parameter.argument}: {clash[0][:80]} cannot be given")


_NAMED_BY_MEMBERS = frozenset({"query", "querystring", "cookie"})


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


def _climbs(path: str) -> bool:
    """Whether the path has dot segments. Encoded slashes count: some proxies decode them before
    they resolve the dots. So does `..;x`: to servlets that is `..` with a parameter."""
    segments = path.replace("%2F", "/").replace("%5C", "/").split("/")
    return any(segment.partition(";")[0] in (".", "..") for segment in segments)


def _content(body: Body, arguments: Mapping[str, Any]) -> EncodedBody | StreamedBody | None:
    value = _value(body, arguments)
    return None if value is UNSET else written(body, value, arguments)


def _value(body: Body, arguments: Mapping[str, Any]) -> Any:
    """The value of the body; UNSET where there is none."""
    if body.properties is not None:
        value = {name: arguments[key] for key, name in body.properties if key in arguments}
        if not value and not body.required:
            return UNSET
        return {**value, **body.fixed} if body.fixed else value
    whole = arguments.get(body.argument or "", UNSET)
    if body.fixed and isinstance(whole, dict):
        return {**whole, **body.fixed}
    return whole
