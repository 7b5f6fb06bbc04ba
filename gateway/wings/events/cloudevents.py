"""CloudEvents 1.0 of invocations and completions. Pure.

Extension attributes are `correlationid`, `replyto`, `partitionkey` (the order key) and
`traceparent`.
"""

import hashlib
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from gateway.wings.events.invocation_journal import Invocation, Status
from gateway.wings.events.requests_and_views import CorrelationId, Text, stamp
from schemas.cloudevents import CloudEvent
from schemas.errors import InvalidParams
from schemas.jsonrpc import encode

INVOCATION = "dev.toolgate.skill.invocation.v1"
COMPLETION = "dev.toolgate.skill.completion.v1"
SCHEMAS = "https://toolgate.dev/schemas/"


class SkillInvocationEvent(Struct, frozen=True, rename="camel", omit_defaults=True):
    """The data of an event that calls a skill or a tool."""

    skill_name: Text
    arguments: dict[str, Any] = {}
    correlation_id: CorrelationId | None = None
    reply_to: Text | None = None


class _Extensions(Struct, frozen=True):
    """The extension attributes of an event, as `events_invoke` takes them."""

    correlationid: CorrelationId | None
    replyto: Text | None
    partitionkey: Text | None


class SkillCompletionEvent(Struct, frozen=True, rename="camel"):
    """The data of the event that an invocation has ended: with a result, or an error."""

    correlation_id: str
    status: Status
    result: Raw | UnsetType = UNSET
    error: Raw | UnsetType = UNSET


def arguments_of(event: CloudEvent) -> dict[str, Any]:
    """The arguments of `events_invoke` for an event. The same event twice is one invocation: its
    correlation id is made of its source and id, unless it has one. Raises InvalidParams."""
    if event.type != INVOCATION:
        raise InvalidParams(f"Expected events of type {INVOCATION}, found {event.type!r}")
    try:
        data = msgspec.convert(event.data, SkillInvocationEvent)
    except msgspec.ValidationError as error:
        raise InvalidParams(f"The data of the event: {error}") from error
    try:
        more = msgspec.convert(event, _Extensions, from_attributes=True)
    except msgspec.ValidationError as error:
        raise InvalidParams(f"The extension attributes of the event: {error}") from error
    members = {
        "skillName": data.skill_name,
        "arguments": data.arguments,
        "correlationId": data.correlation_id or more.correlationid or _own_id(event),
        "replyTo": data.reply_to or more.replyto,
        "orderKey": more.partitionkey,
    }
    return {name: value for name, value in members.items() if value is not None}


def _own_id(event: CloudEvent) -> str:
    return "ce-" + hashlib.sha256(encode([event.source, event.id])).hexdigest()[:48]


def completion(row: Invocation) -> dict[str, Any]:
    """The event that an invocation has ended."""
    data = SkillCompletionEvent(
        row.correlation_id,
        row.status,
        UNSET if row.result is None or row.error is not None else Raw(row.result.encode()),
        UNSET if row.error is None else Raw(row.error.encode()),
    )
    event = {
        "specversion": "1.0",
        # One that is redriven ends again, with an id of its own: neither number goes back.
        "id": f"{row.invocation_id}.{row.fence + row.redriven}",
        "source": _source(row.host_id, row.principal_id),
        "type": COMPLETION,
        "subject": row.skill_name,
        "time": stamp(row.finished or row.changed),
        "datacontenttype": "application/json",
        "dataschema": f"{SCHEMAS}skill-completion.schema.json",
        "correlationid": row.correlation_id,
        "partitionkey": row.order_key,
        "traceparent": row.traceparent,
        "data": data,
    }
    return {name: value for name, value in event.items() if value is not None}


def _source(tenant: str, agent: str) -> str:
    return f"/toolgate/{tenant}/agents/{quote(agent, safe='')}"


def schemas() -> Mapping[str, Mapping[str, Any]]:
    """The published schemas of the data of events, by the names of their files."""
    files = {}
    for name, kind in (
        ("skill-invocation", SkillInvocationEvent),
        ("skill-completion", SkillCompletionEvent),
    ):
        schema = _inline_components(kind)
        files[f"{name}.schema.json"] = {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "$id": f"{SCHEMAS}{name}.schema.json",
            **schema,
        }
    return files


def _inline_components(kind: Any) -> dict[str, Any]:
    schema, components = msgspec.json.schema_components([kind])
    schema_of_kind = components[kind.__name__]
    return (
        dict(schema_of_kind)
        if len(components) == 1
        else {**schema_of_kind, "$defs": components, **schema[0]}
    )
