"""Calls of somebody who is known by a token."""

from typing import Any

from msgspec import Raw

from config.sources import TokenExchange
from gateway.context import CallHeaders, Context, Identity, Principal
from gateway.upstreams.http.client import Client
from gateway.upstreams.rest.upstream import OpenAPIUpstream
from schemas.binding import Credential, OpenAPIBinding
from schemas.mcp.revisions import V2025_06_18
from schemas.tool import Annotations, Tool, ToolResult
from tests.gateway.upstreams.conftest import source
from tests.servers.exchange import CLIENT, SECRET


def caller(token: str = "ann", *, key: bool = False, **claims: Any) -> Context:
    """`key`: known by an API key, whatever token is sent beside it."""
    mark = "key:1" if key else ""
    principal = Principal(token, "t", claims=claims, mark=mark)
    call_headers = CallHeaders(authorization=f"Bearer {token}")
    return Context(Identity(principal, verified=True), V2025_06_18, "r-1", headers=call_headers)


def exchange(url: str, **changes: Any) -> TokenExchange:
    return TokenExchange(f"{url}/token", CLIENT, SECRET, **changes)


def tool(*security: tuple[Credential, ...]) -> Tool:
    binding = OpenAPIBinding("GET", "/x", security=security)
    return Tool("uuid", "x", None, "X", Raw(b"{}"), None, Annotations(), binding, "pets", "digest")


class Calling:
    """Calls one REST operation."""

    def __init__(self, client: Client, url: str, *security: tuple[Credential, ...]) -> None:
        self.upstream, self.of = OpenAPIUpstream(client), source(url)
        self.tool = tool(*security)

    async def __call__(self, context: Context) -> ToolResult:
        return await self.upstream.call(self.tool, self.of, {}, context)

    async def refusal_text(self, context: Context) -> str:
        """What the caller hears of a call that was not made."""
        result = await self(context)
        assert result.is_error
        text: str = result.content[0].text  # type: ignore[union-attr]
        for secret in ("127.0.0.1", SECRET, "ann", "no "):
            assert secret not in text.replace("not ", "").replace("no token", "")
        return text
