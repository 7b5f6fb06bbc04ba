"""`toolgate search try`: one query, and what each part of the search says to what it finds."""

from dataclasses import dataclass
from typing import Any, get_args

import click

from config.settings import Settings
from gateway.cli.database import open_registry, run
from gateway.cli.failure import fail
from gateway.cli.options import json_option, source_option
from gateway.cli.output import first_line, one_line, print_json, print_rows, say
from gateway.cli.search_serving import open_serving
from gateway.cli.settings import settings_option
from gateway.cli.tools import check_source
from registry.embedding.abc import Embedder, EmbeddingFailed
from registry.embedding.texts import sentences
from registry.search import Filters, Found, Hit, Mode, Query, Search
from registry.search.fusion import enough

COLUMNS = ("score", "meaning", "words", "cosine", "BM25", "name", "source", "what it does")


@dataclass(frozen=True, slots=True)
class Parts:
    """What the score of a hit is made of; their sum times its weight is the score."""

    meaning: float
    words: float

    @classmethod
    def of(cls, hit: Hit, share: float, most_bm25: float) -> "Parts":
        words = hit.lexical / most_bm25 if most_bm25 else 0.0
        return cls(share * (hit.semantic or 0.0), (1 - share) * words)


@dataclass(frozen=True, slots=True)
class Searched:
    found: Found
    tools: int  # that there are
    failure: str | None  # of the model


@click.command(name="try")
@click.argument("query", nargs=-1, required=True)
@click.option("--mode", type=click.Choice(get_args(Mode)), default="hybrid", show_default=True)
@click.option("--limit", type=click.IntRange(1, 100), default=10, show_default=True)
@source_option
@click.option("--domain", "domains", metavar="TEXT", multiple=True, help="Only of this domain.")
@click.option("--tier", "tiers", metavar="TEXT", multiple=True, help="Only of this tier.")
@json_option
@settings_option
def try_(
    settings: Settings,
    query: tuple[str, ...],
    mode: Mode,
    limit: int,
    source: str | None,
    domains: tuple[str, ...],
    tiers: tuple[str, ...],
    as_json: bool,
) -> None:
    """Show what QUERY finds, and why.

    The score of a tool is what meaning and words give it, times its weight (tool metadata, and
    less where it is deprecated). Meaning is its cosine; words its BM25 relative to the best one's,
    or to that of a good match where the best one is none; each times its share
    (search.semantic_share). Where the model gives no vectors, it is done as in the gateway: by
    words, with a note, unless disclosure.when_down is fail_closed; --mode dense fails.

    Several --domain, or --tier, mean any of them.

    \b
    Examples:
      toolgate search try create an issue
      toolgate search try --mode lexical --limit 3 "who is on call?"
    """
    text = " ".join(query)
    filters = Filters(
        settings.tenant.host_id,
        sources=[source] if source else None,
        domains=domains or None,
        tiers=tiers or None,
    )
    searched = run(_found(settings, Query(text, limit, mode, filters)))
    found = searched.found
    if as_json:
        print_json(_as_json(found))
        return
    share, least = _weighing(settings, found, mode, searched.tools)
    most = max([least, *(hit.lexical for hit in found.hits)])
    if rows := [_row(hit, Parts.of(hit, share, most)) for hit in found.hits]:
        print_rows(COLUMNS, rows)
    _explain(searched, settings, text)


def _weighing(settings: Settings, found: Found, mode: Mode, tools: int) -> tuple[float, float]:
    """The share of meaning, and the BM25 that counts fully. See `registry.search.fusion`."""
    if found.path == "lexical":
        return 0.0, 0.0
    return (1.0 if mode == "dense" else settings.search.semantic_share), enough(tools)


async def _found(settings: Settings, query: Query) -> Searched:
    async with open_registry(settings) as registry, open_serving(settings, registry) as serving:
        for source in query.filters.sources or ():
            await check_source(registry, source)
        failure = None
        if query.mode != "lexical" and serving.embedder is not None:
            failure = await _warmed_up(serving.embedder)
        search = Search(
            lambda: registry.database.pool,
            lambda: serving.embedder,
            settings.search,
            settings.disclosure.when_down,
            lambda: serving.note,
        )
        found = await search.run(query)
        if query.mode == "dense" and found.model is None:
            fail(". ".join(filter(None, (found.note, failure or serving.note))))
        return Searched(found, len(await registry.store.tools(registry.host_id)), failure)


async def _warmed_up(embedder: Embedder) -> str | None:
    """Load what loads with the first query, which is not to be timed; why that fails, if so."""
    try:
        await embedder.embed(["warm up"], query=True)
    except EmbeddingFailed as error:
        return str(error)
    return None


def _row(hit: Hit, parts: Parts) -> tuple[str, ...]:
    cosine = "-" if hit.semantic is None else f"{hit.semantic:.3f}"
    numbers = (f"{hit.score:.3f}", f"{parts.meaning:.3f}", f"{parts.words:.3f}", cosine)
    about = first_line(hit.title or hit.description)
    return (*numbers, f"{hit.lexical:.2f}", hit.name, hit.source, about)


def _explain(searched: Searched, settings: Settings, text: str) -> None:
    found = searched.found
    if not found.hits:
        say("Nothing found; try other words.")
    if found.note:
        say(f"note: {found.note}", "yellow")
    if searched.failure:
        say(searched.failure, "yellow")
    how = {
        "exact": "all vectors were compared",
        "hnsw": "vectors were searched with an index",
        "lexical": "by words alone",
    }[found.path]
    say(f"{how}; query {found.took.encode_ms:.1f} ms, database {found.took.sql_ms:.1f} ms")
    if found.model:
        say(f"model {found.model}")
        for one in sentences(text, settings.search.sentences):
            say(f"also looked up by itself: {one_line(one)}")


def _as_json(found: Found) -> dict[str, Any]:
    return {
        "hits": found.hits,
        "note": found.note,
        "path": found.path,
        "model": found.model,
        "took": found.took,
    }
