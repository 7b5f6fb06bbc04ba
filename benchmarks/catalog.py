"""Tools and requests for search benchmarks: those of public sets, and synthetic ones as needed.

Synthetic descriptions come from a Markov chain over the words of real ones, of order two, or one
for each sixth word, and none occurs twice. Names are the beginning of one name and the end of
another, and arguments are those of any tool. So vocabulary, lengths and word co-occurrence are
realistic, and no two texts are alike; the texts make little sense. Without sets the words are those
of tools from a few templates.
"""

import random
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from registry.embedding.texts import identifier_words
from registry.evaluation.request_sets import (
    QUERIES,
    TOOLS,
    CatalogTool,
    read_catalog,
    read_requests,
)

SEED = 20260728
SERVERS = 40  # of made tools
TEMPLATES = 3000  # tools, where there are no sets
WORDS = 40  # of a made description, at most
STRAY = 1 / 6  # of its words follow one word only
TRIES = 10

_VERBS = (
    "list", "create", "delete", "update", "approve", "export", "cancel", "find", "send", "count",
)  # fmt: skip
_THINGS = (
    "invoice", "customer", "shipment", "refund", "contract", "employee", "ticket", "forecast",
    "warehouse", "subscription", "payment", "course", "room", "flight", "recipe", "sensor",
    "report",
)  # fmt: skip
_OF = (
    "a customer", "one region", "the last quarter", "an open order", "a delivery that is late",
    "all suppliers", "the sales team", "a cancelled trip", "each branch", "an archived project",
)  # fmt: skip
_WITH = ("status", "date", "currency", "owner", "page", "limit", "reason", "priority", "language")


def catalog(directory: Path | None, count: int) -> list[CatalogTool]:
    """`count` tools, as far as possible those of the sets in `directory`."""
    paths = sorted(directory.glob(f"*/{TOOLS}")) if directory else []
    tools = [
        replace(tool, server=tool.server or path.parent.name)  # else names might be taken twice
        for path in paths
        for tool in read_catalog(path)
    ]
    rng = random.Random(SEED)
    picked = rng.sample(tools, min(len(tools), count))
    # two sets may use the same ids
    real_tools = [replace(tool, id=f"{number}:{tool.id}") for number, tool in enumerate(picked)]
    models = real_tools or [_template(rng, number) for number in range(TEMPLATES)]
    making = Making(rng, models)
    return [*real_tools, *(making.tool(number) for number in range(count - len(real_tools)))]


def asked(directory: Path | None, count: int) -> list[str]:
    """Different requests."""
    paths = sorted(directory.glob(f"*/{QUERIES}")) if directory else []
    rng = random.Random(SEED)
    queries = sorted({request.query for path in paths for request in read_requests(path)})
    real_requests = rng.sample(queries, min(len(queries), count))
    return [
        *real_requests,
        *(_request(rng, number) for number in range(count - len(real_requests))),
    ]


class Making:
    """Tools out of the words of others."""

    def __init__(self, rng: random.Random, models: Sequence[CatalogTool]) -> None:
        self._rng = rng
        self._names = [words for model in models if (words := _words(model.name))]
        self._properties = [item for model in models for item in _properties(model)]
        self._taken: set[str] = set()
        self._described = {model.description for model in models}
        self._begun: list[tuple[str, str]] = []
        self._after: dict[tuple[str, ...], list[str]] = defaultdict(list)  # "": the end
        for model in models:
            self._learn(model.description.split()[:WORDS])

    def tool(self, number: int) -> CatalogTool:
        many = min(self._rng.randint(0, 5), len(self._properties))
        properties = self._rng.sample(self._properties, many)
        return CatalogTool(
            id=f"made:{number}",
            name=self._name(number),
            description=self._description(),
            server=f"service-{self._rng.randrange(SERVERS)}",
            input_schema={"type": "object", "properties": dict(properties)},
        )

    def _learn(self, words: Sequence[str]) -> None:
        if len(words) < 2:
            return
        self._begun.append((words[0], words[1]))
        for before, last, following in zip(words, words[1:], [*words[2:], ""], strict=False):
            self._after[before, last].append(following)
            self._after[last,].append(following)

    def _description(self) -> str:
        """One that there has not been; of few models some have to be alike."""
        for _ in range(TRIES):
            description = self._chain()
            if description not in self._described:
                break
        self._described.add(description)
        return description

    def _chain(self) -> str:
        words = list(self._rng.choice(self._begun))
        while len(words) < WORDS:
            stray = self._rng.random() < STRAY
            word = self._rng.choice(self._after[tuple(words[-1:] if stray else words[-2:])])
            if not word:
                break
            words.append(word)
        return " ".join(words)

    def _name(self, number: int) -> str:
        first, second = self._rng.choice(self._names), self._rng.choice(self._names)
        name = "_".join([first[0], *second[-2:]])[:60]
        if name in self._taken:
            name = f"{name}_{number}"
        self._taken.add(name)
        return name


def _words(name: str) -> list[str]:
    return identifier_words(name.rpartition("/")[2]).split()


def _properties(tool: CatalogTool) -> list[tuple[str, Any]]:
    properties = tool.input_schema.get("properties")
    return list(properties.items()) if isinstance(properties, dict) else []


def _template(rng: random.Random, number: int) -> CatalogTool:
    verb, thing, of = rng.choice(_VERBS), rng.choice(_THINGS), rng.choice(_OF)
    names = rng.sample(_WITH, 3)
    properties = {name: {"type": "string", "description": f"The {name} of it."} for name in names}
    return CatalogTool(
        id=f"template:{number}",
        name=f"{verb}_{thing}_{names[0]}",
        description=f"{verb.capitalize()}s each {thing} of {of}, by {names[0]}.",
        input_schema={"type": "object", "properties": properties},
    )


def _request(rng: random.Random, number: int) -> str:
    def wish() -> str:
        return f"{rng.choice(_VERBS)} the {rng.choice(_THINGS)} of {rng.choice(_OF)}"

    second_wish = f" Then {wish()}, please." if number % 2 else ""
    return f"I would like to {wish()}, number {number}.{second_wish}"
