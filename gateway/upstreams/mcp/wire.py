"""JSON-RPC messages from and to another MCP server. Pure.

A result is passed on unparsed: its members stay as they came.
"""

import re
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from gateway.upstreams.mcp.events import first_members
from schemas.errors import Fault, RelayedFault
from schemas.jsonrpc import ErrorObject, ErrorReply, RequestId, encode

BATCH = 1000  # messages in one array
UNREADABLE = "sent an answer that is no JSON-RPC message"
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


class Garbage(Exception):
    """Bytes that are no message; the text follows the server's name in errors."""


class _Error(Struct, frozen=True):
    code: int
    message: str = ""
    data: Any = None


class Message(Struct):
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
        """The result. Raises RelayedFault, and Garbage for an invalid response."""
        if self.error is not UNSET:
            raise RelayedFault(self.error.code, self.error.message, self.error.data)
        if self.result is UNSET:
            raise Garbage("answered with neither a result nor an error")
        return self.result


class Flawed(Message):
    """A message with members of the wrong types."""

    def members(self) -> dict[str, Raw]:
        if self.result is UNSET:
            raise Garbage(UNREADABLE)
        raise Garbage("answered with a result that is no object")


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


_one = msgspec.json.Decoder(Message)
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


def decode(text: bytes) -> list[Message]:
    """The messages in one JSON text; 2025-03-26 has arrays of them. Raises Garbage."""
    try:
        _check_strings(text)
        if text.lstrip()[:1] == b"[":
            members = first_members(text, BATCH)
            if len(members) > BATCH:
                raise Garbage(f"sent more than {BATCH} messages at once")
            return [_message(bytes(member)) for member in members]
        return [_message(text)]
    except RecursionError as error:
        raise Garbage("sent an answer that is nested too deeply") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Garbage(UNREADABLE) from error


def _message(text: bytes) -> Message:
    try:
        return _one.decode(text)
    except msgspec.ValidationError:
        return _flawed(_loose.decode(text))


def _flawed(loose: _Loose | list[Any]) -> Message:
    if isinstance(loose, list) or loose.method is not UNSET:
        return Flawed()  # not for any request of ours
    legible = isinstance(loose.id, int | str) and not isinstance(loose.id, bool)
    id_ = loose.id if legible else None
    no_object = loose.result is not UNSET and not isinstance(loose.result, dict)
    return Flawed(id_, result={} if no_object else UNSET)


def _check_strings(text: bytes) -> None:
    """Check the strings that the decoder skips: an invalid character would be found only where the
    result is read. Raises UnicodeDecodeError and DecodeError."""
    if not text.isascii():
        text.decode()
    if _SURROGATE.search(text):
        _anything.decode(text)
