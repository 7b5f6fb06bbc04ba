"""Pages on which people connect their accounts: `/connect`, and links with a ticket in the query,
which no log has.

A link grants nothing. Whoever opens it has to be who made the call: else one person's account would
serve another's calls (MCP, elicitation, phishing). The link ends with success and not with being
opened, since scanners of mail and chat open links.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal
from urllib.parse import urlencode

import msgspec
from msgspec import Struct
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from config.access import RESERVED_ISSUER
from config.settings import Settings
from config.sources import Connect, SchemeSettings
from gateway.connections.connector import PersonalConnector, elicitation_of
from gateway.connections.oauth_accounts import OAuthAccounts, OAuthRefused
from gateway.connections.trial_credentials import trying
from gateway.context import Identify, Identity, new_request_id
from gateway.login import texts
from gateway.login.browser_sessions import Accounts, LoggedInPerson, Visit
from gateway.login.form_pages import NO_STORE, FormPages
from gateway.login.login_records import Decision, LoginAct, RecordLogin
from gateway.operations.operation import allows
from gateway.operations.problems import ProblemDetails
from gateway.operations.request_parsing import headers_of, receive_body
from registry.access.secret_digests import secret_digest
from registry.access.secrets import SecretRefused, check_secret
from registry.connections.accounts import Kind, NewConnection, Owner, Secret, TooManyAccounts
from registry.connections.connect_links import Ticket
from schemas.binding import Credential
from schemas.errors import ToolgateError
from schemas.jsonrpc import Notification, encode
from schemas.source import Source

log = logging.getLogger("toolgate.connections")

ELICITATION_COMPLETE = "notifications/elicitation/complete"
FORM_BYTES = 65_536
HINT = 4  # characters of a key that are shown later
SHORTEST = 12  # characters of a key of which any are shown
ROLE, ROLES = 100, 20  # characters of a role, and roles, with which one account is shared
SHARE = "admin:connections:write"  # the scope that is needed for that, or a role of `sharers`
CACHEABLE = {"cache-control": "public, max-age=3600"}
PROBLEM = "application/problem+json"

CLOSED_LINK_TEXT = "This link is not open any more."
CALL_AGAIN = "Call the tool again: you then get another link."
FOREIGN = "This link belongs to somebody else's call."
NOT_ACCEPTED = "The service did not accept it: copy it once more, as a whole. Its answer:"
OWN_LINK = "Open the link that your own program showed you, logged in as yourself."
NOT_HERE = "This was not begun in this browser, or too long ago."
SERVER_WRONG = "The login of the service cannot be used."
SERVER_REFUSED = "The service has not given access."
EMPTY = "Something is missing: fill in every field."
MULTILINE = "A key is one line of text."


@dataclass(frozen=True, slots=True)
class ServiceFacts:
    """Facts that a person should know of a service before they connect, none of them a text of a
    tool."""

    source: Source
    host: str
    tools: int
    writing: int  # of those, the ones that may change something
    needed: tuple[Credential, ...]  # by most of them


class Field(Struct, frozen=True):
    """A scheme on the page: what a person types, or where they are led."""

    name: str
    scheme: str
    kind: Literal["key", "basic"]


@dataclass(frozen=True, slots=True)
class _Visit:
    """A ticket, and whoever has opened it."""

    visit: Visit
    account: LoggedInPerson
    ticket: Ticket
    facts: ServiceFacts


Check = Callable[[Identity, str], Awaitable[str]]
"""Call a tool for a person: "" or what went wrong."""


class ConnectionPages(FormPages):
    form_kib = 64

    def __init__(
        self,
        connector: PersonalConnector,
        *,
        settings: Callable[[], Settings],
        accounts: Accounts,
        facts: Callable[[str, str], ServiceFacts | None],
        check: Check,
        identify: Identify,
        record: RecordLogin,
        route: Callable[..., Route],
        oauth: OAuthAccounts,
        notify: Callable[[str, bytes], Awaitable[None]],
    ) -> None:
        """`facts`: of a source, by tenant and place; `identify`: the caller of a request with a
        credential; `route`: a guarded route of the login; `notify`: send a message to a session by
        its id."""
        super().__init__(accounts, settings().server.public_url.rstrip("/"))
        self._connector = connector
        self._settings = settings
        self._facts = facts
        self._check = check
        self._identify = identify
        self._record = record
        self._route = route
        self._oauth = oauth
        self._notify = notify

    @property
    def routes(self) -> list[BaseRoute]:
        return [
            self._route("/connect", self.connect, "GET", "POST"),
            self._route("/connect/{source:path}/callback", self.callback, "GET"),
            self._route("/oauth/client.json", self.document, "GET"),
            self._route("/oauth/public-client.json", self.public_document, "GET"),
        ]

    async def document(self, _request: Request) -> Response:
        """The gateway as a client of others (CIMD), which signs its authentication."""
        return Response(self._oauth.document("private_key_jwt"), 200, CACHEABLE, "application/json")

    async def public_document(self, _request: Request) -> Response:
        """The same for servers that know no signatures."""
        return Response(self._oauth.document("none"), 200, CACHEABLE, "application/json")

    async def own(self, request: Request) -> Response:
        """`/connect`: a person's connections, each of which they can end, and what they can
        connect."""
        visit = await self._accounts.visit(request)
        if visit.account is None:
            return self._log_in("/connect")
        person = visit.account.person
        if request.method == "POST":
            form = await self._form(request)
            if not self._is_ours(request, visit, form):
                return self._problem(request, 403, texts.FOREIGN_FORM, "")
            return await self._change(visit.account, form)
        rows = await self._connector.connections.all(person.tenant, person.principal)
        connected = {row.source for row in rows}
        sources = self._settings().sources
        facts = (
            self._facts(person.tenant, place)
            for place, adjusted in sources.items()
            if place not in connected and self._may_connect(visit.account, adjusted.connect)
        )
        offered = [each for each in facts if each is not None]
        return self._page(
            request,
            visit,
            "connections.html",
            account=visit.account,
            rows=rows,
            offered=offered,
            title=self._title,
            absent={name for name, each in sources.items() if each.connect.absent == "allow"},
            sharable={
                name
                for name, each in sources.items()
                if self._may_share(visit.account, each.connect)
            },
        )

    async def _change(self, account: LoggedInPerson, form: Mapping[str, str]) -> Response:
        """End a connection, allow or forbid its use in absence, share it, or begin one."""
        person = account.person
        connections = self._connector.connections
        if ended := form.get("end"):
            await self.disconnect(person.tenant, ended, person.principal)
        elif changed := form.get("away"):
            allowed = form.get("allowed") == "yes"
            if await connections.set_away(person.tenant, person.principal, changed, allowed):
                act = "away" if allowed else "home"
                self._record(LoginAct(act, changed, "allow", person.tenant, person.principal))
        elif shared := form.get("share"):
            await self._share(account, shared, form.get("roles", "").split(","))
        elif place := form.get("connect"):
            facts = self._facts(person.tenant, place)
            connect = self._connector.connect_of(place)
            if facts is not None and self._may_connect(account, connect):
                owner = Owner(person.tenant, person.principal, place)
                link = await self._connector.offer(owner, facts.needed)
                return RedirectResponse(link, 303, NO_STORE)
        return RedirectResponse(f"{self._prefix}/connect", 303, NO_STORE)

    async def _share(self, account: LoggedInPerson, id_: str, role_names: Sequence[str]) -> None:
        """Share a person's account with roles, if they may; or, without roles, with nobody."""
        person, connections = account.person, self._connector.connections
        words = {role.strip() for role in role_names}
        roles = sorted(each for each in words if each.isprintable() and 0 < len(each) <= ROLE)[
            :ROLES
        ]
        row = await connections.find(person.tenant, id_)
        if row is None or row.principal != person.principal:
            return
        is_allowed = not roles or self._may_share(account, self._connector.connect_of(row.source))
        if is_allowed:
            await connections.share(person.tenant, row, roles)
            await self._connector.load_now()
        act, subject = "share" if roles else "unshare", f"{row.source}/{row.id}"
        decision: Decision = "allow" if is_allowed else "deny"
        self._record(LoginAct(act, subject, decision, person.tenant, person.principal))

    def _may_share(self, account: LoggedInPerson, connect: Connect) -> bool:
        """Whether a person may share their account at a source."""
        principal = self._accounts.identity(account).principal
        has_right = allows(principal, SHARE) or not principal.roles.isdisjoint(connect.sharers)
        return connect.is_shared and has_right

    def _may_connect(self, account: LoggedInPerson, connect: Connect) -> bool:
        """Whether a person may connect an account, which serves nobody unless it is shared where
        all are."""
        is_own = connect.has_page and connect.mode != "shared"
        return is_own or self._may_share(account, connect)

    async def disconnect(self, tenant: str, id_: str, principal: str | None = None) -> bool:
        """End a connection, and revoke it at its server as far as that is possible."""
        row = await self._connector.disconnect(tenant, id_, principal)
        if row is not None:
            subject = f"{row.source}/{row.id}"
            act = LoginAct("disconnect", subject, "allow", tenant, row.principal)
            self._record(act)
        return row is not None

    async def connect(self, request: Request) -> Response:
        """`/connect?ticket=`: what a person is asked for, and their answer."""
        text = request.query_params.get("ticket", "")
        if not text:
            return await self.own(request)
        if request.headers.get("authorization"):
            return await self._answer_program(request, text)
        visit = await self._accounts.visit(request)
        if visit.account is None:
            return self._log_in(f"/connect?{urlencode({'ticket': text})}")
        opened = await self._open(request, visit, visit.account, text)
        if isinstance(opened, Response):
            return opened
        if request.method == "GET":
            return self._ask(request, opened)
        form = await self._form(request)
        if not self._is_ours(request, visit, form):
            return self._problem(request, 403, texts.FOREIGN_FORM, CALL_AGAIN)
        if form.get("choice") == "deny":
            return RedirectResponse(f"{self._prefix}/connect", 303, NO_STORE)
        away = form.get("away") == "yes"
        if form.get("choice") == "authorize":
            return await self._lead_away(request, opened, secret_digest(text), away=away)
        entries = _entries_of(credentials_of(opened.ticket), form)
        if isinstance(entries, str):
            return self._ask(request, opened, notice=entries)
        identity = self._accounts.identity(opened.account)
        wrong = await self._store(opened.ticket, identity, entries, away=away)
        if wrong:
            return self._ask(request, opened, notice=wrong)
        await self._use_up(secret_digest(text))
        return self._success_page(request, opened)

    async def callback(self, request: Request) -> Response:
        """`/connect/SOURCE/callback`: the answer of an authorization server."""
        visit = await self._accounts.visit(request)
        query = dict(request.query_params)
        state = query.get("state", "")
        if visit.account is None or not visit.browser:
            return self._problem(request, 400, NOT_HERE, CALL_AGAIN)
        tickets = self._connector.tickets
        attempt = await tickets.take_attempt(state, visit.browser)
        ticket = None if attempt is None else await tickets.find_by_digest(attempt[0])
        if attempt is None or ticket is None or ticket.source != request.path_params["source"]:
            return self._problem(request, 400, NOT_HERE, CALL_AGAIN)
        opened = self._check_ticket(request, visit, visit.account, ticket)
        if isinstance(opened, Response):
            return opened
        act = LoginAct("connect", ticket.source, "allow", ticket.tenant, ticket.principal)
        try:
            pending = self._oauth.unseal(state, attempt[1])
            for new in await self._oauth.redeem(opened.facts.source, pending, query):
                await self._put(ticket, new)
        except (OAuthRefused, SecretRefused, TooManyAccounts) as error:
            self._record(replace(act, decision="deny"))
            return self._failure(request, SERVER_REFUSED, CALL_AGAIN, error)
        await self._connector.load_now()
        await self._use_up(attempt[0])
        return self._success_page(request, opened)

    async def _lead_away(
        self, request: Request, visit: _Visit, digest: bytes, *, away: bool
    ) -> Response:
        """Send a browser to the service's authorization server."""
        ticket, source = visit.ticket, visit.facts.source
        connections = self._connector.connections
        former = await connections.of(ticket.owner)
        pinned = await connections.pinned_server(source.place)
        try:
            url, state, pending = await self._oauth.begin(
                source,
                credentials_of(ticket),
                former,
                pinned=pinned,
                login=ticket.login,
                away=away,
            )
            sealed = self._oauth.seal(state, pending)
        except (OAuthRefused, SecretRefused) as error:
            return self._failure(request, SERVER_WRONG, texts.ASK, error)
        await self._connector.tickets.add_attempt(
            state,
            visit.visit.browser,
            ticket=digest,
            sealed=sealed,
            lasts_s=self._settings().connections.attempt_s,
        )
        return RedirectResponse(url, 303, NO_STORE)

    async def _answer_program(self, request: Request, text: str) -> Response:
        """The answer to a program, whose errors are problems as those of the admin API (RFC
        9457)."""
        try:
            return await self._connect_by_program(request, text)
        except ProblemDetails as problem:
            body = problem.encode(new_request_id())
            return Response(body, problem.status, problem.headers, PROBLEM)

    async def _connect_by_program(self, request: Request, text: str) -> Response:
        """A program that sends what its caller connects, with a credential of this gateway: callers
        with an API key have no browser. The body is {"schemes": {NAME: entry}, "away": false}, an
        entry as in `sources.NAME.credentials`."""
        identity = await self._identify(request.scope)
        if identity.refusal is not None:
            raise identity.refusal
        ticket = await self._connector.tickets.find(text)
        principal = identity.principal
        if ticket is None:
            raise ProblemDetails(404, "not-found", f"{CLOSED_LINK_TEXT} {CALL_AGAIN}")
        if (ticket.tenant, ticket.principal) != principal.key or not identity.verified:
            raise ProblemDetails(403, "forbidden", FOREIGN)
        # people decide themselves, in a browser
        if not principal.id.startswith(f"{RESERVED_ISSUER}:"):
            raise ProblemDetails(403, "forbidden", OWN_LINK)
        credentials = credentials_of(ticket)
        if request.method == "GET":
            schemes = [{"name": each.scheme, "kind": each.kind} for each in credentials]
            return JSONResponse({"source": ticket.source, "schemes": schemes})
        body = await receive_body(request.receive, headers_of(request.scope), FORM_BYTES, "64 KiB")
        try:
            posted = msgspec.json.decode(body, type=_Sent)
        except msgspec.MsgspecError as error:
            raise ProblemDetails(400, "invalid", f"the body: {error}") from error
        if posted.schemes.keys() != {each.scheme for each in credentials}:
            names = ", ".join(each.scheme for each in credentials)
            raise ProblemDetails(422, "invalid", f"schemes: expected {names}")
        wrong = await self._store(ticket, identity, posted.schemes, away=posted.away)
        if wrong:
            raise ProblemDetails(422, "invalid", wrong)
        await self._use_up(secret_digest(text))
        return JSONResponse({"source": ticket.source, "state": "ok"})

    async def _open(
        self, request: Request, visit: Visit, account: LoggedInPerson, text: str
    ) -> _Visit | Response:
        ticket = await self._connector.tickets.find(text)
        if ticket is None:
            return self._problem(request, 404, CLOSED_LINK_TEXT, CALL_AGAIN)
        return self._check_ticket(request, visit, account, ticket)

    def _check_ticket(
        self, request: Request, visit: Visit, account: LoggedInPerson, ticket: Ticket
    ) -> _Visit | Response:
        """The visit of a person to whom a link belongs; a page for anybody else."""
        person = account.person
        if (ticket.tenant, ticket.principal) != (person.tenant, person.principal):
            return self._problem(request, 403, FOREIGN, OWN_LINK)
        facts = self._facts(person.tenant, ticket.source)
        connect = self._connector.connect_of(ticket.source)
        if facts is None or not self._may_connect(account, connect):
            return self._problem(request, 404, CLOSED_LINK_TEXT, CALL_AGAIN)
        return _Visit(visit, account, ticket, facts)

    async def _use_up(self, digest: bytes) -> None:
        """End a link, and tell the sessions that were asked to open it (MCP 2025-11-25)."""
        done = Notification(ELICITATION_COMPLETE, {"elicitationId": elicitation_of(digest)})
        for session in await self._connector.tickets.use_up(digest):
            await self._notify(session, encode(done))

    async def _store(
        self,
        ticket: Ticket,
        identity: Identity,
        entries: Mapping[str, SchemeSettings],
        *,
        away: bool,
    ) -> str:
        """Store what a person gives, after a tool could be called with it, where the settings name
        one; returns what is wrong."""
        connect, owner = self._connector.connect_of(ticket.source), ticket.owner
        act = LoginAct("connect", ticket.source, "allow", ticket.tenant, ticket.principal)
        kinds: dict[str, Kind] = {each.scheme: _kind_of(each) for each in credentials_of(ticket)}
        try:
            for scheme, entry in entries.items():
                check_secret(ticket.source, scheme, entry)
                if entry.client_id or entry.token_url:
                    return "expected value, token, or username and password"
            if connect.check:
                with trying(owner, entries):
                    wrong = await self._check(identity, connect.check)
                if wrong:
                    self._record(replace(act, decision="deny"))
                    return f"{NOT_ACCEPTED}\n{wrong}"
            for scheme, entry in entries.items():
                new = NewConnection(
                    scheme, kinds[scheme], Secret(entry), hint=_hint(entry), away=away
                )
                await self._put(ticket, new)
        except (SecretRefused, TooManyAccounts) as error:
            return str(error)
        await self._connector.load_now()
        return ""

    async def _put(self, ticket: Ticket, new: NewConnection) -> None:
        """Store a connection. Raises SecretRefused and TooManyAccounts."""
        limit = self._settings().connections.per_person
        id_ = await self._connector.connections.put(ticket.owner, new, limit)
        subject = f"{ticket.source}/{id_}"
        self._record(LoginAct("connect", subject, "allow", ticket.tenant, ticket.principal))

    def _ask(self, request: Request, visit: _Visit, *, notice: str = "") -> Response:
        ticket, facts = visit.ticket, visit.facts
        connect = self._connector.connect_of(ticket.source)
        credentials = credentials_of(ticket)
        oauth = self._oauth.host_of(facts.source, credentials)
        return self._page(
            request,
            visit.visit,
            "connect.html",
            status=422 if notice else 200,
            account=visit.account,
            title=self._title(ticket.source),
            facts=facts,
            reason=ticket.reason,
            fields=[] if oauth else _fields(credentials),
            oauth=oauth,
            scopes=sorted({scope for each in credentials for scope in each.scopes}),
            help=connect.help,
            absent=connect.absent == "allow",
            is_shared=connect.is_shared,
            notice=notice,
        )

    def _success_page(self, request: Request, visit: _Visit) -> Response:
        return self._page(
            request, visit.visit, "connected.html", title=self._title(visit.ticket.source)
        )

    def _title(self, place: str) -> str:
        return self._connector.connect_of(place).title or place

    def _log_refusal(self, members: Mapping[str, Any]) -> None:
        log.info("connection_page_refused", extra=members)

    def _failure(self, request: Request, text: str, advice: str, error: ToolgateError) -> Response:
        """The page of a failure, whose reason may name addresses that are for the log alone."""
        match error:
            case OAuthRefused():
                detail = error.reason
            case TooManyAccounts():
                detail = str(error)
            case _:
                detail = ""
        log.warning("connection_failed", extra={"reason": str(error)})
        return self._problem(request, 502, text, advice, detail=detail)

    def _log_in(self, below: str) -> Response:
        query = urlencode({"next": below})
        return RedirectResponse(f"{self._prefix}/login?{query}", 303, NO_STORE)


class _Sent(Struct, frozen=True, forbid_unknown_fields=True):
    schemes: dict[str, SchemeSettings]
    away: bool = False


def credentials_of(ticket: Ticket) -> Sequence[Credential]:
    return msgspec.convert(ticket.wanted, tuple[Credential, ...])


def _fields(credentials: Sequence[Credential]) -> list[Field]:
    return [
        Field(f"scheme-{i}", each.scheme, "basic" if each.kind == "basic" else "key")
        for i, each in enumerate(credentials)
    ]


def _entries_of(
    credentials: Sequence[Credential], form: Mapping[str, str]
) -> dict[str, SchemeSettings] | str:
    """Entries that a person has typed, by scheme; a text where that cannot be used."""
    entries: dict[str, SchemeSettings] = {}
    for field, credential in zip(_fields(credentials), credentials, strict=True):
        text = form.get(field.name, "").strip()
        user = form.get(f"{field.name}-user", "").strip()
        if not text or (field.kind == "basic" and not user):
            return EMPTY
        if not text.isprintable() or not user.isprintable():
            return MULTILINE
        if field.kind == "basic":
            entries[credential.scheme] = SchemeSettings(username=user, password=text)
        elif credential.kind in ("apiKey", "http"):
            entries[credential.scheme] = SchemeSettings(value=text)
        else:
            entries[credential.scheme] = SchemeSettings(token=text.removeprefix("Bearer ").strip())
    return entries


def _kind_of(credential: Credential) -> Kind:
    match credential.kind:
        case "basic":
            return "basic"
        case "apiKey":
            return "api_key"
        case _:
            return "bearer"


def _hint(entry: SchemeSettings) -> str:
    """The end of a key, or the name of a user, by which its owner knows it again."""
    if entry.username:
        return entry.username[:40]
    text = entry.value or entry.token or ""
    return text[-HINT:] if len(text) >= SHORTEST else ""
