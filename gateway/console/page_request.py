"""One request to the console: its visitor, its language, its form, and how a page is rendered."""

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache, lru_cache
from http import HTTPStatus
from importlib.resources import files
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode

import msgspec
from jinja2 import Environment, FunctionLoader, StrictUndefined
from markdown_it import MarkdownIt
from markupsafe import Markup, escape
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response

from gateway.console.assets import asset
from gateway.console.forms import words
from gateway.console.navigation import Place, navigation
from gateway.console.sessions import csrf_token
from gateway.console.texts import LANGUAGES, OUTCOMES, Texts, encode_json, visible
from gateway.console.visitor_operations import ConsoleOperations, ConsoleParts, OperationAnswer
from gateway.context import Identity
from gateway.methods.results_by_revision import SERVER
from gateway.operations.problems import lacks_scope
from schemas.jsonrpc import nests_within

THEMES = ("auto", "light", "dark")
FIELDS = 2000  # of a posted form
JSON_BYTES = 200_000  # of JSON on a page
INDENTED_BYTES, INDENTED_LEVELS = 1 << 20, 32  # of JSON: indented, 800 kB in 900 levels are 720 MB
MARKDOWN_CHARACTERS = 20_000  # characters of Markdown
FLAT = 6  # members of an object in one line
KINDS = {
    "openapi": "OpenAPI", "graphql": "GraphQL", "mcp": "MCP", "a2a": "A2A", "hybrid": "light-4j",
}  # fmt: skip
RENDERINGS = 64  # that are kept
UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


@dataclass(frozen=True, slots=True, kw_only=True)
class PageRequest:
    """A request of a visitor who may see the page."""

    request: Request
    parts: ConsoleParts
    root: str  # path of the console
    texts: Texts
    theme: str
    session_id: str  # that the token of forms belongs to, logged in or not
    has_cookie: bool  # the browser has sent it
    is_open: bool  # nobody has to log in here
    identity: Identity | None  # None: not logged in
    operations: ConsoleOperations
    cookie: str  # the name of that of its session
    is_logged_in: Callable[[], Awaitable[bool]]  # whether the session lasts, asked again
    form: Mapping[str, Sequence[str]] = field(default_factory=dict)  # posted

    @property
    def query(self) -> Mapping[str, str]:
        return self.request.query_params

    def posted_value(self, name: str) -> str:
        """A field of the form; "" without it."""
        return (self.form.get(name) or [""])[-1]

    def is_part(self, name: str) -> bool:
        """Whether htmx asks for the element of this id alone."""
        return self.request.headers.get("hx-target", "").rpartition("#")[2] == name

    def path(self, name: str) -> str:
        """A parameter of the path."""
        value: str = self.request.path_params[name]
        return value

    def url(self, *segments: str, **query: object) -> str:
        """The URL of a page of the console; parameters that are empty are left out."""
        path = "/".join(quote(segment, safe="") for segment in segments)
        parameters = {name: value for name, value in query.items() if value not in (None, "")}
        return f"{self.root}/{path}" + (f"?{urlencode(parameters)}" if parameters else "")

    def page(self, template: str, code: int = 200, /, **values: Any) -> Response:
        """The page of a template with these values."""
        return HTMLResponse(self.render(template, **values), code)

    def render(self, template: str, /, **values: Any) -> str:
        """The text of a template with these values."""
        return environment().get_template(template).render(visit=self, _=self.texts, **values)

    def to(self, *segments: str, **query: object) -> Response:
        """A redirect that is read with GET."""
        return RedirectResponse(self.url(*segments, **query), 303)

    def problem_page(self, answer: OperationAnswer) -> Response:
        """The page of an operation's problem."""
        return self.problem(answer.status, answer.problem)

    def refuse(self, id_: str) -> Response:
        """The page for a visitor who lacks the scope of an operation."""
        if (operation := self.operations.operation(id_)) is None:
            return self.problem(404)
        return self.problem(403, lacks_scope(operation.scope).detail)

    def problem(self, status: int, text: str = "") -> Response:
        """The page of what did not work, or a problem as the admin API answers it."""
        if self.query.get("format") == "json":
            title = HTTPStatus(status).phrase
            return as_json({"status": status, "title": title, "detail": text}, status)
        return self.page("problem.html", status, problem=text, code=status)

    @property
    def public_base(self) -> str:
        """The address of the gateway for its clients."""
        public = self.parts.settings().server.public_url.rstrip("/")
        return public or f"{self.request.base_url}".rstrip("/")

    @property
    def places(self) -> list[tuple[str, list[Place]]]:
        return list(navigation(self.parts, self.operations))

    def icon_of(self, path: str) -> str:
        """The icon of a page in the navigation; "" for one that is not there."""
        places = (place for _, places in self.places for place in places)
        return next((place.icon for place in places if place.path == path), "")

    @property
    def below(self) -> str:
        """The path of the page, below the console."""
        return self.request.url.path.removeprefix(self.root).strip("/")

    def moment(self, seconds: float) -> str:
        """A time in seconds since the epoch, as RFC 3339 has it."""
        return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")

    def next(self, after: str) -> str:
        """The URL of the next page of the list that is shown."""
        query = {**self.query, "after": after}
        return f"{self.request.url.path}?{urlencode(query)}"

    @property
    def csrf(self) -> str:
        return csrf_token(self.session_id)

    @property
    def who(self) -> str:
        return self.identity.principal.id if self.identity is not None else ""


def segments_of(path: str) -> tuple[str, ...]:
    """Segments of a page of the console; none for any other address."""
    segments = path.strip("/").split("/")
    safe = all(
        segment and segment not in {".", ".."} and segment.isprintable() for segment in segments
    )
    return tuple(segments) if safe and "\\" not in path else ()


def as_json(value: Any, status: int = 200) -> Response:
    return JSONResponse(msgspec.to_builtins(value), status)


def read_form(body: bytes) -> dict[str, list[str]]:
    """Raises ValueError."""
    values: dict[str, list[str]] = {}
    pairs = parse_qsl(
        body.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=FIELDS
    )
    for name, value in pairs:
        values.setdefault(name, []).append(value)
    return values


def templates_of(package: str) -> Environment:
    """The templates of a package. All values are escaped; invisible characters of texts are
    written out."""
    folder = files(package).joinpath("templates")
    templates = Environment(
        loader=FunctionLoader(lambda name: folder.joinpath(name).read_text()),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_finalize,
    )
    templates.globals.update(asset=asset)
    return templates


@cache
def environment() -> Environment:
    templates = templates_of("gateway.console")
    templates.filters.update(
        exact=lambda text: Markup(escape(text)),  # noqa: S704 - escaped
        pretty=pretty,
        indented=indent_json,
        markdown=markdown,
        code_spans=code_spans,
        number=number,
        words=words,
        short=short,
        short_id=lambda text: f"{text[:8]}…" if UUID.fullmatch(text) else text,
        short_text=lambda text: text if len(text) <= JSON_BYTES else f"{text[:JSON_BYTES]}\n…",
    )
    templates.tests.update(flat=_is_flat)
    templates.globals.update(
        languages=LANGUAGES, kinds=KINDS, outcomes=OUTCOMES, themes=THEMES, version=SERVER.version
    )
    return templates


def _is_flat(value: Any) -> bool:
    """Whether an object is short enough for one line: few members, none with parts."""
    return (
        isinstance(value, Mapping)
        and len(value) <= FLAT
        and all(isinstance(member, str | int | float | None) for member in value.values())
    )


def _finalize(value: Any) -> Any:
    if isinstance(value, str) and not isinstance(value, Markup):
        return visible(value)
    return "" if value is None else value


def pretty(value: Any) -> str:
    """Any value as indented JSON, cut where it is too long for a page."""
    text = in_lines(value)
    return text if len(text) <= JSON_BYTES else f"{text[:JSON_BYTES]}\n…"


def in_lines(value: Any) -> str:
    """Any value as JSON, whole, indented as `indent_json` does: what forms begin with."""
    return indent_json(encode_json(value))


def indent_json(text: str) -> str:
    """JSON, indented; a text that is none, such as JSON that was cut, and one that is long or
    nested deeply, as it is."""
    data = text.encode()
    if len(data) > INDENTED_BYTES or not nests_within(data, INDENTED_LEVELS):
        return text
    try:
        return msgspec.json.format(data, indent=2).decode()
    except msgspec.DecodeError:
        return text


def markdown(text: str) -> Markup:
    """CommonMark as HTML, without HTML of its own and without pictures, which another host has. A
    long text is shown as it is written: hostile Markdown takes 10 us a character."""
    if len(text) > MARKDOWN_CHARACTERS:
        return Markup('<pre tabindex="0">{}</pre>').format(visible(text[:JSON_BYTES]))
    return _render_markdown(text)


@lru_cache(RENDERINGS)  # a chat is rendered again with each of its events
def _render_markdown(text: str) -> Markup:
    return Markup(_markdown().render(visible(text)))  # noqa: S704 - escaped


@cache
def _markdown() -> MarkdownIt:
    return MarkdownIt("commonmark", {"html": False}).enable("table").disable("image")


def code_spans(text: str) -> Markup:
    """A sentence in which texts between backticks are code."""
    escaped = str(escape(visible(text)))
    return Markup(re.sub(r"`([^`\n]+)`", r"<code>\1</code>", escaped))  # noqa: S704 - escaped


def number(value: float | None, digits: int = 0) -> str:
    """A number in groups of three digits; a dash for none."""
    return "\u2013" if value is None else f"{value:,.{digits}f}".replace(",", "\u202f")


def short(text: str, characters: int = 160) -> str:
    """The first line, cut at a word."""
    line = text.strip().split("\n", 1)[0]
    if len(line) <= characters:
        return line
    return line[:characters].rsplit(" ", 1)[0] + " …"
