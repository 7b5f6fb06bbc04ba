"""Tool search, the same as `toolgate tools search`."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated

from msgspec import Meta, Struct

from config.settings import SearchSettings as Settings
from gateway.admin.registry_parts import JobParts
from gateway.operations.operation import Line, Operation, OperationDependencies, OperationInput
from gateway.operations.problems import conflict
from registry.embedding.texts import sentences
from registry.search import Filters, Hit, Mode, SearchQuery, SearchResult
from registry.search.fusion import enough
from registry.search.query import Timings
from registry.sources.tool_store import ToolStore
from registry.tools.tool_states import Protocol

READ = "admin:registry:read"

Find = Callable[[SearchQuery], Awaitable[SearchResult]]
"""Raises InvalidParams, Unreachable and Unavailable, as `registry.search.search.Search`."""


class SearchRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """Query and filters. `words`: lexical search only, whose last word may be a prefix."""

    query: Annotated[str, Meta(min_length=1, max_length=65536)]
    limit: Annotated[int, Meta(ge=1, le=100, description="most hits, 5 by default")] = 5
    words: Annotated[
        bool, Meta(description="search by words only; the last one may be a prefix")
    ] = False
    source: Annotated[Line | None, Meta(description="only tools of this source")] = None
    domain: Annotated[Line | None, Meta(description="only tools of this domain")] = None
    namespace: Annotated[Line | None, Meta(description="only tools of this namespace")] = None
    tier: Annotated[Line | None, Meta(description="only tools of this tier")] = None
    protocol: Annotated[
        Protocol | None, Meta(description="only tools that are called by this protocol")
    ] = None


class SearchHits(Struct, frozen=True):
    """Hits, best first. `note`: why some may be missing; `warning`: why they may be of no use.
    `fit`: probability that the best of them is what was asked for; null: unknown."""

    hits: tuple[Hit, ...]
    note: str | None
    warning: str | None
    fit: float | None
    model: str | None  # the embedding model whose vectors were searched


class ExplainedQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """A query whose scores are explained. Several domains or tiers match any of them."""

    query: Annotated[str, Meta(min_length=1, max_length=65536)]
    mode: Annotated[Mode, Meta(description="what is searched by, hybrid by default")] = "hybrid"
    limit: Annotated[int, Meta(ge=1, le=100, description="most hits, 10 by default")] = 10
    source: Annotated[Line | None, Meta(description="only tools of this source")] = None
    domains: Annotated[
        Annotated[tuple[Line, ...], Meta(max_length=100)],
        Meta(description="only tools of this domain"),
    ] = ()
    tiers: Annotated[
        Annotated[tuple[Line, ...], Meta(max_length=100)],
        Meta(description="only tools of this tier"),
    ] = ()


class ScoreParts(Struct, frozen=True):
    """Parts of a hit's score: their sum times the weight of the tool."""

    meaning: float
    words: float


class SearchExplanation(Struct, frozen=True):
    """Hits, best first, with the `parts` of their scores in the same order. `path`: how vectors
    were searched; `sentences`: those of the query that were also looked up by themselves; `tools`:
    number of tools."""

    hits: tuple[Hit, ...]
    parts: tuple[ScoreParts, ...]
    note: str | None
    warning: str | None
    fit: float | None
    path: str
    model: str | None
    took: Timings
    sentences: tuple[str, ...]
    tools: int


class SearchOperations:
    def __init__(self, dependencies: OperationDependencies, find: Find, limits: Settings) -> None:
        self._dependencies = dependencies
        self._find = find
        self._limits = limits

    @classmethod
    def of(cls, parts: JobParts) -> "SearchOperations":
        return cls(parts.dependencies, parts.find, parts.settings.search)

    @property
    def operations(self) -> Sequence[Operation]:
        return (
            Operation(
                "searchTools", "POST", "/search", "Search tools by what they do.", READ,
                self.search, SearchHits, body=SearchRequest,
            ),
            Operation(
                "explainSearch", "POST", "/search/explanation",
                "Search tools, and show how each was scored.", READ, self.explain,
                SearchExplanation, body=ExplainedQuery,
            ),
        )  # fmt: skip

    async def search(self, request: OperationInput) -> SearchHits:
        body: SearchRequest = request.body
        mode: Mode = "lexical" if body.words else "hybrid"
        filters = Filters(
            request.tenant,
            sources=_one(body.source),
            domains=_one(body.domain),
            namespaces=_one(body.namespace),
            tiers=_one(body.tier),
            protocols=_one(body.protocol),
        )
        query = SearchQuery(body.query, body.limit, mode, filters, prefix=body.words)
        result = await self._find(query)
        return SearchHits(tuple(result.hits), result.note, result.warning, result.fit, result.model)

    async def explain(self, request: OperationInput) -> SearchExplanation:
        body: ExplainedQuery = request.body
        filters = Filters(
            request.tenant,
            sources=_one(body.source),
            domains=body.domains or None,
            tiers=body.tiers or None,
        )
        result = await self._find(SearchQuery(body.query, body.limit, body.mode, filters))
        if body.mode == "dense" and result.model is None:
            raise conflict(result.note or "Nothing can be found by meaning.")
        tools = await ToolStore(self._dependencies.pool).count(request.tenant)
        looked_up = sentences(body.query, self._limits.sentences) if result.model else ()
        return SearchExplanation(
            hits=tuple(result.hits),
            parts=self._parts(result, body.mode, tools),
            note=result.note,
            warning=result.warning,
            fit=result.fit,
            path=result.path,
            model=result.model,
            took=result.took,
            sentences=tuple(looked_up),
            tools=tools,
        )

    def _parts(self, result: SearchResult, mode: Mode, tools: int) -> tuple[ScoreParts, ...]:
        """See `registry.search.fusion`."""
        share, least = 0.0, 0.0
        if result.path != "lexical":
            share, least = 1.0 if mode == "dense" else self._limits.semantic_share, enough(tools)
        most = max([least, *(hit.lexical for hit in result.hits)]) or 1.0
        return tuple(
            ScoreParts(share * (hit.semantic or 0.0), (1 - share) * hit.lexical / most)
            for hit in result.hits
        )


def _one(name: str | None) -> tuple[str, ...] | None:
    return None if name is None else (name,)
