"""Searching as the product does, in short."""

from config.load import load
from config.settings import SearchSettings as Settings
from registry.database.postgres import Database
from registry.search import Filters, Mode, Search, SearchQuery, SearchResult
from tests.fixtures_database import HOST

SETTINGS: Settings = load(None, {}).search


async def find(
    database: Database,
    text: str,
    filters: Filters | None = None,
    limit: int = 5,
    *,
    mode: Mode = "lexical",
    prefix: bool = False,
) -> SearchResult:
    search = Search(lambda: database.pool, lambda _: None, SETTINGS)
    return await search.run(SearchQuery(text, limit, mode, filters or Filters(HOST), prefix=prefix))


async def found_by_words(database: Database, text: str, limit: int = 5) -> list[str]:
    """Names, best first."""
    return [hit.name for hit in (await find(database, text, limit=limit)).hits]
