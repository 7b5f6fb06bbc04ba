"""Tool search, the same as `toolgate tools search`."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated

from msgspec import Meta, Struct

from gateway.operations.operation import Line, Operation, OperationInput
from registry.search import Filters, Hit, Mode, SearchQuery, SearchResult
from registry.tools.tool_states import Protocol

READ = "admin:registry:read"

Find = Callable[[SearchQuery], Awaitable[SearchResult]]
"""Raises InvalidParams, Unreachable and Unavailable, as `registry.search.search.Search`."""


class SearchRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """Query and filters. `words`: lexical search only, whose last word may be a prefix."""

    query: Annotated[str, Meta(min_length=1, max_length=65536)]
    limit: Annotated[int, Meta(ge=1, le=100)] = 5
    words: bool = False
    source: Line | None = None
    domain: Line | None = None
    namespace: Line | None = None
    tier: Line | None = None
    protocol: Protocol | None = None


class SearchHits(Struct, frozen=True):
    """Hits, best first. `note`: why some may be missing; `warning`: why they may be of no use.
    `fit`: probability that the best of them is what was asked for; null: unknown."""

    hits: tuple[Hit, ...]
    note: str | None
    warning: str | None
    fit: float | None
    model: str | None  # the embedding model whose vectors were searched


class SearchOperations:
    def __init__(self, find: Find) -> None:
        self._find = find

    @property
    def operations(self) -> Sequence[Operation]:
        return (
            Operation(
                "searchTools", "POST", "/search", "Search tools by what they do.", READ,
                self.search, SearchHits, body=SearchRequest,
            ),
        )  # fmt: skip

    async def search(self, asked: OperationInput) -> SearchHits:
        body: SearchRequest = asked.body
        mode: Mode = "lexical" if body.words else "hybrid"
        filters = Filters(
            asked.tenant,
            sources=_one(body.source),
            domains=_one(body.domain),
            namespaces=_one(body.namespace),
            tiers=_one(body.tier),
            protocols=_one(body.protocol),
        )
        wanted = SearchQuery(body.query, body.limit, mode, filters, prefix=body.words)
        found = await self._find(wanted)
        return SearchHits(tuple(found.hits), found.note, found.warning, found.fit, found.model)


def _one(name: str | None) -> tuple[str, ...] | None:
    return None if name is None else (name,)
