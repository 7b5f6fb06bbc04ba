"""An MCP server of the official SDK with a login of its own, at which programs register."""

import secrets
import time

from mcp.server.auth.middleware.auth_context import get_access_token
from mcp.server.auth.provider import (
    AccessToken,
    AuthorizationCode,
    AuthorizationParams,
    RefreshToken,
    construct_redirect_uri,
)
from mcp.server.auth.settings import AuthSettings, ClientRegistrationOptions
from mcp.server.mcpserver import MCPServer
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken
from starlette.applications import Starlette
from starlette.responses import RedirectResponse, Response

from examples.login.provider import LoginPage

SCOPE = "tasks"
LIFETIME_S = 600
# Lists the tools for an operator, who is nobody there.
OPERATOR_KEY = "tracker-key-of-the-operator"


class Accounts(LoginPage):
    """Implements `OAuthAuthorizationServerProvider`, in memory."""

    def __init__(self, url: str, scope: str = SCOPE) -> None:
        super().__init__(url, "The tracker")
        self.clients: dict[str, OAuthClientInformationFull] = {}
        self.codes: dict[str, AuthorizationCode] = {}
        self.access: dict[str, AccessToken] = {}
        self.refresh: dict[str, RefreshToken] = {}
        self._scope = scope
        self._asked: dict[str, tuple[str, AuthorizationParams]] = {}  # ticket -> client, request

    async def get_client(self, client_id: str) -> OAuthClientInformationFull | None:
        return self.clients.get(client_id)

    async def register_client(self, client_info: OAuthClientInformationFull) -> None:
        self.clients[client_info.client_id or ""] = client_info

    async def authorize(
        self, client: OAuthClientInformationFull, params: AuthorizationParams
    ) -> str:
        """The page of the login, for one request."""
        ticket = secrets.token_urlsafe(16)
        self._asked[ticket] = (client.client_id or "", params)
        return f"{self.url}/login?ticket={ticket}"

    def lead_back(self, name: str, query: dict[str, str]) -> Response:
        if (asked := self._asked.pop(query.get("ticket", ""), None)) is None:
            return Response("This page has been used.", 400)
        return RedirectResponse(self.answer(name, *asked), 303)

    def answer(self, name: str, client_id: str, params: AuthorizationParams) -> str:
        """Where the browser goes with a code for the account of `name`."""
        code = AuthorizationCode(
            code=secrets.token_urlsafe(24),
            scopes=params.scopes or [self._scope],
            expires_at=time.time() + 60,
            client_id=client_id,
            code_challenge=params.code_challenge,
            redirect_uri=params.redirect_uri,
            redirect_uri_provided_explicitly=params.redirect_uri_provided_explicitly,
            resource=params.resource,
            subject=name,
        )
        self.codes[code.code] = code
        return construct_redirect_uri(
            str(params.redirect_uri), code=code.code, state=params.state, iss=self.url
        )

    async def load_authorization_code(
        self, _client: OAuthClientInformationFull, authorization_code: str
    ) -> AuthorizationCode | None:
        return self.codes.get(authorization_code)

    async def exchange_authorization_code(
        self, _client: OAuthClientInformationFull, authorization_code: AuthorizationCode
    ) -> OAuthToken:
        del self.codes[authorization_code.code]
        return self._issue(authorization_code, authorization_code.scopes)

    async def load_refresh_token(
        self, client: OAuthClientInformationFull, refresh_token: str
    ) -> RefreshToken | None:
        token = self.refresh.get(refresh_token)
        return token if token and token.client_id == client.client_id else None

    async def exchange_refresh_token(
        self, _client: OAuthClientInformationFull, refresh_token: RefreshToken, scopes: list[str]
    ) -> OAuthToken:
        del self.refresh[refresh_token.token]
        return self._issue(refresh_token, scopes)

    async def load_access_token(self, token: str) -> AccessToken | None:
        return self.access.get(token)

    async def revoke_token(self, token: AccessToken | RefreshToken) -> None:
        self.access.pop(token.token, None)
        self.refresh.pop(token.token, None)

    def _issue(self, grant: AuthorizationCode | RefreshToken, scopes: list[str]) -> OAuthToken:
        access, refresh = (secrets.token_urlsafe(24) for _ in range(2))
        about = {name: getattr(grant, name) for name in ("client_id", "resource", "subject")}
        about["scopes"] = scopes
        ends = int(time.time()) + LIFETIME_S
        self.access[access] = AccessToken(token=access, expires_at=ends, **about)
        self.refresh[refresh] = RefreshToken(token=refresh, **about)
        return OAuthToken(
            access_token=access,
            expires_in=LIFETIME_S,
            refresh_token=refresh,
            scope=" ".join(scopes),
        )


def build_app(url: str) -> Starlette:
    """The server, which is to be served at `url`."""
    accounts, resource = Accounts(url), f"{url}/mcp"
    accounts.access[OPERATOR_KEY] = AccessToken(
        token=OPERATOR_KEY, client_id="operator", scopes=[SCOPE], resource=resource
    )
    auth = AuthSettings(
        issuer_url=url,
        resource_server_url=resource,
        validate_token_resource=True,
        required_scopes=[SCOPE],
        client_registration_options=ClientRegistrationOptions(
            enabled=True, valid_scopes=[SCOPE], default_scopes=[SCOPE]
        ),
    )
    server = MCPServer("tracker", auth_server_provider=accounts, auth=auth, log_level="WARNING")
    server.custom_route("/login", methods=["GET", "POST"])(accounts.log_in)

    @server.tool()
    def my_tasks() -> str:
        """List the tasks of the person."""
        token = get_access_token()
        return f"{token.subject if token else 'nobody'}: water the plants"

    return server.streamable_http_app()
