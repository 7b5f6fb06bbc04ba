"""The endpoints of the login: metadata, authorization, tokens, registration, revocation, pages.

`/authorize`, `/token` and `/register` are at the root, where clients of MCP 2025-03-26 guess them.
Browsers of any origin may ask all but the pages: nothing that they are answered depends on a
cookie. Whoever asks is counted by address before a body is read.
"""

from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from config.settings import Settings
from gateway.console.assets import asset_response
from gateway.guards.protected_resource import METADATA_AGE_S
from gateway.login import pages
from gateway.login.access_tokens import LoginKeys
from gateway.login.authorization_endpoint import read_parameters, repeated_name
from gateway.login.browser_login import address_of
from gateway.login.browser_sessions import Accounts
from gateway.login.clients import METHODS, LoginClients, read_metadata
from gateway.login.login_errors import OPEN, LoginError, as_json
from gateway.login.login_parts import LoginParts
from gateway.login.login_records import LoginAct, RecordLogin
from gateway.login.password_logins import UserLogins
from gateway.login.providers import Provider
from gateway.login.scopes import Resources, Scopes
from gateway.login.token_endpoint import JWT_BEARER, TokenIssuer
from gateway.login.user_pages import UserPages
from gateway.operations.problems import ProblemDetails
from gateway.operations.request_parsing import headers_of, receive_body
from gateway.state.rate_windows import LocalRates, network_of
from registry.access.column_encryption import Vault
from registry.access.secrets import Keys
from registry.database.postgres import AWAY, Pool, unavailability
from registry.login.password_users import Users
from schemas.errors import Fault
from schemas.retry_after import whole_seconds

ID_JAG_PROFILE = "urn:ietf:params:oauth:grant-profile:id-jag"
FORM_BYTES = 65_536
FIELDS = 100
Endpoint = Callable[[Request], Awaitable[Response]]


class LoginServer:
    def __init__(
        self,
        settings: Settings,
        *,
        keys: LoginKeys,
        endpoints: Callable[[], Collection[str]],
        pool: Callable[[], Pool | None],
        record: RecordLogin,
        reload: Callable[[str], Awaitable[None]],
    ) -> None:
        """`endpoints`: the paths that tokens are made for, as they are now; `reload`: of access,
        after tokens were revoked."""
        self._settings = settings
        self._keys = keys
        self._opened = pool
        self._reload = reload
        self._rates = LocalRates()
        self.issuer = settings.server.public_url.rstrip("/")
        scopes = Scopes(settings)
        self.parts = LoginParts(
            settings=settings,
            issuer=self.issuer,
            clients=LoginClients(settings, self._pool),
            resources=Resources(self.issuer, endpoints),
            scopes=scopes,
            accounts=Accounts(settings, scopes, self._pool),
            providers={
                name: Provider(name, entry, settings)
                for name, entry in settings.login.providers.items()
            },
            pool=self._pool,
            record=record,
            revoke_at_once=self.revoke_at_once,
        )
        self._tokens = TokenIssuer(self.parts, keys)
        self._browser = UserPages(self.parts, self._users(settings))

    def _users(self, settings: Settings) -> UserLogins | None:
        if not settings.login.users:
            return None
        host_id = settings.tenant.host_id
        vault = Vault(Keys.of(settings.secrets), host_id)
        return UserLogins(settings.login, lambda: Users(self._pool(), host_id), vault=vault)

    @property
    def routes(self) -> list[BaseRoute]:
        browser = self._browser
        return [
            self.page_route("/authorize", browser.authorize, "GET", "POST"),
            self._json_route("/token", self._token, "POST", "OPTIONS"),
            self._json_route("/register", self._register, "POST", "OPTIONS"),
            self._json_route("/revoke", self._revoke, "POST", "OPTIONS"),
            self._json_route("/.well-known/jwks.json", self._jwks, "GET", "OPTIONS"),
            self.page_route("/login", browser.choose, "GET", "POST"),
            self.page_route("/login/callback/{provider}", browser.callback, "GET"),
            self.page_route("/login/sessions", browser.own, "GET", "POST"),
            self.page_route("/login/out", browser.out, "POST"),
            *(self._pages_of_users if self._settings.login.users else ()),
            Route(pages.STATIC + "{name}", _static),
        ]

    @property
    def _pages_of_users(self) -> list[BaseRoute]:
        browser = self._browser
        return [
            self.page_route("/login/invitation", browser.invitation, "GET", "POST"),
            self.page_route("/login/password", browser.password, "GET", "POST"),
            self.page_route("/login/totp", browser.totp, "GET", "POST"),
        ]

    async def metadata(self) -> bytes:
        """The metadata of the authorization server (RFC 8414, and its relatives)."""
        login, marked = self._settings.login, self._tokens.takes_assertions
        grants = ["authorization_code", "refresh_token"]
        if any("client_credentials" in client.grants for client in login.clients.values()):
            grants.append("client_credentials")
        document: dict[str, Any] = {
            "issuer": self.issuer,
            "authorization_endpoint": f"{self.issuer}/authorize",
            "token_endpoint": f"{self.issuer}/token",
            "revocation_endpoint": f"{self.issuer}/revoke",
            "jwks_uri": f"{self.issuer}/.well-known/jwks.json",
            "scopes_supported": self.parts.scopes.possible,
            "response_types_supported": ["code"],
            "response_modes_supported": ["query"],
            "grant_types_supported": [*grants, *([JWT_BEARER] if marked else [])],
            "token_endpoint_auth_methods_supported": [*METHODS],
            "token_endpoint_auth_signing_alg_values_supported": [*self._settings.auth.algorithms],
            "revocation_endpoint_auth_methods_supported": [*METHODS],
            "code_challenge_methods_supported": ["S256"],
            "authorization_response_iss_parameter_supported": True,
            "client_id_metadata_document_supported": login.registration != "closed",
            "protected_resources": [],
        }
        if login.registration == "open":
            document["registration_endpoint"] = f"{self.issuer}/register"
        if marked:
            document["authorization_grant_profiles_supported"] = [ID_JAG_PROFILE]
        return msgspec.json.encode({k: v for k, v in document.items() if v != []})

    def page_route(self, path: str, endpoint: Endpoint, *methods: str) -> Route:
        """A page, whose errors are pages."""

        async def answer(request: Request) -> Response:
            try:
                return await self._answer(request, endpoint)
            except LoginError as error:
                return self._browser.failure(request, error)

        return Route(path, answer, methods=[*methods])

    def _json_route(self, path: str, endpoint: Endpoint, *methods: str) -> Route:
        """An endpoint of programs, whose errors are JSON (OAuth 2.1, 3.2.4)."""

        async def answer(request: Request) -> Response:
            if request.method == "OPTIONS":
                return Response(status_code=204, headers=OPEN)
            try:
                return await self._answer(request, endpoint)
            except LoginError as error:
                return error.response()

        return Route(path, answer, methods=[*methods])

    async def _answer(self, request: Request, endpoint: Endpoint) -> Response:
        """Raises LoginError for each failure that is foreseen."""
        try:
            self._count(request)
            return await endpoint(request)
        except ProblemDetails as error:
            raise LoginError(error.status, "invalid_request", error.detail) from error
        except Fault as fault:
            raise LoginError(
                fault.failed_status(503), "temporarily_unavailable", fault.message
            ) from fault
        except AWAY as error:
            text = f"{unavailability(error)}; try again later"
            raise LoginError(503, "temporarily_unavailable", text) from error

    async def _token(self, request: Request) -> Response:
        form, resources = await self._form(request)
        client = await self.parts.clients.authenticate(
            form, request.headers.get("authorization", ""), self._audiences
        )
        answer = await self._tokens.exchange(client, form, resources, address_of(request))
        await self.parts.clients.note_use(client)
        return as_json(answer)

    async def _revoke(self, request: Request) -> Response:
        form, _ = await self._form(request)
        client = await self.parts.clients.authenticate(
            form, request.headers.get("authorization", ""), self._audiences
        )
        await self._tokens.revoke(client, form.get("token", ""))
        return as_json({})

    async def _register(self, request: Request) -> Response:
        body = await self._body(request)
        try:
            _, metadata = read_metadata(body)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise LoginError(400, "invalid_client_metadata", f"the body: {error}") from error
        network = network_of(address_of(request))
        answer = await self.parts.clients.register(metadata, network)
        self.parts.record(LoginAct("register", answer["client_id"], "allow"))
        return as_json(answer, 201)

    async def _jwks(self, _request: Request) -> Response:
        headers = {"cache-control": f"public, max-age={METADATA_AGE_S}", **OPEN}
        return Response(await self._keys.jwks(), 200, headers, "application/json")

    async def _form(self, request: Request) -> tuple[Mapping[str, str], list[str]]:
        """The fields of a form, and its resources. Raises LoginError."""
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/x-www-form-urlencoded":
            text = "expected a body of the type application/x-www-form-urlencoded"
            raise LoginError(400, "invalid_request", text)
        body = await self._body(request)
        try:
            values = read_parameters(body.decode("ascii"), FIELDS)
        except ValueError as error:
            raise LoginError(400, "invalid_request", "the form cannot be read") from error
        if name := repeated_name(values):
            raise LoginError(400, "invalid_request", f"{name[:50]} is sent more than once")
        return {name: texts[0] for name, texts in values.items()}, values.get("resource", [])

    async def _body(self, request: Request) -> bytes:
        return await receive_body(
            request.receive, headers_of(request.scope), FORM_BYTES, "64 KiB of a request"
        )

    def _count(self, request: Request) -> None:
        """Raises LoginError where an address asks too often."""
        login = self._settings.login
        if not login.requests:
            return
        network = network_of(address_of(request))
        wait_s = self._rates.take(("", network), login.requests, login.per_s)
        if wait_s:
            after_s = whole_seconds(wait_s)
            text = f"too many requests: try again in {after_s} s (login.requests)"
            raise LoginError(429, "temporarily_unavailable", text, retry_s=after_s)

    @property
    def _audiences(self) -> tuple[str, ...]:
        return self.issuer, f"{self.issuer}/", f"{self.issuer}/token"

    async def revoke_at_once(self) -> None:
        await self._reload("revocations")

    def _pool(self) -> Pool:
        """Raises LoginError."""
        pool = self._opened()
        if pool is None:
            text = "The database does not answer yet; try again later"
            raise LoginError(503, "temporarily_unavailable", text)
        return pool


async def _static(request: Request) -> Response:
    return asset_response(request.path_params["name"])
