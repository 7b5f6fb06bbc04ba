"""Pagination: the arguments of the next page, from an answer. Pure.

Where an answer deviates from its description, or is ambiguous, there is no next page: a wrong one
would send a model in circles. A URL of the next page is only parsed for its query; it is neither
followed nor shown.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlsplit

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from schemas.binding import OpenAPIBinding, Pagination
from schemas.tool import META_NEXT, ToolResult

_LINK_LIMIT = 16_384  # characters of a Link header
_URL_LIMIT = 8192
_FIELDS_LIMIT = 200  # parameters in a query

Json = dict[str, Any]
_object = msgspec.json.Decoder(dict[str, Raw]).decode
_array = msgspec.json.Decoder(list[Raw]).decode
_any = msgspec.json.Decoder().decode


def with_next(result: ToolResult, arguments: Json) -> ToolResult:
    """`result` with the arguments of the next page in its `_meta`."""
    return replace(result, meta={**(result.meta or {}), META_NEXT: {"arguments": arguments}})


class _AnsweredPage(NamedTuple):
    """A call and its response."""

    binding: OpenAPIBinding
    arguments: Json
    headers: Mapping[str, str]
    body: Raw


def following(
    binding: OpenAPIBinding, arguments: Json, headers: Mapping[str, str], body: bytes
) -> Json | None:
    """The arguments of the next page; None where there is none, or it is uncertain."""
    paging = binding.pagination
    if paging is None:
        return None
    try:
        page = _AnsweredPage(binding, arguments, headers, Raw(body))
        following_arguments = _PAGE_READERS[paging.kind](paging, page)
    except (msgspec.DecodeError, ValueError, RecursionError):  # not as described
        return None
    return (
        None
        if following_arguments is None or following_arguments == arguments
        else following_arguments
    )


def _cursor(paging: Pagination, page: _AnsweredPage) -> Json | None:
    if paging.more and _any(_inside(page.body, paging.more)) is not True:
        return None
    return _advance(paging, page.arguments, _any(_inside(page.body, paging.path)))


def _last(paging: Pagination, page: _AnsweredPage) -> Json | None:
    if _any(_inside(page.body, paging.more)) is not True:
        return None
    members = _members(page.body, paging.path)
    return (
        _advance(paging, page.arguments, _any(_inside(members[-1], (paging.key,))))
        if members
        else None
    )


def _page(paging: Pagination, page: _AnsweredPage) -> Json | None:
    return _move_on(paging, page, 1)


def _offset(paging: Pagination, page: _AnsweredPage) -> Json | None:
    count = len(_members(page.body, paging.path))
    return _move_on(paging, page, count) if count else None


def _move_on(paging: Pagination, page: _AnsweredPage, count: int) -> Json | None:
    """The argument, `count` further, unless that is past the total of the answer."""
    current = page.arguments.get(paging.argument, paging.first)
    total = _any(_inside(page.body, paging.total))
    if not _is_number(current) or not _is_number(total):
        return None
    following = current + count
    more = following - paging.first < total
    return {**page.arguments, paging.argument: following} if more else None


def _link(paging: Pagination, page: _AnsweredPage) -> Json | None:
    url = (
        _any(_inside(page.body, paging.path))
        if paging.path
        else _next_link(_link_header(page.headers))
    )
    if not isinstance(url, str) or not 0 < len(url) <= _URL_LIMIT:
        return None
    fed = {paging.argument, *paging.also}
    values = _query_values(url, page.binding, fed)
    changed: Json = {}
    for argument, texts in values.items():
        if len(texts) != 1:
            return None
        value = _parse_position(paging, argument, texts[0])
        if value is None:
            return None
        changed[argument] = value
    if not changed:
        return None
    return {key: value for key, value in page.arguments.items() if key not in fed} | changed


_PAGE_READERS = {"cursor": _cursor, "last": _last, "page": _page, "offset": _offset, "link": _link}


def _query_values(url: str, binding: OpenAPIBinding, fed: set[str]) -> dict[str, list[str]]:
    """The values in the query of `url` for the arguments `fed`."""
    names = {
        parameter.name: parameter.argument
        for parameter in binding.parameters
        if parameter.location == "query" and parameter.argument in fed
    }
    values: dict[str, list[str]] = {}
    query = urlsplit(url).query
    for name, text in parse_qsl(query, keep_blank_values=True, max_num_fields=_FIELDS_LIMIT):
        if name in names:
            values.setdefault(names[name], []).append(text)
    return values


def _advance(paging: Pagination, arguments: Json, position: Any) -> Json | None:
    """The arguments with `position`, as it came in an answer."""
    if isinstance(position, bool) or not isinstance(position, str | int) or position == "":
        return None
    text = str(position)
    if len(text) > _URL_LIMIT or "://" in text:
        return None
    value = _parse_position(paging, paging.argument, text)
    return None if value is None else {**arguments, paging.argument: value}


def _parse_position(paging: Pagination, argument: str, text: str) -> str | int | None:
    if argument not in paging.integers:
        return text
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else None


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


_ABSENT = Raw(b"null")


def _members(body: Raw, path: tuple[str, ...]) -> list[Raw]:
    raw = _inside(body, path)
    return [] if raw is _ABSENT else _array(raw)


def _inside(body: Raw, path: tuple[str, ...]) -> Raw:
    """The value at `path`; _ABSENT where there is none. Raises DecodeError where a step is no
    object."""
    raw = body
    for step in path:
        if bytes(raw) == b"null":
            return _ABSENT
        raw = _object(raw).get(step, _ABSENT)
    return raw


def _link_header(headers: Mapping[str, str]) -> str:
    """The Link header; several lines are one list (RFC 9110, section 5.3)."""
    return ", ".join(value for name, value in headers.items() if name.lower() == "link")


def _next_link(header: str) -> str | None:
    """The target of `rel="next"` (RFC 8288, section 3)."""
    for target, parameters in _links(header[:_LINK_LIMIT]):
        for parameter in parameters:
            name, _, value = parameter.partition("=")
            if name.strip().lower() == "rel" and "next" in value.strip(' "').lower().split():
                return target
    return None


def _links(header: str) -> Iterator[tuple[str, list[str]]]:
    """Targets with their parameters; separators in quotes or in <> are ignored."""
    at = header.find("<")
    while at >= 0:
        end = header.find(">", at)
        if end < 0:
            return
        target, parts, quoted = header[at + 1 : end], [""], False
        place = end + 1
        while place < len(header) and (quoted or header[place] != ","):
            quoted ^= header[place] == '"'
            if header[place] == ";" and not quoted:
                parts.append("")
            else:
                parts[-1] += header[place]
            place += 1
        yield target, parts
        at = header.find("<", place)
