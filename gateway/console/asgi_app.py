"""The console as an ASGI application: who visits, security of responses, routes.

Pages of other origins may link to the console, and no more, even where the gateway's CORS knows
them. A request that changes something needs the token of its session's forms, and a browser has to
say that it comes from a page of the console. GET changes nothing.
"""

import logging
from dataclasses import replace
from functools import partial
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import compile_path
from starlette.types import Receive, Scope, Send

from gateway.console.assets import asset_response
from gateway.console.login import NOBODY, LoginMethods
from gateway.console.page_request import PageRequest, read_form
from gateway.console.pages import ROUTES
from gateway.console.rendering import THEMES
from gateway.console.routes import PageRoute
from gateway.console.sessions import (
    cookies_of,
    is_csrf_token,
    is_id,
    new_id,
    session_cookie,
    set_cookie,
)
from gateway.console.texts import Texts, language_of
from gateway.console.visitor_operations import ConsoleOperations, ConsoleParts
from gateway.context import Identity
from gateway.operations.problems import ProblemDetails
from gateway.operations.request_parsing import headers_of, receive_body
from registry.database.postgres import AWAY, unavailability
from schemas.errors import Fault

log = logging.getLogger("toolgate.console")

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
SECURITY = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}
FORM_BYTES = 4 << 20  # of a form, whose text may be three times what it says


class Console:
    def __init__(self, parts: ConsoleParts, root: str) -> None:
        """`root` is the path of the console."""
        self._parts = parts
        self.figures = parts.figures
        self._root = root
        self._doors = LoginMethods(parts, root)
        self._routes = [
            (route, compile_path(route.path)[0]) for route in (*self._doors.routes, *ROUTES)
        ]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # The answer to HEAD is that to GET, without its body.
        get_scope = {**scope, "method": "GET"} if scope["method"] == "HEAD" else scope
        request = Request(get_scope, receive)
        try:
            response = await self._respond(request)
        except (ProblemDetails, Fault) as error:
            response = (
                PlainTextResponse(error.detail, error.status)
                if isinstance(error, ProblemDetails)
                else PlainTextResponse(error.message, error.failed_status())
            )
        except AWAY as error:
            response = PlainTextResponse(f"{unavailability(error)}; try again later.", 503)
        except Exception:
            log.exception("unexpected_error", extra={"path": scope["path"][:100]})
            response = PlainTextResponse("Internal error; the gateway's log has the story.", 500)
        for name, value in SECURITY.items():
            response.headers.setdefault(name, value)
        await response(scope, receive, send)

    async def _respond(self, request: Request) -> Response:
        if _is_foreign(request):
            raise ProblemDetails(403, "foreign-page", "Pages of other origins cannot read this.")
        path = request.url.path.removeprefix(self._root) or "/"
        if path.startswith("/static/"):
            return asset_response(path.removeprefix("/static/"))
        match = self._route(path)
        if match is None or request.method not in match[0].methods:
            visit = await self._visit(request)
            status = 404 if match is None else 405
            return visit.problem(status)
        route, names = match
        request.scope["path_params"] = names
        visit = await self._visit(request)
        if request.method == "POST":
            visit = await self._with_form(visit)
        if route.login and visit.identity is None:
            return self._to_login(visit)
        response = await route.page(visit)
        return self._with_cookie(visit, response)

    def _route(self, path: str) -> tuple[PageRoute, dict[str, str]] | None:
        path = path.rstrip("/") or "/"
        for route, pattern in self._routes:
            if match := pattern.match(path):
                return route, match.groupdict()
        return None

    async def _visit(self, request: Request) -> PageRequest:
        """Raises TooManyRequests, and psycopg.OperationalError."""
        header = request.headers
        cookies = cookies_of(header.get("cookie", ""))
        name = session_cookie(self._is_secure(request))
        cookie = cookies.get(name, "")
        client = request.client.host if request.client else ""
        session_id = await self._doors.session_id(cookie)
        if not session_id and not self._doors.is_open:
            self._count(NOBODY, client)  # before anything is looked up
        identity, caller = await self._doors.identities(session_id)
        if session_id or identity is not None:
            self._count(identity or NOBODY, client)
        lasting = session_id if identity is not None else ""
        kept_id = lasting or (cookie if is_id(cookie) else "")
        language = language_of(cookies.get("language", ""), header.get("accept-language", ""))
        theme = cookies.get("theme", "auto")
        return PageRequest(
            request=request,
            parts=self._parts,
            root=self._root,
            texts=Texts(language),
            theme=theme if theme in THEMES else "auto",
            session_id=kept_id or new_id(),
            has_cookie=bool(kept_id),
            is_open=self._doors.is_open,
            identity=identity,
            operations=ConsoleOperations(
                self._parts, identity or NOBODY, caller=caller or NOBODY, client=client
            ),
            cookie=name,
            is_logged_in=partial(self._doors.is_logged_in, session_id),
        )

    async def _with_form(self, visit: PageRequest) -> PageRequest:
        """The visit with its form. Raises ProblemDetails for one from elsewhere."""
        request, limit_bytes, limit = visit.request, FORM_BYTES, "4 MiB of a form"
        if visit.identity is None and not visit.is_open:  # all that a stranger sends is a key
            limits = self._parts.settings().limits
            limit_bytes, limit = (
                limits.unauthenticated_body_bytes,
                "limits.unauthenticated_body_bytes",
            )
        body = await receive_body(request.receive, headers_of(request.scope), limit_bytes, limit)
        try:
            form = read_form(body)
        except ValueError as error:
            raise ProblemDetails(400, "bad-request", "The form cannot be read.") from error
        token = (form.pop("_csrf", None) or [request.headers.get("x-csrf-token", "")])[-1]
        if not _is_same_origin(request) or not is_csrf_token(visit.session_id, token):
            text = "This form is not from this console, or too old: open the page again."
            raise ProblemDetails(403, "csrf", text)
        return replace(visit, form=form)

    def _to_login(self, visit: PageRequest) -> Response:
        if visit.request.headers.get("hx-request"):  # a part of a page: the whole one has to go
            return Response(status_code=401, headers={"HX-Redirect": visit.url("login")})
        path = visit.request.url.path if visit.request.method == "GET" else ""
        return self._with_cookie(visit, visit.to("login", next=path.removeprefix(self._root)))

    def _with_cookie(self, visit: PageRequest, response: Response) -> Response:
        """Gives a cookie to who has none that is good, so that forms have a token."""
        sets_cookie = any(
            visit.cookie in header for header in response.headers.getlist("set-cookie")
        )
        if not visit.has_cookie and not sets_cookie:
            set_cookie(response, visit.cookie, visit.session_id)
        return response

    def _count(self, identity: Identity, client: str) -> None:
        """Raises TooManyRequests."""
        self._parts.api.rates.count(identity, client)

    def _is_secure(self, request: Request) -> bool:
        public = self._parts.settings().server.public_url
        return request.url.scheme == "https" or public.startswith("https:")


def _is_foreign(request: Request) -> bool:
    """Whether a page of another origin asks, other than by sending its visitor here."""
    site = request.headers.get("sec-fetch-site")
    if site is None:
        return "origin" in request.headers and not _is_same_origin(request)
    is_link = request.method == "GET" and request.headers.get("sec-fetch-mode") == "navigate"
    return site not in {"same-origin", "none"} and not is_link


def _is_same_origin(request: Request) -> bool:
    """Whether the request comes from a page of this host: as the browser says, or, where it does
    not say that, by its Origin."""
    site = request.headers.get("sec-fetch-site")
    if site is not None:
        return site == "same-origin"
    origin = request.headers.get("origin")
    return origin is not None and urlsplit(origin).netloc == request.headers.get("host")
