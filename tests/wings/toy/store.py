"""The notes in the database."""

from collections.abc import Awaitable, Callable

from registry.database.postgres import Pool, borrow
from registry.embedding.search_kinds import SearchKind
from registry.search import Filters, SearchQuery
from registry.search.query import SearchResult

KIND = SearchKind("toy", owned=True)
Find = Callable[[SearchQuery], Awaitable[SearchResult]]


class Notes:
    def __init__(self, pool: Pool, find: Find) -> None:
        self._pool = pool
        self._find = find

    async def add(self, host_id: str, owner: str, text: str) -> int:
        """The number of the new note."""
        async with borrow(self._pool) as connection:
            added = await connection.execute(
                "INSERT INTO toy_note_t (host_id, owner, number, text)"
                " SELECT %(host)s, %(owner)s, coalesce(max(number), 0) + 1, %(text)s"
                " FROM toy_note_t WHERE (host_id, owner) = (%(host)s::uuid, %(owner)s)"
                " RETURNING number",
                {"host": host_id, "owner": owner, "text": text},
            )
            [(number,)] = await added.fetchall()
        return int(number)

    async def of(self, host_id: str, owner: str) -> list[tuple[int, str]]:
        """Number and text, in the order of their numbers."""
        async with borrow(self._pool) as connection:
            found = await connection.execute(
                "SELECT number, text FROM toy_note_t WHERE (host_id, owner) = (%s, %s)"
                " ORDER BY number",
                [host_id, owner],
            )
            return await found.fetchall()

    async def count(self) -> int:
        """The notes of all tenants."""
        async with borrow(self._pool) as connection:
            found = await connection.execute("SELECT count(*) FROM toy_note_t")
            [(number,)] = await found.fetchall()
        return int(number)

    async def find(self, host_id: str, owner: str, text: str) -> list[tuple[int, str]]:
        """Number and text of those that match best."""
        filters = Filters(host_id, owners=(owner,))
        found = await self._find(SearchQuery(text, 10, "hybrid", filters, KIND))
        return [(int(hit.name), hit.description) for hit in found.hits]
