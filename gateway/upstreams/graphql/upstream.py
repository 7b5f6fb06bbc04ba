"""Executes GraphQL fields: arguments to one POST, its response to a tool's result.

Field paths are parsed and rebuilt from names; no text of a caller is sent unchanged. What a path
does not specify comes from the tool's selection: arguments, and the fields of an object.

Follows "GraphQL over HTTP". Of the service's `errors`, debugging details are hidden: extensions
other than a code, and stack traces.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, cast

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType
from msgspec.structs import replace

from gateway.context import Context
from gateway.http_client.http1 import FixedHeaders
from gateway.telemetry.traces import TRACEPARENT, parse
from gateway.upstreams.http import responses_as_results
from gateway.upstreams.http.client import (
    Client,
    HttpRequest,
    HttpResponse,
    headers_of_hooks,
    replace_headers,
)
from gateway.upstreams.http.responses_as_results import failed_call, failure_result
from gateway.upstreams.http.source_pools import SourcePool, UpstreamFailed
from schemas.binding import GraphQLBinding
from schemas.errors import InvalidParams
from schemas.jsonrpc import encode
from schemas.source import Source
from schemas.tool import FIELDS, META_NEXT, TextContent, Tool, ToolResult

_SEGMENT = re.compile(r"(on +)?([_A-Za-z][_0-9A-Za-z]{0,127})", re.ASCII)
_TOKEN = re.compile(
    r"""\s*(?:\.\.\.\s*on\s+(?P<type>\w+)|(?P<open>\{)|(?P<close>\})
    |(?P<head>(?:(?P<alias>\w+)\s*:\s*)?(?P<name>\w+)
      (?:\s*\((?:\"\"\"(?:[^\"]|\"(?!\"\"))*\"\"\"|"(?:\\.|[^"\\])*"|[^()"])*\))?))""",
    re.VERBOSE | re.ASCII,
)

META_ERRORS = "toolgate/errors"
ERRORS_SHOWN = 20
MESSAGE_CHARACTERS = 500  # a longer one is a page, or a stack trace

_HEADERS = {
    "Content-Type": "application/json",
    "Accept": "application/graphql-response+json, application/json;q=0.9",
}
_STACK = ("\n    at ", "\n\tat ", "\nTraceback ", "\n  File ")  # Node, Java, Python

_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


@dataclass(slots=True)
class SelectionNode:
    """A field, or a fragment, of a selection."""

    head: str  # as it is printed: `issues(first: 10)`, `... on Pet`
    inner: "dict[str, SelectionNode]" = field(default_factory=dict)  # by name, alias or `on Type`

    def print(self) -> str:
        return f"{self.head} {_brace(self.inner.values())}" if self.inner else self.head


@dataclass(slots=True)
class _Wanted:
    whole: bool = False  # a path ends here
    inner: "dict[str, _Wanted]" = field(default_factory=dict)


def narrow(selection: str, paths: Iterable[Sequence[str]], always: Mapping[str, str]) -> str:
    """The selection set for `paths`, and for `always`: further fields by name, as printed.

    `on User` between two names of a path restricts it to objects of that type. Raises
    InvalidParams.
    """
    if not selection:
        raise InvalidParams("_fields: the answer has no fields to choose from")
    root = _Wanted()
    for path in map(_check_path, paths):
        at = root
        for segment in path:
            at = at.inner.setdefault(segment, _Wanted())
        at.whole = True
    printed_nodes = read_selection(selection)
    nodes = dict(_render_nodes(root, printed_nodes))
    for name, printed in always.items():
        nodes[name] = SelectionNode(printed)
    return _brace(nodes.values())


@lru_cache(maxsize=512)
def read_selection(selection: str) -> Mapping[str, SelectionNode]:
    """Parsed fields of a selection, as written by an import."""
    root = SelectionNode("")
    stack, last = [root], root
    for token in _TOKEN.finditer(selection):
        if token["open"]:
            stack.append(last)
        elif token["close"]:
            stack.pop()
        else:
            key = f"on {token['type']}" if token["type"] else token["alias"] or token["name"]
            head = f"... {key}" if token["type"] else token["head"]
            last = stack[-1].inner.setdefault(key, SelectionNode(head))
    return root.inner


def _check_path(path: Sequence[str]) -> list[str]:
    names = []
    for segment in path:
        match = _SEGMENT.fullmatch(segment.strip())
        if match is None:
            raise InvalidParams(
                f"_fields: {segment[:60]!r} is no name of a field; expected paths such as "
                '["id", "owner.login", "on User.email"]'
            )
        names.append(f"on {match[2]}" if match[1] else match[2])
    return names


def _render_nodes(
    fields: _Wanted, nodes: Mapping[str, SelectionNode]
) -> Iterator[tuple[str, SelectionNode]]:
    for name, sub in fields.inner.items():
        if name in nodes or name.startswith("on "):
            yield name, _node(name, sub, nodes.get(name))
            continue
        inside = [
            (key, schema_field)
            for key, schema_field in nodes.items()
            if name in schema_field.inner and _is_type(key)
        ]
        for key, schema_field in inside:  # a field of some types of a union or interface
            yield (
                f"{key} {name}",
                SelectionNode(
                    schema_field.head, {name: _node(name, sub, schema_field.inner[name])}
                ),
            )
        if not inside:
            yield name, _node(name, sub, None)


def _node(name: str, fields: _Wanted, node: SelectionNode | None) -> SelectionNode:
    head = node.head if node else f"... {name}" if _is_type(name) else name
    inner = dict(node.inner) if node and fields.whole else {}
    inner |= _render_nodes(fields, node.inner if node else {})
    return SelectionNode(head, inner)


def _is_type(key: str) -> bool:
    return key.startswith("on ")


def _brace(nodes: Iterable[SelectionNode]) -> str:
    return f"{{ {' '.join(node.print() for node in nodes)} }}"


class _Envelope(Struct):
    data: Raw | UnsetType = UNSET
    errors: Raw | UnsetType = UNSET


_envelope = msgspec.json.Decoder(_Envelope)
_members = msgspec.json.Decoder(dict[str, Raw])
_anything = msgspec.json.Decoder()


class GraphQLUpstream:
    def __init__(self, client: Client) -> None:
        self._client = client

    async def call(
        self,
        tool: Tool,
        source: Source | None,
        arguments: dict[str, Any],
        context: Context,
    ) -> ToolResult:
        if source is None:
            return failure_result(f"The source of {tool.name} is gone")
        # app/upstreams.py: each upstream has its own kind
        binding = cast("GraphQLBinding", tool.binding)
        try:
            pool = self._client.connections.of(source)
            request = build(binding, arguments, _target(pool))
            headers: Mapping[str, str] = _HEADERS if pool.by_caller else _headers_of(pool)
            if (traceparent := context.headers.traceparent) is not None and parse(traceparent):
                headers = replace_headers(headers, {TRACEPARENT: traceparent})
                request = replace(request, headers=headers)
            if context.hooked is not None:
                request = replace(request, hooked=headers_of_hooks(source, context))
            if pool.by_caller:
                caller = await self._client.caller(source, context)
                response = await self._client.send(source, replace(request, caller=caller))
            else:
                response = await self._client.forward(pool, request, headers=headers)
        except UpstreamFailed as error:
            return failed_call(error)
        return read(response, binding, arguments, source.name)


def _target(pool: SourcePool) -> str:
    """The request target: the whole endpoint, with the trailing slash that base URLs lose."""
    return "/" if (pool.address or "").endswith("/") else ""


def _headers_of(pool: SourcePool) -> FixedHeaders:
    """The headers of all requests without a caller. Raises UpstreamFailed."""
    if pool.fixed_headers is None:
        pool.fixed_headers = FixedHeaders(pool.with_configured(_HEADERS))
    return pool.fixed_headers


def build(binding: GraphQLBinding, arguments: Mapping[str, Any], target: str = "") -> HttpRequest:
    """The request for `arguments`. Raises InvalidParams."""
    selection = binding.selection
    if FIELDS in arguments and _is_control_argument(binding):
        paths = [text.split(".") for text in arguments[FIELDS]]
        selection = narrow(selection, paths, _always(binding))
    body = {
        "query": document(binding, selection),
        "variables": _variables(binding, arguments),
        "operationName": binding.field,
    }
    idempotent = binding.operation == "query"
    return HttpRequest("POST", target, _HEADERS, encode(body), idempotent=idempotent)


def _is_control_argument(binding: GraphQLBinding) -> bool:
    """Whether the argument is the gateway's: the field has none of that name itself."""
    return all(variable.argument != FIELDS for variable in binding.variables)


def document(binding: GraphQLBinding, selection: str) -> str:
    """One operation with one root field, all of its arguments variables."""
    declared = ", ".join(f"${variable.name}: {variable.type}" for variable in binding.variables)
    passed = ", ".join(f"{variable.name}: ${variable.name}" for variable in binding.variables)
    head = f"{binding.operation} {binding.field}{f'({declared})' if declared else ''}"
    field = f"{binding.field}{f'({passed})' if passed else ''}"
    return f"{head} {{ {field}{f' {selection}' if selection else ''} }}"


def _variables(binding: GraphQLBinding, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The variables of the operation, without absent arguments: the service has its own defaults
    for them."""
    variables = {
        variable.name: arguments[variable.argument] if variable.fixed is UNSET else variable.fixed
        for variable in binding.variables
        if variable.fixed is not UNSET or variable.argument in arguments
    }
    size = binding.pagination.limit if binding.pagination else None
    if size and binding.page_size and not variables.keys() & {"first", "last"}:
        variables["first"] = binding.page_size
    return variables


def _always(binding: GraphQLBinding) -> dict[str, str]:
    """Page info fields, which are selected whatever a caller selects."""
    if binding.pagination is None:
        return {}
    info, cursor = binding.pagination.path
    return {info: f"{info} {{ {binding.pagination.more[-1]} {cursor} }}"}


def read(
    response: HttpResponse, binding: GraphQLBinding, arguments: Mapping[str, Any], source: str
) -> ToolResult:
    """The result in `response`; an error where it has no data."""
    envelope = None if 300 <= response.status < 400 else _decode(response.body)
    if envelope is None:
        if 200 <= response.status < 300:
            return failure_result(f"{source} did not answer with a GraphQL response")
        return responses_as_results.error(response)
    data, errors = _data(envelope), _errors(envelope)
    value = data.get(binding.field)
    if errors and (value is None or bytes(value) == b"null"):
        return _failure(errors)
    if value is None:
        return failure_result(f"{source} answered without {binding.field}")
    return _result(value, errors, binding, arguments)


def _decode(body: bytes) -> _Envelope | None:
    """The decoded GraphQL response; None for anything else."""
    raw = responses_as_results.structure(body)
    try:
        envelope = None if raw is UNSET else _envelope.decode(raw)
    except _UNREADABLE:
        return None
    if envelope is None or (envelope.data is UNSET and envelope.errors is UNSET):
        return None
    return envelope


def _data(envelope: _Envelope) -> dict[str, Raw]:
    try:
        return {} if envelope.data is UNSET else _members.decode(envelope.data)
    except _UNREADABLE:  # null, or no object
        return {}


def _errors(envelope: _Envelope) -> list[dict[str, Any]]:
    try:
        reported = None if envelope.errors is UNSET else _anything.decode(envelope.errors)
    except _UNREADABLE:
        return [{"message": "The service reported an error that cannot be read"}]
    if not isinstance(reported, list):
        return [_error(reported)] if reported else []
    return [_error(reported_error) for reported_error in reported[:ERRORS_SHOWN]]


def _error(reported: Any) -> dict[str, Any]:
    """The part of an error that a caller may see (October 2021, section 7.1.2)."""
    members = reported if isinstance(reported, dict) else {"message": reported}
    message = members.get("message")
    error: dict[str, Any] = {"message": _plain(message) if isinstance(message, str) else "Failed"}
    if isinstance(path := members.get("path"), list):
        error["path"] = [segment for segment in path if isinstance(segment, str | int)][:50]
    extensions = members.get("extensions")
    code = extensions.get("code") if isinstance(extensions, dict) else None
    code = code or members.get("type")  # GitHub puts NOT_FOUND there
    if isinstance(code, str | int):
        error["code"] = str(code)[:100]
    return error


def _plain(message: str) -> str:
    for mark in _STACK:
        message = message.partition(mark)[0]
    message = message.strip()
    if len(message) <= MESSAGE_CHARACTERS:
        return message
    return f"{message[: MESSAGE_CHARACTERS - 1]}…"


def _error_text(error: Mapping[str, Any]) -> str:
    path = ".".join(str(segment) for segment in error.get("path", ()))
    position = "; ".join(filter(None, (f"at {path}" if path else "", error.get("code", ""))))
    return f"{error['message']} ({position})" if position else str(error["message"])


def _failure(errors: list[dict[str, Any]]) -> ToolResult:
    text = "\n".join(_error_text(error) for error in errors)
    return ToolResult((TextContent(text),), Raw(encode({"errors": errors})), is_error=True)


def _result(
    value: Raw,
    errors: list[dict[str, Any]],
    binding: GraphQLBinding,
    arguments: Mapping[str, Any],
) -> ToolResult:
    text = str(memoryview(value), "utf-8")
    if text.startswith('"'):
        text = _anything.decode(value)
    content = [TextContent(text)]
    meta: dict[str, Any] = {}
    if following := _following(value, binding, arguments):
        meta[META_NEXT] = {"arguments": following}
    if errors:
        meta[META_ERRORS] = errors
        text = "; ".join(_error_text(error) for error in errors)
        content.append(TextContent(f"Parts of this answer are missing: {text}"))
    return ToolResult(tuple(content), value, meta=meta or UNSET)


def _following(
    value: Raw, binding: GraphQLBinding, arguments: Mapping[str, Any]
) -> dict[str, Any] | None:
    """The arguments of the next page; None on the last page, or where that is unknown."""
    pagination = binding.pagination
    if pagination is None or "last" in arguments:  # which pages backwards
        return None
    try:
        info = _members.decode(_members.decode(value)[pagination.path[0]])
        more = _anything.decode(info[pagination.more[-1]])
        cursor = _anything.decode(info[pagination.path[-1]])
    except (*_UNREADABLE, KeyError):
        return None
    if more is not True or not isinstance(cursor, str) or not cursor:
        return None
    if cursor == arguments.get(pagination.argument):
        return None
    following = {**arguments, pagination.argument: cursor}
    if _is_control_argument(binding):
        following.pop(FIELDS, None)
    return following
