"""`toolgate search eval`: scores searches for requests with known tools."""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, get_args

import click
from msgspec.structs import replace

from config.settings import EmbeddingProvider, Settings
from gateway.app.local_search import open_serving
from gateway.cli.commands import RESOURCES
from gateway.cli.common.database import open_registry
from gateway.cli.common.event_loop import run
from gateway.cli.common.failure import UNWANTED, USAGE, fail
from gateway.cli.common.output import err, out, print_json, print_rows, say
from gateway.cli.common.progress import progress_bar
from gateway.cli.common.settings import settings_option
from gateway.cli.operations import Connect, client_option, open_client
from registry.evaluation import report
from registry.evaluation.corpus import Corpus, of_catalog, of_registry
from registry.evaluation.corpus import Progress as Heard
from registry.evaluation.evaluate import evaluate, sample_requests
from registry.evaluation.mode_searches import MODES
from registry.evaluation.plots import NoPlots, write_plots
from registry.evaluation.quality_metrics import SetResult, Threshold, mean_of, missed_thresholds
from registry.evaluation.request_sets import (
    QUERIES,
    TOOLS,
    CatalogTool,
    EvaluationRequest,
    read_catalog,
    read_requests,
)
from registry.search import Mode
from schemas.jsonrpc import encode

FILE = click.Path(path_type=Path)
RESOURCE = "evaluations:EvaluationOperations"
Format = Literal["table", "json", "md"]
PROVIDERS = get_args(EmbeddingProvider)


@dataclass(frozen=True, slots=True)
class RequestSet:
    """One parsed set of requests."""

    name: str
    requests: Sequence[EvaluationRequest]
    catalog: Sequence[CatalogTool] | None  # None: the tools of the registry


def _modes(_ctx: click.Context, _option: click.Parameter, text: str) -> list[Mode]:
    named = [mode.strip() for mode in text.split(",")]
    if wrong := [mode for mode in named if mode not in MODES]:
        raise click.BadParameter(f"{wrong[0]!r} is none of {', '.join(MODES)}")
    return [mode for mode in MODES if mode in named]


def _thresholds(
    _ctx: click.Context, _option: click.Parameter, texts: Sequence[str]
) -> list[Threshold]:
    try:
        return [Threshold.parse(text) for text in texts]
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


@click.command(name="eval")
@click.argument("queries", nargs=-1, type=FILE)
@click.option("--from-usage", is_flag=True,
              help="Requests of callers and the tools they called (search.usage_log) "
                   "[default without QUERIES].")  # fmt: skip
@click.option(
    "--catalog", type=FILE, metavar="TOOLS", help="File of tools to search [default: the registry]."
)
@click.option("--modes", default=",".join(MODES), callback=_modes, show_default=True,
              metavar="LIST", help="Search modes, separated by commas.")  # fmt: skip
@click.option("--limit", type=click.IntRange(1), metavar="N",
              help="Sample of at most N requests of a set; the same in each run.")  # fmt: skip
@click.option("--baseline", is_flag=True,
              help="Compare with reciprocal rank fusion of BM25 and vectors.")  # fmt: skip
@click.option("--fail-under", "thresholds", multiple=True, callback=_thresholds,
              metavar="MEASURE=PERCENT",
              help=f"Exit with {UNWANTED} if a measure is lower, as in ndcg@10=60 or "
                   "dense:recall@5=50.")  # fmt: skip
@click.option("--provider", "providers", multiple=True, type=click.Choice(PROVIDERS),
              metavar="NAME",
              help="Compare these models, each with its own vectors of the catalog; repeatable "
                   "[default: embedding.provider].")  # fmt: skip
@click.option("--plots", type=FILE, metavar="DIR",
              help="Write plots of recall and calibration there, as PNG and SVG.")  # fmt: skip
@click.option("--json", "form", flag_value="json", help="Print JSON, for machines.")
@click.option("--md", "form", flag_value="md", help="Print Markdown tables.")
@settings_option
def eval_(
    settings: Settings,
    queries: tuple[Path, ...],
    from_usage: bool,
    catalog: Path | None,
    modes: list[Mode],
    limit: int | None,
    baseline: bool,
    thresholds: list[Threshold],
    providers: tuple[EmbeddingProvider, ...],
    plots: Path | None,
    form: Format | None,
) -> None:
    """Measure the quality of the search with the requests of QUERIES.

    QUERIES is a file with a line {"query": "will it rain?", "gold": ["forecast"]} for each request;
    gold has the ids or names of the tools that the request needs. Alternatives are written as
    "gold_slots": [["this", "or this"], ["and this"]]. QUERIES can also be a directory with
    queries.jsonl and tools.jsonl; several can be given.

    The search runs over the tools of the registry, or over those of --catalog: lines with {"name",
    "description", "parameters" or "inputSchema", "id", "server", "category", "tags"}, or an MCP
    server's response to tools/list. A catalog is loaded into a temporary database.

    Recall, NDCG and completeness (all tools of a request among the first ten) are in per cent. The
    tables have a 95 % confidence interval of NDCG, --json those of all measures. A difference of
    two modes is significant if its interval excludes zero; fewer than 30 requests are too few.

    The ten tools that were missed most often among the first five results are listed with what
    their texts lack, and with a description to start from, made of their names and schemas.

    With --from-usage, or without QUERIES, the requests are those that callers of search_tools made
    while search.usage_log was on, and gold is what they called after it: the search is measured by
    how high it ranks that. What a search did not show was not called, so this flatters the search
    in use; compare with it, and keep sets of your own.

    Without vectors the mode dense is left out, and hybrid is lexical as in the gateway, unless
    disclosure.when_down is fail_closed.

    --provider compares models in one run; their other settings, such as the address of a service,
    are those of embedding.

    \b
    Examples:
      toolgate search eval
      toolgate search eval requests.jsonl
      toolgate search eval set --provider bundled --provider multilingual
      toolgate search eval requests.jsonl --catalog tools.jsonl --baseline
      toolgate search eval sets/one sets/two --limit 500 --fail-under ndcg@10=60
    """
    from_usage = from_usage or not queries
    _check_options(queries, from_usage, catalog, modes, thresholds, providers)
    results = [
        result
        for settings_ in _with_providers(settings, providers)
        for result in run(
            _evaluate(settings_, queries, from_usage, catalog, modes, limit, baseline)
        )
    ]
    if len(providers) > 1:
        results = [_named_by_model(result) for result in results]
    _print_results(results, form or "table")
    if plots is not None:
        _write_plots(results, plots)
    _check_thresholds(results, thresholds, modes[0])


def _check_options(
    queries: tuple[Path, ...],
    from_usage: bool,
    catalog: Path | None,
    modes: list[Mode],
    thresholds: list[Threshold],
    providers: tuple[EmbeddingProvider, ...],
) -> None:
    if providers and (
        from_usage or (catalog is None and not all(folder.is_dir() for folder in queries))
    ):
        fail("--provider needs --catalog: the registry has the vectors of one model", USAGE)
    for threshold in thresholds:
        if threshold.mode not in {None, *modes}:
            fail(f"--fail-under: {threshold.mode} is not among --modes {','.join(modes)}", USAGE)


def _check_thresholds(
    results: Sequence[SetResult], thresholds: Sequence[Threshold], default: Mode
) -> None:
    """`default`: the mode of thresholds that name none."""
    qualities = [result.quality for result in results]
    overall = mean_of(qualities) if len(qualities) > 1 else qualities[0]
    for threshold in thresholds:
        if (mode := threshold.mode or default) not in overall.modes:
            fail(f"--fail-under: {mode} was left out, without vectors")
    if wrong := missed_thresholds(thresholds, overall):
        fail("; ".join(wrong), UNWANTED)


def _with_providers(
    settings: Settings, providers: Sequence[EmbeddingProvider]
) -> Iterator[Settings]:
    """The settings with each of these providers; as they are where there is none."""
    if not providers:
        yield settings
    for provider in providers:
        embedding = settings.embedding
        if provider != embedding.provider:
            embedding = replace(embedding, provider=provider, model="", query_prefix="")
        yield replace(settings, embedding=embedding)


def _named_by_model(result: SetResult) -> SetResult:
    quality = dataclasses.replace(
        result.quality, name=f"{result.quality.name}, {result.model or 'no model'}"
    )
    return dataclasses.replace(result, quality=quality)


def _write_plots(results: Sequence[SetResult], folder: Path) -> None:
    try:
        written = write_plots(results, folder)
    except NoPlots as error:
        fail(str(error))
    err.print(f"{len(written)} plots are in {folder}", style="dim")


async def _evaluate(
    settings: Settings,
    queries: Sequence[Path],
    from_usage: bool,
    catalog: Path | None,
    modes: Sequence[Mode],
    limit: int | None,
    baseline: bool,
) -> list[SetResult]:
    sets = [_read(path, catalog, limit) for path in queries]  # all of them, before any is searched
    if from_usage:
        sets.append(
            RequestSet("usage", sample_requests(await _evaluation_requests(settings), limit), None)
        )
    results = []
    with _progress() as heard:
        for number, request_set in enumerate(sets):
            async with AsyncExitStack() as stack:
                corpus = await _corpus(stack, settings, request_set, heard(request_set.name))
                results.append(
                    await evaluate(
                        request_set.name,
                        corpus,
                        request_set.requests,
                        modes,
                        progress=heard(request_set.name),
                        baseline=baseline,
                        number=number,
                    )
                )
    return results


@click.command(name="usage")
@client_option(RESOURCE)
def usage(_settings: Settings, connect: Connect) -> None:
    """Print the requests that were followed by calls.

    They are those of callers of search_tools while search.usage_log was on, a line of JSON each,
    the newest first, with the ids of the tools that were called with success after them as gold.
    What looks like personal data or a secret is masked. The lines are a set for toolgate search
    eval.

    \b
    Example:
      toolgate search usage > requests.jsonl
    """
    for request in run(_used_requests(connect)):
        say(encode(request).decode())


async def _used_requests(connect: Connect) -> list[dict[str, Any]]:
    async with connect() as client:
        requests = await client.items("listUsedRequests", {})
    if not requests:
        fail("there are no requests yet that were followed by calls; search.usage_log records them")
    return requests


async def _evaluation_requests(settings: Settings) -> list[EvaluationRequest]:
    connect = partial(
        open_client, settings, url=None, key_file=None, resources=(RESOURCES + RESOURCE,)
    )
    return [
        EvaluationRequest(
            f"request {number}",
            used["query"],
            tuple(used["gold"]),
            tuple((id_,) for id_ in used["gold"]),
        )
        for number, used in enumerate(await _used_requests(connect), start=1)
    ]


def _read(path: Path, catalog: Path | None, limit: int | None) -> RequestSet:
    if path.is_dir():
        catalog = catalog or path / TOOLS
        file = path / QUERIES
    else:
        file = path
    name = path.name if path.is_dir() else path.stem
    requests = sample_requests(read_requests(file), limit)
    return RequestSet(name, requests, read_catalog(catalog) if catalog else None)


async def _corpus(
    stack: AsyncExitStack, settings: Settings, request_set: RequestSet, on_progress: Heard
) -> Corpus:
    if request_set.catalog is not None:
        return await stack.enter_async_context(
            of_catalog(request_set.catalog, settings, on_progress)
        )
    registry = await stack.enter_async_context(open_registry(settings))
    serving = await stack.enter_async_context(
        open_serving(settings, lambda: registry.database.pool)
    )
    corpus = await of_registry(registry.database, settings, serving)
    if not corpus.tools:
        fail("the registry has no tools: import some, or add --catalog TOOLS")
    return corpus


@contextmanager
def _progress() -> Iterator[Callable[[str], Heard]]:
    """A progress bar for each step of a set, at a terminal."""
    with progress_bar() as progress:
        bar = progress.add_task("", total=None)

        def of(name: str) -> Heard:
            def show_step(step: str, done: int, total: int) -> None:
                progress.update(bar, description=f"{name}: {step}", completed=done, total=total)

            return show_step

        yield of


def _print_results(results: Sequence[SetResult], form: Format) -> None:
    if form == "json":
        print_json(report.as_json(results))
        return
    for title, columns, rows in report.tables(results):
        if form == "md":
            say(report.markdown(title, columns, rows))
        else:
            say(f"\n{title}", "bold")
            print_rows(columns, rows if out.is_terminal else [columns, *rows])
    for text in report.remarks(results):
        say(text, "yellow")
