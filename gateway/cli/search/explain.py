"""`toolgate search try`: a search, and how its hits were scored."""

from collections.abc import Mapping
from typing import Any

import click

from config.settings import Settings
from gateway.cli.commands import RESOURCES
from gateway.cli.common.event_loop import run
from gateway.cli.common.operation_parameters import given_members, members_of_call, option
from gateway.cli.common.options import json_option
from gateway.cli.common.output import print_json, print_rows, say
from gateway.cli.common.settings import how_to_get_tools
from gateway.cli.common.text import first_line, one_line
from gateway.cli.operations import Connect, check_source, client_option, declared_operations

RESOURCE = "search:SearchOperations"
OPERATION = declared_operations((RESOURCES + RESOURCE,))["explainSearch"]
MEMBERS = {
    name: member
    for name, member in members_of_call(OPERATION).items()
    if name not in {"query", "limit"}
}
COLUMNS = (
    *("score", "meaning", "words", "sentences", "cosine", "BM25"),
    *("name", "source", "what it does"),
)
PATHS = {
    "exact": "all vectors were compared",
    "hnsw": "vectors were searched with an index",
    "lexical": "by words alone",
}
PRINTED_MEMBERS = ("hits", "note", "warning", "fit", "path", "model", "took")

Json = Mapping[str, Any]


@click.command(name="try")
@click.argument("query", nargs=-1, required=True)
@click.option("--limit", type=click.IntRange(1, 100), default=10, show_default=True)
@json_option
@client_option(RESOURCE, "sources:SourceOperations")
def try_(
    settings: Settings,
    connect: Connect,
    query: tuple[str, ...],
    limit: int,
    as_json: bool,
    **values: Any,
) -> None:
    """Show the hits of QUERY and their scores.

    \b
    Examples:
      toolgate search try create an issue
      toolgate search try --mode lexical --limit 3 "who is on call?"

    The score of a tool is the sum of a semantic and a lexical part, times the weight of the tool
    (its metadata; less if it is deprecated). The semantic part is the cosine similarity; the
    lexical part is BM25 relative to the best hit, or to a typical good match if the best hit is
    weak. search.semantic_share weighs the two. Where QUERY has several sentences, a third part is
    for those that no hit before covers. Without vectors the search is lexical, with a note,
    as in the gateway, unless disclosure.when_down is fail_closed; --mode dense fails.

    Several --domain or --tier options match any of them.
    """
    arguments = {"query": " ".join(query), "limit": limit, **given_members(MEMBERS, values)}
    result = run(_explanation(connect, arguments))
    if as_json:
        print_json({name: result[name] for name in PRINTED_MEMBERS})
        return
    parts = zip(result["hits"], result["parts"], strict=True)
    if rows := [_row(hit, part) for hit, part in parts]:
        print_rows(COLUMNS, rows)
    _explain(result, settings)


try_.params += [option(member) for member in MEMBERS.values()]


async def _explanation(connect: Connect, arguments: dict[str, Any]) -> Json:
    async with connect() as client:
        result: Json = (await client.call("explainSearch", arguments)).value
        if not result["hits"]:
            await check_source(client, arguments.get("source"))
        return result


def _row(hit: Json, parts: Json) -> tuple[str, ...]:
    cosine = "-" if hit["semantic"] is None else f"{hit['semantic']:.3f}"
    scored = (hit["score"], parts["meaning"], parts["words"], hit["covered"])
    numbers = (*(f"{score:.3f}" for score in scored), cosine)
    about = first_line(hit["title"] or hit["description"])
    return (*numbers, f"{hit['lexical']:.2f}", hit["name"], hit["source"], about)


def _explain(result: Json, settings: Settings) -> None:
    if not result["hits"]:
        say("Nothing found; try other words." if result["tools"] else how_to_get_tools(settings))
    for name in ("note", "warning"):
        if result[name]:
            say(f"{name}: {result[name]}", "yellow")
    if result["fit"] is not None:
        say(f"fit of the best: {result['fit']:.2f} of 1")
    took = result["took"]
    times = f"query {took['encode_ms']:.1f} ms, database {took['sql_ms']:.1f} ms"
    say(f"{PATHS[result['path']]}; {times}")
    if result["model"]:
        say(f"model {result['model']}")
    for sentence in result["sentences"]:
        say(f"also looked up by itself: {one_line(sentence)}")
