"""Wire format of other MCP servers: parsers from body bytes to texts (JSON
arrays, JSON lines), and JSON-RPC messages. Pure.

A result is passed on unparsed: its members stay as they came.

JSON on lines under `application/json` is in no specification, but
servers exist that answer so (the TypeScript SDK's example, 2026-07-28).
"""

import re
from collections.abc import Mapping
from functools import cache
from typing import Any

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from gateway.http_client.http1 import TooLarge
from gateway.http_client.sse_parser import ServerEvent
from schemas.errors import Fault, RelayedFault
from schemas.jsonrpc import ErrorObject, ErrorReply, RequestId, encode

DECODER_LIMIT = 10_000  # members; longer arrays are decoded whole

BATCH = 1000  # messages in one array
UNREADABLE = "sent an answer that is no JSON-RPC message"
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


def first_members(text: bytes | Raw, limit: int) -> list[Raw]:
    """The first members of an array: at most `limit`, and one more if there is one.

    They are parts of `text`. Raises msgspec.DecodeError.
    """
    if limit > DECODER_LIMIT:
        return msgspec.json.decode(text, type=list[Raw])[: limit + 1]
    members = msgspec.structs.astuple(_decoder(limit + 1).decode(text))
    return [member for member in members if member is not UNSET]


@cache
def _decoder(places: int) -> msgspec.json.Decoder[Struct]:
    """Decoder of a struct encoded as an array of `places` fields: it skips further members."""
    fields = [(f"member_{place}", Raw | UnsetType, UNSET) for place in range(places)]
    return msgspec.json.Decoder(msgspec.defstruct("Members", fields, array_like=True))


_syntax = msgspec.json.Decoder(Raw)


class JsonTextParser:
    """Parser of a JSON body that comes in chunks: one text, or one on each line."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._on_lines: bool | None = None  # None: no line has ended
        self._parts: list[bytes] = []
        self._pending_bytes = 0

    def feed(self, chunk: bytes) -> list[ServerEvent]:
        """The texts that `chunk` completes. Raises TooLarge."""
        self._pending_bytes += len(chunk)
        if self._pending_bytes > self._limit_bytes:
            raise TooLarge(self._limit_bytes)
        self._parts.append(chunk)
        if self._on_lines is False or b"\n" not in chunk:
            return []
        text = b"".join(self._parts)
        *lines, tail = text.split(b"\n")
        if self._on_lines is None:
            first = next((line for line in lines if line.strip()), None)
            if first is not None:
                self._on_lines = _is_json(first)
                if not self._on_lines:
                    return []
        self._parts = [tail]
        self._pending_bytes = len(tail)
        return [ServerEvent(line) for line in lines if line.strip()]

    def end(self) -> list[ServerEvent]:
        text = b"".join(self._parts)
        self._parts = []
        return [ServerEvent(text)] if text.strip() else []


class LineSplitter:
    """Splitter of chunks into lines, without line ends."""

    def __init__(self, limit_bytes: int, cut: bool = False) -> None:
        """A line of more than `limit_bytes` is truncated if `cut`; else raises TooLarge."""
        self._limit_bytes = limit_bytes
        self._cut = cut
        self._parts: list[bytes] = []
        self._pending_bytes = 0

    def feed(self, chunk: bytes) -> list[bytes]:
        *lines, tail = chunk.split(b"\n")
        complete_lines = []
        for line in lines:
            self._add(line)
            if text := b"".join(self._parts).strip():
                complete_lines.append(text)
            self._parts, self._pending_bytes = [], 0
        self._add(tail)
        return complete_lines

    def _add(self, part: bytes) -> None:
        if self._cut:
            part = part[: self._limit_bytes - self._pending_bytes]
        if not part:
            return
        self._parts.append(part)
        self._pending_bytes += len(part)
        if self._pending_bytes > self._limit_bytes:
            raise TooLarge(self._limit_bytes)


def _is_json(text: bytes) -> bool:
    try:
        _syntax.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return False
    return True


class MalformedMessage(Exception):
    """Bytes that are no message; the text follows the server's name in errors."""


class _Error(Struct, frozen=True):
    code: int
    message: str = ""
    data: Any = None


class ServerMessage(Struct):
    """Any message received: request, notification or response."""

    id: int | float | str | UnsetType | None = UNSET
    method: str | UnsetType = UNSET
    params: dict[str, Any] | None = None
    result: dict[str, Raw] | UnsetType = UNSET
    error: _Error | UnsetType = UNSET

    def answers(self, id_: int) -> bool:
        """Whether it is the answer to our request `id_`."""
        return self.method is UNSET and self.id == id_

    def members(self) -> dict[str, Raw]:
        """The members of the result. Raises RelayedFault, and MalformedMessage for an invalid
        response."""
        if self.error is not UNSET:
            raise RelayedFault(self.error.code, self.error.message, self.error.data)
        if self.result is UNSET:
            raise MalformedMessage("answered with neither a result nor an error")
        return self.result


class InvalidMessage(ServerMessage):
    """A message with members of the wrong types."""

    def members(self) -> dict[str, Raw]:
        if self.result is UNSET:
            raise MalformedMessage(UNREADABLE)
        raise MalformedMessage("answered with a result that is no object")


class _Loose(Struct):
    id: Any = UNSET
    method: Any = UNSET
    result: Any = UNSET


class _Call(Struct, frozen=True, tag_field="jsonrpc", tag="2.0"):
    id: int
    method: str
    params: Mapping[str, Any]


class _Notice(Struct, frozen=True, tag_field="jsonrpc", tag="2.0"):
    method: str
    params: Mapping[str, Any]


class _Answer(Struct, frozen=True, tag_field="jsonrpc", tag="2.0"):
    id: RequestId
    result: Any


_server_message = msgspec.json.Decoder(ServerMessage)
_loose = msgspec.json.Decoder(_Loose | list[Any])
_anything = msgspec.json.Decoder()


def call(id_: int, method: str, params: Mapping[str, Any]) -> bytes:
    return encode(_Call(id_, method, params))


def notice(method: str, params: Mapping[str, Any]) -> bytes:
    return encode(_Notice(method, params))


def answer(id_: RequestId, result: Any) -> bytes:
    return encode(_Answer(id_, result))


def refusal(id_: RequestId, fault: Fault) -> bytes:
    data = UNSET if fault.data is None else fault.data
    return encode(ErrorReply(id_, ErrorObject(fault.code, fault.message, data)))


def decode(text: bytes) -> list[ServerMessage]:
    """The messages in one JSON text; 2025-03-26 has arrays of them. Raises MalformedMessage."""
    try:
        _check_strings(text)
        if text.lstrip()[:1] == b"[":
            members = first_members(text, BATCH)
            if len(members) > BATCH:
                raise MalformedMessage(f"sent more than {BATCH} messages at once")
            return [_message(bytes(member)) for member in members]
        return [_message(text)]
    except RecursionError as error:
        raise MalformedMessage("sent an answer that is nested too deeply") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise MalformedMessage(UNREADABLE) from error


def _message(text: bytes) -> ServerMessage:
    try:
        return _server_message.decode(text)
    except msgspec.ValidationError:
        return _invalid_message(_loose.decode(text))


def _invalid_message(loose: _Loose | list[Any]) -> ServerMessage:
    if isinstance(loose, list) or loose.method is not UNSET:
        return InvalidMessage()  # not for any request of ours
    legible = isinstance(loose.id, int | str) and not isinstance(loose.id, bool)
    id_ = loose.id if legible else None
    no_object = loose.result is not UNSET and not isinstance(loose.result, dict)
    return InvalidMessage(id_, result={} if no_object else UNSET)


def _check_strings(text: bytes) -> None:
    """Check the strings that the decoder skips: an invalid character would be found only where the
    result is read. Raises UnicodeDecodeError and DecodeError."""
    if not text.isascii():
        text.decode()
    if _SURROGATE.search(text):
        _anything.decode(text)
