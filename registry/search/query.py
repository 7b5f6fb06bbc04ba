"""Search queries and results."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import msgspec

from config.settings import ToolsetDefinition
from registry.embedding.search_kinds import TOOL, SearchKind
from registry.search.fusion import Hit

if TYPE_CHECKING:
    from registry.embedding.embedder import Vectors

Mode: TypeAlias = Literal["hybrid", "lexical", "dense"]
Path: TypeAlias = Literal["exact", "hnsw", "lexical"]


@dataclass(frozen=True, slots=True)
class ToolsetFilter:
    """The tools of a toolset, as `registry.catalog.toolsets` picks them. Patterns are those of
    `schemas.globs`."""

    name: str
    sources: tuple[str, ...] = ()
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()

    @classmethod
    def of(cls, name: str, toolset: ToolsetDefinition) -> "ToolsetFilter":
        return cls(name, tuple(toolset.sources), tuple(toolset.include), tuple(toolset.exclude))


@dataclass(frozen=True, slots=True)
class Filters:
    """Conditions on the results, all of which must hold; None: no condition.

    `scopes` are those of the caller: an action that requires scopes is found by callers with one of
    them. `owners` are those whose entities the caller may find, for kinds with owners. `facets`: an
    entity needs all members of one of them. `at`: the time at which entities of kinds that expire
    have to be valid; None: now.
    """

    host_id: str
    toolset: ToolsetFilter | None = None
    scopes: frozenset[str] | None = None
    sources: Sequence[str] | None = None
    ids: Sequence[str] | None = None
    without: Sequence[str] | None = None  # excluded ids
    domains: Sequence[str] | None = None
    namespaces: Sequence[str] | None = None
    tiers: Sequence[str] | None = None
    protocols: Sequence[str] | None = None  # tags of bindings
    owners: Sequence[str] | None = None
    facets: Sequence[Mapping[str, Any]] | None = None
    at: datetime | None = None

    @property
    def key(self) -> tuple[object, ...]:
        """A hashable key, equal for equivalent filters."""
        lists = (self.sources, self.ids, self.without, self.domains, self.namespaces, self.tiers)
        return (
            self.host_id,
            self.toolset,
            self.scopes,
            *(None if values is None else tuple(values) for values in (*lists, self.protocols)),
            msgspec.json.encode(self.facets, order="deterministic"),
            self.at,
        )


@dataclass(frozen=True, slots=True)
class SearchQuery:
    """A search query. `prefix`: the last word may be half typed, as in a search field. `details`:
    read title, description and source of the hits, for callers that do not know the entities."""

    text: str
    limit: int
    mode: Mode
    filters: Filters
    kind: SearchKind = TOOL
    prefix: bool = False
    details: bool = True


@dataclass(frozen=True, slots=True)
class Timings:
    """Timings in milliseconds: for the vectors of the query, and for the database."""

    encode_ms: float = 0.0
    sql_ms: float = 0.0


@dataclass(frozen=True, slots=True)
class SearchResult:
    """Search result: hits, best first. `note`: why results may be missing, for a person or a model
    to read. `warning`: why they may be of no use. `fit`: see `registry.search.calibration`;
    None: unknown.

    `path`: how vectors were searched. `vector`: the query's own, shape (dimension,), of `model`;
    the input of `Feedback.record`.
    """

    hits: list[Hit] = field(default_factory=list)
    note: str | None = None
    warning: str | None = None
    fit: float | None = None
    path: Path = "lexical"
    took: Timings = Timings()
    model: str | None = None
    vector: "Vectors | None" = None
