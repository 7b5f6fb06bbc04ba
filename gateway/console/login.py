"""Logins of the console: by an API key, by the login of the gateway (`login`), or without one where
everybody is let in."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from urllib.parse import urlencode, urlsplit

from starlette.responses import Response

from gateway.console.page_request import PageRequest, segments_of
from gateway.console.rendering import THEMES
from gateway.console.routes import PageRoute
from gateway.console.sessions import ConsoleSessions, SignedIds, new_id, set_cookie
from gateway.console.texts import LANGUAGES
from gateway.console.visitor_operations import ConsoleParts
from gateway.context import KEY_MARK, Context, Identity, Principal, new_request_id
from gateway.operations.operation import ALL
from gateway.operations.problems import ProblemDetails, unavailable
from gateway.operations.stored_callers import caller_of, current_caller
from registry.access.api_keys import ApiKeys
from registry.database.postgres import Pool
from schemas.errors import Forbidden, Unavailable
from schemas.mcp.revisions import V2025_11_25
from schemas.memo import Memo

OPEN_ID = "console"  # principal of visitors where nobody logs in
YEAR_S = 31_536_000
ENDED_SESSIONS = 10_000  # ids of sessions that are known to have ended
NOBODY = Identity(Principal("anonymous", ""), refusal=Forbidden("Log in first"))


class LoginMethods:
    """How visitors come in."""

    def __init__(self, parts: ConsoleParts, root: str) -> None:
        self._parts = parts
        self._root = root
        settings = parts.settings()
        self.is_open = settings.auth.mode == "none"
        self._path = settings.admin.path
        prefix = urlsplit(settings.server.public_url).path.rstrip("/")
        self._login = f"{prefix}/login" if settings.login.enabled else ""
        self._ids = SignedIds(settings.tenant.host_id)
        self._ended: Memo[str, bool] = Memo(ENDED_SESSIONS)  # ids of sessions that are no more
        gateway_tenant, operator = settings.tenant.host_id, settings.admin.operator_role
        self._host_id = gateway_tenant
        admin = Principal(OPEN_ID, gateway_tenant, frozenset({ALL}), roles=frozenset({operator}))
        # Clients are anonymous there; that they are not the visitor lets him decide on their calls.
        self._visitor = Identity(admin), Identity(Principal("anonymous", gateway_tenant))

    @property
    def routes(self) -> Sequence[PageRoute]:
        return (
            PageRoute("/login", self.login, ("GET", "POST"), login=False),
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
        caller = await sessions.find(session_id)
        if caller is None:
            self._ended.put(session_id, True)
            return None, None
        try:
            principal = await current_caller(pool, caller.principal)
        except ProblemDetails:  # its credential was revoked
            await sessions.end(session_id)
            return None, None
        identity = Identity(principal, verified=True)
        return identity, identity

    async def is_logged_in(self, session_id: str) -> bool:
        """Whether the session of a visitor lasts. Raises psycopg.OperationalError."""
        identity, _ = await self.identities(session_id)
        return identity is not None

    async def login(self, visit: PageRequest) -> Response:
        if self.is_open or (visit.identity is not None and visit.request.method == "GET"):
            return visit.to()
        if visit.request.method == "GET":
            return self._page(visit, visit.query.get("next", ""))
        key = visit.posted_value("key").strip()
        identity = await self._parts.identify(_bearing(key, self._path))
        if isinstance(identity.refusal, Unavailable):
            return visit.problem(503, identity.refusal.message)
        if identity.refusal is not None or not key:
            return self._page(visit, visit.posted_value("next"), refused=True)
        return await self._begin(visit, identity, visit.posted_value("next"))

    def _page(self, visit: PageRequest, below: str, *, refused: bool = False) -> Response:
        """The page to log in."""
        query = urlencode({"next": visit.url(*segments_of(below))})
        return visit.page(
            "login.html",
            401 if refused else 200,
            refused=refused,
            next=below,
            login=f"{self._login}?{query}" if self._login else "",
        )

    async def _begin(self, visit: PageRequest, identity: Identity, below: str) -> Response:
        """A new session, with a new id; the one before it ends."""
        pool, principal = self._pool(), identity.principal
        until = _moment(principal.claims.get("exp"))
        if principal.mark.startswith(KEY_MARK):
            key = await ApiKeys(pool, principal.tenant).get(principal.mark.removeprefix(KEY_MARK))
            until = key.expires if key is not None else None
        await self._ids.prepare(pool)
        sessions = self._sessions(pool)
        await sessions.end(visit.session_id)
        context = Context(replace(identity, scope_token=None), V2025_11_25, new_request_id())
        session_id = await sessions.begin(caller_of(context), until)
        response = visit.to(*segments_of(below))
        set_cookie(response, visit.cookie, self._ids.sign(session_id))
        return response

    async def logout(self, visit: PageRequest) -> Response:
        if not self.is_open:
            await self._sessions(self._pool()).end(visit.session_id)
        response = visit.to("login")
        set_cookie(response, visit.cookie, new_id())
        return response

    async def prefer(self, visit: PageRequest) -> Response:
        """Set the language and the theme."""
        response = visit.to(*segments_of(visit.posted_value("next")))
        for name, values in (("language", tuple(LANGUAGES)), ("theme", THEMES)):
            if visit.posted_value(name) in values:
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
