"""People in browsers: sessions after a login, and the cookie that binds a browser to its forms.

The session is that of the console: one login serves both. The other cookie gives no right; it lasts
while forms and providers are under way, and no login changes it, so that two tabs can log in at
once.
"""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from urllib.parse import urlsplit
from uuid import uuid4

import msgspec
from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from config.access import USERS_PROVIDER
from config.settings import Settings
from gateway.console.sessions import (
    ConsoleSessions,
    SignedIds,
    cookies_of,
    is_id,
    new_id,
    session_cookie,
    set_cookie,
)
from gateway.context import Context, Identity, Principal, new_request_id
from gateway.login.scopes import Scopes
from gateway.operations.problems import ProblemDetails
from gateway.operations.stored_callers import caller_of, current_caller
from registry.access.column_encryption import SealedColumn, Vault
from registry.access.secrets import Keys
from registry.database.postgres import Pool, borrow
from registry.login.logins_and_grants import LOGIN_MARK, Logins, add_login
from registry.login.password_users import User, is_unchanged
from registry.login.people import Person, note_login
from schemas.mcp.revisions import V2025_11_25


class LoggedInPerson(Struct, frozen=True):
    """A person who has logged in with a browser."""

    login: str
    person: Person


class Visit(Struct, frozen=True):
    """A browser's request: its cookie for forms ("" where it has sent none), and its account."""

    browser: str
    account: LoggedInPerson | None


class Accounts:
    def __init__(self, settings: Settings, scopes: Scopes, pool: Callable[[], Pool]) -> None:
        self._settings = settings
        self._scopes = scopes
        self._pool = pool
        self._host_id = settings.tenant.host_id
        self._vault = Vault(Keys.of(settings.secrets), self._host_id)
        self._ids = SignedIds(self._host_id)
        self._session_cookie = session_cookie(settings.server.public_url.startswith("https:"))
        self._browser_cookie = f"{self._session_cookie}-browser"

    async def visit(self, request: Request) -> Visit:
        cookies = cookies_of(request.headers.get("cookie", ""))
        browser = cookies.get(self._browser_cookie, "")
        account = await self._account(cookies.get(self._session_cookie, ""))
        return Visit(browser if is_id(browser) else "", account)

    def bind(self, response: Response, browser: str) -> str:
        """Give a browser a cookie for its forms, unless it has one; returns it."""
        if browser:
            return browser
        browser = new_id()
        set_cookie(response, self._browser_cookie, browser)
        return browser

    async def begin(
        self, response: Response, person: Person, refresh: str, user: User | None = None
    ) -> LoggedInPerson | None:
        """Log a person in, with the refresh token of their provider, or as a `user` of the
        gateway's own; None: they may not."""
        login, settings = uuid4(), self._settings.login
        upstream = self.seal(str(login), refresh) if refresh else None
        is_own = person.provider not in settings.providers
        lasts_s = settings.session_s if refresh or is_own else settings.unchecked_s
        pool = self._pool()
        account = LoggedInPerson(str(login), person)
        sessions, caller = self._sessions(pool), self._caller(account)
        await self._ids.prepare(pool)
        await sessions.sweep()
        # one transaction: whoever ends the login meanwhile finds its session, too
        async with borrow(pool) as connection, connection.transaction():
            if user is not None and not await is_unchanged(connection, self._host_id, user):
                return None
            if not await note_login(connection, self._host_id, person):
                return None
            await add_login(
                connection,
                self._host_id,
                login=login,
                tenant=person.tenant,
                principal=person.principal,
                provider=person.provider,
                person=msgspec.to_builtins(person),
                upstream=upstream,
                lasts_s=lasts_s,
            )
            session_id = await sessions.add(connection, caller)
        set_cookie(response, self._session_cookie, self._ids.sign(session_id))
        return account

    async def leave(self, request: Request, response: Response) -> None:
        """End the session of a browser. Programs keep what they have by the login."""
        cookie = cookies_of(request.headers.get("cookie", "")).get(self._session_cookie, "")
        await self._sessions(self._pool()).end(self._ids.read(cookie))
        set_cookie(response, self._session_cookie, new_id())

    def seal(self, login: str, refresh: str) -> bytes:
        """A provider's refresh token as the database has it."""
        return self._vault.seal(refresh.encode(), SealedColumn.PROVIDER_REFRESH_TOKEN, login)

    def unseal(self, login: str, sealed: bytes) -> str:
        """Raises SecretRefused."""
        return self._vault.unseal(sealed, SealedColumn.PROVIDER_REFRESH_TOKEN, login).decode()

    async def _account(self, cookie: str) -> LoggedInPerson | None:
        if "." not in cookie:
            return None
        pool = self._pool()
        await self._ids.prepare(pool)
        session_id = self._ids.read(cookie)
        caller = await self._sessions(pool).find(session_id) if session_id else None
        if caller is None or not caller.principal.mark.startswith(LOGIN_MARK):
            return None  # of an API key: nobody whom a client could act for
        try:
            await current_caller(pool, caller.principal)
        except ProblemDetails:
            return None
        login = caller.principal.mark.removeprefix(LOGIN_MARK)
        person = await Logins(pool, self._host_id).find(login)
        account = None if person is None else LoggedInPerson(login, msgspec.convert(person, Person))
        is_user = account is not None and account.person.provider == USERS_PROVIDER
        return None if is_user and not self._settings.login.users else account

    def _caller(self, account: LoggedInPerson) -> bytes:
        return caller_of(Context(self.identity(account), V2025_11_25, new_request_id()))

    def identity(self, account: LoggedInPerson) -> Identity:
        """The caller that a person is, for a call from a page."""
        login, person = account.login, account.person
        claims = {**person.claims, "sid": login, "iat": int(datetime.now(UTC).timestamp())}
        principal = Principal(
            person.principal,
            person.tenant,
            self._scopes.of(person.roles),
            claims,
            roles=frozenset(person.roles),
            mark=f"{LOGIN_MARK}{login}",
        )
        return Identity(principal, verified=True)

    def _sessions(self, pool: Pool) -> ConsoleSessions:
        return ConsoleSessions(pool, self._host_id, self._settings.console)


def is_same_origin(headers: Mapping[str, str], public_url: str) -> bool:
    """Whether a form comes from a page of this gateway: as the browser says, or, where it does not
    say that, by its Origin."""
    site, origin = headers.get("sec-fetch-site"), headers.get("origin")
    if site is not None and site != "same-origin":
        return False
    if origin is not None:
        return origin_of(origin) == origin_of(public_url)
    return site == "same-origin"


def origin_of(url: str) -> tuple[str, str | None, int | None]:
    """The origin of a URL (RFC 6454, 4): "null" is that of nobody."""
    try:
        parts = urlsplit(url)
        port = parts.port or {"https": 443, "http": 80}.get(parts.scheme)
    except ValueError:
        return "", None, None
    return parts.scheme, parts.hostname, port
