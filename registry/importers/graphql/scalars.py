"""Scalars to JSON Schema. What a custom scalar takes is the service's own affair: names that are
used alike everywhere are known here, and about others only their descriptions say anything.
"""

from typing import Any

from registry.importers.graphql.schema import Type
from registry.importers.texts import said

UPLOADS = frozenset({"upload", "file", "fileupload"})  # in lower case; multipart requests only

_STRING = {"type": "string"}
_WHOLE = {"type": ["integer", "string"]}  # beyond 2^53 as text
_DECIMAL = {"type": ["number", "string"]}
_BUILT_IN: dict[str, dict[str, Any]] = {
    "Int": {"type": "integer", "format": "int32"},  # 3.5.1; other values are errors
    "Float": {"type": "number"},
    "String": _STRING,
    "Boolean": {"type": "boolean"},
    "ID": {"type": ["string", "integer"]},  # 3.5.5: both are taken
}
_KNOWN: dict[str, dict[str, Any]] = {
    **{
        name: {"type": "string", "format": format_}
        for format_, names in {
            "date-time": ("datetime", "isodatetime", "iso8601datetime", "datetimeiso", "instant",
                          "timestamptz", "awsdatetime"),
            "date": ("date", "localdate", "isodate", "iso8601date", "awsdate"),
            "time": ("time", "localtime", "timetz"),
            "duration": ("duration", "iso8601duration"),
            "uuid": ("uuid", "guid"),
            "uri": ("url", "uri", "awsurl", "httpurl"),
            "email": ("email", "emailaddress", "awsemail"),
        }.items()
        for name in names
    },
    **dict.fromkeys(("bigint", "long", "int64", "uint64", "biginteger", "unsignedint64"), _WHOLE),
    **dict.fromkeys(("decimal", "bigdecimal", "money", "numeric"), _DECIMAL),
    **dict.fromkeys(("base64", "byte", "bytes", "base64string", "html", "markdown"), _STRING),
    **dict.fromkeys(("phonenumber", "locale", "timezone"), _STRING),
    "jsonobject": {"type": "object"},
    "positiveint": {"type": "integer", "minimum": 1},
    "nonnegativeint": {"type": "integer", "minimum": 0},
}  # fmt: skip
_ANY = frozenset({"json", "any", "object", "map", "unknown", "mixed", "jsonb", "awsjson", "void"})


def is_upload(type_: Type) -> bool:
    return type_.kind == "scalar" and type_.name.lower() in UPLOADS


def scalar(type_: Type) -> tuple[dict[str, Any], str | None]:
    """The schema of values that are sent, and what is not known about them."""
    if type_.name in _BUILT_IN:
        return dict(_BUILT_IN[type_.name]), None
    name = type_.name.lower().replace("_", "")
    told = _told(type_)
    if name in _KNOWN:
        return {**_KNOWN[name], **told}, None
    if name in _ANY or told:
        return told, None
    return {}, f"scalar {type_.name} is not described: any value is let through"


def answered(type_: Type) -> dict[str, Any]:
    """The schema of values that come back: custom scalars differ too much to be told."""
    known = _BUILT_IN.get(type_.name)
    return {} if known is None else {"type": known["type"]}


def _told(type_: Type) -> dict[str, Any]:
    lines = [type_.description] if type_.description else []
    if type_.specified_by:
        lines.append(f"As in {type_.specified_by}")
    return {"description": said("\n".join(lines))} if lines else {}
