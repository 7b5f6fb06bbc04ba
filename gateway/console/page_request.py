"""One request to the console: its visitor, its language, its form, and how a page is rendered."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode

import msgspec
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response

from gateway.console.navigation import Place, navigation
from gateway.console.rendering import environment
from gateway.console.sessions import csrf_token
from gateway.console.texts import Texts
from gateway.console.visitor_operations import ConsoleOperations, ConsoleParts, OperationAnswer
from gateway.context import Identity
from gateway.operations.problems import lacks_scope

FIELDS = 2000  # of a posted form


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
