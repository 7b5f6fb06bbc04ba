"""Requests for the operations of an OpenAPI or Swagger description, made without a model.

Descriptions of real APIs are terse: a name of verb and path, and a sentence of five words. A
request is made of the method and the path, or of the summary with another verb, and names a
parameter, a value of its enumeration or a tag. Operations of one resource are each other's hard
negatives: the same path with another method, and what lies beside and below it.
"""

import json
import random
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.training.data import METHODS, Pair
from benchmarks.training.sets import BadTrainingSet, TrainingTool, seeded
from registry.embedding.texts import identifier_words

PER_API = 500  # operations; Kubernetes has a thousand repetitive ones
PER_OPERATION = 3  # requests
TERSE = 8  # words of a terse description
VALUES = 4  # of an enumeration
LATER = 5, 30  # words of a later sentence that makes a request

FRAMES = (
    "{0}", "{0}", "{0}", "How do I {0}?", "Can you {0} for me?", "I need to {0}.", "Please {0}",
    "I want to {0}, what should I use?", "Help me {0}", "We have to {0} today.",
)  # fmt: skip
# Verbs for a method, of a collection and of one of its items.
COLLECTION: Mapping[str, Sequence[str]] = {
    "get": ("list", "show me all", "get me", "see which", "find", "give me an overview of"),
    "post": ("create a", "add a", "make a new", "set up a"),
    "put": ("replace all", "set the", "overwrite the"),
    "patch": ("change the", "update the", "edit the"),
    "delete": ("remove all", "delete all", "clear the"),
}
ITEM: Mapping[str, Sequence[str]] = {
    "get": ("get one", "look up a", "show the details of a", "fetch a", "read a single"),
    "post": ("update a", "change a", "modify a"),
    "put": ("set a", "update a", "replace a", "save a"),
    "patch": ("change a", "edit a", "modify part of a", "update a"),
    "delete": ("delete a", "remove a", "get rid of a", "drop a"),
}
# What else says the first verb of a summary.
SYNONYMS: Mapping[str, Sequence[str]] = {
    "list": ("show me all", "see the", "enumerate", "give me"),
    "get": ("show me", "look up", "fetch", "find out", "read"),
    "retrieve": ("show me", "look up", "fetch", "get"),
    "fetch": ("get", "look up", "show me"),
    "read": ("get", "show me", "inspect"),
    "create": ("make", "add", "set up", "start"),
    "add": ("put in", "attach", "include"),
    "update": ("change", "edit", "modify", "adjust"),
    "patch": ("change part of", "edit", "modify"),
    "replace": ("overwrite", "set anew", "swap out"),
    "set": ("change", "configure", "adjust"),
    "delete": ("remove", "get rid of", "drop", "throw away"),
    "remove": ("delete", "take away", "get rid of"),
    "cancel": ("stop", "call off", "abort"),
    "search": ("look for", "find"),
    "check": ("find out", "verify", "see"),
    "download": ("save", "get a copy of"),
    "connect": ("proxy", "open a connection to"),
    "describe": ("show me", "tell me about", "get the details of", "look up"),
    "return": ("give me", "show me", "get"),
    "start": ("begin", "launch", "run", "kick off"),
    "stop": ("end", "halt", "shut down"),
    "enable": ("turn on", "activate", "allow"),
    "disable": ("turn off", "deactivate", "switch off"),
    "attach": ("add", "connect", "link"),
    "detach": ("remove", "disconnect", "unlink"),
    "associate": ("link", "connect", "tie"),
    "disassociate": ("unlink", "disconnect", "separate"),
    "register": ("sign up", "add", "enroll"),
    "put": ("set", "save", "store", "add"),
    "insert": ("add", "create", "put in"),
    "modify": ("change", "edit", "adjust"),
    "send": ("deliver", "transmit", "push out"),
    "generate": ("make", "create", "produce"),
    "import": ("bring in", "load", "upload"),
    "export": ("save", "dump", "write out"),
    "test": ("try", "check", "try out"),
    "copy": ("duplicate", "clone"),
    "move": ("transfer", "relocate"),
    "undelete": ("bring back", "restore", "recover"),
    "restore": ("bring back", "recover"),
    "revoke": ("take away", "withdraw", "cancel"),
    "grant": ("give", "allow"),
    "tag": ("label", "mark"),
    "untag": ("remove labels from", "unlabel"),
    "count": ("how many are there of", "get the number of"),
}
_VERB = re.compile(rf"({'|'.join(SYNONYMS)})e?s?\b", re.IGNORECASE)
_SAYS = re.compile(r"([A-Za-z]+)s\b(?<!ss)(?= (?:an?|the|all|one|any|its|your|information)\b)")
_PREAMBLE = re.compile(
    r"(?:(?:you can )?use this (?:operation|action|api|method)s? to"
    r"|this (?:operation|action|api|method)|the \w+ (?:operation|action|api))\s+",
    re.IGNORECASE,
)
_VERSION = re.compile(r"v\d+\w*|apis?|\d{4}-\d\d-\d\d")
_MARKUP = re.compile(r"<[^>]{0,300}>|[`*]")


@dataclass(frozen=True)
class ApiParameter:
    name: str
    values: tuple[str, ...]  # of its enumeration


@dataclass(frozen=True)
class ApiOperation:
    """One operation of an API. `description` is plain text; its first sentence is the summary."""

    api: str
    method: str
    path: str
    name: str
    description: str
    tags: tuple[str, ...]
    parameters: tuple[ApiParameter, ...]
    spoken: str = ""  # what it does in words, where the path does not say

    @property
    def literals(self) -> list[str]:
        """The words of the fixed segments of the path, without versions."""
        fixed = (part for part in _path(self.path).split("/") if part and not part.startswith("{"))
        return [identifier_words(part) for part in fixed if not _VERSION.fullmatch(part.lower())]

    @property
    def of_item(self) -> bool:
        return _path(self.path).endswith("}")

    @property
    def resource(self) -> str:
        """Operations of one resource are siblings."""
        return " ".join(self.literals[:2])

    @property
    def same(self) -> tuple[str, str]:
        """Equal for those that differ by their version only."""
        return self.method, re.sub(r"v\d+\w*", "v", self.path.lower())


def operation_pairs(path: Path, seed: int) -> list[Pair]:
    """Up to PER_OPERATION pairs for each of PER_API operations. Raises BadTrainingSet."""
    chance = seeded(f"{seed} {path.stem}")
    all_operations = operations(path)
    equal = defaultdict(set)
    for operation in all_operations:
        equal[operation.same].add(_id(operation))
    chosen = chance.sample(all_operations, min(PER_API, len(all_operations)))
    return [
        Pair(
            request(operation, chance),
            variant(operation, chance),
            frozenset(equal[operation.same]),
            f"{path.stem} {operation.resource}",
            distinct=True,
        )
        for operation in chosen
        for _ in range(PER_OPERATION)
    ]


def operations(path: Path) -> list[ApiOperation]:
    """The operations of a description in JSON. Raises BadTrainingSet."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        return list(_operations(document))
    except (OSError, ValueError, AttributeError, TypeError) as error:
        raise BadTrainingSet(f"{path}: expected an OpenAPI description: {error}") from error


def request(operation: ApiOperation, chance: random.Random) -> str:
    """A request that the operation answers."""
    summary, kind = _summary(operation), chance.random()
    if kind < 0.2 and (told := _later(operation, chance)):
        return told
    told = _reworded(summary, chance) if summary and kind < 0.7 else ""
    phrase = told or _of_path(operation, chance)
    more = _detail(operation, chance) if chance.random() < 0.35 else ""
    asked = chance.choice(FRAMES).format(f"{phrase} {more}".strip())
    return asked[:1].upper() + asked[1:] if chance.random() < 0.5 else asked


def variant(operation: ApiOperation, chance: random.Random) -> TrainingTool:
    """A tool for the operation, with the texts that some catalog would have of it."""
    summary = _summary(operation)
    names = tuple(parameter.name for parameter in operation.parameters)
    full = TrainingTool(
        id=_id(operation),
        name=operation.name,
        description=operation.description,
        source=operation.api,
        tags=operation.tags,
        parameters=names,
        parameter_texts=(),
    )
    endpoint = f"{operation.method.upper()} {operation.path}"
    if not operation.literals:  # a path that says nothing
        endpoint = operation.name
    match chance.randrange(6):
        case 0:
            return full
        case 1:  # the summary in a few words, nothing else
            terse = " ".join(summary.split()[:TERSE])
            return replace(full, description=terse, tags=(), parameters=())
        case 2:  # a name of verb and path
            return replace(full, name=endpoint, description=summary, parameters=())
        case 3:  # no text: the endpoint stands in, as in the product
            return replace(full, description=identifier_words(endpoint))
        case 4:
            return replace(full, name=endpoint, description="", source="")
        case _:
            return replace(full, description=summary, source="")


def terse_tools(path: Path) -> Iterator[Mapping[str, Any]]:
    """The operations of a description as lines of `tools.jsonl`: name, first sentence, parameters.

    The id is that of the operation, or its endpoint.
    """
    for operation in operations(path):
        properties: dict[str, Any] = {parameter.name: {} for parameter in operation.parameters}
        yield {
            "id": operation.name,
            "name": operation.name,
            "description": " ".join(_summary(operation).split()[:20]),
            "server": operation.api,
            "tags": list(operation.tags),
            "parameters": {"type": "object", "properties": properties},
        }


def _id(operation: ApiOperation) -> str:
    return f"{operation.api} {operation.method} {operation.path}"


def _path(path: str) -> str:
    """The path without the suffix of a format."""
    return path.rstrip("/").removesuffix(".json")


def _summary(operation: ApiOperation) -> str:
    return re.split(r"(?<=[.!?])\s|\n", operation.description, maxsplit=1)[0].rstrip(". ")


def _later(operation: ApiOperation, chance: random.Random) -> str:
    """A later sentence of the description, "" where there is none of use."""
    parts = re.split(r"(?<=[.!?])\s|\n", operation.description)[1:6]
    told = [
        part for part in parts if LATER[0] <= len(part.split()) <= LATER[1] and "http" not in part
    ]
    told = [part for part in told if not part.startswith(("For ", "Note", "See ", "If you"))]
    return _reworded(chance.choice(told).rstrip(". "), chance) if told else ""


def _reworded(summary: str, chance: random.Random) -> str:
    """The summary as a command, mostly with another verb."""
    summary = _PREAMBLE.sub("", summary, count=1)
    match = _VERB.match(summary)
    if match is None:
        said = _SAYS.match(summary)
        plain = f"{_base(said[1])}{summary[said.end() :]}" if said else summary
        return plain[:1].lower() + plain[1:]
    verb = match[1].lower()
    if chance.random() < 0.7:
        verb = chance.choice(SYNONYMS[verb])
    return f"{verb}{summary[match.end() :]}"


def _base(verb: str) -> str:
    """The base form of a verb without its final s: applie, attache, start."""
    if verb.endswith("ie"):
        return f"{verb[:-2]}y"
    return verb[:-1] if verb.endswith(("sse", "xe", "che", "she", "zze")) else verb


def _of_path(operation: ApiOperation, chance: random.Random) -> str:
    """A phrase of method and path: "delete a comment of an issue"."""
    if operation.spoken:
        return _reworded(operation.spoken, chance)
    words = operation.literals or [identifier_words(operation.name)]
    item = operation.of_item
    verb = chance.choice((ITEM if item else COLLECTION)[operation.method])
    is_single = item or operation.method == "post"
    thing = _singular(words[-1]) if is_single else words[-1]
    if len(words) > 1 and chance.random() < 0.75:
        return f"{verb} {thing} {chance.choice(('of', 'in', 'for'))} a {_singular(words[-2])}"
    return f"{verb} {thing}"


def _detail(operation: ApiOperation, chance: random.Random) -> str:
    """A parameter, a value of one, or a tag, with the word that joins it."""
    listed = [parameter for parameter in operation.parameters if parameter.values]
    if listed and chance.random() < 0.5:
        parameter = chance.choice(listed)
        value = identifier_words(chance.choice(parameter.values))
        return f"with {identifier_words(parameter.name)} {value}"
    if operation.tags and chance.random() < 0.3:
        return f"in {identifier_words(chance.choice(operation.tags))}"
    if not operation.parameters:
        return ""
    name = identifier_words(chance.choice(operation.parameters).name)
    return f"{chance.choice(('by', 'with the', 'given its', 'and set the'))} {name}"


def _singular(words: str) -> str:
    if words.endswith("ies"):
        return f"{words[:-3]}y"
    if words.endswith(("sses", "xes", "ches")):
        return words[:-2]
    return words[:-1] if words.endswith("s") and not words.endswith("ss") else words


def _operations(document: Mapping[str, Any]) -> Iterator[ApiOperation]:
    title = str(document.get("info", {}).get("title") or "")
    for path, methods in document.get("paths", {}).items():
        shared = methods.get("parameters", ())
        for method, operation in methods.items():
            if method in METHODS and method in COLLECTION:
                parameters = [*shared, *operation.get("parameters", ())]
                yield ApiOperation(
                    api=title,
                    method=method,
                    path=path,
                    name=str(operation.get("operationId") or f"{method} {path}"),
                    description=_described(operation),
                    tags=tuple(map(str, operation.get("tags") or ()))[:2],
                    parameters=tuple(_parameters(document, parameters, operation)),
                )


def _described(operation: Mapping[str, Any]) -> str:
    texts = (operation.get("summary") or "", operation.get("description") or "")
    return "\n".join(dict.fromkeys(filter(None, map(plain, texts))))


def plain(text: str) -> str:
    """A text in Markdown or HTML without its marks, on one line."""
    return " ".join(_MARKUP.sub("", text).split())


def _parameters(
    document: Mapping[str, Any], listed: Sequence[Mapping[str, Any]], operation: Mapping[str, Any]
) -> Iterator[ApiParameter]:
    """The parameters, then the fields of a body in JSON or of a form."""
    for field in (_resolved(document, parameter) for parameter in listed):
        if field.get("in") in {"path", "query", "formData"} and "name" in field:
            yield _parameter(field["name"], field.get("schema") or field)
    content = _resolved(document, operation.get("requestBody") or {}).get("content") or {}
    for body in content.values():
        schema = _resolved(document, body.get("schema") or {})
        for name, field in (schema.get("properties") or {}).items():
            yield _parameter(name, _resolved(document, field))


def _parameter(name: str, schema: Mapping[str, Any]) -> ApiParameter:
    values = [value for value in schema.get("enum") or () if isinstance(value, str) and value]
    return ApiParameter(str(name), tuple(values[:VALUES]))


def _resolved(document: Mapping[str, Any], node: Mapping[str, Any]) -> Mapping[str, Any]:
    """The node that a local reference names, one step; empty where there is none."""
    reference = node.get("$ref")
    if not isinstance(reference, str):
        return node
    target: Any = document
    for key in reference.removeprefix("#/").split("/"):
        target = target.get(key.replace("~1", "/").replace("~0", "~"), {})
    return target if isinstance(target, dict) else {}
