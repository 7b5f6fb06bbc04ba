"""initialize, ping, server/discover and logging/setLevel: server info and capabilities.

Clients of 2026-07-28 send the log level with each request instead.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from gateway.abc import SessionChange
from gateway.context import Context, Session
from gateway.methods.capabilities import capabilities, require
from gateway.methods.lists import Lists
from gateway.methods.server import SERVER, STAMP
from registry.catalog.catalog import Catalog
from schemas.errors import InvalidParams
from schemas.jsonrpc import Request
from schemas.mcp.messages import LOG_LEVELS, DiscoverResult, InitializeResult, LevelParams, read
from schemas.mcp.revisions import SUPPORTED

Change = Callable[[Session, SessionChange], Awaitable[None]]


class LogLevels:
    def __init__(self, lists: Lists, change: Change) -> None:
        """`change` stores a session's log level where all nodes read it."""
        self._lists = lists
        self._change = change

    async def set_level(self, context: Context, request: Request) -> dict[str, Any]:
        """Store the session's level; it is sent to servers with the next call, per client."""
        require(self._lists.catalog(context), "logging", request.method)
        level = read(request.params, LevelParams).level
        if level not in LOG_LEVELS:
            expected = ", ".join(LOG_LEVELS)
            raise InvalidParams(f"Unknown log level: {level[:40]!r}; expected one of {expected}")
        session = context.session
        if session is not None:  # even if the local copy has this level: it may be stale
            await self._change(session, SessionChange(log_level=level))
        return {}


INSTRUCTIONS_LIMIT = 4000  # characters; they precede every conversation


class Lifecycle:
    def __init__(self, lists: Lists, instructions: str, of_toolsets: Mapping[str, str]) -> None:
        """`of_toolsets`: instructions by toolset, for toolsets that have their own."""
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
        """The gateway's instructions, then those of each server under its name."""
        own = self._of_toolsets.get(context.toolset or "") or self._instructions
        theirs = [
            f"## {name}\n\n{facts.instructions.strip()}"
            for name, facts in sorted(catalog.servers.items())
            if facts.instructions.strip()
        ]
        told = "\n\n".join([own, *theirs] if own else theirs)
        return told if len(told) <= INSTRUCTIONS_LIMIT else told[: INSTRUCTIONS_LIMIT - 1] + "…"
