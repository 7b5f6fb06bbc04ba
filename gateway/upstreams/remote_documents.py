"""Remote reads for imports: lists of MCP servers, schemas of GraphQL endpoints."""

from config.settings import Imports
from gateway.upstreams.http.source_pools import SourcePools
from gateway.upstreams.mcp.list_reader import Lister
from registry.sources.import_specs import ImportSpec


class RemoteDocuments:
    def __init__(self, lister: Lister, connections: SourcePools, limits: Imports) -> None:
        """Remote reads over `connections`, which has the current headers and certificates of a
        source."""
        self._lister = lister
        self._connections = connections
        self._limits = limits

    async def __call__(self, spec: ImportSpec) -> bytes:
        """List the MCP server of a source; see `registry.sources.source_reader.Lister`. Raises
        ImportRejected."""
        if spec.facts.server:
            return await self._lister(spec)
        from registry.sources.graphql_documents import introspect  # with the first GraphQL endpoint

        guarded = spec.options.guarded  # and then the operator's credentials are not sent
        return await introspect(
            spec.location,
            {} if guarded else self._connections.headers_of(spec.name),
            limit_bytes=self._limits.document_limit_bytes,
            timeout_s=self._limits.fetch_timeout_s,
            tls=self._connections.tls_of(spec.name),
            public=guarded and not self._limits.private_networks,
        )
