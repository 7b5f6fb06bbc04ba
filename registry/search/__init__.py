"""Finding tools and skills: by meaning, by words, and by what an answer is narrowed to."""

from registry.search.fusion import Hit
from registry.search.query import Filters, Found, Mode, Query, Timings, ToolsetFilter
from registry.search.search import Search

__all__ = ["Filters", "Found", "Hit", "Mode", "Query", "Search", "Timings", "ToolsetFilter"]
