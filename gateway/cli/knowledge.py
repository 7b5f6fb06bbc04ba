"""`toolgate knowledge`: what its operations have no command for. Everything goes through the REST
API of a running gateway."""

import statistics
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any
from urllib.parse import quote

import anyio
import click
from msgspec import Struct

from config.settings import Settings
from gateway.app.evaluation_questions import ScoredQuestion, Scores, rank_scores, read_questions
from gateway.cli.common.database import open_registry
from gateway.cli.common.event_loop import run
from gateway.cli.common.failure import FAILED, USAGE, fail
from gateway.cli.common.output import err, print_json
from gateway.cli.common.progress import progress_bar, track
from gateway.cli.common.questions import print_figures, score_questions
from gateway.cli.common.settings import settings_option
from gateway.cli.running.client import RunningGateway, gateway_options, running_gateway
from gateway.wings.table import wing_kinds
from schemas.jsonrpc import encode

if TYPE_CHECKING:
    from gateway.wings.documents.reading.source_files import SourceFile
    from gateway.wings.knowledge.ray_bulk import ReembeddingReport

WATCH_S = 1.0
ROOT, FILES = "/knowledge/v1", "/knowledge/files"
DEPTHS = (2, 5, 10, 20)
LIMIT = 100  # passages of one query
PASSAGES_READ = 3  # passages of each question whose citations are read
PAGE = 500


def path_scores(paths: Sequence[str], answers: frozenset[str]) -> dict[str, float]:
    """R@k, all@k and N@10 of one question, per cent. `paths`: best first, each once."""
    scores = rank_scores(paths, answers, DEPTHS)
    return {**scores, **{f"all@{k}": 100.0 * (scores[f"R@{k}"] == 100) for k in DEPTHS}}


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
    questions = read_questions(file, "paths", "paths of documents")
    gateway = running_gateway(settings, ROOT, url=url, key_file=key_file)
    score = partial(_score_question, gateway)
    print_figures(run(score_questions(questions, score)), as_json=as_json)


async def _score_question(gateway: RunningGateway, question: ScoredQuestion) -> Scores:
    query = {"limit": LIMIT, "tokens": 1_000_000, **question.arguments, "query": question.query}
    evidence = (await gateway.call("knowledge_query", query)).value["evidence"]
    paths = list(dict.fromkeys(passage["path"] for passage in evidence))
    cited = [await _is_there(gateway, passage) for passage in evidence[:PASSAGES_READ]]
    share = 100.0 * statistics.mean(cited) if cited else 100.0
    return {**path_scores(paths, question.answers), "cited": share}


async def _is_there(gateway: RunningGateway, evidence: Mapping[str, Any]) -> bool:
    """Whether a passage stands in the lines of the version that it names."""
    first, last = evidence["lines"]
    place = {"document": evidence["document"], "first": first, "last": last}
    passage = (await gateway.call("knowledge_read", place)).value
    return passage["version"] == evidence["version"] and evidence["text"] in passage["text"]


@click.command("upload")
@click.argument("paths", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
@click.option("--collection", required=True, help="Collection; created if there is none.")
@click.option("--watch", is_flag=True, help="Go on with what changes, until Ctrl-C.")
@click.option(
    "--engine",
    type=click.Choice(["gateway", "ray"]),
    default="gateway",
    help="What reads the files  [default: gateway].",
)
@click.option(
    "--address", default="local", help="Ray: the cluster  [default: one of this machine]."
)
@click.option("--owner", help="Ray: the principal that stores them.")
@gateway_options(key_required=False)
@settings_option
def upload(
    settings: Settings,
    *,
    paths: Sequence[Path],
    collection: str,
    watch: bool,
    engine: str,
    address: str,
    owner: str | None,
    key_file: IO[str] | None,
    url: str | None,
) -> None:
    """Store files, and those of directories, in a collection.

    Links, what .gitignore leaves out, what is built or installed, and files of secrets such as
    .env, *.pem and *.key are left out. Files that cannot be read are reported, and the others
    stored.

    --watch looks at the files each second: what changed is stored, and the documents of files that
    were deleted meanwhile are deleted.

    --engine ray reads and embeds many files on a cluster, in which Toolgate is installed, and
    stores them in the database of the settings, for the principal of --owner. It takes
    toolgate[ray].
    """
    if engine == "ray":
        if owner is None or watch:
            raise click.UsageError("--engine ray takes --owner, and no --watch")
        _require_ray()
        report = run(_on_ray(settings, _files(paths), collection, address=address, owner=owner))
    else:
        gateway = running_gateway(settings, ROOT, url=url, key_file=key_file)
        if watch:
            run(_watch_files(gateway, paths, collection))
        report = upload_files(gateway, paths, collection)
    print_json(report)
    if report["failed"]:
        raise SystemExit(FAILED)


def upload_files(gateway: RunningGateway, paths: Sequence[Path], collection: str) -> dict[str, Any]:
    """Store files, and those of directories; the counts of what became of them."""
    return run(_upload_files(gateway, list(_list_files(paths).items()), collection))


def _list_files(paths: Sequence[Path]) -> dict[str, "_Listed"]:
    """Files by their paths in the collection, and what shows that they changed. Raises OSError."""
    from gateway.wings.documents.reading.source_files import WantedFiles, list_files

    files: dict[str, _Listed] = {}
    for path in paths:
        if path.is_file():
            files[path.name] = _Listed.of(path.resolve())
            continue
        for name, file in list_files(path, WantedFiles()):
            files[name] = _Listed.of(Path(file.path))
    return files


class _Listed(Struct, frozen=True):
    """A file of this machine. Size and time are 0 if it is not there any more."""

    file: Path
    size: int = 0
    changed_ns: int = 0

    @classmethod
    def of(cls, file: Path) -> "_Listed":
        try:
            status = file.lstat()
        except OSError:
            return cls(file)
        return cls(file, status.st_size, status.st_mtime_ns)


def _files(paths: Sequence[Path]) -> "Iterator[SourceFile]":
    from gateway.wings.documents.reading.source_files import SourceFile, WantedFiles, read_file

    for path, entry in _list_files(paths).items():
        content = read_file(path, str(entry.file), WantedFiles())
        if isinstance(content, SourceFile):
            yield content
        else:
            err.print(f"{content.path}: {content.reason}")


async def _upload_files(
    gateway: RunningGateway, files: Sequence[tuple[str, _Listed]], collection: str
) -> dict[str, Any]:
    from gateway.wings.documents.reading.source_files import LeftOut, WantedFiles, read_file

    counts = {"added": 0, "changed": 0, "unchanged": 0}
    failed: list[str] = []
    with track(files, "files") as tracked:
        for path, entry in tracked:
            content = read_file(path, str(entry.file), WantedFiles())
            if isinstance(content, LeftOut):
                err.print(f"{content.path}: {content.reason}")
                continue
            place = f"{FILES}/{quote(collection, safe='')}/{quote(path)}"
            answer = await gateway.put(place, content.data or b"")
            if answer.problem:
                failed.append(path)
                err.print(f"{path}: {answer.problem.removeprefix(f'{path}: ')}")
                continue
            for name in counts:
                counts[name] += answer.value[name]
    return {**counts, "failed": failed}


async def _watch_files(gateway: RunningGateway, paths: Sequence[Path], collection: str) -> None:
    """Store what changes, until the command is ended. What cannot be listed changes nothing."""
    before: dict[str, _Listed] = {}
    while True:
        try:
            current = _list_files(paths)
        except OSError as error:
            err.print(f"{error.filename}: {error.strerror}")
            current = before
        changed = [(path, entry) for path, entry in current.items() if before.get(path) != entry]
        if changed:
            print_json(await _upload_files(gateway, changed, collection))
        if gone := before.keys() - current.keys():
            print_json({"deleted": await _delete_documents(gateway, gone, collection)})
        before = current
        await anyio.sleep(WATCH_S)


async def _delete_documents(
    gateway: RunningGateway, paths: Collection[str], collection: str
) -> int:
    """Delete the documents of these paths; returns how many there were."""
    documents = await gateway.items(
        "knowledge_documents", {"collection": collection, "limit": PAGE}
    )
    ids = [document["document"] for document in documents if document["path"] in paths]
    count = 0
    for at in range(0, len(ids), PAGE):
        batch = {"collection": collection, "documents": ids[at : at + PAGE]}
        count += (await gateway.call("knowledge_delete", batch)).value["documents"]
    return count


async def _on_ray(
    settings: Settings,
    files: "Iterator[SourceFile]",
    collection: str,
    *,
    address: str,
    owner: str,
) -> dict[str, Any]:
    """Read the files on a cluster, and store them here."""
    from gateway.wings.knowledge.ray_bulk import upload_on_ray

    async with open_registry(settings) as registry:
        with progress_bar() as progress:
            stored = progress.add_task("documents", total=None)
            vectors = progress.add_task("vectors", total=None)
            report, count = await upload_on_ray(
                registry.database.pool,
                settings,
                files,
                collection=collection,
                address=address,
                owner=owner,
                on_stored=lambda: progress.advance(stored),
                on_embedded=lambda count: progress.update(vectors, completed=count),
            )
    for failure in report.failed:
        err.print(f"{failure.path}: {failure.reason}")
    return {
        "added": report.added,
        "changed": report.changed,
        "unchanged": report.unchanged,
        "vectors": count,
        "failed": [failure.path for failure in report.failed],
    }


@click.command("reembed")
@click.option("--address", default="local", help="The cluster  [default: one of this machine].")
@settings_option
def reembed(settings: Settings, *, address: str) -> None:
    """Embed texts that have no vector of the settings' model, on a Ray cluster.

    After a change of the model: queries use the vectors of the one before until all texts of
    documents, and of memories, which share the model, have theirs. Ctrl-C stops it; a later run
    goes on with the rest. It takes toolgate[ray], on each machine of the cluster as well; `toolgate
    embed backfill` does the same without.
    """
    _require_ray()
    print_json(asdict(run(_reembed_all(settings, address))))


def _require_ray() -> None:
    if find_spec("ray") is None:
        fail("bulk work on a cluster needs the extra: pip install 'toolgate[ray]'", USAGE)


async def _reembed_all(settings: Settings, address: str) -> "ReembeddingReport":
    from gateway.wings.knowledge.ray_bulk import reembed_on_ray

    async with open_registry(settings) as registry:
        with progress_bar() as progress:
            vectors = progress.add_task("vectors", total=None)
            return await reembed_on_ray(
                registry.database,
                settings,
                wing_kinds(settings),
                address=address,
                on_embedded=lambda count: progress.update(vectors, completed=count),
            )


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
        query = {"collection": collection, "limit": PAGE}
        for document in await gateway.items("knowledge_documents", query):
            if document["live"]:
                answer = await gateway.call("knowledge_read", {"document": document["document"]})
                output.write(encode({**document, "text": answer.value["text"]}).decode() + "\n")

    run(write())
