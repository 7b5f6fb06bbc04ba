"""`toolgate search` and `toolgate search try`: a search, and how its hits were scored."""

from dataclasses import dataclass
from typing import Any, get_args

import click

from config.settings import Settings
from gateway.cli.common.catalog import check_source, how_to_get_tools
from gateway.cli.common.database import open_registry, run, settings_option
from gateway.cli.common.failure import fail
from gateway.cli.common.lazy import LazyGroup
from gateway.cli.common.options import json_option, source_option
from gateway.cli.common.output import print_json, print_rows, say
from gateway.cli.common.text import first_line, one_line
from gateway.cli.search.serving import CommandSearchResult, search_registry
from registry.embedding.texts import sentences
from registry.search import Filters, Hit, Mode, SearchQuery, SearchResult
from registry.search.fusion import enough

COMMANDS = {
    "eval": ("gateway.cli.search.eval:eval_", "Measure the quality of the search."),
    "try": ("gateway.cli.search.command:try_", "Show the hits of a query and their scores."),
    "usage": ("gateway.cli.search.eval:usage", "Print the requests that were followed by calls."),
}


@click.group(cls=LazyGroup, lazy=COMMANDS)
def search() -> None:
    """Measure and explain how tools are found. To just find some: toolgate tools search."""


COLUMNS = (
    *("score", "meaning", "words", "sentences", "cosine", "BM25"),
    *("name", "source", "what it does"),
)


@dataclass(frozen=True, slots=True)
class ScoreParts:
    """Components of a hit's score: their sum times its weight."""

    meaning: float
    words: float

    @classmethod
    def of(cls, hit: Hit, share: float, most_bm25: float) -> "ScoreParts":
        words = hit.lexical / most_bm25 if most_bm25 else 0.0
        return cls(share * (hit.semantic or 0.0), (1 - share) * words)


@click.command(name="try")
@click.argument("query", nargs=-1, required=True)
@click.option("--mode", type=click.Choice(get_args(Mode)), default="hybrid", show_default=True)
@click.option("--limit", type=click.IntRange(1, 100), default=10, show_default=True)
@source_option
@click.option(
    "--domain",
    "domains",
    metavar="TEXT",
    multiple=True,
    help="Only tools of this domain; repeatable.",
)
@click.option(
    "--tier", "tiers", metavar="TEXT", multiple=True, help="Only tools of this tier; repeatable."
)
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
    """Show the hits of QUERY and their scores.

    The score of a tool is the sum of a semantic and a lexical part, times the weight of the tool
    (its metadata; less if it is deprecated). The semantic part is the cosine similarity; the
    lexical part is BM25 relative to the best hit, or to a typical good match if the best hit is
    weak. search.semantic_share weighs the two. Where QUERY has several sentences, a third part is
    for those that no hit before covers. Without vectors the search is lexical, with a note,
    as in the gateway, unless disclosure.when_down is fail_closed; --mode dense fails.

    Several --domain or --tier options match any of them.

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
    done, tools = run(_run_search(settings, SearchQuery(text, limit, mode, filters)))
    result = done.found
    if as_json:
        print_json(_as_json(result))
        return
    share, least = _weighing(settings, result, mode, tools)
    most = max([least, *(hit.lexical for hit in result.hits)])
    if rows := [_row(hit, ScoreParts.of(hit, share, most)) for hit in result.hits]:
        print_rows(COLUMNS, rows)
    _explain(done, settings, text, tools)


def _weighing(
    settings: Settings, found: SearchResult, mode: Mode, tools: int
) -> tuple[float, float]:
    """Weight of the semantic score, and the BM25 at full weight. See `registry.search.fusion`."""
    if found.path == "lexical":
        return 0.0, 0.0
    return (1.0 if mode == "dense" else settings.search.semantic_share), enough(tools)


async def _run_search(settings: Settings, query: SearchQuery) -> tuple[CommandSearchResult, int]:
    """The search result, and the number of tools."""
    async with open_registry(settings) as registry:
        for source in query.filters.sources or ():
            await check_source(registry, source)
        done = await search_registry(settings, registry, query)
        if query.mode == "dense" and done.found.model is None:
            fail(". ".join(filter(None, (done.found.note, done.failure or done.note))))
        return done, len(await registry.store.tools(registry.host_id))


def _row(hit: Hit, parts: ScoreParts) -> tuple[str, ...]:
    cosine = "-" if hit.semantic is None else f"{hit.semantic:.3f}"
    scored = (hit.score, parts.meaning, parts.words, hit.covered)
    numbers = (*(f"{score:.3f}" for score in scored), cosine)
    about = first_line(hit.title or hit.description)
    return (*numbers, f"{hit.lexical:.2f}", hit.name, hit.source, about)


def _explain(done: CommandSearchResult, settings: Settings, text: str, count: int) -> None:
    result = done.found
    if not result.hits:
        say("Nothing found; try other words." if count else how_to_get_tools(settings))
    if result.note:
        say(f"note: {result.note}", "yellow")
    if result.warning:
        say(f"warning: {result.warning}", "yellow")
    if done.failure:
        say(done.failure, "yellow")
    how = {
        "exact": "all vectors were compared",
        "hnsw": "vectors were searched with an index",
        "lexical": "by words alone",
    }[result.path]
    if result.fit is not None:
        say(f"fit of the best: {result.fit:.2f} of 1")
    say(f"{how}; query {result.took.encode_ms:.1f} ms, database {result.took.sql_ms:.1f} ms")
    if result.model:
        say(f"model {result.model}")
        for sentence in sentences(text, settings.search.sentences):
            say(f"also looked up by itself: {one_line(sentence)}")


def _as_json(found: SearchResult) -> dict[str, Any]:
    return {
        "hits": found.hits,
        "note": found.note,
        "warning": found.warning,
        "fit": found.fit,
        "path": found.path,
        "model": found.model,
        "took": found.took,
    }
