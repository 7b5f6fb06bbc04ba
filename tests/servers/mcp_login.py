"""The MCP server with its own login of the example, where the person agrees at once."""

from mcp.server.auth.provider import AuthorizationParams
from mcp.server.auth.settings import AuthSettings, ClientRegistrationOptions, RevocationOptions
from mcp.server.mcpserver import MCPServer
from mcp.shared.auth import OAuthClientInformationFull
from starlette.applications import Starlette

from examples.connections.tracker import Accounts as LoginAccounts

SCOPE = "pets"


class Accounts(LoginAccounts):
    async def authorize(
        self, client: OAuthClientInformationFull, params: AuthorizationParams
    ) -> str:
        return self.answer("ann", client.client_id or "", params)


def build_app(url: str) -> tuple[Accounts, Starlette]:
    """The server, which is to be served at `url`."""
    accounts = Accounts(url, SCOPE)
    auth = AuthSettings(
        issuer_url=url,
        resource_server_url=f"{url}/mcp",
        validate_token_resource=True,
        required_scopes=[SCOPE],
        client_registration_options=ClientRegistrationOptions(
            enabled=True, valid_scopes=[SCOPE], default_scopes=[SCOPE]
        ),
        revocation_options=RevocationOptions(enabled=True),
    )
    server = MCPServer("pets", auth_server_provider=accounts, auth=auth)

    @server.tool()
    def feed(name: str) -> str:
        return f"fed {name}"

    return accounts, server.streamable_http_app()
