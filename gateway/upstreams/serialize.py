"""Parameter values on the wire: every `style` and `explode` of OpenAPI 3.1, section 4.8.12.3.

The styles are those of RFC 6570 (simple, label, matrix, form) and three of OpenAPI's own. Values
are JSON values that already passed the input schema. Everything here is pure.

Null, an array without members and an object without members are undefined, as in RFC 6570, section
2.3: they are not sent, and a path that needs them cannot be.
"""

import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

from schemas.binding import Parameter
from schemas.errors import InvalidParams
from schemas.jsonrpc import encode

# What `allowReserved` lets through (RFC 3986, section 2.2), without those that would end the
# value (& #) or be read as a space (+).
RESERVED = ":/?[]@!$'()*,;="
_NO_TRIPLE = re.compile("%(?![0-9A-Fa-f]{2})")
_SAFE_INTEGER = 2**53


def in_path(parameter: Parameter, value: Any) -> str:
    """The text that replaces `{name}`. Raises InvalidParams when that would be nothing."""
    if parameter.media_type is not None:
        return quote(_content(parameter.media_type, value), safe="")
    value = _defined(value)
    if value is None:
        raise InvalidParams(f"{parameter.argument}: null or nothing cannot stand in a path")
    text = _LAYOUTS[parameter.style](parameter, value, list(_pairs(parameter, value)))
    if not text:
        raise InvalidParams(f"{parameter.argument}: an empty value cannot stand in a path")
    return text


def in_query(parameter: Parameter, value: Any) -> str:
    """`name=value`, perhaps several, joined by `&`; empty when there is nothing to send."""
    if parameter.media_type is not None:
        text = _quoted(parameter, _content(parameter.media_type, value))
        return f"{quote(parameter.name, safe='')}={text}"
    if parameter.style == "deepObject":
        flat = _deep(quote(parameter.name, safe=""), value)
        return "&".join(f"{name}={_quoted(parameter, item)}" for name, item in flat)
    return _form(parameter, _defined(value))


def in_header(parameter: Parameter, value: Any) -> str:
    """The header's value; empty when there is nothing to send.

    Raises InvalidParams for control characters: they forge headers.
    """
    text = _header(parameter, value)
    if any((ord(char) < 32 and char != "\t") or ord(char) == 127 for char in text):
        raise InvalidParams(f"{parameter.argument}: control characters cannot stand in a header")
    return text


def in_cookie(parameter: Parameter, value: Any) -> str:
    """`name=value` for the Cookie header; empty when there is nothing to send."""
    return in_query(parameter, value).replace("&", "; ")


def plain(value: Any) -> str:
    """A JSON value as text: strings as they are, the rest as JSON writes it."""
    if isinstance(value, str):
        return value
    if isinstance(value, float) and value.is_integer() and abs(value) < _SAFE_INTEGER:
        return str(int(value))  # JSON has one kind of number: 3.0 is the integer 3
    return encode(value).decode()


def is_json(media_type: str) -> bool:
    media_type = media_type.split(";", 1)[0].strip().lower()
    return media_type == "application/json" or media_type.endswith("+json")


def _content(media_type: str, value: Any) -> str:
    return encode(value).decode() if is_json(media_type) else plain(value)


def _defined(value: Any) -> Any:
    """`value` without its undefined members; None when nothing is left."""
    if isinstance(value, dict):
        return {key: item for key, item in value.items() if item is not None} or None
    if isinstance(value, list):
        return [item for item in value if item is not None] or None
    return value


def _header(parameter: Parameter, value: Any) -> str:
    if parameter.media_type is not None:
        return _content(parameter.media_type, value)
    match _defined(value):
        case None:
            return ""
        case list(items):
            return ",".join(map(plain, items))
        case dict(members):
            joint = "=" if parameter.explode else ","
            return ",".join(f"{key}{joint}{plain(item)}" for key, item in members.items())
        case scalar:
            return plain(scalar)


def _quoted(parameter: Parameter, value: Any) -> str:
    text = plain(value)
    if not parameter.allow_reserved or parameter.location != "query":
        return quote(text, safe="")
    return quote(_NO_TRIPLE.sub("%25", text), safe=RESERVED + "%")


def _pairs(parameter: Parameter, value: Any) -> Iterator[tuple[str, str]]:
    """The encoded members of an object; of an array, each with an empty key."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield quote(key, safe=""), _quoted(parameter, item)
    elif isinstance(value, list):
        for item in value:
            yield "", _quoted(parameter, item)


Pairs = list[tuple[str, str]]


def _simple(parameter: Parameter, value: Any, pairs: Pairs) -> str:
    return _listed(parameter, value, pairs, ",")


def _label(parameter: Parameter, value: Any, pairs: Pairs) -> str:
    return "." + _listed(parameter, value, pairs, "." if parameter.explode else ",")


def _matrix(parameter: Parameter, value: Any, pairs: Pairs) -> str:
    name = quote(parameter.name, safe="")
    if not isinstance(value, dict | list) or not parameter.explode:
        pairs = [(name, _listed(parameter, value, pairs, ","))]
    # RFC 6570, section 3.2.7: no `=` before an empty value
    return "".join(f";{key or name}={item}" if item else f";{key or name}" for key, item in pairs)


_LAYOUTS = {"simple": _simple, "label": _label, "matrix": _matrix}


def _listed(parameter: Parameter, value: Any, pairs: Pairs, comma: str) -> str:
    if not isinstance(value, dict | list):
        return _quoted(parameter, value)
    if parameter.explode:
        return comma.join(f"{key}={item}" if key else item for key, item in pairs)
    return comma.join(_members(pairs))


def _members(pairs: Pairs) -> Iterator[str]:
    for key, item in pairs:
        if key:
            yield key
        yield item


_DELIMITERS = {"form": ",", "spaceDelimited": "%20", "pipeDelimited": "%7C"}


def _form(parameter: Parameter, value: Any) -> str:
    if value is None:
        return ""
    name = quote(parameter.name, safe="")
    if not isinstance(value, dict | list):
        return f"{name}={_quoted(parameter, value)}"
    pairs = list(_pairs(parameter, value))
    if parameter.explode:
        return "&".join(f"{key or name}={item}" for key, item in pairs)
    return f"{name}={_DELIMITERS[parameter.style].join(_members(pairs))}"


def _deep(prefix: str, value: Any) -> Iterator[tuple[str, Any]]:
    """`name[key][inner]=value`, the brackets encoded: some servers refuse them as they are.

    Members of arrays are numbered, as the APIs that nest them do.
    """
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _deep(f"{prefix}%5B{quote(key, safe='')}%5D", item)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _deep(f"{prefix}%5B{index}%5D", item)
    elif value is not None:
        yield prefix, value
