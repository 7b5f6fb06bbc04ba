"""CloudEvents 1.0 as they are received over HTTP, in all three content modes. Pure."""

import base64
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from typing import Annotated, Any
from urllib.parse import unquote_to_bytes

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType
from msgspec.structs import replace

from schemas.errors import InvalidParams, ParseError
from schemas.jsonrpc import decode_json

CLOUD_EVENT = "application/cloudevents+json"
BATCH = "application/cloudevents-batch+json"
PREFIX = "ce-"  # of the headers of binary mode
BATCH_LIMIT = 100  # events

_ESCAPE = re.compile(r"\\(.)")  # in a quoted string
Name = Annotated[str, Meta(min_length=1, max_length=255)]


class CloudEvent(Struct, frozen=True):
    """An event that is received. Attributes that are not read are left out."""

    specversion: Annotated[str, Meta(pattern="^1\\.0$", description="the version 1.0")]
    id: Name
    source: Annotated[str, Meta(min_length=1, max_length=1024)]
    type: Name
    data: Any = None
    subject: Name | None = None
    time: datetime | None = None
    datacontenttype: str = "application/json"
    correlationid: Name | None = None
    replyto: Name | None = None
    partitionkey: Name | None = None
    traceparent: Name | None = None


class _Structured(CloudEvent, frozen=True):
    """An event in JSON, which has its data as JSON or as the base64 of bytes."""

    data: Any = UNSET
    data_base64: str | UnsetType = UNSET


def read_events(
    content_type: str, headers: Mapping[str, str], body: bytes, *, percent_encoded: bool = True
) -> list[CloudEvent | InvalidParams]:
    """The events of a request, whose headers have lower-case names; in a batch a bad one is its
    error, which names its index. `percent_encoded`: as attributes in headers of HTTP are. Raises
    InvalidParams."""
    kind = media_type(content_type)
    with _as_invalid("No CloudEvent of version 1.0"):
        if kind == CLOUD_EVENT:
            return [_read_structured(decode_json(body))]
        if kind == BATCH:
            members = msgspec.convert(decode_json(body), list[Any])
            if len(members) > BATCH_LIMIT:
                raise InvalidParams(f"Expected at most {BATCH_LIMIT} events, found {len(members)}")
            return [_member(index, member) for index, member in enumerate(members)]
        return [_binary(kind, headers, body, percent_encoded)]


def media_type(content_type: str) -> str:
    """The media type of a Content-Type, in lower case and without parameters."""
    return content_type.partition(";")[0].strip().lower()


@contextmanager
def _as_invalid(problem: str) -> Iterator[None]:
    try:
        yield
    except (msgspec.MsgspecError, ParseError) as error:
        raise InvalidParams(f"{problem}: {error}") from error


def _member(index: int, member: Any) -> CloudEvent | InvalidParams:
    """An event of a batch, or what is wrong with it."""
    try:
        with _as_invalid("no CloudEvent of version 1.0"):
            return _read_structured(member)
    except InvalidParams as fault:
        return InvalidParams(f"The event at index {index} of the batch: {fault.message}")


def _read_structured(member: Any) -> CloudEvent:
    """Raises InvalidParams, ParseError, and msgspec.MsgspecError."""
    event = msgspec.convert(member, _Structured)
    if event.data_base64 is UNSET:
        return event if event.data is not UNSET else replace(event, data=None)
    if event.data not in (UNSET, None):
        raise InvalidParams("Expected data or data_base64, found both")
    _check_data_type(media_type(event.datacontenttype))
    try:
        data = base64.b64decode(event.data_base64, validate=True)
    except ValueError as error:
        raise InvalidParams("data_base64 is not valid base64") from error
    return replace(event, data=_data(data))


def _binary(
    kind: str, headers: Mapping[str, str], body: bytes, percent_encoded: bool
) -> CloudEvent:
    """Raises InvalidParams, ParseError, and msgspec.MsgspecError."""
    attributes = {
        name.removeprefix(PREFIX): _decode_attribute(name, value) if percent_encoded else value
        for name, value in headers.items()
        if name.startswith(PREFIX)
    }
    if "specversion" not in attributes:
        raise InvalidParams(
            f"Expected {CLOUD_EVENT}, {BATCH}, or the ce- headers of binary mode, found {kind!r}"
        )
    _check_data_type(kind)
    return msgspec.convert({**attributes, "data": _data(body)}, CloudEvent)


def _decode_attribute(name: str, value: str) -> str:
    """An attribute as its header has it, quoted or percent-encoded (HTTP binding, 3.1.3.2). Raises
    InvalidParams."""
    if len(value) > 1 and value[0] == value[-1] == '"':
        value = _ESCAPE.sub(r"\1", value[1:-1])
    try:
        return unquote_to_bytes(value.encode("latin-1")).decode()
    except UnicodeError as error:
        raise InvalidParams(f"The header {name} is not UTF-8, percent-encoded") from error


def _check_data_type(kind: str) -> None:
    """Raises InvalidParams."""
    if kind not in ("", "application/json", "text/json") and not kind.endswith("+json"):
        raise InvalidParams(f"The data of an event is application/json, or +json, found {kind!r}")


def _data(body: bytes) -> Any:
    """Raises ParseError."""
    return decode_json(body) if body else None
