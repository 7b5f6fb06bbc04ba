"""Clients that people use, as their logins begin: what they register, and where they lead back to.

Written down from their documents, sources and bug reports. Of a redirect URI on loopback the port
is any: these programs listen at another one each time.
"""

from typing import Any

from msgspec import Struct

GRANTS = ("authorization_code", "refresh_token")


class KnownClient(Struct, frozen=True, kw_only=True):
    name: str  # on the page of consent
    redirects: tuple[str, ...]  # that it registers
    redirect: str  # that it asks for
    document: str = ""  # URL of the document about itself, if it has one
    method: str = "none"  # of its authentication at the token endpoint
    needs_none: bool = False  # whether it has a document for servers of public clients alone
    scope: str = ""  # of its registration

    @property
    def registration(self) -> dict[str, Any]:
        """The body of its registration (RFC 7591, 2)."""
        return {
            "client_name": self.name,
            "redirect_uris": [*self.redirects],
            "grant_types": [*GRANTS],
            "response_types": ["code"],
            "token_endpoint_auth_method": self.method,
            **({"scope": self.scope} if self.scope else {}),
        }


_CLAUDE = ("https://claude.ai/api/mcp/auth_callback", "https://claude.com/api/mcp/auth_callback")
_CHATGPT = "https://chatgpt.com/connector_platform_oauth_redirect"
_CURSOR = "cursor://anysphere.cursor-mcp/oauth/callback"
_N8N = "https://oauth.n8n.cloud/oauth2/callback"

CLIENTS = {
    "claude": KnownClient(
        name="Claude",
        document="https://claude.ai/oauth/mcp-oauth-client-metadata",
        redirects=_CLAUDE,
        redirect=_CLAUDE[0],
    ),
    "claude-code": KnownClient(
        name="Claude Code",
        document="https://claude.ai/oauth/claude-code-client-metadata",
        redirects=("http://localhost/callback", "http://127.0.0.1/callback"),
        redirect="http://localhost:54213/callback",
    ),
    "chatgpt": KnownClient(
        name="ChatGPT", redirects=(_CHATGPT,), redirect=_CHATGPT, method="client_secret_post"
    ),
    "codex": KnownClient(
        name="Codex",
        document="https://chatgpt.com/oauth/codex/client.json",
        redirects=("http://127.0.0.1/callback", "http://localhost/callback"),
        redirect="http://127.0.0.1:40123/callback",
    ),
    "vscode": KnownClient(
        name="Visual Studio Code",
        document="https://vscode.dev/oauth/client-metadata.json",
        redirects=(
            "https://insiders.vscode.dev/redirect",
            "https://vscode.dev/redirect",
            "http://127.0.0.1/",
            "http://127.0.0.1:33418/",
        ),
        redirect="http://127.0.0.1:33418/",
    ),
    "opencode": KnownClient(
        name="OpenCode",
        document="https://opencode.ai/oauth/client-metadata.json",
        needs_none=True,
        redirects=("http://127.0.0.1:19876/mcp/oauth/callback",),
        redirect="http://127.0.0.1:19876/mcp/oauth/callback",
    ),
    "cursor": KnownClient(name="Cursor", redirects=(_CURSOR,), redirect=_CURSOR),
    "gemini": KnownClient(
        name="Gemini CLI MCP Client",
        redirects=("http://localhost:7777/oauth/callback",),
        redirect="http://localhost:7777/oauth/callback",
    ),
    "n8n": KnownClient(name="n8n", redirects=(_N8N,), redirect=_N8N, method="client_secret_basic"),
    "mcp-remote": KnownClient(
        name="MCP CLI Proxy",
        redirects=("http://localhost:3334/oauth/callback",),
        redirect="http://localhost:3334/oauth/callback",
        scope="openid email profile",
    ),
    "inspector": KnownClient(
        name="MCP Inspector",
        redirects=("http://localhost:6274/oauth/callback",),
        redirect="http://localhost:6274/oauth/callback",
    ),
}
