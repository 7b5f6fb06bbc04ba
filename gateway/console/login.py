"""Logins of the console: by an API key, or without one where everybody is let in."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from weakref import WeakValueDictionary

import anyio
from starlette.responses import RedirectResponse, Response

from gateway.console.oauth import AwayServer, LoginFailed, OAuthLogin, PendingLogin
from gateway.console.operations import ConsoleParts
from gateway.console.page_request import THEMES, PageRequest, segments_of
from gateway.console.routes import PageRoute
from gateway.console.sessions import (
    ConsoleSession,
    ConsoleSessions,
    SignedIds,
    Ticket,
    cookies_of,
    new_id,
)
from gateway.console.texts import LANGUAGES
from gateway.context import KEY_MARK, Context, Identity, Principal, new_request_id
from gateway.operations.operation import ALL
from gateway.operations.problems import ProblemDetails, unavailable
from gateway.operations.stored_callers import caller_of, current_caller, read_caller
from registry.access.keys import ApiKeys
from registry.database.postgres import Pool
from schemas.errors import Forbidden, Unavailable
from schemas.mcp.revisions import V2025_11_25
from schemas.memo import Memo

OPEN_ID = "console"  # principal of visitors where nobody logs in
YEAR_S = 31_536_000
ENDED = 10_000  # ids of sessions that are known to have ended
PENDING_S = 600  # for a person to log in
RENEWALS = 1  # at a time, each of which keeps a connection of the pool while it waits
NOBODY = Identity(Principal("anonymous", ""), refusal=Forbidden("Log in first"))


class LoginMethods:
    """How visitors come in."""

    def __init__(self, parts: ConsoleParts, root: str) -> None:
        self._parts = parts
        self._root = root
        settings = parts.settings()
        self.is_open = settings.auth.mode == "none"
        self._path = settings.admin.path
        wants_oauth = settings.console.client_id and not self.is_open
        self._oauth = OAuthLogin(settings, root, parts.id_token) if wants_oauth else None
        self._ids = SignedIds(settings.tenant.host_id)
        self._ended: Memo[str, bool] = Memo(ENDED)  # ids of sessions that are no more
        # Of the requests of a session one waits for its row, so that they use up no connections,
        # nor do those of many sessions while the authorization server is slow.
        self._renewals: WeakValueDictionary[str, anyio.Lock] = WeakValueDictionary()
        self._renewing = anyio.CapacityLimiter(RENEWALS)
        own, operator = settings.tenant.host_id, settings.admin.operator_role
        self._host_id = own
        admin = Principal(OPEN_ID, own, frozenset({ALL}), roles=frozenset({operator}))
        # Clients are anonymous there; that they are not the visitor lets him decide on their calls.
        self._visitor = Identity(admin), Identity(Principal("anonymous", own))

    @property
    def routes(self) -> Sequence[PageRoute]:
        return (
            PageRoute("/login", self.login, ("GET", "POST"), login=False),
            PageRoute("/login/begin", self.begin, login=False),
            PageRoute("/callback", self.callback, login=False),
            PageRoute("/logout", self.logout, ("POST",), login=False),
            PageRoute("/preferences", self.prefer, ("POST",), login=False),
        )

    async def session_id(self, cookie: str) -> str:
        """The id of the session in a cookie; "" for one that no login of this gateway gave.
        Raises psycopg.OperationalError."""
        if self.is_open or "." not in cookie:
            return ""
        await self._ids.prepare(self._pool())
        session_id = self._ids.read(cookie)
        return "" if self._ended.get(session_id) else session_id

    async def identities(self, session_id: str) -> tuple[Identity | None, Identity | None]:
        """Identity for the console's operations and caller of tools; None without a login.
        `session_id`: "" without a session."""
        if self.is_open:
            return self._visitor
        if not session_id:
            return None, None
        pool = self._pool()
        sessions = self._sessions(pool)
        session = await sessions.find(session_id)
        if session is not None and session.is_due:
            session = await self._renew_session(sessions, session_id)
        if session is None:
            self._ended.put(session_id, True)
            return None, None
        try:
            principal = await current_caller(pool, session.caller.principal)
        except ProblemDetails:  # its credential was revoked
            await sessions.end(session_id)
            return None, None
        identity = Identity(principal, verified=True)
        return identity, identity

    async def _renew_session(
        self, sessions: ConsoleSessions, session_id: str
    ) -> ConsoleSession | None:
        """The session with new tokens, which one of its requests fetches; None: it has ended.
        Raises Unreachable where the authorization server is away, and the session stays."""
        turn = self._renewals.setdefault(session_id, anyio.Lock())
        async with turn, self._turn_of_renewal(), sessions.lock(session_id) as locked:
            if locked is None or not locked.found.is_due:
                return None if locked is None else locked.found
            if self._oauth is None or not locked.found.refresh:
                await locked.end()
                return None
            try:
                tokens = await self._oauth.renew(locked.found.refresh)
            except LoginFailed:
                await locked.end()
                return None
            identity = await self._parts.identify(_bearing(tokens.access_token, self._path))
            is_away = isinstance(identity.refusal, Unavailable)  # no keys to verify the token with
            if is_away:  # the former refresh token may be worth nothing by now
                await locked.keep(session_id, tokens.refresh_token)
            elif identity.refusal is not None or identity.principal.key != (
                locked.found.caller.principal.key
            ):
                await locked.end()
                return None
            else:
                ticket = _ticket(identity, tokens.refresh_token)
                await locked.renew(session_id, ticket)
        if is_away:
            raise AwayServer
        return ConsoleSession(read_caller(ticket.caller), ticket.refresh, is_due=False)

    @asynccontextmanager
    async def _turn_of_renewal(self) -> AsyncIterator[None]:
        """A turn among all sessions. Raises AwayServer where those before take too long."""
        with anyio.move_on_after(self._parts.settings().oauth.metadata_timeout_s) as waiting:
            await self._renewing.acquire_on_behalf_of(turn := object())
        if waiting.cancelled_caught:
            raise AwayServer
        try:
            yield
        finally:
            self._renewing.release_on_behalf_of(turn)

    async def login(self, visit: PageRequest) -> Response:
        if self.is_open or (visit.identity is not None and visit.request.method == "GET"):
            return visit.to()
        if visit.request.method == "GET":
            left = self._oauth is not None and "left" in visit.query
            ended = await self._oauth.end_url() if self._oauth is not None and left else ""
            return self._page(visit, visit.query.get("next", ""), ended=ended)
        key = visit.posted_value("key").strip()
        identity = await self._parts.identify(_bearing(key, self._path))
        if identity.refusal is not None or not key:
            return self._page(visit, visit.posted_value("next"), refused=True)
        return await self._begin(visit, identity, visit.posted_value("next"))

    def _page(
        self, visit: PageRequest, below: str, *, refused: bool = False, ended: str = ""
    ) -> Response:
        """The page to log in. `ended`: where the session at the authorization server ends."""
        status = 401 if refused else 200
        return visit.page(
            "login.html",
            status,
            refused=refused,
            next=below,
            oidc=visit.url("login", "begin", next=below) if self._oauth is not None else "",
            issuer="" if self._oauth is None else self._oauth.issuer,
            ended=ended,
        )

    async def begin(self, visit: PageRequest) -> Response:
        """Send the browser to the authorization server."""
        if self._oauth is None:
            return visit.problem(404)
        try:
            url, pending = await self._oauth.begin(visit.query.get("next", ""))
        except LoginFailed as error:
            return visit.problem(401, str(error))
        response = RedirectResponse(url, 303)
        _set_pending(visit, response, pending.seal())
        return response

    async def callback(self, visit: PageRequest) -> Response:
        """The browser comes back with a code."""
        if self._oauth is None:
            return visit.problem(404)
        try:
            sent = cookies_of(visit.request.headers.get("cookie", ""))
            pending = PendingLogin.unseal(sent.get(visit.cookies.login, ""))
            tokens = await self._oauth.tokens(pending, dict(visit.query))
        except LoginFailed as error:
            return visit.problem(401, str(error))
        identity = await self._parts.identify(_bearing(tokens.access_token, self._path))
        if identity.refusal is not None:
            return visit.problem(401, identity.refusal.message)
        response = await self._begin(visit, identity, pending.below, tokens.refresh_token)
        _set_pending(visit, response, "")
        return response

    async def _begin(
        self, visit: PageRequest, identity: Identity, below: str, refresh: str = ""
    ) -> Response:
        """A new session, with a new id; the one before it ends."""
        pool, principal = self._pool(), identity.principal
        until = None
        if principal.mark.startswith(KEY_MARK):
            key = await ApiKeys(pool, principal.tenant).get(principal.mark.removeprefix(KEY_MARK))
            until = key.expires if key is not None else None
        await self._ids.prepare(pool)
        await self._end(visit.session_id)
        session_id = await self._sessions(pool).begin(_ticket(identity, refresh), until)
        response = visit.to(*segments_of(below))
        set_session(visit, response, self._ids.sign(session_id))
        return response

    async def logout(self, visit: PageRequest) -> Response:
        if not self.is_open:
            await self._end(visit.session_id)
        response = visit.to("login", left="yes")
        set_session(visit, response, new_id())
        return response

    async def _end(self, session_id: str) -> None:
        """End a session, and with it the authority that the authorization server has given."""
        refresh = await self._sessions(self._pool()).end(session_id)
        if refresh and self._oauth is not None:
            await self._oauth.revoke(refresh)

    async def prefer(self, visit: PageRequest) -> Response:
        """Set the language and the theme."""
        response = visit.to(*segments_of(visit.posted_value("next")))
        for name, known in (("language", tuple(LANGUAGES)), ("theme", THEMES)):
            if visit.posted_value(name) in known:
                response.set_cookie(
                    name, visit.posted_value(name), max_age=YEAR_S, path=self._root, samesite="lax"
                )
        return response

    def _sessions(self, pool: Pool) -> ConsoleSessions:
        return ConsoleSessions(pool, self._host_id, self._parts.settings().console)

    def _pool(self) -> Pool:
        """Raises ProblemDetails."""
        pool = self._parts.pool()
        if pool is None:
            raise unavailable("The database does not answer yet.")
        return pool


def set_session(visit: PageRequest, response: Response, session_id: str) -> None:
    response.set_cookie(
        visit.cookies.session,
        session_id,
        path="/",
        httponly=True,
        secure=visit.cookies.session.startswith("__Host-"),
        samesite="lax",
    )


def _set_pending(visit: PageRequest, response: Response, value: str) -> None:
    """The cookie of a login that has begun; "" removes it."""
    response.set_cookie(
        visit.cookies.login,
        value,
        max_age=PENDING_S if value else 0,
        path="/",
        httponly=True,
        secure=visit.cookies.login.startswith("__Host-"),
        samesite="lax",  # the redirect that brings the code back is from another site
    )


def _ticket(identity: Identity, refresh: str) -> Ticket:
    """Session record of a login; it ends with its token, or renews it then."""
    context = Context(replace(identity, scope_token=None), V2025_11_25, new_request_id())
    ends = identity.principal.claims.get("exp")
    return Ticket(caller_of(context), _moment(ends), refresh)


def _moment(seconds: object) -> datetime | None:
    """A time of a token; None for no time, and for one that no session lives to see."""
    if not isinstance(seconds, int | float):
        return None
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError):
        return None


def _bearing(token: str, path: str) -> dict[str, object]:
    """An HTTP request to the admin API with the token."""
    value = f"Bearer {token}".encode("utf-8", "replace")
    return {"type": "http", "path": path, "headers": [(b"authorization", value)]}
