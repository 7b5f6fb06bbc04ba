"""What came over the wire, as structures of texts: openapi-core's style deserialisers on the values
as they stand there, percent-decoding after the split, because a server that decodes first cannot
tell a comma in a value from one between values."""

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any
from urllib.parse import quote, unquote, unquote_plus

import qs_codec
from openapi_core.deserializing.styles import style_deserializers
from openapi_core.deserializing.styles.util import delimited_loads
from werkzeug.datastructures import MultiDict

from tests.roundtrip.described import Spot
from tests.roundtrip.expressible import DELIMITERS

Pairs = Sequence[tuple[str, str]]  # name and value as on the wire
_VARIABLE = re.compile(r"(\{[^{}]+\})")
_PCHAR = "/%:@!$&'()*+,;=~"
_NESTED = qs_codec.DecodeOptions(depth=40, parameter_limit=10_000, list_limit=10_000)


class Unreadable(Exception):
    """What came is not what the description says should come."""


def pairs(query: str, separator: str = "&") -> list[tuple[str, str]]:
    split = (pair.strip(" ").partition("=") for pair in query.split(separator) if pair.strip(" "))
    return [(name, value) for name, _, value in split]


def variables(template: str, path: str) -> dict[str, str]:
    """The values of a path's variables, as on the wire."""
    parts = _VARIABLE.split(re.split("[?#]", template)[0])  # a fragment is not sent
    names = [part[1:-1] for part in parts[1::2]]
    literal = [re.escape(quote(part, safe=_PCHAR)) for part in parts[0::2]]
    pattern = "([^/?]*)".join(literal)
    match = re.fullmatch(pattern if pattern.startswith("/") else f"/{pattern}", path)
    if match is None:
        raise Unreadable(f"the path {path[:100]} is not {template[:100]}")
    return dict(zip(names, match.groups(), strict=True))


def in_path(spot: Spot, raw: str, shape: str) -> Any:
    if spot.media_type is not None:
        return unquote(raw)
    if spot.style == "matrix":
        return _matrix(spot, raw, shape)
    if spot.style.endswith("Delimited"):  # of 2.0
        return _load_value(spot, {spot.name: _unify_delimiter(spot, raw)}, shape, unquote)
    prefix = {"label": ".", "simple": ""}[spot.style]
    key = f"{prefix}{spot.name}{'*' if spot.explode and prefix else ''}"
    if prefix and not raw.startswith(prefix):
        raise Unreadable(f"{raw[:60]} does not begin with {prefix}")
    return _load_value(spot, {key: raw}, shape, unquote)


def _matrix(spot: Spot, raw: str, shape: str) -> Any:
    name = quote(spot.name, safe="")
    if raw == f";{name}":  # RFC 6570, 3.2.7: no `=` before an empty value
        return ""
    whole = re.sub(rf";{re.escape(name)}(?=;|$)", f";{name}=", raw)
    one = Spot(name, "path", "matrix", spot.explode, spot.schema)
    return _load_value(one, {f";{name}{'*' if spot.explode else ''}": whole}, shape, unquote)


def in_query(spot: Spot, query: Pairs, shape: str, others: Iterable[str] = ()) -> Any:
    """`others` are the names of the other parameters: an exploded object has all that is left.
    None when nothing is there."""
    decode = unquote_plus
    if spot.style == "deepObject" and shape != "scalar":
        return _read_nested(spot.name, query)
    if spot.explode and shape == "object":
        taken = set(others)
        own = [(name, value) for name, value in query if decode(name) not in taken]
        text = "&".join(f"{name}={value}" for name, value in own)
        return _load_value(spot, {spot.name: text}, shape, decode) if own else None
    found = [value for name, value in query if decode(name) == spot.name]
    if not found:
        return None
    if spot.explode and shape == "array":
        return _load_value(
            _as_form(spot), MultiDict((spot.name, one) for one in found), shape, decode
        )
    if len(found) > 1:
        raise Unreadable(f"{spot.name} came {len(found)} times")
    if spot.media_type is not None:
        return decode(found[0])
    return _load_value(spot, {spot.name: _unify_delimiter(spot, found[0])}, shape, decode)


def in_header(spot: Spot, values: Sequence[str], shape: str) -> Any:
    if not values:
        return None
    raw = ",".join(values)
    if shape == "array" and spot.style in DELIMITERS:  # of 2.0
        return raw.split(DELIMITERS[spot.style])
    return raw if spot.media_type else _load_value(spot, {spot.name: raw}, shape, str.strip)


def in_cookie(spot: Spot, cookies: Pairs, shape: str, others: Iterable[str] = ()) -> Any:
    if spot.style != "cookie":
        return in_query(spot, [(name, _keep_plus(value)) for name, value in cookies], shape, others)
    found = [value for name, value in cookies if name == spot.name]
    if shape == "object" and spot.explode:
        return {name: value for name, value in cookies if name not in others}
    return found if shape == "array" and spot.explode else (found or [None])[0]


def _keep_plus(value: str) -> str:
    return value.replace("+", "%2B")  # in a cookie it is no blank


def _as_form(spot: Spot) -> Spot:
    """An array that is exploded is one pair a member, whatever would stand between them."""
    return Spot(spot.name, spot.location, "form", True, spot.schema)


def _unify_delimiter(spot: Spot, raw: str) -> str:
    if spot.style == "pipeDelimited":
        return raw.replace("%7C", "|").replace("%7c", "|")
    return raw.replace("+", "%20") if spot.style == "spaceDelimited" else raw


def _load_value(spot: Spot, location: Any, shape: str, decode: Callable[[str], str]) -> Any:
    style = spot.style
    if shape == "scalar" and style.endswith(("Delimited", "Object")):
        style = "form"  # undefined for these styles; what else could it be
    try:
        if style == "tabDelimited":
            read = delimited_loads(spot.explode, spot.name, shape, location, delimiter="%09")
        else:
            read = style_deserializers[style](spot.explode, spot.name, shape, location)
    except KeyError:
        return None
    except (ValueError, TypeError, AttributeError) as error:
        raise Unreadable(f"{style} {shape}: {error}") from error
    return _decode_parts(read, decode)


def _decode_parts(read: Any, decode: Callable[[str], str]) -> Any:
    if isinstance(read, dict):
        return {decode(key): decode(value) for key, value in read.items()}
    return [decode(one) for one in read] if isinstance(read, list | tuple) else decode(read)


def _read_nested(name: str, query: Pairs) -> Any:
    """`name[key][inner]=value`: qs reads them as most servers that take them do."""
    own = [(k, v) for k, v in query if unquote_plus(k).startswith(f"{name}[")]
    decoded = qs_codec.decode("&".join(f"{key}={value}" for key, value in own), _NESTED)
    return decoded.get(name)
