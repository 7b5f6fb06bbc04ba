"""Finding tools and skills: by meaning, by words, and by what an answer is narrowed to."""

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
