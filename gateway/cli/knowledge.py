"""`toolgate knowledge`: what its operations have no command for. Everything goes through the REST
API of a running gateway."""

import statistics
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any
from urllib.parse import quote

import click
from msgspec import Struct
from rich.progress import Progress

from config.settings import Settings
from gateway.cli.common.database import run, settings_option
from gateway.cli.common.failure import FAILED
from gateway.cli.common.output import err, print_json, print_rows
from gateway.cli.running.client import RunningGateway, gateway_options, running_gateway
from registry.evaluation.results import ndcg
from registry.evaluation.sets import Record, records
from schemas.jsonrpc import encode

ROOT, FILES = "/knowledge/v1", "/knowledge/files"
DEPTHS = (2, 5, 10, 20)
LIMIT = 100  # passages of one query
CITED = 3  # passages of each question whose citations are read
PAGE = 500
ALL = "all"


class PathQuestion(Struct, frozen=True):
    query: str
    paths: frozenset[str]  # of documents that answer it
    group: str
    arguments: Mapping[str, Any]  # of knowledge_query


def path_scores(found: Sequence[str], paths: Collection[str]) -> dict[str, float]:
    """R@k, all@k and N@10 of one question, per cent. `found`: paths, best first, each once."""
    wanted = frozenset(paths)
    share = {k: len(wanted.intersection(found[:k])) / len(wanted) for k in DEPTHS}
    scores = {f"R@{k}": 100 * one for k, one in share.items()}
    whole = {f"all@{k}": 100.0 * (one == 1) for k, one in share.items()}
    return {**scores, **whole, "N@10": 100 * ndcg(found, wanted)}


@click.command("eval")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON.")
@gateway_options(key_required=False)
@settings_option
def evaluate(
    settings: Settings, *, file: Path, as_json: bool, key_file: IO[str] | None, url: str | None
) -> None:
    """Measure how well documents are found, and check citations.

    Each line of FILE is a question and the paths of the documents that answer it: {"query": TEXT,
    "paths": [PATHS], "group": NAME, "arguments": OBJECT}. The last two are optional: figures are
    given for each group, and arguments are those of knowledge_query. R@k is the share of the
    documents among the first k, all@k the share of questions with all of them, "cited" the share
    of passages that stand where they are cited.
    """
    questions = [_question(record) for record in records(file)]
    gateway = running_gateway(settings, ROOT, url=url, key_file=key_file)
    figures = {
        name: {"questions": len(several), **_mean(several)}
        for name, several in run(_asked(gateway, questions)).items()
    }
    if as_json:
        print_json(figures)
        return
    rows = [(name, *(f"{value:.1f}" for value in one.values())) for name, one in figures.items()]
    print_rows(("group", *next(iter(figures.values()))), rows)


def _question(record: Record) -> PathQuestion:
    """Raises UnreadableSet."""
    arguments, paths = record.value.get("arguments", {}), frozenset(record.texts("paths"))
    if not paths or not isinstance(arguments, dict):
        raise record.bad("expected `paths` of documents, and an object of `arguments`")
    return PathQuestion(record.text("query", needed=True), paths, record.text("group"), arguments)


def _mean(several: Sequence[Mapping[str, float]]) -> dict[str, float]:
    return {key: statistics.mean(one[key] for one in several) for key in several[0]}


async def _asked(
    gateway: RunningGateway, questions: Sequence[PathQuestion]
) -> dict[str, list[dict[str, float]]]:
    """Scores by group, those of all at the end."""
    found: defaultdict[str, list[dict[str, float]]] = defaultdict(list)
    with _tracked(questions, "questions") as tracked:
        for one in tracked:
            given = {"limit": LIMIT, "tokens": 1_000_000, **one.arguments, "query": one.query}
            evidence = (await gateway.call("knowledge_query", given)).value["evidence"]
            scores = path_scores(list(dict.fromkeys(it["path"] for it in evidence)), one.paths)
            cited = [await _is_there(gateway, it) for it in evidence[:CITED]]
            scores["cited"] = 100.0 * statistics.mean(cited) if cited else 100.0
            found[one.group or ALL].append(scores)
    if found.keys() != {ALL}:
        found[ALL] = [one for several in found.values() for one in several]
    return dict(found)


async def _is_there(gateway: RunningGateway, evidence: Mapping[str, Any]) -> bool:
    """Whether a passage stands in the lines of the version that it names."""
    first, last = evidence["lines"]
    given = {"document": evidence["document"], "first": first, "last": last}
    read = (await gateway.call("knowledge_read", given)).value
    return read["version"] == evidence["version"] and evidence["text"] in read["text"]


@click.command("upload")
@click.argument("paths", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
@click.option("--collection", required=True, help="Collection; created if there is none.")
@gateway_options(key_required=False)
@settings_option
def upload(
    settings: Settings,
    *,
    paths: Sequence[Path],
    collection: str,
    key_file: IO[str] | None,
    url: str | None,
) -> None:
    """Store files, and those of directories, in a collection.

    Links, what .gitignore leaves out, and what is built or installed are left out. Files that
    cannot be read are reported, and the others stored.
    """
    gateway = running_gateway(settings, ROOT, url=url, key_file=key_file)
    report = run(_uploaded(gateway, list(_files(paths)), collection))
    print_json(report)
    if report["failed"]:
        raise SystemExit(FAILED)


def _files(paths: Sequence[Path]) -> Iterator[tuple[str, bytes]]:
    """Files by their paths in the collection."""
    from gateway.wings.knowledge.reading.sources import LeftOut, WantedFiles, directory

    for path in paths:
        if path.is_file():
            yield path.name, path.read_bytes()
            continue
        for found in directory(path, WantedFiles()):
            if isinstance(found, LeftOut):
                err.print(f"{found.path}: {found.reason}", markup=False)
            else:
                yield found.path, found.data or b""


async def _uploaded(
    gateway: RunningGateway, files: Sequence[tuple[str, bytes]], collection: str
) -> dict[str, Any]:
    counts = {"added": 0, "changed": 0, "unchanged": 0}
    failed: list[str] = []
    with _tracked(files, "files") as tracked:
        for path, data in tracked:
            place = f"{FILES}/{quote(collection, safe='')}/{quote(path)}"
            answer = await gateway.put(place, data)
            if answer.problem:
                failed.append(path)
                err.print(f"{path}: {answer.problem}", markup=False)
                continue
            for name in counts:
                counts[name] += answer.value[name]
    return {**counts, "failed": failed}


@click.command("export")
@click.option("--collection", required=True)
@click.option("--output", "-o", type=click.File("w"), default="-", help="File  [default: stdout].")
@gateway_options(key_required=False)
@settings_option
def export(
    settings: Settings,
    *,
    collection: str,
    output: IO[str],
    key_file: IO[str] | None,
    url: str | None,
) -> None:
    """Export the documents of a collection with their texts, as JSON Lines."""
    gateway = running_gateway(settings, ROOT, url=url, key_file=key_file)

    async def write() -> None:
        given = {"collection": collection, "limit": PAGE}
        for one in await gateway.items("knowledge_documents", given):
            if one["live"]:
                read = await gateway.call("knowledge_read", {"document": one["document"]})
                output.write(encode({**one, "text": read.value["text"]}).decode() + "\n")

    run(write())


@contextmanager
def _tracked(entries: Sequence[Any], what: str) -> Iterator[Iterator[Any]]:
    """The entries, with a progress bar at a terminal."""
    with Progress(console=err, transient=True, disable=not err.is_terminal) as progress:
        yield iter(progress.track(entries, description=what))
