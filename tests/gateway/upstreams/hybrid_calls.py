"""What the tests of hybrid calls have in common: an action, a source, a caller."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

from msgspec import UNSET, Raw

from config.sources import SourceSettings
from gateway.context import CallHeaders, Context, Identity, Principal
from gateway.upstreams.http.client import Client
from gateway.upstreams.hybrid.upstream import HybridUpstream
from schemas.binding import HybridBinding
from schemas.mcp.revisions import V2025_06_18
from schemas.source import HybridOptions, Source
from schemas.tool import Annotations, TextContent, Tool, ToolResult
from tests.gateway.upstreams.conftest import limits

DELETE = "lightapi.net/rule/deleteRule/0.1.0"
STATUS = {
    "statusCode": 401,
    "code": "ERR10001",
    "message": "AUTH_TOKEN_EXPIRED",
    "description": "Jwt token in authorization header expired",
    "severity": "ERROR",
}
IDENTITY = Identity(Principal("p", "t"))


def tool(service: str = DELETE, **binding: Any) -> Tool:
    action = HybridBinding(service, **binding)
    empty = Raw(b"{}")
    return Tool("uuid", "deleteRule", None, "", empty, None, Annotations(), action, "rules", "d")


def rules(base_url: str | None, trusted: bool = True, **options: Any) -> Source:
    return Source(
        "id", "rules", "hybrid", "file", base_url, trusted, options=HybridOptions(**options)
    )


def known_caller(**call_headers: Any) -> Context:
    """A call of somebody whose token, that of `call_headers`, was verified."""
    token = frozenset({"rules"}) if call_headers.get("scope_token") else None
    identity = Identity(IDENTITY.principal, verified=True, scope_token=token)
    return Context(identity, V2025_06_18, "r-1", headers=CallHeaders(**call_headers))


def caller(request_id: str = "r-1", **call_headers: Any) -> Context:
    return Context(IDENTITY, V2025_06_18, request_id, headers=CallHeaders(**call_headers))


@asynccontextmanager
async def open_adjusted(**settings: Any) -> AsyncIterator[Client]:
    """A client for which the settings say something about `rules`."""
    client = Client(limits(), {"rules": SourceSettings(**settings)})
    try:
        yield client
    finally:
        await client.close()


@dataclass(frozen=True)
class Caller:
    """Calls an action of one source; members of its binding can be named in the call."""

    upstream: HybridUpstream
    source: Source

    @classmethod
    def of(cls, client: Client, url: str | None, **options: Any) -> "Caller":
        return cls(HybridUpstream(client), rules(url, **options))

    def at(self, **options: Any) -> "Caller":
        return Caller(self.upstream, replace(self.source, **options))

    async def __call__(
        self,
        arguments: Any = None,
        context: Context | None = None,
        service: str = DELETE,
        **binding: Any,
    ) -> ToolResult:
        action = tool(service, **binding)
        return await self.upstream.call(
            action, self.source, {} if arguments is None else arguments, context or caller()
        )


def value(result: ToolResult) -> Any:
    """What a call gave: its structure, else its text, None for nothing."""
    assert not result.is_error, result.content
    if result.structured_content is not UNSET:
        assert text(result) == bytes(result.structured_content).decode()
        return json.loads(bytes(result.structured_content))
    return text(result) if result.content else None


def text(result: ToolResult) -> str:
    [content] = result.content
    assert isinstance(content, TextContent)
    return content.text


def failure(result: ToolResult) -> tuple[str, Any]:
    """What a model is told of a failure, and its structure; checks that no address is."""
    assert result.is_error
    shown = text(result)
    assert "127.0.0.1" not in shown
    assert "http:" not in shown
    structure = result.structured_content
    return shown, None if structure is UNSET else json.loads(bytes(structure))
