"""initialize, ping, server/discover: who we are and what we can."""

from collections.abc import Mapping
from typing import Any

from gateway.context import Context
from gateway.methods.capabilities import capabilities
from gateway.methods.lists import Lists
from gateway.methods.server import SERVER, STAMP
from registry.catalog.catalog import Catalog
from schemas.jsonrpc import Request
from schemas.mcp.messages import DiscoverResult, InitializeResult
from schemas.mcp.revisions import SUPPORTED

INSTRUCTIONS_LIMIT = 4000  # characters; they stand in front of every conversation


class Lifecycle:
    def __init__(self, lists: Lists, instructions: str, of_toolsets: Mapping[str, str]) -> None:
        """`of_toolsets` has the instructions of toolsets that have their own."""
        self._lists = lists
        self._instructions = instructions
        self._of_toolsets = of_toolsets

    async def initialize(self, context: Context, _request: Request) -> InitializeResult:
        """The transport has opened the session and negotiated the revision."""
        catalog, revision = self._lists.catalog(context), context.revision
        can, told = capabilities(catalog, revision), self._told(context, catalog)
        return InitializeResult(revision.name, can, SERVER, told)

    async def discover(self, context: Context, _request: Request) -> DiscoverResult:
        catalog = self._lists.catalog(context)
        return DiscoverResult(
            supported_versions=SUPPORTED,
            capabilities=capabilities(catalog, context.revision),
            result_type="complete",
            ttl_ms=self._lists.ttl_ms(context),
            cache_scope="private",
            meta=STAMP,
            instructions=self._told(context, catalog),
        )

    async def ping(self, _context: Context, _request: Request) -> dict[str, Any]:
        return {}

    def _told(self, context: Context, catalog: Catalog) -> str:
        """Our instructions, and then those of the servers, each under its name."""
        own = self._of_toolsets.get(context.toolset or "") or self._instructions
        theirs = [
            f"## {name}\n\n{facts.instructions.strip()}"
            for name, facts in sorted(catalog.servers.items())
            if facts.instructions.strip()
        ]
        told = "\n\n".join([own, *theirs] if own else theirs)
        return told if len(told) <= INSTRUCTIONS_LIMIT else told[: INSTRUCTIONS_LIMIT - 1] + "…"
