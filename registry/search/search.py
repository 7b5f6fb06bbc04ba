"""Search: a query in, the best entities of a kind out.

`SearchRun` has the statements.

No connection is held while a model computes.
"""

import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Literal, TypeAlias, TypeVar

from anyio import create_task_group

from config.settings import SearchSettings as Settings
from registry.database.postgres import Pool
from registry.embedding.embedder import Embedder
from registry.embedding.search_kinds import TOOL, TOOLS
from registry.embedding.texts import readable
from registry.search.filters import DocumentCounts
from registry.search.glossary import english_words
from registry.search.languages import ENGLISH_ONLY, foreign_language
from registry.search.query import SearchQuery, SearchResult, Timings
from registry.search.query_encoding import CurrentEmbedder, EncodedQuery, QueryEncoder
from registry.search.search_run import SearchRun
from registry.search.transaction import read
from schemas.errors import InvalidParams, Unavailable, Unreachable

if TYPE_CHECKING:
    from registry.search.read_replica import Replica

Find: TypeAlias = Callable[[Pool, SearchQuery, CurrentEmbedder, str], Awaitable[SearchResult]]
"""A search of text that was cleaned, with the embedder that is ready."""

A = TypeVar("A")
B = TypeVar("B")


async def both(
    first: Callable[[], Awaitable[A]], second: Callable[[], Awaitable[B]]
) -> tuple[A, B]:
    """The results of two concurrent tasks. An error of one is raised unwrapped, and cancels the
    other."""
    results: list[B] = []

    async def beside() -> None:
        results.append(await second())

    try:
        async with create_task_group() as group:
            group.start_soon(beside)
            first_result = await first()
    except ExceptionGroup as failed:
        raise failed.exceptions[0] from None
    return first_result, results[0]


class Search:
    """Searches of all tenants. See `Search.run`."""

    def __init__(
        self,
        pool: Callable[[], Pool | None],
        embedding: Callable[[str], Embedder | None],
        settings: Settings,
        *,
        when_down: Literal["lexical", "fail_closed"] = "lexical",
        why: Callable[[str], str | None] = lambda _: None,
        clock: Callable[[], float] = time.monotonic,
        replica: "Replica | None" = None,
    ) -> None:
        """Search with these settings. `embedding` returns the model whose vectors are searched, by
        the purpose of the kind, or None, for the reason `why` if given. `when_down`:
        `disclosure.when_down`. `replica`: where searches read from instead, if it can be."""
        self._pool = pool
        self._settings = settings
        self._when_down = when_down
        self._encoding = QueryEncoder(
            embedding,
            timeout_s=settings.query_timeout_s,
            sentences_limit=settings.sentences,
            why=why,
            clock=clock,
            cached_queries=settings.cached_queries,
        )
        self._counts = DocumentCounts(clock)
        self._read = replica.read if replica else read
        self._find = self._first_stage if settings.rerank == "off" else self._second_stage()

    @property
    def model_failed(self) -> bool:
        """Whether a model failed to encode a query a moment ago."""
        return self._encoding.is_paused

    async def run(self, query: SearchQuery) -> SearchResult:
        """Search; returns the best `query.limit`, best first.

        Without vectors, or a model for the query, search is lexical, and `note` reports so; a
        purely semantic search then has no results. Raises InvalidParams for an empty query,
        Unreachable where the settings require semantic search, and Unavailable without a database.
        """
        text = readable(query.text, self._settings.query_characters).strip()
        if not text:
            raise InvalidParams("the query is empty; describe what to find in a sentence or two")
        if (pool := self._pool()) is None:
            raise Unavailable("the registry is not there yet; try again in a moment")
        ready = (
            CurrentEmbedder()
            if query.mode == "lexical"
            else self._encoding.ready(query.kind.purpose)
        )
        if query.mode != "lexical" and ready.embedder is None:
            self._refuse_words()
        return await self._find(pool, query, ready, text)

    def _second_stage(self) -> "Find":
        """Hybrid searches of tools, whose best are ranked again; others as ever."""
        from registry.search.rerank import SecondStage

        second = SecondStage(self._settings)

        async def find(
            pool: Pool, query: SearchQuery, ready: CurrentEmbedder, text: str
        ) -> SearchResult:
            if query.mode != "hybrid" or query.kind is not TOOL:
                return await self._first_stage(pool, query, ready, text)
            more = replace(query, limit=max(query.limit, second.reads), details=True)
            result = await self._first_stage(pool, more, ready, text)
            return replace(result, hits=(await second.rerank(text, result.hits))[: query.limit])

        return find

    async def _first_stage(
        self, pool: Pool, query: SearchQuery, ready: CurrentEmbedder, text: str
    ) -> SearchResult:
        model = ready.embedder.model if ready.embedder else None
        english = _translation(text, model) if query.kind.purpose == TOOLS else ""
        run = SearchRun(
            self._settings, self._counts, query, text=text, english=english, model=model
        )
        started = time.perf_counter()
        prepare = partial(self._read, pool, run.prepare)
        if ready.embedder is None:
            prepared, encoded = await prepare(), EncodedQuery(why=ready.why)
        else:
            encode = partial(self._encoding.encode, ready.embedder, run.whole)
            prepared, encoded = await both(prepare, encode)
            if encoded.vectors is None:
                self._refuse_words()
        result = SearchResult(note=run.note(encoded))
        if prepared:
            finish = partial(run.finish, parts=prepared, encoded_query=encoded)
            result = await self._read(pool, finish)
        whole_ms = (time.perf_counter() - started) * 1000
        took = Timings(encoded.took_ms, whole_ms - encoded.took_ms)
        return replace(result, took=took, model=encoded.model, vector=encoded.whole)

    def _refuse_words(self) -> None:
        if self._when_down == "fail_closed":
            raise Unreachable(
                "nothing can be found by meaning at the moment, and disclosure.when_down is "
                "fail_closed; try again later"
            )


def _translation(text: str, model: str | None) -> str:
    """The words of a query in English; "" for an English one, and where the model knows others."""
    if model is not None and not model.startswith(ENGLISH_ONLY):
        return ""
    return " ".join(english_words(text, foreign_language(text)))
