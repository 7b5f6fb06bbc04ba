"""initialize, ping, server/discover: who we are and what we can."""

from importlib.metadata import PackageNotFoundError, version
from typing import Any

from gateway.context import Context
from schemas.jsonrpc import Request
from schemas.mcp.messages import (
    META_SERVER,
    DiscoverResult,
    Implementation,
    InitializeResult,
)
from schemas.mcp.revisions import SUPPORTED


def _version() -> str:
    try:
        return version("toolgate")
    except PackageNotFoundError:  # run from a source tree that was never installed
        return "0+unknown"


SERVER = Implementation("toolgate", _version())
STAMP: dict[str, Any] = {META_SERVER: SERVER}
CAPABILITIES: dict[str, Any] = {"tools": {"listChanged": True}}


class Lifecycle:
    def __init__(self, instructions: str, list_ttl_ms: int) -> None:
        self._instructions = instructions
        self._list_ttl_ms = list_ttl_ms

    async def initialize(self, context: Context, _request: Request) -> InitializeResult:
        """The transport has opened the session and negotiated the revision."""
        return InitializeResult(context.revision.name, CAPABILITIES, SERVER, self._instructions)

    async def discover(self, _context: Context, _request: Request) -> DiscoverResult:
        return DiscoverResult(
            supported_versions=SUPPORTED,
            capabilities=CAPABILITIES,
            result_type="complete",
            ttl_ms=self._list_ttl_ms,
            cache_scope="private",
            meta=STAMP,
            instructions=self._instructions,
        )

    async def ping(self, _context: Context, _request: Request) -> dict[str, Any]:
        return {}

    async def initialized(self, _context: Context, _request: Request) -> None:
        return None
