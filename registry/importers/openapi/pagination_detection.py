"""Detection of pagination: how an operation returns its results page by page.

Names in request and answer decide together: an argument alone, or a member alone, is no pagination.
Where the answer does not indicate whether more follows, none is detected.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from registry.importers.openapi.document import OpenApiDocument, SkipOperation
from registry.importers.openapi.responses import ResponseFacts
from schemas.binding import OpenAPIBinding, Pagination
from schemas.untrusted_json import mapping, sequence

_HOPS = 8  # through `$ref` and `allOf`
_INNER = frozenset(
    ("meta", "metadata", "pagination", "paging", "pageinfo", "links", "responsemetadata",
     "cursors", "next")
)  # fmt: skip

# Members of answers, and the arguments that take their values; both without "_", "-" and case.
_CURSORS: Mapping[str, tuple[str, ...]] = {
    "nextcursor": ("cursor", "nextcursor", "startcursor", "pagecursor", "after", "startingafter"),
    "nextpagetoken": ("pagetoken", "nextpagetoken", "paginationtoken", "token"),
    "nexttoken": ("nexttoken", "paginationtoken", "pagetoken", "token", "startingtoken"),
    "nextpagecursor": ("pagecursor", "cursor", "nextpagecursor"),
    "nextcontinuationtoken": ("continuationtoken",),
    "continuationtoken": ("continuationtoken",),
    "nextmarker": ("marker", "nextmarker"),
    "nextkey": ("startkey", "nextkey", "key"),
    "nextoffset": ("offset",),
    "nextpage": ("page", "nextpage"),
    "continue": ("continue",),  # Kubernetes, below `metadata`
    "after": ("after",),  # below `cursors` or `paging.next`
    "cursor": ("cursor",),  # below `meta` and the like
    "scrollid": ("scrollid",),
}
_BELOW_ONLY = frozenset(("continue", "after", "cursor"))
_URLS = frozenset(
    ("next", "nexturl", "nextpageuri", "nextpageurl", "nextlink", "odatanextlink", "nexthref")
)
_POSITIONS = (  # arguments that the URL of the next page may change
    "page", "cursor", "pagetoken", "after", "offset", "since", "skip", "start", "startat",
    "nextcursor", "nexttoken", "pagenumber", "marker", "continuationtoken", "skiptoken",
    "pagecursor", "pageafter", "pageoffset", "before",
)  # fmt: skip
_LIMITS = (
    "limit",
    "perpage",
    "pagesize",
    "count",
    "maxresults",
    "size",
    "top",
    "pagelimit",
    "take",
)
_OFFSETS = ("offset", "skip", "startat", "start", "startindex")
_TOTALS = ("total", "totalcount", "totalresults", "totalitems", "totalsize")
_PAGE_TOTALS = ("totalpages", "pagecount", "pages", "numpages", "lastpage")
_PAGES = ("page", "pagenumber")
_MORE = frozenset(("hasmore", "hasnextpage", "hasnext", "morefollows"))
_INTEGER = "integer"

Find = Callable[[Any], dict[str, Any]]
"""The object that a schema or its `$ref` is; {}: there is none."""


@dataclass(frozen=True, slots=True)
class _Argument:
    name: str
    in_url: bool  # may be set by the URL of the next page
    schema: dict[str, Any]

    @property
    def integer(self) -> bool:
        kind = self.schema.get("type")
        return kind == _INTEGER or (isinstance(kind, list) and _INTEGER in kind)


@dataclass(frozen=True, slots=True)
class _Member:
    path: tuple[str, ...]
    schema: dict[str, Any]


class _Page:
    """Arguments of the request and members of the answer, by normalized names."""

    def __init__(
        self,
        arguments: dict[str, _Argument],
        answer: dict[str, Any],
        find: Find,
    ) -> None:
        self.arguments = arguments
        self._find = find
        members = _properties(answer, find)
        self.top = _members_by_name((), members)
        self.below: dict[str, _Member] = {}
        for name, schema in members.items():
            if plain(name) in _INNER:
                self._descend((name,), schema, 2)

    def _descend(self, path: tuple[str, ...], schema: Any, levels: int) -> None:
        members = _properties(schema, self._find)
        for name, member in _members_by_name(path, members).items():
            self.below.setdefault(name, member)
        for name, inner in members.items():
            if levels > 1 and plain(name) in _INNER:
                self._descend((*path, name), inner, levels - 1)

    def argument(self, *names: str) -> _Argument | None:
        return next((self.arguments[name] for name in names if name in self.arguments), None)

    def member(self, *names: str) -> _Member | None:
        for name in names:
            if name in self.top:
                return self.top[name]
            if name in self.below:
                return self.below[name]
        return None

    def array(self) -> _Member | None:
        """The only array of the answer, which holds the entries."""
        arrays = [member for member in self.top.values() if self._kind(member) == "array"]
        return arrays[0] if len(arrays) == 1 else None

    def flag(self) -> _Member | None:
        flags = (member for name, member in {**self.below, **self.top}.items() if name in _MORE)
        return next((member for member in flags if self._kind(member) == "boolean"), None)

    def inside(self, member: _Member) -> dict[str, Any]:
        """The properties of a member that is an object."""
        return _properties(member.schema, self._find)

    def _kind(self, member: _Member) -> Any:
        return self._find(member.schema).get("type")


def of(
    document: OpenApiDocument,
    response: ResponseFacts,
    binding: OpenAPIBinding,
    properties: Mapping[str, Any],
) -> Pagination | None:
    """The pagination of an operation; None if none is detected. `properties` are those of the
    tool's input schema."""
    arguments = _arguments(binding, properties)
    if not arguments or response.raw_schema is None:
        return None

    def find(raw: Any) -> dict[str, Any]:
        try:
            return document.resolve(raw)
        except SkipOperation:
            return {}

    page = _Page(arguments, find(response.raw_schema), find)
    for recognise in (_last, _url, _cursor, _numbered_pagination, _offset):
        if pagination := recognise(page):
            return pagination
    return _link(page, "link" in response.headers)


@lru_cache(maxsize=10_000)  # the same few names recur in every operation
def plain(name: str) -> str:
    """`next_page-Token` is `nextpagetoken`."""
    return "".join(char for char in name if char.isalnum()).lower()


def _arguments(binding: OpenAPIBinding, properties: Mapping[str, Any]) -> dict[str, _Argument]:
    arguments = {
        plain(name): _Argument(argument, False, mapping(properties.get(argument)))
        for argument, name in (binding.body and binding.body.properties) or ()
    }
    for parameter in binding.parameters:
        if parameter.location == "query" and parameter.argument in properties:
            schema = mapping(properties[parameter.argument])
            arguments[plain(parameter.name)] = _Argument(parameter.argument, True, schema)
    return arguments


def _last(page: _Page) -> Pagination | None:
    """Stripe: `has_more`, and the id of the last entry."""
    argument, more, data = page.argument("startingafter"), page.flag(), page.top.get("data")
    if argument is None or more is None or data is None:
        return None
    return Pagination("last", argument.name, data.path, more=more.path)


def _cursor(page: _Page) -> Pagination | None:
    for name, takers in _CURSORS.items():
        member = page.below.get(name) if name in _BELOW_ONLY else page.member(name)
        argument = page.argument(*takers)
        if member is None or argument is None:
            continue
        more = page.flag()
        integers = (argument.name,) if argument.integer else ()
        at = more.path if more else ()
        return Pagination("cursor", argument.name, member.path, more=at, integers=integers)
    return None


def _url(page: _Page) -> Pagination | None:
    for name, member in {**page.below, **page.top}.items():
        if name not in _URLS:
            continue
        inner = page.inside(member)
        if inner and "href" not in inner:  # an object other than a link
            continue
        path = (*member.path, "href") if inner else member.path
        if pagination := _fed_by_url(page, path):
            return pagination
    return None


def _fed_by_url(page: _Page, path: tuple[str, ...]) -> Pagination | None:
    fed = [page.arguments[name] for name in _POSITIONS if name in page.arguments]
    fed = [argument for argument in fed if argument.in_url]
    if not fed:
        return None
    integers = tuple(argument.name for argument in fed if argument.integer)
    also = tuple(argument.name for argument in fed[1:])
    return Pagination("link", fed[0].name, path, also=also, integers=integers)


def _numbered_pagination(page: _Page) -> Pagination | None:
    """Numbered pages, where the number of the first is known."""
    argument, total = page.argument(*_PAGES), page.member(*_PAGE_TOTALS)
    if argument is None or total is None or not argument.integer:
        return None
    first = _first(argument)
    if first is None:
        return None
    return Pagination(
        "page", argument.name, total=total.path, first=first, integers=(argument.name,)
    )


def _first(argument: _Argument) -> int | None:
    """The first page number, if the description states it."""
    stated = [argument.schema.get(key) for key in ("default", "minimum")]
    return next((value for value in stated if type(value) is int and value in (0, 1)), None)


def _offset(page: _Page) -> Pagination | None:
    argument, limit = page.argument(*_OFFSETS), page.argument(*_LIMITS)
    total, members = page.member(*_TOTALS), page.array()
    if argument is None or limit is None or total is None or members is None:
        return None
    if not argument.integer:
        return None
    return Pagination(
        "offset",
        argument.name,
        members.path,
        limit=limit.name,
        total=total.path,
        first=_first(argument) or int(argument is page.arguments.get("startindex")),
        integers=(argument.name,),
    )


def _link(page: _Page, described: bool) -> Pagination | None:
    """RFC 8288 `Link`: the header is described, or the arguments are those that GitHub made
    usual."""
    usual = {"page", "perpage"} <= page.arguments.keys()
    return _fed_by_url(page, ()) if described or usual else None


def _members_by_name(path: tuple[str, ...], members: Mapping[str, Any]) -> dict[str, _Member]:
    return {
        plain(name): _Member((*path, name), mapping(member)) for name, member in members.items()
    }


def _properties(schema: Any, find: Find, hops: int = _HOPS) -> dict[str, Any]:
    """The properties of an object and of the schemas that it includes."""
    node = find(schema)
    properties: dict[str, Any] = {}
    if hops:
        for part in sequence(node.get("allOf")):
            properties |= _properties(part, find, hops - 1)
    return properties | mapping(node.get("properties"))
