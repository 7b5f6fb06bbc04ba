"""Training pairs: a query and the tool that answers it.

Three kinds: queries of the sets with their gold tools (a query with several gold tools also by
sentence), descriptions against the rest of a tool's text, and requests made from the summaries of
OpenAPI operations. Queries and tools of the test split are excluded.
"""

import json
import random
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.training.sets import ToolSet, TrainingQuery, TrainingTool, seeded, tool_text
from registry.embedding.texts import identifier_words, sentences

Embed = Callable[[list[str]], NDArray[np.float32]]

PER_TOOL = 30  # queries per tool; MetaTool has a hundred for each
PER_API = 400  # operations per description; Kubernetes has a thousand repetitive ones
SENTENCE_FLOOR = 0.3  # cosine below which a sentence matches none of the gold tools
METHODS = ("get", "put", "post", "delete", "patch", "head", "options")
REQUESTS = (
    "{0}",
    "How do I {0}?",
    "Can you {0} for me?",
    "I need to {0}.",
    "Please {0}",
    "I want to {0}, what should I use?",
    "Help me {0}",
    "{0} by {1}",
)
SOURCES = ("api", "tools", "server", "main service", "internal", "my api", "demo", "v1", "catalog")


@dataclass(frozen=True)
class Pair:
    query: str
    tool: TrainingTool
    also: frozenset[str]  # ids of further correct tools, which are not negatives of this pair
    group: str  # the set or API; tools of one group are each other's hard negatives
    anchored: bool = False  # a passage: both texts keep near to the base model's vectors
    distinct: bool = False  # like texts are different tools: other operations of one resource


def set_pairs(tools: ToolSet, embed: Embed, seed: int) -> list[Pair]:
    """Pairs of the training split of one set."""
    tools_by_key = {f"{tools.name} {tool.id}": tool for tool in tools.tools}
    queries = [query for query in tools.queries if not tools.held_out(query)]
    seeded(seed).shuffle(queries)
    pairs: dict[str, list[Pair]] = defaultdict(list)
    for query, text, gold in _queries_of(tools, queries, embed):
        also = frozenset(f"{tools.name} {id_}" for id_ in query.gold)
        tool = tools_by_key[f"{tools.name} {gold}"]
        pairs[gold].append(Pair(text, replace(tool, id=f"{tools.name} {gold}"), also, tools.name))
    return [pair for group in pairs.values() for pair in group[:PER_TOOL]]


def description_pairs(tools: ToolSet, seed: int, share: float = 0.5) -> list[Pair]:
    """Pairs of a description and its tool's text without it: teaches names and parameters."""
    chance = seeded(seed)
    return [
        Pair(
            _first_sentence(tool.description),
            replace(tool, id=f"{tools.name} {tool.id}", description=""),
            frozenset((f"{tools.name} {tool.id}",)),
            f"{tools.name} descriptions",
        )
        for tool in tools.tools
        if len(tool.parameters) > 0
        and len(tool.description.split()) > 3
        and not tools.held_out_tool(tool.id)
        and chance.random() < share
    ]


def api_pairs(path: Path, seed: int) -> list[Pair]:
    """Requests made from the operations of one OpenAPI or Swagger description."""
    chance = seeded(seed)
    tools = list(_operations(json.loads(path.read_text(encoding="utf-8"))))
    chance.shuffle(tools)
    return [
        Pair(_request(tool, chance), _shown(tool, chance), frozenset((tool.id,)), path.stem)
        for tool in tools[:PER_API]
    ]


def mixed(
    pools: Mapping[str, Sequence[Pair]], shares: Mapping[str, float], count: int, seed: int
) -> list[Pair]:
    """`count` pairs, of each pool its share; of a pool that has fewer, some are taken again."""
    chance = seeded(f"mixture {seed}")
    pairs_: list[Pair] = []
    for name, pool in pools.items():
        times, remainder = divmod(round(count * shares.get(name, 0.0)), len(pool) or 1)
        pairs_ += [*pool] * times + chance.sample(pool, min(remainder, len(pool)))
    return pairs_


def varied_text(tool: TrainingTool, chance: random.Random) -> str:
    """The tool's text with parts left out at random, as real catalogues leave them out."""
    if chance.random() < 0.15:
        tool = replace(tool, parameters=())
    if chance.random() < 0.2:
        tool = replace(tool, source="", tags=())
    elif not tool.source and chance.random() < 0.2:
        tool = replace(tool, source=chance.choice(SOURCES))
    if tool.description and chance.random() < 0.15:
        tool = replace(tool, description=_first_sentence(tool.description))
    return tool_text(tool)


def _queries_of(
    tools: ToolSet, queries: Sequence[TrainingQuery], embed: Embed
) -> Iterator[tuple[TrainingQuery, str, str]]:
    """(query, text, gold tool): the whole query, and with several gold tools its sentences."""
    texts = {tool.id: tool_text(tool) for tool in tools.tools}
    chance = seeded(tools.name)
    for query in queries:
        yield query, query.text, chance.choice(query.gold)
        if len(query.gold) > 1 and (parts := sentences(query.text)):
            cosines = embed(parts) @ embed([texts[id_] for id_ in query.gold]).T
            for part, row in zip(parts, cosines, strict=True):
                if row.max() >= SENTENCE_FLOOR:
                    yield query, part, query.gold[int(row.argmax())]


def _request(tool: TrainingTool, chance: random.Random) -> str:
    summary = tool.description.split("\n")[0].strip().rstrip(".")
    plain = summary[:1].lower() + summary[1:] if summary[1:2].islower() else summary
    plain = re.sub(
        r"^(returns|retrieves|lists|creates|updates|deletes|gets|adds|removes|sets)\b",
        lambda match: match[0][:-1],
        plain,
    )
    named = identifier_words(chance.choice(tool.parameters or ("",)))
    requests = REQUESTS if named else REQUESTS[:-1]
    return chance.choice(requests).format(plain[:160], named)


def _shown(tool: TrainingTool, chance: random.Random) -> TrainingTool:
    """The tool, mostly without the summary that the request was made from."""
    if chance.random() < 0.25:
        return tool
    return replace(tool, description=" ".join(tool.description.split("\n")[1:]))


def _operations(document: dict[str, Any]) -> Iterator[TrainingTool]:
    title = str(document.get("info", {}).get("title") or "")
    for path, methods in document.get("paths", {}).items():
        for method, operation in methods.items():
            if method in METHODS and operation.get("summary", operation.get("description")):
                yield _operation(title, f"{method} {path}", operation)


def _operation(title: str, at: str, operation: dict[str, Any]) -> TrainingTool:
    texts = (operation.get("summary") or "", operation.get("description") or "")
    described = "\n".join(dict.fromkeys(_plain(text) for text in texts if text))
    names = (field["name"] for field in operation.get("parameters", ()) if "name" in field)
    return TrainingTool(
        id=f"{title} {at}",
        name=str(operation.get("operationId") or at),
        description=described,
        source=title,
        tags=tuple(map(str, operation.get("tags", ())))[:2],
        parameters=tuple(names),
        parameter_texts=(),
    )


def _plain(text: str) -> str:
    return " ".join(re.sub(r"<[^>]+>|\[([^\]]*)\]\([^)]*\)", r"\1", text).split())


def _first_sentence(text: str) -> str:
    return re.split(r"(?<=[.!?])\s", text.strip(), maxsplit=1)[0]


def grouped(
    pairs: Sequence[Pair], vectors: NDArray[np.float32], size: int, chance: random.Random
) -> list[list[int]]:
    """Groups of at most `size` pairs with near tools (rows of `vectors`), each tool once a group.

    Hard negatives by a tree of random hyperplanes: neighbours differ from epoch to epoch.
    """
    rounds: dict[tuple[str, int], list[int]] = defaultdict(list)
    rounds_used: dict[str, int] = defaultdict(int)
    for number in chance.sample(range(len(pairs)), len(pairs)):
        pair = pairs[number]
        rounds[pair.group, rounds_used[pair.tool.id]].append(number)
        rounds_used[pair.tool.id] += 1
    batches: list[list[int]] = []
    generator = np.random.default_rng(chance.randrange(2**32))
    for members in rounds.values():
        batches.extend(_leaves(np.array(members), vectors, size, generator))
    chance.shuffle(batches)
    return batches


def _leaves(
    members: NDArray[np.int64],
    vectors: NDArray[np.float32],
    size: int,
    generator: np.random.Generator,
) -> Iterable[list[int]]:
    if len(members) <= size:
        return [members.tolist()]
    first, second = vectors[generator.choice(members, 2, replace=False)]
    order = members[np.argsort(vectors[members] @ (first - second), kind="stable")]
    middle = max(size, len(order) // 2 // size * size)
    return [
        *_leaves(order[:middle], vectors, size, generator),
        *_leaves(order[middle:], vectors, size, generator),
    ]
