"""Searches the requests of a set, as the gateway would, in one mode after the other."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from time import perf_counter

from registry.embedding.embedder import Embedder, Vectors
from registry.evaluation.quality_metrics import DEPTH
from registry.evaluation.request_sets import EvaluationRequest
from registry.search import Filters, Mode, Search, SearchQuery, SearchResult
from schemas.errors import InvalidParams

MODES: tuple[Mode, ...] = ("hybrid", "dense", "lexical")  # best first: the reference for the others

OnProgress = Callable[[], None]


@dataclass(slots=True)
class ModeResults:
    """The results of one mode."""

    tool_ids: list[list[str]] = field(default_factory=list)  # ids of tools, by request
    encode_ms: list[float] = field(default_factory=list)  # of requests with uncached vectors
    search_ms: list[float] = field(default_factory=list)  # of each request, without encoding
    fits: list[float | None] = field(default_factory=list)  # of each request
    paths: Counter[str] = field(default_factory=Counter)
    notes: Counter[str] = field(default_factory=Counter)


class CachingEmbedder:
    """A caching embedder: each text is embedded once, for all modes."""

    def __init__(self, embedder: Embedder) -> None:
        self.model, self.dimension = embedder.model, embedder.dimension
        self.spent_ms = 0.0
        self._embedder = embedder
        self._known: dict[str, Vectors] = {}

    async def embed(self, texts: Sequence[str], *, query: bool = False) -> Vectors:
        if new := [text for text in dict.fromkeys(texts) if text not in self._known]:
            started = perf_counter()
            vectors = await self._embedder.embed(new, query=query)
            self.spent_ms += (perf_counter() - started) * 1000
            self._known.update(zip(new, vectors, strict=True))
        import numpy as np  # a tenth of a second and 15 MB, in gateways that evaluate nothing

        if not texts:
            return np.empty((0, self.dimension), np.float32)
        return np.stack([self._known[text] for text in texts])

    async def embed_anew(self, texts: Sequence[str]) -> Vectors:
        """Embed documents rather than queries, bypassing the cache."""
        return await self._embedder.embed(texts)

    async def warm_up(self) -> None:
        """Load everything that is loaded lazily by the first query."""
        await self._embedder.embed(["warm up"], query=True)

    async def close(self) -> None:
        await self._embedder.close()


async def search_all(
    search: Search,
    filters: Filters,
    requests: Sequence[EvaluationRequest],
    mode: Mode,
    *,
    names: Mapping[str, str],
    embedder: CachingEmbedder | None,
    done: OnProgress,
) -> ModeResults:
    """Search sequentially: the times are those of an otherwise idle gateway.

    `names`: names of tools in the results, by their ids in the registry.
    """
    ran = ModeResults()
    for request in requests:
        before = embedder.spent_ms if embedder else 0.0
        started = perf_counter()
        answer = await _answer(search, SearchQuery(request.query, DEPTH, mode, filters))
        took_ms = (perf_counter() - started) * 1000
        encode_ms = embedder.spent_ms - before if embedder else 0.0
        if encode_ms:
            ran.encode_ms.append(encode_ms)
        ran.search_ms.append(took_ms - encode_ms)
        ran.tool_ids.append([names[hit.id] for hit in answer.hits])
        ran.fits.append(answer.fit)
        ran.paths[answer.path] += 1
        if answer.note:
            ran.notes[answer.note] += 1
        done()
    return ran


async def _answer(search: Search, query: SearchQuery) -> SearchResult:
    """The results; a rejected query, such as one of control characters, has none."""
    try:
        return await search.run(query)
    except InvalidParams as refused:
        return SearchResult(note=refused.message)
