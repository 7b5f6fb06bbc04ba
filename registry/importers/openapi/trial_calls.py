"""Trial calls of a new tool: its input schema is given the description's own examples, and a made
value of each branch. What it refuses is a note, since a service would most likely take it.

Made values are simple ones. A schema whose values cannot be made from its keywords one by one, as
with `pattern` or `not`, is left untried.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from registry.importers.openapi.keyword_repair import ANNOTATIONS
from schemas.json_schema.checker import Checker
from schemas.json_schema.keywords import COMPOSITIONS
from schemas.json_schema.references import definition_name, refer_to, reference_of
from schemas.json_schema.walk import subschemas
from schemas.jsonrpc import encode
from schemas.untrusted_json import mapping, sequence

_DEPTH_LIMIT = 12  # of made values
_STEPS_LIMIT = 2_000  # schemas applied and values compared for one made value
_STEPS_OF_ALL = 400_000  # of all made values of a document: some seconds
_EXAMPLES_LIMIT = 20  # per argument, and of the body
_BRANCHES_LIMIT = 50  # per choice; of more, the first are tried
_LENGTH_LIMIT = 1_000  # characters or items of a made value
_SIZE = 160  # characters of a problem
_MAKEABLE = ANNOTATIONS | {
    *("type", "enum", "const", "format", "contentEncoding", "contentMediaType"),
    *("properties", "required", "additionalProperties", "items", "minItems", "maxItems"),
    *("minLength", "maxLength", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"),
    *("$ref", *COMPOSITIONS),
}
_SCALARS = (str, int, float)  # and bool


class Unmakeable(Exception):
    """No value can be made for a schema with certainty."""


class NoFittingValue(Exception):
    """No value fits a schema; with the reason."""


class Trials:
    """Tries the tools of one document; a component's branches are tried once."""

    def __init__(self) -> None:
        self._tried: set[str] = set()
        self._steps = _STEPS_OF_ALL

    def refusals(
        self,
        schema: Mapping[str, Any],
        bodies: Sequence[Mapping[str, Any]],
        required_members: Sequence[str],
    ) -> Iterator[str]:
        """Sentences on what `schema`, an input schema, refuses; `bodies` are the arguments of
        examples of the body, which should have `required_members`."""
        properties, definitions = schema["properties"], mapping(schema.get("$defs"))
        components = [name for name in definitions if name not in self._tried]
        self._tried.update(components)
        places: list[tuple[str, tuple[str, ...], Any]] = [
            (name, (name,), inner) for name, inner in properties.items()
        ]
        places += [(name, (_COMPONENTS, name), definitions[name]) for name in components]
        trials = [
            _Made(where, branch, value, _nest_value(path, value))
            for where, path, inner in places
            for branch, value in self._branch_values(inner, definitions)
        ]
        examples = [
            (name, value)
            for name, inner in properties.items()
            for value in sequence(mapping(inner).get("examples"))[:_EXAMPLES_LIMIT]
        ]
        if not (trials or examples or bodies):
            return
        checker = _checker(properties, definitions, components)
        if checker is None:
            return
        for name, value in examples:
            if problem := _example_problem(checker, name, value):
                yield f"its schema refuses the example of {name}: {problem}"
        for body in bodies[:_EXAMPLES_LIMIT]:
            missing = [name for name in required_members if name not in body]
            problem = f"{missing[0]} is required" if missing else _problem(checker, body)
            if problem:
                yield f"its schema refuses an example of the body: {problem}"
        yield from _branch_refusals(checker, trials)

    def _branch_values(
        self, schema: Any, definitions: Mapping[str, Any]
    ) -> Iterator[tuple[str, Any]]:
        """A made value of each branch of a choice of `schema` itself: which branch, value; no more
        of them when the steps of the document are used up."""
        raw = mapping(schema)
        for keyword in ("anyOf", "oneOf"):
            branches = sequence(raw.get(keyword))[:_BRANCHES_LIMIT]
            for index, branch in enumerate(branches):
                if self._steps <= 0:
                    return
                common = {key: value for key, value in raw.items() if key != keyword}
                maker = _Maker(definitions)
                try:
                    value = maker.make([common, branch], all_of=branch)
                except Unmakeable:
                    continue
                except NoFittingValue as impossible:
                    value = impossible
                finally:
                    self._steps -= maker.steps
                yield f"branch {index + 1} of {len(branches)}", value


_COMPONENTS = "\0components"  # no argument has this name


def _checker(
    properties: Mapping[str, Any], definitions: Mapping[str, Any], components: Iterable[str]
) -> Checker | None:
    """The checker that calls pass, with the limits of its costs; None: it is too costly."""
    inner = {name: refer_to(name) for name in components}
    schema = {
        "properties": {**properties, _COMPONENTS: {"properties": inner}},
        "additionalProperties": False,
        "$defs": definitions,
    }
    try:
        return Checker(encode(schema))
    except ValueError:
        return None


def _example_problem(checker: Checker, name: str, value: Any) -> str:
    """The problem of an example; "" where only the spelling of a scalar differs, as with `1` in the
    YAML of a text."""
    problem = _problem(checker, {name: value})
    if not problem or not isinstance(value, _SCALARS):
        return problem
    counterpart = _number(value) if isinstance(value, str) else str(value)
    return problem if _problem(checker, {name: counterpart}) else ""


def _number(value: str) -> Any:
    if value in ("true", "false"):
        return value == "true"
    try:
        return float(value)
    except ValueError:
        return value


def _problem(checker: Checker, arguments: Mapping[str, Any]) -> str:
    """The first problem; "" for none, or where looking for it would take too long."""
    try:
        if checker.accepts(arguments):
            return ""
        problem = checker.explain(arguments)[0]
    except ValueError:
        return ""
    place = ".".join(str(step) for step in problem.path if step != _COMPONENTS)
    return f"{place}: {problem.message}"[:_SIZE] if place else problem.message[:_SIZE]


@dataclass(frozen=True, slots=True)
class _Made:
    """A made value of one branch, or the reason why there is none."""

    where: str
    branch: str
    value: Any
    arguments: Mapping[str, Any]


def _nest_value(path: Sequence[str], value: Any) -> dict[str, Any]:
    for name in reversed(path):
        value = {name: value}
    return dict(value)


def _branch_refusals(checker: Checker, trials: Sequence[_Made]) -> Iterator[str]:
    for trial in trials:
        impossible = isinstance(trial.value, NoFittingValue)
        problem = str(trial.value) if impossible else _problem(checker, trial.arguments)
        if problem:
            yield f"{trial.where}: no value fits {trial.branch}: {problem}"


@dataclass(slots=True)
class _Facts:
    """Keywords of all schemas that apply to one value."""

    types: list[list[str]] = field(default_factory=list)
    values: list[list[Any]] = field(default_factory=list)
    properties: dict[str, list[Any]] = field(default_factory=dict)
    required: dict[str, None] = field(default_factory=dict)
    items: list[Any] = field(default_factory=list)
    low: list[float] = field(default_factory=list)
    high: list[float] = field(default_factory=list)
    chosen: bool = False  # whether some are of one branch out of several
    size: int = 0  # least length
    length: int = _LENGTH_LIMIT  # most characters


class _Maker:
    """Makes values of schemas."""

    def __init__(self, definitions: Mapping[str, Any]) -> None:
        self._definitions = definitions
        self.steps = 0

    def make(self, schemas: Sequence[Any], depth: int = 0, all_of: Any = None) -> Any:
        """A value for all of `schemas`, with all properties of `all_of`. Raises `Unmakeable`."""
        facts = _Facts()
        for schema in schemas:
            self._collect(schema, facts, depth)
        if facts.values:
            return _common(facts.values, facts, depth)
        kinds = facts.types or [["object"] if facts.properties or facts.required else ["string"]]
        kind = _common([sorted(types, key="null".__eq__) for types in kinds], facts, depth)
        all_of_facts = _Facts()
        if all_of is not None:
            self._collect(all_of, all_of_facts, depth)
        return self._of_kind(kind, facts, all_of_facts, depth)

    def _of_kind(self, kind: str, facts: _Facts, all_of_facts: _Facts, depth: int) -> Any:
        match kind:
            case "object":
                return self._object(facts, all_of_facts, depth)
            case "array":
                return [self.make(facts.items or [{}], depth + 1)] * min(facts.size, _LENGTH_LIMIT)
            case "string":
                return "x" * min(max(facts.size, 1), facts.length)
            case "integer" | "number":
                number = max([0, *facts.low]) if facts.low else min([0, *facts.high])
                return int(number) if kind == "integer" and number == int(number) else number
            case "boolean":
                return True
        return None

    def _object(self, facts: _Facts, all_of_facts: _Facts, depth: int) -> dict[str, Any]:
        members = {}
        for name in (*facts.required, *all_of_facts.properties):
            if name in members:
                continue
            try:
                members[name] = self.make(facts.properties.get(name, [{}]), depth + 1)
            except Unmakeable:
                if name in facts.required:
                    raise
        return members

    def _collect(self, schema: Any, facts: _Facts, depth: int) -> None:
        self.steps += 1
        if depth > _DEPTH_LIMIT:
            raise Unmakeable
        if not isinstance(schema, dict) or not schema.keys() <= _MAKEABLE:
            raise Unmakeable
        self.steps += len(sequence(schema.get("enum"))) + len(mapping(schema.get("properties")))
        if self.steps > _STEPS_LIMIT:
            raise Unmakeable
        if reference_of(schema) is not None:
            self._collect(self._definitions.get(definition_name(schema)), facts, depth + 1)
        for part in subschemas(schema, ["allOf"]):
            self._collect(part, facts, depth + 1)
        if choice := sequence(schema.get("anyOf")) or sequence(schema.get("oneOf")):
            facts.chosen = True
            self._collect(choice[0], facts, depth + 1)
        _take(schema, facts)


def _common(lists: list[list[Any]], facts: _Facts, depth: int) -> Any:
    """The first value that all `lists` have. Raises `Impossible`, and `Unmakeable` where another
    branch or no value at all would do as well."""
    common = [value for value in lists[0] if all(value in values for values in lists)]
    if common:
        return common[0]
    if depth or facts.chosen:
        raise Unmakeable
    raise NoFittingValue(f"{lists[0]} and {lists[1]} exclude each other"[:_SIZE])


def _take(schema: Mapping[str, Any], facts: _Facts) -> None:
    if "type" in schema:
        facts.types.append([schema["type"]] if isinstance(schema["type"], str) else schema["type"])
    if "const" in schema:
        facts.values.append([schema["const"]])
    if "enum" in schema:
        facts.values.append(schema["enum"])
    for name, inner in mapping(schema.get("properties")).items():
        facts.properties.setdefault(name, []).append(inner)
    facts.required.update(dict.fromkeys(schema.get("required", ())))
    if "items" in schema:
        facts.items.append(schema["items"])
    facts.size = max(facts.size, schema.get("minLength", 0), schema.get("minItems", 0))
    facts.length = min(facts.length, schema.get("maxLength", _LENGTH_LIMIT))
    facts.low += [schema["minimum"]] if "minimum" in schema else []
    facts.low += [schema["exclusiveMinimum"] + 1] if "exclusiveMinimum" in schema else []
    facts.high += [schema["maximum"]] if "maximum" in schema else []
    facts.high += [schema["exclusiveMaximum"] - 1] if "exclusiveMaximum" in schema else []
