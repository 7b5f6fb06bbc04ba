"""Hybrid search of tools and skills: by meaning, by words, and with filters."""

from registry.search.fusion import Hit
from registry.search.query import Filters, Mode, SearchQuery, SearchResult, Timings, ToolsetFilter
from registry.search.search import Search

__all__ = [
    "Filters",
    "Hit",
    "Mode",
    "Search",
    "SearchQuery",
    "SearchResult",
    "Timings",
    "ToolsetFilter",
]
