"""The public tool sets: catalogues with queries and the tools that answer them, and their split.

A set is a folder with `tools.jsonl` (id, name, description, parameters as JSON Schema, and where
known server, category or field) and `queries.jsonl` (id, query, gold: ids of tools).
"""

import hashlib
import json
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from registry.embedding import texts

TEST_QUERIES = 30  # percent of a set's queries
TEST_TOOLS = 15  # percent of a set's tools
SAMPLE_SEED = 0
REQUESTS = Path(__file__).with_name("requests.jsonl")  # query, language, gold: SET/ID of tools


class BadTrainingSet(Exception):
    """A malformed training set; names the file and what was expected."""


@dataclass(frozen=True)
class TrainingTool:
    id: str
    name: str
    description: str
    source: str
    tags: tuple[str, ...]
    parameters: tuple[str, ...]
    parameter_texts: tuple[str, ...]


@dataclass(frozen=True)
class TrainingQuery:
    id: str
    text: str
    gold: tuple[str, ...]


@dataclass(frozen=True)
class ToolSet:
    name: str
    tools: tuple[TrainingTool, ...]
    queries: tuple[TrainingQuery, ...]

    def held_out_tool(self, tool: str) -> bool:
        """Whether the tool is held out: no query of it is trained on."""
        return _percent(f"{self.name} tool {tool}") < TEST_TOOLS

    def held_out(self, query: TrainingQuery) -> bool:
        """Whether the query belongs to the test split."""
        return _percent(f"{self.name} query {query.id}") < TEST_QUERIES or any(
            map(self.held_out_tool, query.gold)
        )


def load(folder: Path) -> ToolSet:
    """Load a set from its folder. Raises BadTrainingSet."""
    try:
        tools = tuple(_tool(row) for row in rows(folder / "tools.jsonl"))
        queries = tuple(_query(row) for row in rows(folder / "queries.jsonl"))
    except OSError as error:
        raise BadTrainingSet(f"{folder} is no tool set: {error}") from error
    except (AttributeError, KeyError, TypeError) as error:
        raise BadTrainingSet(f"{folder}: a row lacks a key or has a wrong type: {error}") from error
    return ToolSet(folder.name, tools, tuple(query for query in queries if query.gold))


def write_requests(sets: Path, out: Path) -> tuple[int, int]:
    """Write the requests of REQUESTS and all tools of the sets that answer them as the set `out`;
    the numbers of its tools and requests. Raises BadTrainingSet."""
    queries = [{"id": number, **row} for number, row in enumerate(rows(REQUESTS), 1)]
    names = sorted({gold.partition("/")[0] for query in queries for gold in query["gold"]})
    tools = [
        {**row, "id": f"{name}/{row['id']}"}
        for name in names
        for row in rows(sets / name / "tools.jsonl")
    ]
    tool_ids = {tool["id"] for tool in tools}
    for query in queries:
        if not tool_ids.issuperset(query["gold"]):
            raise BadTrainingSet(f"{sets} has no tool {query['gold']} of the request {query['id']}")
    out.mkdir(parents=True, exist_ok=True)
    for file, lines in (("tools.jsonl", tools), ("queries.jsonl", queries)):
        text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
        (out / file).write_text(text, encoding="utf-8")
    return len(tools), len(queries)


def tool_text(tool: TrainingTool) -> str:
    """The text of a tool that the product would embed."""
    return texts.tool_text(
        texts.ToolFields(
            name=tool.name,
            description=tool.description,
            source=tool.source,
            tags=tool.tags,
            parameters=tool.parameters,
        )
    )


def seeded(seed: int | str) -> random.Random:
    """A reproducible random number generator."""
    return random.Random(seed)


def rounds(names: Sequence[str], unseen: Sequence[str]) -> Iterator[tuple[list[str], list[str]]]:
    """The rounds of leave-one-set-out: sets to evaluate, and those to train on, which are neither
    evaluated then nor in `unseen`."""
    for left_out in (*([name] for name in names if name not in unseen), list(unseen)):
        yield left_out, [name for name in names if name not in left_out and name not in unseen]


def sample(tools: ToolSet, split: str, limit: int) -> list[TrainingQuery]:
    """At most `limit` queries of the split "train", "test" or "all"; the same in each run."""
    queries = [query for query in tools.queries if split in ("all", _split(tools, query))]
    return seeded(SAMPLE_SEED).sample(queries, min(limit, len(queries)))


def _split(tools: ToolSet, query: TrainingQuery) -> str:
    return "test" if tools.held_out(query) else "train"


def _tool(row: dict[str, Any]) -> TrainingTool:
    schema = row.get("parameters") or {}
    properties = schema.get("properties") if isinstance(schema, dict) else None
    properties = properties if isinstance(properties, dict) else {}
    tags = [row.get("category"), *(row.get("field") or "").split("/"), *(row.get("tags") or ())]
    return TrainingTool(
        str(row["id"]),
        row["name"],
        row.get("description") or "",
        row.get("server") or "",
        tuple(tag for tag in tags if tag),
        tuple(properties),
        tuple(_described(value) for value in properties.values()),
    )


def _query(row: dict[str, Any]) -> TrainingQuery:
    return TrainingQuery(str(row["id"]), row["query"], tuple(dict.fromkeys(row["gold"])))


def _described(schema: Any) -> str:
    return str(schema.get("description") or "") if isinstance(schema, dict) else ""


def rows(path: Path) -> Iterator[dict[str, Any]]:
    """The lines of `path`. Raises BadTrainingSet with the line that cannot be read."""
    with path.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            try:
                yield json.loads(line)
            except ValueError as error:
                raise BadTrainingSet(
                    f"{path}, line {number}: expected a JSON object: {error}"
                ) from error


def _percent(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4]) % 100


def by_id(tools: Iterable[TrainingTool]) -> dict[str, TrainingTool]:
    return {tool.id: tool for tool in tools}
