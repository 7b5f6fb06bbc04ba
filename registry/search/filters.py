"""Filters of a search, as conditions in SQL, and the number of documents that match.

`registry.catalog.toolsets` and `Catalog.visible_to` implement the same in Python; a test compares
the two.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
from psycopg import sql

from registry.database.sql_fragments import Fragment
from registry.embedding.search_kinds import TOOL, SearchKind
from registry.search.glob_conditions import condition as matching
from registry.search.query import Filters, ToolsetFilter
from schemas.memo import Memo

# Not a column of documents: people filter by it, not models.
_PROTOCOLS = sql.SQL(
    "doc.entity_id IN (SELECT tool_id FROM tool_t WHERE host_id = %(protocol_host)s"
    " AND binding ->> 'type' = ANY(%(protocols)s))"
)

_VALID = sql.SQL(
    "coalesce(doc.valid_from <= coalesce(%(at)s::timestamptz, current_timestamp), true)"
    " AND coalesce(doc.valid_to > coalesce(%(at)s::timestamptz, current_timestamp), true)"
)

CACHE_LIFETIME_S = 60.0
CACHE_ENTRIES = 256


class DocumentCounts:
    """Cached document counts of tenants that are too large to count each time."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._known: Memo[tuple[object, ...], tuple[float, int]] = Memo(CACHE_ENTRIES)

    def get(self, key: tuple[object, ...]) -> int | None:
        moment, count = self._known.get(key, (float("-inf"), 0))
        return count if self._clock() - moment < CACHE_LIFETIME_S else None

    def put(self, key: tuple[object, ...], count: int) -> int:
        self._known.put(key, (self._clock(), count))
        return count


def partitions(filters: Filters, kind: SearchKind) -> Sequence[str]:
    """The partitions of the index to search, by owner; kinds without owners have one.

    Raises ValueError where the filters and the kind disagree: a search without its permission is a
    bug of the program.
    """
    if kind.owned != (filters.owners is not None):
        expected = "the owners whose entities may be found" if kind.owned else "no owners"
        raise ValueError(f"a search of the kind {kind.name} takes {expected}")
    return list(dict.fromkeys(filters.owners)) if filters.owners is not None else [""]


def narrowing(
    filters: Filters, kind: SearchKind = TOOL
) -> tuple[Fragment | None, Mapping[str, Any]]:
    """Condition and parameters; the condition is None where only the tenant is filtered by.

    Values are parameters, so that equal kinds of filters have equal texts.
    """
    parts: list[sql.Composable] = []
    values: dict[str, Any] = {}
    for text, text_values in _parts(filters, kind):
        parts.append(text)
        values |= text_values
    return Fragment.of(sql.SQL(" AND ").join(parts)) if parts else None, values


def _parts(filters: Filters, kind: SearchKind) -> Iterator[tuple[sql.Composable, dict[str, Any]]]:
    if kind.expires:
        yield _VALID, {"at": filters.at}
    if filters.facets is not None:
        facets = [msgspec.json.encode(facet).decode() for facet in filters.facets]
        yield sql.SQL("doc.facets @> ANY(%(facets)s::jsonb[])"), {"facets": facets}
    if filters.toolset is not None:
        yield from _toolset(filters.toolset)
    if filters.scopes is not None:
        among = sql.SQL("(doc.scopes = '{}' OR doc.scopes && %(scopes)s)")
        yield among, {"scopes": sorted(filters.scopes)}
    if filters.ids is not None:
        yield sql.SQL("doc.entity_id = ANY(%(ids)s::uuid[])"), {"ids": list(filters.ids)}
    if filters.without is not None:
        outside = sql.SQL("doc.entity_id <> ALL(%(without)s::uuid[])")
        yield outside, {"without": list(filters.without)}
    if filters.protocols is not None:
        protocols = list(filters.protocols)
        yield _PROTOCOLS, {"protocols": protocols, "protocol_host": filters.host_id}
    columns = {
        "source": filters.sources,
        "domain": filters.domains,
        "namespace": filters.namespaces,
        "tier": filters.tiers,
    }
    for column, values in columns.items():
        if values is not None:
            condition = sql.SQL("{column} = ANY({values})").format(
                column=sql.Identifier("doc", column), values=sql.Placeholder(f"{column}s")
            )
            yield condition, {f"{column}s": list(values)}


def _toolset(toolset: ToolsetFilter) -> Iterator[tuple[sql.Composable, dict[str, Any]]]:
    """Condition of a toolset, see `registry.catalog.toolsets`: patterns, sources and descriptions
    include; `exclude` removes."""
    if toolset.exclude:
        yield matching("exclude", toolset.exclude, negated=True)
    picked: list[sql.Composable] = []
    values: dict[str, Any] = {}
    if toolset.sources:
        picked.append(sql.SQL("doc.source = ANY(%(toolset_sources)s)"))
        values["toolset_sources"] = list(toolset.sources)
    if toolset.include:
        text, values_of_globs = matching("include", toolset.include)
        picked.append(text)
        values |= values_of_globs
    if picked:
        values["toolset"] = toolset.name
        all_ = sql.SQL(" AND ").join(picked)
        yield sql.SQL("(%(toolset)s = ANY(doc.toolsets) OR ({all}))").format(all=all_), values
