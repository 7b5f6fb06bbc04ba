"""Pages of the gateway's own users: an invitation, and a new password."""

from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from config.access import USERS_PROVIDER
from gateway.login import texts, totp
from gateway.login.browser_login import BrowserLogin, address_of, password_form
from gateway.login.browser_sessions import Visit, is_same_origin
from gateway.login.form_pages import NO_STORE
from gateway.login.password_logins import PasswordForm, UserLogins
from gateway.login.passwords import PasswordRefused


class UserPages(BrowserLogin):
    """The login in a browser, with these pages beside it."""

    async def invitation(self, request: Request) -> Response:
        """`/login/invitation?ticket=`: GET changes nothing, since programs open links before people
        do; POST sets the password, once. The ticket is in the query, which is never logged."""
        users, ticket = self.users, request.query_params.get("ticket", "")
        visit = await self._accounts.visit(request)
        form = await self._form(request) if request.method == "POST" else {}
        if request.method == "POST" and not is_same_origin(request.headers, self._public_url):
            return self._problem(request, 403, texts.FOREIGN_FORM, "")
        try:
            user = await users.find_invited(ticket)
            if not self._is_ours(request, visit, form):
                again = PasswordRefused(texts.AGAIN, 200) if request.method == "POST" else None
                return self._new_password(request, visit, user.name, again)
            user = await users.accept(ticket, password_form(form))
        except PasswordRefused as refused:
            if refused.status == 404:
                return self._problem(request, 404, refused.text, texts.NEW_INVITATION)
            return self._new_password(request, visit, user.name, refused)
        self._note(request, user.person, "password", "invitation")
        await self._parts.revoke_at_once()
        return RedirectResponse(f"{self._prefix}/login", 303, NO_STORE)

    async def password(self, request: Request) -> Response:
        """`/login/password`: change one's password. All logins end, but for a new one of this
        browser."""
        visit = await self._accounts.visit(request)
        account = visit.account
        if account is None or account.person.provider != USERS_PROVIDER:
            return RedirectResponse(f"{self._prefix}/login?next=/login/password", 303, NO_STORE)
        name = account.person.name
        if request.method == "GET":
            return self._new_password(request, visit, name, asks_old=True)
        form = await self._form(request)
        if not self._is_ours(request, visit, form):
            return self._problem(request, 403, texts.FOREIGN_FORM, "")
        try:
            user = await self.users.change(name, password_form(form), address_of(request))
        except PasswordRefused as refused:
            self._note_refusal(request, "password", refused)
            return self._new_password(request, visit, name, refused, asks_old=True)
        self._note(request, user.person, "password", "changed")
        response = RedirectResponse(f"{self._prefix}/login/sessions", 303, NO_STORE)
        await self._accounts.begin(response, user.person, "", user)
        await self._parts.revoke_at_once()
        return response

    async def totp(self, request: Request) -> Response:
        """`/login/totp`: set one-time codes up, with the password. It needs no login, since a user
        who is to have codes cannot log in without."""
        visit = await self._accounts.visit(request)
        if request.method == "GET":
            account = visit.account
            is_user = account is not None and account.person.provider == USERS_PROVIDER
            name = account.person.name if account is not None and is_user else ""
            return self._totp_page(request, visit, PasswordForm(name, secret=totp.new_secret()))
        fields = await self._form(request)
        form = password_form(fields)
        if not totp.is_secret(form.secret):
            form = replace(form, secret=totp.new_secret())
        if not self._is_ours(request, visit, fields):
            return self._problem(request, 403, texts.FOREIGN_FORM, "")
        try:
            user, codes = await self.users.set_up_codes(form, address_of(request))
        except PasswordRefused as refused:
            self._note_refusal(request, "totp", refused)
            return self._totp_page(request, visit, form, refused)
        self._note(request, user.person, "totp", "set up")
        await self._parts.revoke_at_once()
        return self._page(request, visit, "recovery.html", codes=codes)

    def _totp_page(
        self,
        request: Request,
        visit: Visit,
        form: PasswordForm,
        refusal: PasswordRefused | None = None,
    ) -> Response:
        return self._page(
            request,
            visit,
            "totp.html",
            name=form.name,
            secret=form.secret,
            uri=totp.provisioning_uri(form.secret, form.name or "user", self._public_url),
            refused=refusal,
            status=200 if refusal is None else refusal.status,
        )

    def _new_password(
        self,
        request: Request,
        visit: Visit,
        name: str,
        refusal: PasswordRefused | None = None,
        *,
        asks_old: bool = False,
    ) -> Response:
        return self._page(
            request,
            visit,
            "new_password.html",
            name=name,
            least=self.users.least,
            asks_old=asks_old,
            refused=refusal,
            status=200 if refusal is None else refusal.status,
        )

    @property
    def users(self) -> UserLogins:
        if self._users is None:
            raise LookupError("there are no users")
        return self._users
