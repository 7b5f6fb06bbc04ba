"""Parameter values on the wire: every `style` and `explode` of OpenAPI 3.2, section 4.12.2.

The styles are those of RFC 6570 (simple, label, matrix, form), four of OpenAPI's own, and the
`tsv` of Swagger 2.0. Values are JSON values that already passed the input schema. Everything here
is pure.

Null, an array without members and an object without members are undefined, as in RFC 6570, section
2.3: they are not sent unless the parameter allows an empty value, and cannot be sent in a path.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Any
from urllib.parse import parse_qsl, quote, unquote

from gateway.upstreams.http.responses_as_results import is_json
from schemas.binding import Parameter
from schemas.errors import InvalidParams
from schemas.jsonrpc import encode

# Characters that `allowReserved` leaves unencoded (RFC 3986, section 2.2), without those that
# would end the value (& #) or be read as a space (+).
RESERVED_CHARACTERS = ":/?[]@!$'()*,;="
_RESERVED_IN_PATH = ":[]@!$'()*,;=&+"  # 3.2: without those that would end the segment or the path
_NO_TRIPLE = re.compile("%(?![0-9A-Fa-f]{2})")
_TRIPLE = re.compile("%(?=[0-9A-Fa-f]{2})")
# Servers such as Starlette take cookies as they stand, as browsers send them; others decode "%".
# "&" separates the pairs of an exploded value until the cookies are joined.
_IN_COOKIES = "!#$%'()*+,-./:<=>?@[]^_`{|}~ "
_SAFE_INTEGER = 2**53
FORM = "application/x-www-form-urlencoded"


_DELIMITERS = {
    "form": ",", "spaceDelimited": "%20", "pipeDelimited": "%7C", "tabDelimited": "%09",
}  # fmt: skip

_QUOTED_STRING = re.compile(
    r'"(?:[^"\\]|\\.)*"'
)  # RFC 9110, 5.6.4: as of entity tags; may hold commas
_IN_HEADERS = {"spaceDelimited": " ", "pipeDelimited": "|", "tabDelimited": "\t"}


def in_path(parameter: Parameter, value: Any) -> str:
    """The text that replaces `{name}`. Raises InvalidParams when that would be empty."""
    if parameter.media_type is not None:
        text = quote(_content(parameter.media_type, value), safe="")
    elif isinstance(value, str) and parameter.style == "simple":  # most are
        text = _quote_value(parameter, value) if parameter.allow_reserved else quote(value, safe="")
    else:
        value = _without_undefined(value)
        if value is None:
            raise InvalidParams(f"{parameter.argument}: null or nothing cannot stand in a path")
        layout = _LAYOUTS.get(parameter.style, _simple)
        text = layout(parameter, value, list(_pairs(parameter, value)))
    if not text:
        raise InvalidParams(f"{parameter.argument}: an empty value cannot stand in a path")
    return text


def in_query(parameter: Parameter, value: Any) -> str:
    """`name=value`, perhaps several, joined by `&`; empty when the value is undefined."""
    if isinstance(value, str) and parameter.media_type is None:  # most are
        return f"{quote(parameter.name, safe='')}={_quote_value(parameter, value)}"
    if parameter.media_type is not None:
        text = _quote_value(parameter, _content(parameter.media_type, value))
        return f"{quote(parameter.name, safe='')}={text}"
    if parameter.style == "deepObject":
        flat = _deep(quote(parameter.name, safe=""), value, parameter.explode)
        text = "&".join(f"{name}={_quote_value(parameter, item)}" for name, item in flat)
    else:
        text = _form(parameter, _without_undefined(value))
    return text if text or not parameter.allow_empty else f"{quote(parameter.name, safe='')}="


def in_querystring(parameter: Parameter, value: Any) -> str:
    """The whole query (3.2, section 4.12.1): form fields, or one value of another media type."""
    if parameter.media_type == FORM and isinstance(value, dict):
        return _fields(value)
    return quote(_content(parameter.media_type or "text/plain", value), safe="")


def pairs_of(parameter: Parameter, value: Any) -> list[tuple[str, str]]:
    """The decoded names and values that the style yields."""
    return parse_qsl(in_query(parameter, value), keep_blank_values=True)


def in_header(parameter: Parameter, value: Any) -> str:
    """The header's value; empty when the value is undefined.

    Raises InvalidParams for control characters: they forge headers.
    """
    text = _header(parameter, value)
    if any((ord(char) < 32 and char != "\t") or ord(char) == 127 for char in text):
        raise InvalidParams(f"{parameter.argument}: control characters cannot stand in a header")
    return text


def in_cookie(parameter: Parameter, value: Any) -> str:
    """`name=value` for the Cookie header; empty when the value is undefined.

    Raises InvalidParams for what the style `cookie`, which encodes no characters, cannot send.
    """
    if parameter.media_type is not None:
        text = quote(_content(parameter.media_type, value), safe="")
        return f"{quote(parameter.name, safe='')}={text}"
    value = _without_undefined(value)
    if parameter.style == "cookie":
        return _bare_cookie(parameter, value)
    if value is None and not parameter.allow_empty:
        return ""
    return _form(parameter, "" if value is None else value).replace("&", "; ")


def plain(value: Any) -> str:
    """A JSON value as text: strings unchanged, the rest as JSON."""
    if isinstance(value, str):
        return value
    if isinstance(value, float) and value.is_integer() and abs(value) < _SAFE_INTEGER:
        return str(int(value))  # JSON has one kind of number: 3.0 is the integer 3
    return encode(value).decode()


def _content(media_type: str, value: Any) -> str:
    if media_type == FORM and isinstance(value, dict):
        return _fields(value)
    return encode(value).decode() if is_json(media_type) else plain(value)


def _without_undefined(value: Any) -> Any:
    """`value` without its undefined members; None when it becomes empty."""
    if isinstance(value, dict):
        return {key: item for key, item in value.items() if item is not None} or None
    if isinstance(value, list):
        return [item for item in value if item is not None] or None
    return value


def _header(parameter: Parameter, value: Any) -> str:
    if parameter.media_type is not None:
        return _content(parameter.media_type, value)
    match _without_undefined(value):
        case None:
            return ""
        case list(items):
            return _join_members(
                parameter, map(plain, items), _IN_HEADERS.get(parameter.style, ",")
            )
        case dict(members) if parameter.explode:
            pairs = (f"{key}={plain(item)}" for key, item in members.items())
            return _join_members(parameter, pairs, ",")
        case dict(members):
            return _join_members(parameter, _flat(members), ",")
        case scalar:
            return plain(scalar)


def _quote_value(parameter: Parameter, value: Any) -> str:
    text = value if isinstance(value, str) else plain(value)
    if parameter.location == "cookie":
        safe = _IN_COOKIES if text == text.strip() else _IN_COOKIES.rstrip()  # servers strip blanks
        return quote(_TRIPLE.sub("%25", text), safe=safe)
    if not parameter.allow_reserved:
        return quote(text, safe="")
    if parameter.location == "path":
        return quote(text, safe=_RESERVED_IN_PATH)  # no triples: %2E%2E would be a dot segment
    return quote(_NO_TRIPLE.sub("%25", text), safe=RESERVED_CHARACTERS + "%")


def _pairs(parameter: Parameter, value: Any) -> Iterator[tuple[str, str]]:
    """The encoded members of an object; of an array, each with an empty key."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield quote(key, safe=""), _quote_value(parameter, item)
    elif isinstance(value, list):
        for item in value:
            yield "", _quote_value(parameter, item)


Pairs = list[tuple[str, str]]


def _simple(parameter: Parameter, value: Any, pairs: Pairs) -> str:
    return _join_list(parameter, value, pairs, _DELIMITERS.get(parameter.style, ","))


def _label(parameter: Parameter, value: Any, pairs: Pairs) -> str:
    return "." + _join_list(parameter, value, pairs, "." if parameter.explode else ",")


def _matrix(parameter: Parameter, value: Any, pairs: Pairs) -> str:
    name = quote(parameter.name, safe="")
    if not isinstance(value, dict | list) or not parameter.explode:
        pairs = [(name, _join_list(parameter, value, pairs, ","))]
    # RFC 6570, section 3.2.7: no `=` before an empty value
    return "".join(f";{key or name}={item}" if item else f";{key or name}" for key, item in pairs)


_LAYOUTS = {"simple": _simple, "label": _label, "matrix": _matrix}


def _join_list(parameter: Parameter, value: Any, pairs: Pairs, comma: str) -> str:
    if not isinstance(value, dict | list):
        return _quote_value(parameter, value)
    if parameter.explode:
        members = (f"{key}={item}" if key else item for key, item in pairs)
        return _join_members(parameter, members, comma)
    return _join_members(parameter, _members(pairs), comma)


def _join_members(parameter: Parameter, members: Iterable[str], delimiter: str) -> str:
    """`members`, encoded, with `delimiter` between them. A comma inside a member is encoded where
    the place allows that. Raises InvalidParams for a member that the service would take for
    several."""
    members = list(members)
    if delimiter == "," and parameter.location != "header" and parameter.style != "cookie":
        members = [member.replace(",", "%2C") for member in members]
    if any(delimiter in _QUOTED_STRING.sub("", member) for member in members):
        separator = unquote(delimiter)
        raise InvalidParams(
            f"{parameter.argument}: {separator!r} separates the members of this value, so that none"
            " of them can contain it"
        )
    return delimiter.join(members)


def _members(pairs: Pairs) -> Iterator[str]:
    for key, item in pairs:
        if key:
            yield key
        yield item


def _form(parameter: Parameter, value: Any) -> str:
    if value is None:
        return ""
    name = quote(parameter.name, safe="")
    if not isinstance(value, dict | list):
        return f"{name}={_quote_value(parameter, value)}"
    pairs = list(_pairs(parameter, value))
    if parameter.explode:
        return "&".join(f"{key or name}={item}" for key, item in pairs)
    return (
        f"{name}={_join_members(parameter, _members(pairs), _DELIMITERS.get(parameter.style, ','))}"
    )


def _deep(prefix: str, value: Any, numbered: bool) -> Iterator[tuple[str, Any]]:
    """`name[key][inner]=value`, the brackets encoded: some servers refuse them unencoded.

    Members of arrays are numbered, as the APIs that nest them do; without `explode` they are not.
    """
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _deep(f"{prefix}%5B{quote(key, safe='')}%5D", item, numbered)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _deep(f"{prefix}%5B{index if numbered else ''}%5D", item, numbered)
    elif value is not None:
        yield prefix, value


def _fields(value: dict[str, Any]) -> str:
    return "&".join(filter(None, (in_query(_field(name), value[name]) for name in value)))


def _field(name: str) -> Parameter:
    """A form field with the default style."""
    return Parameter(name, name, location="query", style="form", explode=True)


def _bare_cookie(parameter: Parameter, value: Any) -> str:
    """3.2, section 4.12.2: unencoded, so without characters that end a cookie (RFC 6265, 4.1.1)."""
    if value is None:
        return f"{parameter.name}=" if parameter.allow_empty else ""
    members = _named_members(parameter.name, value)
    if parameter.explode or not isinstance(value, dict | list):
        pairs = [f"{name}={text}" for name, text in members]
    else:
        pairs = [f"{parameter.name}={_join_members(parameter, _flat(value), ',')}"]
    if any(char in ';\\"' or not " " < char < "\x7f" for pair in pairs for char in pair):
        raise InvalidParams(f"{parameter.argument}: this cannot stand in a cookie")
    return "; ".join(pairs)


def _named_members(name: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        yield from ((key, plain(item)) for key, item in value.items())
    else:
        yield from ((name, plain(item)) for item in (value if isinstance(value, list) else [value]))


def _flat(value: Any) -> Iterator[str]:
    if isinstance(value, list):
        yield from map(plain, value)
    else:
        for key, item in value.items():
            yield key
            yield plain(item)
