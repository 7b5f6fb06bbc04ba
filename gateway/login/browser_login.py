"""The login in a browser: consent, the way to a provider and back, and a person's own logins.

The consent page stands before the provider, because the gateway is one client there for all of its
own: without it, a link would give a stranger's program a code in silence (MCP, security best
practices: confused deputy). The answer of a provider counts in the browser that left alone.
"""

import logging
import secrets
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

import msgspec
from msgspec import Struct
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from config.access import USERS_PROVIDER
from gateway.console.sessions import is_csrf_token
from gateway.login import texts
from gateway.login.authorization_endpoint import (
    AuthorizationRequest,
    PageProblem,
    RedirectProblem,
    read_request,
)
from gateway.login.browser_sessions import LoggedInPerson, Visit, is_same_origin
from gateway.login.clients import LoginClient, is_unverifiable
from gateway.login.form_pages import NO_STORE, FormPages
from gateway.login.login_errors import LoginError
from gateway.login.login_parts import LoginParts
from gateway.login.login_records import Decision, LoginAct
from gateway.login.password_logins import PasswordForm, UserLogins
from gateway.login.passwords import PasswordRefused
from gateway.login.provider_tokens import wanted_of_provider
from gateway.login.providers import LoginSecrets, Provider, ProviderAway, ProviderRefused
from gateway.login.redirects import is_loopback, target_of
from registry.login.logins_and_grants import Consent
from registry.login.password_users import User
from registry.login.people import Person

log = logging.getLogger("toolgate.login")

NOTHING: Mapping[str, str] = {}
ATTEMPT_S = 600.0  # for a person to log in at a provider


class PendingLogin(Struct, frozen=True):
    """A browser at a provider, and what it wanted: a grant, or a page of this gateway."""

    provider: str
    request: AuthorizationRequest | None = None
    next: str = ""
    used: bool = False  # the browser has come back before


class BrowserLogin(FormPages):
    def __init__(self, parts: LoginParts, users: UserLogins | None = None) -> None:
        """`users`: those of the gateway's own."""
        super().__init__(parts.accounts, parts.issuer)
        self._parts = parts
        self._users = users

    async def authorize(self, request: Request) -> Response:
        """`/authorize`: GET shows what is authorization, POST grants or denies it."""
        try:
            client, authorization = await read_request(
                request.url.query, self._parts.clients, self._parts.resources, self._public_url
            )
        except PageProblem as problem:
            return self._problem(request, 400, problem.text, problem.advice, client=problem.client)
        except RedirectProblem as problem:
            return RedirectResponse(problem.url, 303, NO_STORE)
        visit = await self._accounts.visit(request)
        if request.method == "POST":
            return await self._decide(request, visit, client, authorization)
        if authorization.prompt == "none" or await self._is_silent(
            request, visit, client, authorization
        ):
            return await self._without_page(request, visit, client, authorization)
        return self._consent(request, visit, client, authorization)

    async def callback(self, request: Request) -> Response:
        """A provider sends a browser back."""
        visit = await self._accounts.visit(request)
        query = dict(request.query_params)
        stored_attempt = None
        if visit.browser and query.get("state"):
            stored_attempt = await self._parts.logins.take_attempt(query["state"], visit.browser)
        attempt = None if stored_attempt is None else msgspec.convert(stored_attempt, PendingLogin)
        provider = self._parts.providers.get(request.path_params["provider"])
        if attempt is None or provider is None or attempt.provider != provider.name:
            return self._problem(request, 400, texts.NOT_HERE, texts.BEGIN_AGAIN)
        again = self._way_back(attempt)
        if attempt.used:  # sent twice, or once more because a node did not answer
            return RedirectResponse(again, 303, NO_STORE)
        try:
            login_secrets = LoginSecrets.derive(visit.browser, query["state"])
            person, refresh = await provider.person(login_secrets, query)
        except ProviderRefused as error:
            self._parts.record(
                LoginAct("login", provider.name, "deny", address=address_of(request))
            )
            return self._problem(
                request, 403, texts.PROVIDER_REFUSED, "", detail=str(error), again=again
            )
        except ProviderAway as error:
            return self._problem(
                request, 502, texts.PROVIDER_WRONG, texts.ASK, detail=str(error), again=again
            )
        return await self._log_in(
            request, person, refresh, authorization=attempt.request, below=attempt.next
        )

    async def choose(self, request: Request) -> Response:
        """`/login`: log in for the pages of this gateway, or again, `for` a source."""
        visit = await self._accounts.visit(request)
        form = await self._form(request) if request.method == "POST" else {}
        below = _local(form.get("next", request.query_params.get("next", "")))
        source, claims = (request.query_params.get(name, "") for name in ("for", "claims"))
        if request.method == "GET":
            if visit.account is not None and not source:
                return RedirectResponse(f"{self._prefix}{below}", 303, NO_STORE)
            return self._chooser(request, visit, below)
        if not is_same_origin(request.headers, self._public_url):
            return self._problem(request, 403, texts.FOREIGN_FORM, "")
        if not is_csrf_token(visit.browser, form.get("_csrf", "")):
            return self._chooser(request, visit, below, notice=texts.AGAIN)
        if form.get("choice") == "password" and self._users is not None:
            try:
                return await self._by_password(request, form, below=below)
            except PasswordRefused as refused:
                return self._chooser(request, visit, below, refusal=refused)
        provider = self._parts.providers.get(form.get("choice", "").removeprefix("at:"))
        if provider is None:
            return self._chooser(request, visit, below)
        attempt = PendingLogin(provider.name, None, below)
        more = wanted_of_provider(self._parts.settings, source, provider, claims)
        return await self._leave_for(request, visit, provider, attempt, more=more)

    async def own(self, request: Request) -> Response:
        """`/login/sessions`: a person's logins, each of which they can end."""
        visit = await self._accounts.visit(request)
        if visit.account is None:
            query = urlencode({"next": "/login/sessions"})
            return RedirectResponse(f"{self._prefix}/login?{query}", 303, NO_STORE)
        person = visit.account.person
        if request.method == "POST":
            form = await self._form(request)
            if not self._is_ours(request, visit, form):
                return self._problem(request, 403, texts.FOREIGN_FORM, "")
            if await self._parts.logins.end(person.tenant, form.get("end", ""), person.principal):
                await self._parts.revoke_at_once()
                self._note(request, person, "end", form["end"])
            return RedirectResponse(f"{self._prefix}/login/sessions", 303, NO_STORE)
        rows = await self._parts.logins.all(person.tenant, person.principal)
        return self._page(
            request,
            visit,
            "sessions.html",
            account=visit.account,
            rows=rows,
            users=self._users is not None and person.provider == USERS_PROVIDER,
        )

    async def out(self, request: Request) -> Response:
        """`/login/out`: end this browser's login."""
        visit = await self._accounts.visit(request)
        if not self._is_ours(request, visit, await self._form(request)):
            return self._problem(request, 403, texts.FOREIGN_FORM, "")
        response = RedirectResponse(f"{self._prefix}/login", 303, NO_STORE)
        await self._accounts.leave(request, response)
        return response

    async def _decide(
        self,
        request: Request,
        visit: Visit,
        client: LoginClient,
        authorization: AuthorizationRequest,
    ) -> Response:
        """A form of the consent page."""
        form = await self._form(request)
        if not is_same_origin(request.headers, self._public_url):
            return self._problem(request, 403, texts.FOREIGN_FORM, texts.BEGIN_AGAIN)
        if not visit.browser and form.get("again"):
            return self._problem(request, 400, texts.NEVER_COOKIE, texts.ALLOW_COOKIES)
        if not authorization.is_token(visit.browser, form.get("_csrf", "")):
            notice = texts.AGAIN if visit.browser else texts.NO_COOKIE
            return self._consent(request, visit, client, authorization, notice=notice)
        choice = form.get("choice", "")
        if choice == "deny":
            parameters = {"error": "access_denied", "error_description": "the person denied it"}
            return RedirectResponse(
                authorization.answer(self._public_url, **parameters), 303, NO_STORE
            )
        provider = self._parts.providers.get(choice.removeprefix("at:"))
        if provider is not None and choice.startswith("at:"):
            attempt = PendingLogin(provider.name, authorization)
            another = "select_account" if visit.account is not None else ""
            prompt = authorization.other_account or another
            return await self._leave_for(request, visit, provider, attempt, prompt=prompt)
        if choice == "password" and self._users is not None:
            try:
                return await self._by_password(request, form, authorization=authorization)
            except PasswordRefused as refused:
                return self._consent(request, visit, client, authorization, refusal=refused)
        if choice == "allow" and visit.account is not None:
            return await self._grant(request, visit.account, client, authorization)
        return self._consent(request, visit, client, authorization, notice=texts.AGAIN)

    async def _by_password(
        self,
        request: Request,
        form: Mapping[str, str],
        *,
        authorization: AuthorizationRequest | None = None,
        below: str = "",
    ) -> Response:
        """Log a user of the gateway's own in. Raises PasswordRefused."""
        if self._users is None:
            raise LookupError("there are no users")
        try:
            user = await self._users.log_in(password_form(form), address_of(request))
        except PasswordRefused as refused:
            self._note_refusal(request, "login", refused)
            raise
        return await self._log_in(
            request, user.person, "", authorization=authorization, below=below, user=user
        )

    async def _log_in(
        self,
        request: Request,
        person: Person,
        refresh: str,
        *,
        authorization: AuthorizationRequest | None,
        below: str,
        user: User | None = None,
    ) -> Response:
        """Log a person in, and go on to what they wanted."""
        response = RedirectResponse(f"{self._prefix}{_local(below)}", 303, NO_STORE)
        account = await self._accounts.begin(response, person, refresh, user)
        self._note(request, person, "login", person.provider, allowed=account is not None)
        if account is None:
            return self._problem(request, 403, texts.ACCOUNT_DISABLED, texts.ASK)
        if authorization is None:
            return response
        client = await self._parts.clients.find(authorization.client_id)
        if client is None or client.redirect(authorization.redirect) is None:  # as it now is
            return self._problem(request, 400, texts.NOT_HERE, texts.BEGIN_AGAIN)
        answer = await self._grant(request, account, client, authorization)
        answer.headers.raw.extend(
            header for header in response.headers.raw if header[0] == b"set-cookie"
        )
        return answer

    async def _is_silent(
        self,
        request: Request,
        visit: Visit,
        client: LoginClient,
        authorization: AuthorizationRequest,
    ) -> bool:
        """Whether a grant needs no page: the person has allowed the same before, came here on
        their own, and the client is one that not just any program can be."""
        own_way = request.headers.get("sec-fetch-site") in ("none", "same-origin")
        if visit.account is None or authorization.prompt or not own_way:
            return False
        if is_unverifiable(client, authorization.redirect):
            return False
        person = visit.account.person
        scopes = self._parts.scopes.grant(authorization.scopes, self._parts.scopes.of(person.roles))
        return await self._parts.logins.has_consent(_consent(person, client, authorization, scopes))

    async def _without_page(
        self,
        request: Request,
        visit: Visit,
        client: LoginClient,
        authorization: AuthorizationRequest,
    ) -> Response:
        """A grant, or the reason why it needs a page (OpenID Connect Core 1.0, 3.1.2.6)."""
        again = msgspec.structs.replace(authorization, prompt="")
        if visit.account is not None and await self._is_silent(request, visit, client, again):
            return await self._grant(request, visit.account, client, authorization)
        code = "login_required" if visit.account is None else "consent_required"
        parameters = {"error": code, "error_description": "it needs a page"}
        return RedirectResponse(authorization.answer(self._public_url, **parameters), 303, NO_STORE)

    async def _grant(
        self,
        request: Request,
        account: LoggedInPerson,
        client: LoginClient,
        authorization: AuthorizationRequest,
    ) -> Response:
        """Send the browser back to the client with a code."""
        person, logins = account.person, self._parts.logins
        scopes = self._parts.scopes.grant(authorization.scopes, self._parts.scopes.of(person.roles))
        if not is_unverifiable(client, authorization.redirect):  # whose people are asked each time
            await logins.add_consent(_consent(person, client, authorization, scopes))
        code = await logins.add_grant(account.login, authorization.grant(client, scopes))
        if code is None:  # the login ended a moment ago
            return self._problem(request, 400, texts.NOT_HERE, texts.BEGIN_AGAIN)
        self._note(request, person, "grant", client.id)
        return RedirectResponse(authorization.answer(self._public_url, code=code), 303, NO_STORE)

    async def _leave_for(
        self,
        request: Request,
        visit: Visit,
        provider: Provider,
        attempt: PendingLogin,
        *,
        prompt: str = "",
        more: Mapping[str, str] = NOTHING,
    ) -> Response:
        """Send the browser to a provider, with `more` parameters."""
        state = secrets.token_urlsafe(32)
        try:
            login_secrets = LoginSecrets.derive(visit.browser, state)
            url = await provider.url(login_secrets, state, prompt, more)
        except ProviderAway as error:
            again = self._way_back(attempt)
            return self._problem(
                request, 502, texts.PROVIDER_AWAY, texts.ASK, detail=str(error), again=again
            )
        members = msgspec.to_builtins(attempt)
        await self._parts.logins.add_attempt(state, visit.browser, members, ATTEMPT_S)
        return RedirectResponse(url, 303, NO_STORE)

    def _note(
        self, request: Request, person: Person, act: str, subject: str, *, allowed: bool = True
    ) -> None:
        decision: Decision = "allow" if allowed else "deny"
        self._parts.record(LoginAct.of(person, act, subject, decision, address=address_of(request)))

    def _note_refusal(self, request: Request, act: str, refusal: PasswordRefused) -> None:
        """Record a wrong password or code, wherever it was sent to."""
        user = f"{USERS_PROVIDER}:{refusal.name}" if refusal.name else ""
        self._parts.record(
            LoginAct(act, USERS_PROVIDER, "deny", "", user, address=address_of(request))
        )

    def _consent(
        self,
        request: Request,
        visit: Visit,
        client: LoginClient,
        authorization: AuthorizationRequest,
        *,
        notice: str = "",
        refusal: PasswordRefused | None = None,
    ) -> Response:
        account, possible = visit.account, frozenset(self._parts.scopes.possible)
        if authorization.other_account:
            account = None
        has = possible if account is None else self._parts.scopes.of(account.person.roles)
        return self._page(
            request,
            visit,
            "consent.html",
            client=client,
            account=account,
            providers=[*self._parts.providers.values()],
            resource=authorization.resource,
            scopes=self._parts.scopes.grant(authorization.scopes, has),
            target=target_of(authorization.redirect),
            loopback=is_loopback(authorization.redirect) and client.kind != "configured",
            notice=notice,
            again=bool(notice),
            token=authorization.token,
            **self._passwords(refusal),
        )

    def _passwords(self, refusal: PasswordRefused | None) -> dict[str, Any]:
        """Values of a page that takes a password."""
        return {
            "users": self._users is not None,
            "refused": refusal,
            "status": 200 if refusal is None else refusal.status,
        }

    def _chooser(
        self,
        request: Request,
        visit: Visit,
        below: str,
        *,
        notice: str = "",
        refusal: PasswordRefused | None = None,
    ) -> Response:
        return self._page(
            request,
            visit,
            "choose.html",
            providers=[*self._parts.providers.values()],
            next=below,
            notice=notice,
            **self._passwords(refusal),
        )

    def failure(self, request: Request, error: LoginError) -> Response:
        """The page of an error that has no page of its own: too many requests, no database."""
        text = {413: texts.TOO_LARGE, 429: texts.TOO_MANY, 503: texts.AWAY}.get(error.status)
        query = f"?{request.url.query}" if request.url.query else ""
        again = f"{self._prefix}{request.url.path}{query}"
        response = self._problem(
            request,
            error.status,
            text or error.text,
            texts.TRY_IN if error.retry_s else texts.TRY_LATER,
            again=again if request.method == "GET" else "",
            seconds=error.retry_s,
        )
        response.headers.update(error.headers)
        return response

    def _log_refusal(self, members: Mapping[str, Any]) -> None:
        log.info("login_page_refused", extra=members)

    def _way_back(self, attempt: PendingLogin) -> str:
        """Where an attempt begins again."""
        authorization = attempt.request
        if authorization is None:
            return f"{self._prefix}/login?{urlencode({'next': attempt.next})}"
        query = {
            "response_type": "code",
            "client_id": authorization.client_id,
            "redirect_uri": authorization.redirect,
            "code_challenge": authorization.challenge,
            "code_challenge_method": "S256",
            "resource": authorization.resource,
            **({"scope": " ".join(authorization.scopes)} if authorization.scopes else {}),
            **({"state": authorization.state} if authorization.state is not None else {}),
            **({"prompt": authorization.prompt} if authorization.prompt else {}),
        }
        return f"{self._prefix}/authorize?{urlencode(query)}"


def password_form(form: Mapping[str, str]) -> PasswordForm:
    return msgspec.convert(dict(form), PasswordForm)


def _consent(
    person: Person,
    client: LoginClient,
    authorization: AuthorizationRequest,
    scopes: tuple[str, ...],
) -> Consent:
    target = target_of(authorization.redirect)
    return Consent(
        person.tenant, person.principal, client.id, target, authorization.resource, scopes
    )


def _local(below: str) -> str:
    """The path of a page of this gateway; that of the own logins for any other address."""
    safe = below.startswith("/") and below.isprintable() and "\\" not in below
    return below if safe and not below.startswith("//") else "/login/sessions"


def address_of(request: Request) -> str:
    return request.client.host if request.client else ""
