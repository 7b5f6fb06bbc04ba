"""CloudEvents 1.0 as they are received over HTTP, in all three content modes. Pure."""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from schemas.errors import InvalidParams, ParseError
from schemas.jsonrpc import decode_json

STRUCTURED = "application/cloudevents+json"
BATCH = "application/cloudevents-batch+json"
PREFIX = "ce-"  # of the headers of binary mode
BATCH_LIMIT = 100  # events

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


def received(content_type: str, headers: Mapping[str, str], body: bytes) -> list[CloudEvent]:
    """The events of an HTTP request, whose headers have lower-case names. Raises InvalidParams."""
    kind = media_type(content_type)
    try:
        if kind == STRUCTURED:
            return [msgspec.convert(decode_json(body), CloudEvent)]
        if kind == BATCH:
            events = msgspec.convert(decode_json(body), list[CloudEvent])
            if len(events) > BATCH_LIMIT:
                raise InvalidParams(f"Expected at most {BATCH_LIMIT} events, found {len(events)}")
            return events
        return [_binary(kind, headers, body)]
    except (msgspec.MsgspecError, ParseError) as error:
        raise InvalidParams(f"No CloudEvent of version 1.0: {error}") from error


def media_type(content_type: str) -> str:
    """The media type of a Content-Type, in lower case and without parameters."""
    return content_type.partition(";")[0].strip().lower()


def _binary(kind: str, headers: Mapping[str, str], body: bytes) -> CloudEvent:
    """Raises InvalidParams, ParseError, and msgspec.MsgspecError."""
    found = {
        name.removeprefix(PREFIX): value
        for name, value in headers.items()
        if name.startswith(PREFIX)
    }
    if "specversion" not in found:
        raise InvalidParams(
            f"Expected {STRUCTURED}, {BATCH}, or the ce- headers of binary mode, found {kind!r}"
        )
    if kind != "application/json":
        raise InvalidParams(f"The data of an event is application/json, found {kind!r}")
    return msgspec.convert({**found, "data": decode_json(body)}, CloudEvent)
