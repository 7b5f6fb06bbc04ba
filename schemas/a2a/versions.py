"""JSON of Agent2Agent in the versions 1.0 and 0.3: one translator each way.

The model has the shapes of 1.0. Those of 0.3 are rewritten as plain JSON, `_UP` to the model's and
`_DOWN` from them. 0.3 cannot say the media type of a text or of data, nor the name of such a part:
they are lost. Deviation: data that is no object is wrapped as `{"value": ...}`, as the official
SDK of Python does.
"""

from collections.abc import Callable, Collection, Mapping
from enum import StrEnum
from typing import Any, TypeVar

import msgspec

from schemas.a2a.errors import InvalidParameters, VersionNotSupported
from schemas.a2a.model import (
    INTERRUPTED,
    TERMINAL,
    A2AObject,
    AgentCard,
    CardRequest,
    ListRequest,
    Message,
    PushConfig,
    PushConfigs,
    PushRequest,
    SendRequest,
    StreamResponse,
    Task,
    TaskRequest,
    TaskState,
)

Json = dict[str, Any]
T = TypeVar("T", bound=A2AObject)
HEADER = "A2A-Version"
WRAPPED_DATA = "data_part_compat"


class Version(StrEnum):
    V1_0 = "1.0"
    V0_3 = "0.3"


METHODS: Mapping[str, tuple[str, str | None, type[A2AObject]]] = {
    "send": ("SendMessage", "message/send", SendRequest),
    "stream": ("SendStreamingMessage", "message/stream", SendRequest),
    "get": ("GetTask", "tasks/get", TaskRequest),
    "list": ("ListTasks", None, ListRequest),
    "cancel": ("CancelTask", "tasks/cancel", TaskRequest),
    "subscribe": ("SubscribeToTask", "tasks/resubscribe", TaskRequest),
    "create_push": (
        "CreateTaskPushNotificationConfig",
        "tasks/pushNotificationConfig/set",
        PushConfig,
    ),
    "get_push": (
        "GetTaskPushNotificationConfig",
        "tasks/pushNotificationConfig/get",
        PushRequest,
    ),
    "list_push": (
        "ListTaskPushNotificationConfigs",
        "tasks/pushNotificationConfig/list",
        PushRequest,
    ),
    "delete_push": (
        "DeleteTaskPushNotificationConfig",
        "tasks/pushNotificationConfig/delete",
        PushRequest,
    ),
    "card": ("GetExtendedAgentCard", "agent/getAuthenticatedExtendedCard", CardRequest),
}
"""By operation: the methods of JSON-RPC in 1.0 and 0.3, and the type of their parameters."""


def read_version(text: str, versions: Collection[str] = tuple(Version)) -> Version:
    """The version that a client asks for by A2A-Version; "": 0.3, which had no such header. Patch
    numbers do not count. Raises VersionNotSupported for one that is not spoken."""
    version = ".".join((text.strip() or Version.V0_3).split(".")[:2])
    if version not in versions:
        expected = " or ".join(versions)
        excerpt = version[:40]
        raise VersionNotSupported(
            f"Version {excerpt!r} of A2A is not supported: expected {expected}"
        )
    return Version(version)


def decode(version: Version, kind: type[T], value: Any) -> T:
    """The object of a parsed JSON. Raises InvalidParameters that names the member."""
    try:
        if version is Version.V0_3 and (up := _UP.get(kind)):
            value = up(value)
        return msgspec.convert(_read_protojson(value), kind)
    except msgspec.ValidationError as error:
        raise InvalidParameters(str(error)) from error
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise InvalidParameters(f"No {kind.__name__} of A2A {version}") from error


def encode(version: Version, thing: A2AObject) -> Any:
    """The JSON of an object as dicts and lists."""
    value = msgspec.json.decode(msgspec.json.encode(thing))
    if version is Version.V0_3 and (down := _DOWN.get(type(thing))):
        return down(value)
    return value


def decode_card(value: Any) -> AgentCard:
    """A card of either version, or of both. Raises InvalidParameters."""
    new = isinstance(value, dict) and "supportedInterfaces" in value
    return decode(Version.V1_0 if new else Version.V0_3, AgentCard, value)


def encode_card(card: AgentCard) -> Json:
    """One card with the members of both versions, if an interface of it is of 0.3; one that is
    signed has those of 1.0 alone, which verifiers know."""
    value: Json = encode(Version.V1_0, card)
    if not card.signatures and any(
        _is_old(interface) for interface in value["supportedInterfaces"]
    ):
        _merge(value, _card_down(value))
    return value


def _is_old(interface: Mapping[str, Any]) -> bool:
    return str(interface.get("protocolVersion", "")).startswith("0.")


def _merge(into: Json, members: Json) -> None:
    for key, value in members.items():
        present = into.setdefault(key, value)
        if isinstance(present, dict) and isinstance(value, dict):
            _merge(present, value)
        elif isinstance(present, list) and isinstance(value, list):
            for ours, theirs in zip(present, value, strict=False):
                if isinstance(ours, dict) and isinstance(theirs, dict):
                    _merge(ours, theirs)


def _read_protojson(value: Any, *, is_map: bool = False) -> Any:
    """ProtoJSON: null is an unset member, and names may be written with underscores; except in JSON
    that is passed on, and for the keys of maps."""
    if isinstance(value, list):
        return [_read_protojson(item) for item in value]
    if not isinstance(value, dict):
        return value
    members = value.items() if is_map else ((_camel(key), member) for key, member in value.items())
    return {
        key: member
        if key in _OPAQUE and not is_map
        else _read_protojson(member, is_map=key in _MAPS)
        for key, member in members
        if member is not None or key == "data"
    }


def _camel(name: str) -> str:
    first, *words = name.split("_")
    return first + "".join(map(str.capitalize, words))


_OPAQUE = ("data", "metadata", "params", "header", "flows")
_MAPS = ("securitySchemes", "schemes")


def _rename_members(value: Mapping[str, Any], names: Mapping[str, str]) -> Json:
    return {names.get(key, key): member for key, member in value.items()}


def _change_members(value: Mapping[str, Any], **changes: Callable[[Any], Any]) -> Json:
    """A copy with members changed, where they are there."""
    return {
        key: changes[key](member) if key in changes and member is not None else member
        for key, member in value.items()
    }


def _each(change: Callable[[Any], Any]) -> Callable[[Any], list[Any]]:
    return lambda values: [change(value) for value in values]


def _kind(name: str, value: Json) -> Json:
    return {"kind": name, **value}


# Parts and messages


def _part_up(part: Json) -> Json:
    common = {"metadata": part.get("metadata")}
    match part["kind"]:
        case "text":
            return {"text": part["text"], **common}
        case "data":
            metadata = dict(part.get("metadata") or {})
            if metadata.pop(WRAPPED_DATA, False):
                return {"data": part["data"]["value"], "metadata": metadata or None}
            return {"data": part["data"], **common}
        case "file":
            file = part["file"]
            names = {"bytes": "raw", "uri": "url", "name": "filename", "mimeType": "mediaType"}
            return {names[key]: file[key] for key in names if key in file} | common
    raise InvalidParameters(f"Unknown kind of part {str(part['kind'])[:40]!r}")


def _part_down(part: Json) -> Json:
    metadata = {"metadata": part["metadata"]} if "metadata" in part else {}
    if "text" in part:
        return _kind("text", {"text": part["text"]} | metadata)
    if "data" in part:
        data = part["data"]
        if not isinstance(data, dict):
            data = {"value": data}
            metadata = {"metadata": {**part.get("metadata", {}), WRAPPED_DATA: True}}
        return _kind("data", {"data": data} | metadata)
    names = {"raw": "bytes", "url": "uri", "filename": "name", "mediaType": "mimeType"}
    file = {names[key]: part[key] for key in names if key in part}
    return _kind("file", {"file": file} | metadata)


def _message_up(message: Json) -> Json:
    return _change_members(message, role=_role_up, parts=_each(_part_up))


def _role_up(role: Any) -> Any:
    return f"ROLE_{role.upper()}" if role in ("user", "agent") else f"unknown role {role!r}"[:60]


def _message_down(message: Json) -> Json:
    role = message["role"].removeprefix("ROLE_").lower()
    return _kind("message", _change_members(message, parts=_each(_part_down)) | {"role": role})


# Tasks


def _state_up(state: Any) -> Any:
    """The state in 1.0; what 0.3 does not know becomes a text that is refused as no state."""
    return _STATES_UP.get(state, f"unknown state {state!r}"[:60])


_STATES_UP = {state.name.lower().replace("_", "-"): state.value for state in TaskState}
_STATES_UP["unknown"] = _STATES_UP.pop("unspecified")
_STATES_DOWN = {value: name for name, value in _STATES_UP.items()}


def _status_up(status: Json) -> Json:
    return _change_members(status, state=_state_up, message=_message_up)


def _status_down(status: Json) -> Json:
    return _change_members(status, message=_message_down, state=_STATES_DOWN.__getitem__)


def _artifact_up(artifact: Json) -> Json:
    return _change_members(artifact, parts=_each(_part_up))


def _artifact_down(artifact: Json) -> Json:
    return _change_members(artifact, parts=_each(_part_down))


def _task_up(task: Json) -> Json:
    return _change_members(
        task, status=_status_up, artifacts=_each(_artifact_up), history=_each(_message_up)
    )


def _task_down(task: Json) -> Json:
    return _kind(
        "task",
        _change_members(
            task, status=_status_down, artifacts=_each(_artifact_down), history=_each(_message_down)
        ),
    )


def _status_update_down(update: Json) -> Json:
    final = TaskState(update["status"]["state"]) in TERMINAL | INTERRUPTED
    return _kind("status-update", _change_members(update, status=_status_down) | {"final": final})


_EVENTS: Mapping[str, tuple[str, Callable[[Json], Json], Callable[[Json], Json]]] = {
    "task": ("task", _task_up, _task_down),
    "message": ("message", _message_up, _message_down),
    "status-update": (
        "statusUpdate",
        lambda update: _change_members(update, status=_status_up),
        _status_update_down,
    ),
    "artifact-update": (
        "artifactUpdate",
        lambda update: _change_members(update, artifact=_artifact_up),
        lambda update: _kind("artifact-update", _change_members(update, artifact=_artifact_down)),
    ),
}


def _event_up(event: Json) -> Json:
    name, up, _ = _EVENTS[event["kind"]]
    return {name: up(event)}


def _event_down(event: Json) -> Json:
    (name,) = event
    return next(down(event[name]) for member, _, down in _EVENTS.values() if member == name)


# Requests


def _webhook_up(config: Json) -> Json:
    """A PushNotificationConfig as a TaskPushNotificationConfig without its task."""

    def authentication(value: Json) -> Json:
        schemes = value.get("schemes") or [""]
        return {"scheme": schemes[0], "credentials": value.get("credentials")}

    return _change_members(config, authentication=authentication)


def _webhook_down(config: Json) -> Json:
    def authentication(value: Json) -> Json:
        value = dict(value)
        return {"schemes": [value.pop("scheme")], **value}

    return _change_members(
        {key: member for key, member in config.items() if key not in ("taskId", "tenant")},
        authentication=authentication,
    )


def _push_config_up(params: Json) -> Json:
    return _webhook_up(params["pushNotificationConfig"]) | {"taskId": params["taskId"]}


def _push_config_down(config: Json) -> Json:
    return {"taskId": config.get("taskId", ""), "pushNotificationConfig": _webhook_down(config)}


def _configuration_up(configuration: Json) -> Json:
    value = _rename_members(configuration, {"pushNotificationConfig": "taskPushNotificationConfig"})
    blocking = value.pop("blocking", None)
    value["returnImmediately"] = blocking is not None and not blocking
    return _change_members(value, taskPushNotificationConfig=_webhook_up, historyLength=_length_up)


def _length_up(length: int) -> int | None:
    return length or None  # 0.3: no limit, as its SDKs have it


def _configuration_down(configuration: Json) -> Json:
    value = _change_members(configuration, taskPushNotificationConfig=_webhook_down)
    value["blocking"] = not value.pop("returnImmediately", False)
    return _rename_members(value, {"taskPushNotificationConfig": "pushNotificationConfig"})


def _send_up(params: Json) -> Json:
    return _change_members(params, message=_message_up, configuration=_configuration_up)


def _send_down(params: Json) -> Json:
    params = {"configuration": {}, **params}
    params.pop("tenant", None)
    return _change_members(params, message=_message_down, configuration=_configuration_down)


_PUSH_REQUEST = {"id": "taskId", "pushNotificationConfigId": "id"}


# Cards

_SCHEMES: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "apiKey": ("apiKeySecurityScheme", {"in": "location"}),
    "http": ("httpAuthSecurityScheme", {}),
    "oauth2": ("oauth2SecurityScheme", {}),
    "openIdConnect": ("openIdConnectSecurityScheme", {}),
    "mutualTLS": ("mtlsSecurityScheme", {}),
}


def _scheme_up(scheme: Json) -> Json:
    scheme = dict(scheme)
    name, names = _SCHEMES.get(scheme.pop("type"), ("unknown", {}))
    return {name: _rename_members(scheme, names)}


def _scheme_down(scheme: Json) -> Json:
    for kind, (name, names) in _SCHEMES.items():
        if name in scheme:
            back = {new: old for old, new in names.items()}
            return {"type": kind, **_rename_members(scheme[name], back)}
    return {}


def _requirement_up(requirement: Json) -> Json:
    return {"schemes": {name: {"list": scopes} for name, scopes in requirement.items()}}


def _requirement_down(requirement: Json) -> Json:
    return {name: scopes.get("list", []) for name, scopes in requirement["schemes"].items()}


def _card_up(card: Json) -> Json:
    def skill(value: Json) -> Json:
        value = _change_members(value, security=_each(_requirement_up))
        return _rename_members(value, {"security": "securityRequirements"})

    version = card.get("protocolVersion") or Version.V0_3.value
    first = {"url": card["url"], "transport": card.get("preferredTransport") or "JSONRPC"}
    interfaces = [first, *(item for item in card.get("additionalInterfaces") or [])]
    if interfaces[1:2] == [first]:  # many cards repeat it
        interfaces = interfaces[1:]
    capabilities = dict(card["capabilities"])
    capabilities["extendedAgentCard"] = card.get("supportsAuthenticatedExtendedCard")
    return _rename_members(
        _change_members(
            card,
            security=_each(_requirement_up),
            securitySchemes=lambda schemes: {k: _scheme_up(v) for k, v in schemes.items()},
            skills=_each(skill),
        ),
        {"security": "securityRequirements"},
    ) | {
        "capabilities": capabilities,
        "supportedInterfaces": [
            {
                "url": item["url"],
                "protocolBinding": item["transport"],
                "protocolVersion": ".".join(version.split(".")[:2]),
            }
            for item in interfaces
        ],
    }


def _card_down(card: Json) -> Json:
    """Raises ValueError if the card has no interface of 0.3."""

    def skill(value: Json) -> Json:
        value = _change_members(value, securityRequirements=_each(_requirement_down))
        return _rename_members(value, {"securityRequirements": "security"})

    old = [interface for interface in card["supportedInterfaces"] if _is_old(interface)]
    if not old:
        raise ValueError("the card has no interface of 0.3")
    capabilities = dict(card["capabilities"])
    extended = capabilities.pop("extendedAgentCard", None)
    value = _rename_members(
        _change_members(
            card,
            securityRequirements=_each(_requirement_down),
            securitySchemes=lambda schemes: {k: _scheme_down(v) for k, v in schemes.items()},
            skills=_each(skill),
        ),
        {"securityRequirements": "security"},
    )
    del value["supportedInterfaces"]
    first, *further = old
    value |= {
        "capabilities": capabilities,
        "protocolVersion": f"{first['protocolVersion']}.0",
        "url": first["url"],
        "preferredTransport": first["protocolBinding"],
    }
    if further:
        value["additionalInterfaces"] = [
            {"url": item["url"], "transport": item["protocolBinding"]} for item in old
        ]
    if extended is not None:
        value["supportsAuthenticatedExtendedCard"] = extended
    return value


_UP: Mapping[type[A2AObject], Callable[[Any], Any]] = {
    Message: _message_up,
    Task: _task_up,
    StreamResponse: _event_up,
    SendRequest: _send_up,
    TaskRequest: lambda params: _change_members(params, historyLength=_length_up),
    PushConfig: _push_config_up,
    PushRequest: lambda params: _rename_members(params, _PUSH_REQUEST),
    PushConfigs: lambda configs: {"configs": [_push_config_up(config) for config in configs]},
    AgentCard: _card_up,
}
_DOWN: Mapping[type[A2AObject], Callable[[Any], Any]] = {
    Message: _message_down,
    Task: _task_down,
    StreamResponse: _event_down,
    SendRequest: _send_down,
    PushConfig: _push_config_down,
    PushRequest: lambda params: _rename_members(
        params, {new: old for old, new in _PUSH_REQUEST.items()}
    ),
    PushConfigs: lambda configs: [_push_config_down(config) for config in configs["configs"]],
    AgentCard: _card_down,
}
