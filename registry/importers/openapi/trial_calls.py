"""Trial calls of a new tool: its input schema is given the description's own examples, and a made
value of each branch. What it refuses is a note, since a service would most likely take it.

A schema without made values (`example_values.py`) is left untried.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from registry.importers.openapi.example_values import NoFittingValue, Unmakeable, ValueMaker
from schemas.json_schema.checker import Checker
from schemas.json_schema.references import refer_to
from schemas.jsonrpc import encode
from schemas.untrusted_json import mapping, sequence

_STEPS_OF_ALL = 400_000  # of all made values of a document: some seconds
_EXAMPLES_LIMIT = 20  # per argument, and of the body
_BRANCHES_LIMIT = 50  # per choice; of more, the first are tried
_SIZE = 160  # characters of a problem
_SCALARS = (str, int, float)  # and bool


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
                maker = ValueMaker(definitions)
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
        problem = str(trial.value)[:_SIZE] if impossible else _problem(checker, trial.arguments)
        if problem:
            yield f"{trial.where}: no value fits {trial.branch}: {problem}"
