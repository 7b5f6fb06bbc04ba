"""`toolgate memory`: what its operations have no command for. Everything goes through the REST API
of a running gateway."""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import click
from msgspec import Struct

from config.settings import Settings
from gateway.app.evaluation_questions import ScoredQuestion, Scores, rank_scores, read_questions
from gateway.cli.common.event_loop import run
from gateway.cli.common.failure import FAILED
from gateway.cli.common.output import err, print_json
from gateway.cli.common.progress import track
from gateway.cli.common.questions import print_figures, score_questions
from gateway.cli.common.settings import settings_option
from gateway.cli.running.client import RunningGateway, gateway_options, running_gateway
from schemas.errors import ParseError
from schemas.jsonrpc import decode_json, encode

AT_ONCE = 100  # memories, entities or relations of one call
EXPORT_PAGE = 500  # memories of one page
DEPTHS = (1, 5, 10, 20, 50)
ROOT = "/memory/v1"


@click.command("eval")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON.")
@gateway_options(key_required=False)
@settings_option
def evaluate(
    settings: Settings, *, file: Path, as_json: bool, key_file: IO[str] | None, url: str | None
) -> None:
    """Measure how well memories are found: NDCG@10, and recall at 1 to 50.

    Each line of FILE is a question and the ids of the memories that answer it, of the caller's own
    memories: {"query": TEXT, "evidence": [IDS], "group": NAME, "arguments": OBJECT}. The last two
    are optional: figures are given for each group, and arguments are those of memory_search.
    """
    questions = read_questions(file, "evidence", "the ids of memories")
    gateway = running_gateway(settings, ROOT, url=url, key_file=key_file)

    async def score(question: ScoredQuestion) -> Scores:
        arguments = {"limit": max(DEPTHS), "tokens": 1 << 30, **question.arguments}
        answer = await gateway.call("memory_search", {**arguments, "query": question.query})
        ids = [memory["id"] for memory in answer.value["items"]]
        return rank_scores(ids, question.answers, DEPTHS)

    print_figures(run(score_questions(questions, score)), as_json=as_json)


@click.command("export")
@click.option("--subject", help="Another user; takes the scope memory:erase.")
@click.option("--output", "-o", type=click.File("w"), default="-", help="File  [default: stdout].")
@gateway_options(key_required=False)
@settings_option
def export(
    settings: Settings,
    *,
    subject: str | None,
    output: IO[str],
    key_file: IO[str] | None,
    url: str | None,
) -> None:
    """Export all that is held of a user, as JSON Lines.

    `toolgate memory import` stores it again.

    \b
    Example:
      toolgate memory export --subject ann --key-file ops.key > ann.jsonl
    """
    gateway = running_gateway(settings, ROOT, url=url, key_file=key_file)
    owner = {} if subject is None else {"subject": subject}
    for memory in run(gateway.items("memory_export", {**owner, "limit": EXPORT_PAGE})):
        output.write(encode(memory).decode() + "\n")


@click.command("import")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@gateway_options(key_required=False)
@settings_option
def import_(settings: Settings, *, file: Path, key_file: IO[str] | None, url: str | None) -> None:
    """Import memories from JSON Lines, as `toolgate memory export` writes them.

    FILE may also be that of the MCP reference memory server: entities and relations are stored with
    its tools, which memory.compat has to offer. What is there already stays as it is. Lines that
    cannot be read are reported, and the others imported.
    """
    gateway = running_gateway(settings, ROOT, url=url, key_file=key_file)
    lines = MemoryLines.of(file)
    for problem in lines.problems:
        err.print(problem)
    counts = run(_import(gateway, lines, settings.rpc.path))
    print_json({**counts, "unreadable": len(lines.problems)})
    if lines.problems:
        raise SystemExit(FAILED)


class MemoryLines(Struct, frozen=True):
    """The lines of a file: memories, and the entities and relations of the reference server."""

    memories: list[dict[str, Any]]
    entities: list[dict[str, Any]]
    relations: list[dict[str, Any]]
    problems: list[str]

    @classmethod
    def of(cls, file: Path) -> "MemoryLines":
        lines = cls([], [], [], [])
        for number, line in enumerate(file.read_bytes().split(b"\n"), 1):
            try:
                if line.strip():
                    lines._add(decode_json(line))
            except (ParseError, ValueError) as error:
                reason = error.message if isinstance(error, ParseError) else str(error)
                lines.problems.append(f"{file}:{number}: {reason}")
        return lines

    def _add(self, value: Any) -> None:
        """Raises ValueError."""
        if not isinstance(value, dict):
            raise ValueError("expected an object")
        members = frozenset(value)
        if value.get("type") == "entity" and {"name", "entityType", "observations"} <= members:
            self.entities.append(_without_type(value))
        elif value.get("type") == "relation" and {"from", "to", "relationType"} <= members:
            self.relations.append(_without_type(value))
        elif {"id", "scope", "content"} <= members:
            self.memories.append(value)
        else:
            raise ValueError("expected a memory, or an entity or a relation of a graph")


def _without_type(value: Mapping[str, Any]) -> dict[str, Any]:
    return {name: member for name, member in value.items() if name != "type"}


async def _import(gateway: RunningGateway, lines: MemoryLines, rpc: str) -> dict[str, int]:
    """Counts of stored items."""
    counts: Counter[str] = Counter()
    with track(_batches(lines.memories), "memories") as batches:
        begin = 0
        for batch in batches:
            answer = dict((await gateway.call("memory_import", {"items": batch})).value)
            refused = answer.pop("refused", ())
            counts.update(answer)
            for line in refused:
                err.print(f"memory {begin + line['index'] + 1}: {line['reason']}")
            if refused:
                counts["refused"] += len(refused)
            begin += len(batch)
    with track(_batches(lines.entities), "entities") as batches:
        for batch in batches:
            created = await gateway.rpc(rpc, "create_entities", {"entities": batch})
            counts["entities"] += len(created["entities"])
            observed = [
                {"entityName": entity["name"], "contents": entity["observations"]}
                for entity in batch
            ]
            await gateway.rpc(rpc, "add_observations", {"observations": observed})
    with track(_batches(lines.relations), "relations") as batches:
        for batch in batches:
            created = await gateway.rpc(rpc, "create_relations", {"relations": batch})
            counts["relations"] += len(created["relations"])
    return dict(counts)


def _batches(entries: Sequence[Any]) -> list[Sequence[Any]]:
    return [entries[begin : begin + AT_ONCE] for begin in range(0, len(entries), AT_ONCE)]
