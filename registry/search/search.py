"""Search: a query in, the best tools or skills out, on one connection and in three statements.

`Run` says which statements.
"""

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Literal, get_args

from config.settings import Search as Settings
from registry.embedding.abc import Embedder
from registry.postgres import Pool, borrowed
from registry.search.encoding import Encoded, Encoding
from registry.search.lexical import readable
from registry.search.query import Found, Kind, Query, Timings
from registry.search.run import Counts, Run
from registry.search.vectors import Vector, VectorDumper
from schemas.errors import InvalidParams, Unavailable, Unreachable


class Search:
    """Searches of all tenants. See `Search.run`."""

    def __init__(
        self,
        pool: Callable[[], Pool | None],
        embedding: Callable[[], Embedder | None],
        settings: Settings,
        when_down: Literal["lexical", "fail_closed"] = "lexical",
        why: Callable[[], str | None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`embedding` gives the model whose vectors are searched; none while there is none, and
        `why` may say why. `when_down`: `disclosure.when_down`."""
        self._pool = pool
        self._settings = settings
        self._when_down = when_down
        self._encoding = Encoding(
            embedding, settings.query_timeout_s, settings.sentences, why, clock
        )
        self._counts = Counts(clock)

    async def run(self, query: Query) -> Found:
        """The best `query.limit`, best first.

        Without vectors, or a model for the query, it is the words that count, and `note` says so.
        Raises InvalidParams for an empty query, Unreachable where the settings want meaning or
        nothing, and Unavailable without a database.
        """
        text = readable(query.text, self._settings.query_characters).strip()
        if not text:
            raise InvalidParams("the query is empty; say what is looked for in a sentence or two")
        if query.entity_type not in get_args(Kind):
            raise InvalidParams(
                f"there is no {query.entity_type!r} to search; there are tool, skill"
            )
        if (pool := self._pool()) is None:
            raise Unavailable("the registry is not there yet; try again in a moment")
        started = time.perf_counter()
        encoded = Encoded() if query.mode == "lexical" else await self._encode(text)
        encode_ms = _since(started)
        started = time.perf_counter()
        async with borrowed(pool) as connection, connection.cursor() as cursor:
            cursor.adapters.register_dumper(Vector, VectorDumper)
            found = await Run(self._settings, self._counts, query, text, encoded, cursor).found()
        return replace(found, took=Timings(encode_ms, _since(started)))

    async def _encode(self, text: str) -> Encoded:
        encoded = await self._encoding.encode(text)
        if encoded.vectors is None and self._when_down == "fail_closed":
            raise Unreachable(
                "nothing can be found by meaning at the moment, and disclosure.when_down is "
                "fail_closed; try again later"
            )
        return encoded


def _since(started: float) -> float:
    return (time.perf_counter() - started) * 1000
