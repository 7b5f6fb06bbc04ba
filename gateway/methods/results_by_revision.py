"""Tool results in the shape of the caller's revision, and the server info in them.

MCP tool calls over a rate limit are answered with a tool result, not an error: a model can react to
a result, and wait; a JSON-RPC error or status 429 reaches only its client program. Other methods,
and other fronts, get the error and `Retry-After`.
"""

from importlib.metadata import PackageNotFoundError, version
from typing import Any

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from gateway.context import Context
from gateway.protocol.dialects import Payload
from gateway.protocol.revision_adapter import Members, is_failure, tool_result
from schemas.errors import Fault, ToolFailed, TooManyRequests
from schemas.jsonrpc import Request, encode
from schemas.mcp.messages import META_SERVER, CallToolResult, Implementation, InputRequiredResult
from schemas.mcp.revisions import Revision
from schemas.tool import AskingResult, AudioContent, Content, ResourceLink, TextContent, ToolResult


def _version() -> str:
    try:
        return version("toolgate")
    except PackageNotFoundError:  # run from a source tree that was never installed
        return "0+unknown"


SERVER = Implementation("toolgate", _version())
ENCODED_SERVER = Raw(encode(SERVER))
STAMP: dict[str, Any] = {META_SERVER: SERVER}


META_REQUEST_ID = "toolgate/requestId"
META_RENAMED = "toolgate/renamedTo"  # the tool's current name, for callers of an old one
_members = msgspec.json.Decoder(dict[str, Raw])  # values pass through undecoded


class _ContentItem(Struct, frozen=True):
    type: Any = None
    text: Any = None


_content_decoder = msgspec.json.Decoder(list[_ContentItem])


def call_result(result: ToolResult, context: Context) -> CallToolResult:
    """`result` as the `result` of tools/call."""
    if isinstance(result, AskingResult):
        return InputRequiredResult(
            (),
            result_type="input_required",
            input_requests=result.requests,
            request_state=result.state,
        )
    revision = context.revision
    meta = STAMP if revision.result_type else None
    if result.meta is not UNSET:
        meta = {**result.meta, **(meta or {})}
    if result.is_error:
        meta = {**(meta or {}), META_REQUEST_ID: context.request_id}
    content, structure = result.content, result.structured_content
    if len(content) != 1 or type(content[0]) is not TextContent:
        content = tuple(_carry_content(item, revision) for item in content)
    if not revision.any_structure:
        structure = _structure(structure, revision)
    return CallToolResult(
        content=content,
        structured_content=structure,
        is_error=result.is_error,
        result_type="complete" if revision.result_type else UNSET,
        meta=UNSET if meta is None else meta,
    )


def note_rename(result: ToolResult, name: str) -> ToolResult:
    """`result` with a note of the tool's current name."""
    meta = {} if result.meta is UNSET else result.meta
    return msgspec.structs.replace(result, meta={**meta, META_RENAMED: name})


def plain_result(result: ToolResult) -> Raw:
    """The data of `result`, for a JSON-RPC client. Raises ToolFailed."""
    if result.is_error:
        raise ToolFailed(*_failure(result))
    if result.structured_content is not UNSET:
        return result.structured_content
    match result.content:
        case []:
            return Raw(b"null")
        case [TextContent(text)]:
            return Raw(encode(text))
    return Raw(encode(result.content))


def plain_members(members: Members) -> Raw:
    """The same for the result of another MCP server's tool, with all kinds of content."""
    content, structure = members.get("content", Raw(b"[]")), members.get("structuredContent")
    if is_failure(members):
        message, data = _failure(tool_result(members))
        raise ToolFailed(message, {"content": content} if structure is None else data)
    if structure is not None:
        return structure
    match _content_decoder.decode(content):
        case []:
            return Raw(b"null")
        case [_ContentItem("text", str(text))]:
            return Raw(encode(text))
    return content


def payload_of(result: ToolResult) -> Payload:
    """`result` of a hybrid action for clients of the legacy payload: without an envelope."""
    if result.structured_content is not UNSET:
        return Payload(bytes(result.structured_content))
    match result.content:
        case ():
            return Payload(None)
        case (TextContent(text),):
            return Payload(text.encode(), is_text=True)
    return Payload(encode(result.content))


def _failure(result: ToolResult) -> tuple[str, dict[str, Any]]:
    texts = result.texts
    message = texts[0].split("\n", 1)[0][:300] if texts else "The tool failed"
    structure = result.structured_content
    if structure is UNSET:
        return message, {"content": result.content}
    return message, _members.decode(structure) if _is_object(structure) else {"content": structure}


def _structure(value: Raw | UnsetType, revision: Revision) -> Raw | UnsetType:
    """Structured content; other values than objects are wrapped for 2025-06-18 and 2025-11-25."""
    if value is UNSET or not revision.titles:
        return UNSET
    if bytes(memoryview(value)[:1]) == b"{" or _is_object(value):
        return value
    return Raw(b'{"result":' + bytes(value) + b"}")


def _is_object(value: Raw) -> bool:
    first = next((byte for byte in memoryview(value) if byte not in b" \t\r\n"), 0)
    return first == ord("{")


def _carry_content(item: Content, revision: Revision) -> Content:
    """A block of content; as text, if the revision lacks its kind."""
    if isinstance(item, AudioContent) and not revision.annotations:
        return TextContent(f"[audio, {item.mime_type}: {revision.name} cannot carry it]")
    if isinstance(item, ResourceLink) and not revision.links:
        kind = item.mime_type or "of some kind"
        size = "" if item.size is UNSET else f", {item.size:,} bytes"
        return TextContent(f"[{item.name}, {kind}{size}: read the resource {item.uri}]")
    return item


def rate_limit_result(context: Context, request: Request, fault: Fault) -> ToolResult | None:
    """The result of an MCP tool call over a rate limit; None for any other request or fault."""
    if not isinstance(fault, TooManyRequests) or request.method != "tools/call":
        return None
    if not context.revision.mcp or request.id is UNSET:
        return None
    return ToolResult((TextContent(fault.message),), Raw(encode(fault.data)), is_error=True)
