"""Tools that requests miss most often, and how to describe them better. Pure.

A proposed description is made of the name and the schemas alone, by no model: it is a start for the
person who knows the tool.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from msgspec import Struct

from registry.embedding.texts import identifier_words
from registry.evaluation.request_sets import RelevantTools

FIRST = 5  # results among which a tool has to be: as many as an agent sees by default
TOOLS = 10  # tools
INSTEAD = 3  # tools that are named as found instead
SHORT = 5  # words, below which a description says too little
TERSE_NAME = 2  # words that a name has at least
MEMBERS = 6  # parameters and results of a proposed description
CLAUSE = 60  # characters of the description of one parameter


@dataclass(frozen=True, slots=True)
class DescribedTool:
    """A tool as its catalog describes it; schemas are decoded when they are needed."""

    id: str
    name: str
    description: str
    title: str | None = None
    source: str = ""
    input_schema: Mapping[str, Any] | None = None
    output_schema: Mapping[str, Any] | None = None


class ToolImprovement(Struct, frozen=True):
    """A tool that was `missed` among the first five results by so many of the `requests` that
    needed it. `instead`: tools that were found first. `reasons`: what its description lacks.
    `proposal`: a description made of its name and schemas."""

    tool: str
    missed: int
    requests: int
    instead: tuple[str, ...]
    reasons: tuple[str, ...]
    proposal: str


def improvements(
    answers: Sequence[Sequence[str]],
    relevant: Sequence[RelevantTools],
    tools: Iterable[DescribedTool],
) -> tuple[ToolImprovement, ...]:
    """The TOOLS that were missed most often; `answers`, `relevant`: ids by request."""
    tools_by_id = {tool.id: tool for tool in tools}
    requests, missed = Counter[str](), Counter[str]()
    instead = defaultdict[str, Counter[str]](Counter)
    for results, want in zip(answers, relevant, strict=True):
        first = results[:FIRST]
        for slot in want.slots:
            present = [id_ for id_ in sorted(slot) if id_ in tools_by_id]
            requests.update(present)
            if slot.isdisjoint(first):
                missed.update(present)
                for id_ in present:
                    instead[id_].update(
                        result for result in first[:INSTEAD] if result in tools_by_id
                    )
    same = Counter(tool.description.strip() for tool in tools_by_id.values())
    worst = sorted(missed, key=lambda id_: (-missed[id_], requests[id_], tools_by_id[id_].name))
    return tuple(
        ToolImprovement(
            tools_by_id[id_].name,
            missed[id_],
            requests[id_],
            tuple(tools_by_id[result].name for result, _ in instead[id_].most_common(INSTEAD)),
            tuple(_reasons(tools_by_id[id_], same[tools_by_id[id_].description.strip()])),
            propose_description(tools_by_id[id_]),
        )
        for id_ in worst[:TOOLS]
    )


def _reasons(tool: DescribedTool, same: int) -> Iterator[str]:
    """Reasons why a tool's texts say too little, and the texts that are expected. `same`: number
    of tools with its description."""
    words = len(tool.description.split())
    if words == 0:
        yield "it has no description: say what it does, to what, and what it answers"
    elif words < SHORT:
        yield f"its description has {words} words: say what it does, to what, and what it answers"
    elif same > 1:
        yield f"{same} tools have this description: say what is different"
    if len(identifier_words(tool.title or tool.name).split()) < TERSE_NAME:
        yield f"its name {tool.name} is one word: name it by a verb and its object"
    properties = list(_properties(tool.input_schema))
    bare = sum(not _clause(schema) for _, schema in properties)
    if bare:
        yield f"{bare} of {len(properties)} parameters have no description"
    if words >= SHORT and not bare and same == 1:
        yield "its description has other words than the requests: add those that people use"


def propose_description(tool: DescribedTool) -> str:
    """`track_parcel` gives "Track parcel, by tracking number (on the label) and country. Answers
    with state and eta."."""
    sentence = identifier_words(tool.title or tool.name).capitalize()
    if tool.source:
        sentence = f"{sentence} ({tool.source})"
    required = (tool.input_schema or {}).get("required")
    needed = set(required) if isinstance(required, list) else set()
    properties = sorted(_properties(tool.input_schema), key=lambda item: item[0] not in needed)
    if properties:
        sentence = f"{sentence}, by {_join(_parameter(*item) for item in properties[:MEMBERS])}"
    results = [identifier_words(name) for name, _ in _properties(tool.output_schema)][:MEMBERS]
    return f"{sentence}. Answers with {_join(results)}." if results else f"{sentence}."


def _parameter(name: str, schema: Mapping[str, Any]) -> str:
    words, clause = identifier_words(name), _clause(schema)
    choices = schema.get("enum")
    if not clause and isinstance(choices, list):
        clause = ", ".join(str(choice) for choice in choices[:MEMBERS])[:CLAUSE]
    return words if not clause or clause.lower() == words else f"{words} ({clause})"


def _clause(schema: Mapping[str, Any]) -> str:
    """The first clause of a parameter's description, if it is short."""
    text = schema.get("description")
    if not isinstance(text, str):
        return ""
    first = text.strip().partition("\n")[0].partition(". ")[0].rstrip(".")
    if len(first) > CLAUSE:
        first = first[:CLAUSE].rpartition(" ")[0] or first[:CLAUSE]
    return first[:1].lower() + first[1:] if first[1:2].islower() else first


def _properties(schema: Mapping[str, Any] | None) -> Iterator[tuple[str, Mapping[str, Any]]]:
    properties = (schema or {}).get("properties")
    for name, value in (properties if isinstance(properties, Mapping) else {}).items():
        yield name, value if isinstance(value, Mapping) else {}


def _join(words: Iterable[str]) -> str:
    *before, last = words
    return f"{', '.join(before)} and {last}" if before else last
