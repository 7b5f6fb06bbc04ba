"""The AsyncAPI 3 description of the events that the gateway takes and sends, and the published
schemas of their data. `python -m gateway.wings.events.asyncapi` writes the schemas."""

from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

import msgspec

from config.events import EventsSettings
from gateway.wings.events.cloudevents import COMPLETION, INVOCATION, schemas
from gateway.wings.events.inbound_events import CLOUDEVENTS
from schemas.cloudevents import CLOUD_EVENT
from schemas.json_schema.references import reference_to

FOLDER = "json"  # of the schemas, in the package `schemas`


def document(settings: EventsSettings, version: str) -> Mapping[str, Any]:
    """Without addresses of servers: a gateway may have many."""
    data = {name.partition(".")[0]: schema for name, schema in schemas().items()}
    messages = {
        "invocation": _message(INVOCATION, "skill-invocation", "A call that is made later."),
        "completion": _message(COMPLETION, "skill-completion", "The end of an invocation."),
    }
    invocation, completion = (reference_to(f"#/components/messages/{name}") for name in messages)
    commands = {"address": CLOUDEVENTS, "messages": {"invocation": invocation}}
    ends = {
        topic: {"address": topic, "messages": {"completion": completion}}
        for topic in settings.topics
    }
    return {
        "asyncapi": "3.0.0",
        "info": {"title": "Toolgate events", "version": version},
        "defaultContentType": CLOUD_EVENT,
        "channels": {"invocations": commands, **ends},
        "operations": {
            "invoke": {
                "action": "receive",
                "channel": reference_to("#/channels/invocations"),
                "reply": {"address": {"location": "$message.payload#/data/replyTo"}},
            },
            **{
                f"complete-{topic}": {
                    "action": "send",
                    "channel": reference_to(f"#/channels/{topic}"),
                }
                for topic in ends
            },
        },
        "components": {"messages": messages, "schemas": data},
    }


def _message(kind: str, schema: str, summary: str) -> Mapping[str, Any]:
    attributes: dict[str, Any] = {
        name: {"type": "string"} for name in ("id", "source", "subject", "time", "correlationid")
    }
    return {
        "name": kind,
        "summary": summary,
        "contentType": CLOUD_EVENT,
        "correlationId": {"location": "$message.payload#/data/correlationId"},
        "payload": {
            "type": "object",
            "required": ["specversion", "id", "source", "type", "data"],
            "properties": {
                "specversion": {"const": "1.0"},
                "type": {"const": kind},
                **attributes,
                "data": reference_to(f"#/components/schemas/{schema}"),
            },
        },
    }


def published_schemas() -> Mapping[str, str]:
    """The schemas as text, by the names of their files."""
    return {
        name: msgspec.json.format(msgspec.json.encode(schema), indent=2).decode() + "\n"
        for name, schema in schemas().items()
    }


def main() -> None:
    folder = Path(str(files("schemas").joinpath(FOLDER)))
    for name, text in published_schemas().items():
        (folder / name).write_text(text)


if __name__ == "__main__":
    main()
