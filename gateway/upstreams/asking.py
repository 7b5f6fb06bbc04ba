"""What imports ask of servers: MCP servers for their lists, GraphQL endpoints for their schemas."""

from collections.abc import Callable, Mapping

from config.settings import Imports
from gateway.upstreams.mcp.lister import Lister
from registry.found import ImportSpec
from registry.introspection import introspect


class Asking:
    def __init__(
        self, lister: Lister, headers: Callable[[str], Mapping[str, str]], limits: Imports
    ) -> None:
        """`headers` gives those of a source, by its name, as the settings have them now."""
        self._lister = lister
        self._headers = headers
        self._limits = limits

    async def __call__(self, spec: ImportSpec) -> bytes:
        """See `registry.found.Lister`. Raises ImportRejected."""
        if spec.kind == "mcp":
            return await self._lister(spec)
        return await introspect(
            spec.location,
            self._headers(spec.name),
            limit_bytes=self._limits.document_limit_bytes,
            timeout_s=self._limits.fetch_timeout_s,
        )
