"""Server-to-client requests of MCP servers (elicitation, sampling, roots), adapted to the client.

Serves both requests in sessions and the `inputRequests` of 2026-07-28. Pure.

Lost on clients of 2025-06-18: multiple choice (they choose one, which goes back to the server as a
list), and its defaults; on clients before 2025-11-25: that several contents are one message of
sampling (they get as many messages).
"""

import secrets
from dataclasses import dataclass, field
from typing import Any

from schemas.mcp.revisions import Revision

Json = dict[str, Any]

ELICIT, SAMPLE = "elicitation/create", "sampling/createMessage"


@dataclass(frozen=True, slots=True)
class RefusalReason:
    """Why a request is not sent to a client."""

    reason: str
    required: Json = field(default_factory=dict)  # required capabilities


def for_client(
    method: str, params: Json, revision: Revision, capabilities: Json, *, asker: str = ""
) -> Json | RefusalReason:
    """`params` adapted to a client of `revision` with these capabilities, or Refused; `asker` is
    the server's name, for requests that show it to people."""
    match method:
        case "elicitation/create":
            return _elicitation(params, revision, capabilities, asker)
        case "sampling/createMessage":
            return _sampling(params, revision, capabilities)
        case "roots/list":
            if isinstance(capabilities.get("roots"), dict):
                return params
            return RefusalReason("The client shows no roots", {"roots": {}})
    return RefusalReason(f"Clients are not asked {method[:100]!r}")


def for_server(method: str, params: Json, result: Any, server: Revision) -> Any:
    """A client's `result` as a server of the revision `server` expects it for the request
    `params`."""
    if not isinstance(result, dict):
        return result
    if method == ELICIT and isinstance(content := result.get("content"), dict):
        return {**result, "content": _as_asked(params, content)}
    if method == SAMPLE and not server.elicits_urls:
        match result.get("content"):
            case [dict(only)]:
                return {**result, "content": only}
    return result


def _elicitation(
    params: Json, revision: Revision, capabilities: Json, asker: str
) -> Json | RefusalReason:
    can = capabilities.get("elicitation")
    if not revision.elicits or not isinstance(can, dict):
        return RefusalReason("The client cannot be asked for input", {"elicitation": {}})
    if asker and isinstance(message := params.get("message"), str):
        params = {**params, "message": f"{asker}: {message}"}
    if params.get("mode") == "url":
        return _by_url(params, revision, can)
    if revision.elicits_urls:
        if can and "form" not in can:
            return RefusalReason("The client shows no forms", {"elicitation": {"form": {}}})
        return params
    params = {name: value for name, value in params.items() if name != "mode"}
    if isinstance(schema := params.get("requestedSchema"), dict):
        params["requestedSchema"] = _plain(schema)
    return params


def _by_url(params: Json, revision: Revision, can: Json) -> Json | RefusalReason:
    if not revision.elicits_urls or "url" not in can:
        reason = "The client cannot be asked to open an address"
        return RefusalReason(reason, {"elicitation": {"url": {}}})
    if revision.handshake:
        return {"elicitationId": secrets.token_urlsafe(16), **params}
    return {name: value for name, value in params.items() if name != "elicitationId"}


def _plain(schema: Json) -> Json:
    """The form with its choices as plain enums, as in 2025-06-18."""
    properties = schema.get("properties")
    if not isinstance(properties, dict):
        return schema
    return {
        **schema,
        "properties": {name: _choice(member) for name, member in properties.items()},
    }


def _choice(field_: Any) -> Any:
    if not isinstance(field_, dict):
        return field_
    many = field_.get("type") == "array"
    options = _options(field_.get("items") if many else field_)
    if options is None:
        return field_
    texts = {name: field_[name] for name in ("title", "description") if name in field_}
    if "default" in field_ and not many:
        texts["default"] = field_["default"]
    return {"type": "string", **texts, **options}


def _options(choice: Any) -> Json | None:
    """The values of a choice, and their titles; None when it is no choice."""
    if not isinstance(choice, dict):
        return None
    titled = choice.get("oneOf", choice.get("anyOf"))
    if isinstance(titled, list) and all(
        isinstance(choice, dict) and "const" in choice for choice in titled
    ):
        values = [choice["const"] for choice in titled]
        return {
            "enum": values,
            "enumNames": [str(choice.get("title", choice["const"])) for choice in titled],
        }
    names = ("enum", "enumNames")
    return {name: choice[name] for name in names if name in choice} if "enum" in choice else None


def _as_asked(params: Json, content: Json) -> Json:
    """Wraps a single choice in a list, where the server asked for a list."""
    schema = params.get("requestedSchema")
    properties = schema.get("properties") if isinstance(schema, dict) else None
    if not isinstance(properties, dict):
        return content
    return {
        name: [value]
        if isinstance(value, str)
        and isinstance(member := properties.get(name), dict)
        and member.get("type") == "array"
        else value
        for name, value in content.items()
    }


def _sampling(params: Json, revision: Revision, capabilities: Json) -> Json | RefusalReason:
    can = capabilities.get("sampling")
    if not isinstance(can, dict):
        return RefusalReason("The client has no model to ask", {"sampling": {}})
    if not params.keys().isdisjoint(("tools", "toolChoice")) and (
        not revision.elicits_urls or "tools" not in can
    ):
        reason = "The client's model can be given no tools"
        return RefusalReason(reason, {"sampling": {"tools": {}}})
    messages = params.get("messages")
    if revision.elicits_urls or not isinstance(messages, list):
        return params
    return {
        **params,
        "messages": [single for message in messages for single in _single(message, revision)],
    }


def _single(message: Any, revision: Revision) -> list[Any]:
    """Splits a message into one per content: before 2025-11-25 each has one."""
    if not isinstance(message, dict):
        return [message]
    content = message.get("content")
    parts = content if isinstance(content, list) else [content]
    return [{**message, "content": _audible(part, revision)} for part in parts]


def _audible(content: Any, revision: Revision) -> Any:
    if revision.annotations or not isinstance(content, dict) or content.get("type") != "audio":
        return content
    kind = content.get("mimeType", "of some kind")
    return {"type": "text", "text": f"[audio, {kind}: {revision.name} cannot carry it]"}
