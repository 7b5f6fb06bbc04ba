"""Python functions that user-defined tools call: their parameters and calling convention.

    functions:
      count-words: company.tools:count_words

    def count_words(text: str, shortest: Annotated[int, Meta(ge=1)] = 1) -> dict[str, int]: ...

Arguments are passed by name. The annotations define their types (whatever msgspec can decode), and
the tool's input schema unless it has its own. A parameter annotated as `gateway.hybrid.Call` gets
the caller. The result is as for hybrid actions, or a `ToolResult`. A function that is not `async`
runs in a thread.
"""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, get_args

import msgspec

from config.user_modules import load_module
from gateway.hybrid.python_services import Call, Handler
from schemas.errors import InvalidParams, ToolgateError
from schemas.json_schema.references import definition_name

_BY_KEYWORD = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)

_NOTHING: Mapping[str, "Function"] = {}


@dataclass(frozen=True, slots=True)
class Function:
    """A configured function and its signature."""

    target: str  # module:function
    handler: Handler  # called with the values by name, and the `Call`
    description: str  # of its docstring; may be empty
    schema: dict[str, Any] | None  # None: its annotations have no JSON Schema
    takes: tuple[str, ...]  # names of its parameters
    needs: tuple[str, ...]  # those without a default
    _values: type[msgspec.Struct] | None = field(repr=False)

    def values(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments converted to the annotated types. Raises InvalidParams."""
        if self._values is None:
            return dict(arguments)
        try:
            converted = msgspec.convert(arguments, self._values)
        except msgspec.ValidationError as error:
            raise InvalidParams(str(error)) from error
        return {name: getattr(converted, name) for name in converted.__struct_fields__}


def load_functions(
    targets: Mapping[str, str], earlier: Mapping[str, Function] = _NOTHING
) -> dict[str, Function]:
    """Load the configured functions, by name; unchanged `earlier` ones are reused. Raises
    ToolgateError that lists every failure."""
    functions: dict[str, Function] = {}
    broken: list[str] = []
    for name, target in targets.items():
        function = earlier.get(name)
        try:
            if function is None or function.target != target:
                function = load_function(target)
            functions[name] = function
        except ToolgateError as error:
            broken.append(f"functions.{name}: {error}")
    if broken:
        raise ToolgateError("\n  ".join(broken))
    return functions


def load_function(target: str) -> Function:
    """Import the function `target`. Raises ToolgateError with the reason."""
    name, _, attribute = target.partition(":")
    function = getattr(load_module(name), attribute, None)
    if not callable(function):
        problem = "has no function" if function is None else "is not a function:"
        raise ToolgateError(f"{target}: the module {name} {problem} {attribute}")
    try:
        signature = inspect.signature(function, eval_str=True)
    except (NameError, TypeError, ValueError, SyntaxError) as error:
        raise ToolgateError(f"{target}: its signature cannot be read: {error}") from error
    for parameter in signature.parameters.values():
        if parameter.kind not in _BY_KEYWORD:
            raise ToolgateError(f"{target}: arguments come by name, and {parameter} takes none")
    callers = [
        parameter.name for parameter in signature.parameters.values() if _is_for_call(parameter)
    ]
    from_arguments = [
        parameter for parameter in signature.parameters.values() if parameter.name not in callers
    ]
    values, schema = _read(from_arguments)
    is_async = any(map(inspect.iscoroutinefunction, (function, type(function).__call__)))
    handler = Handler(_with_call(function, callers), takes_call=True, is_async=is_async)
    takes = tuple(parameter.name for parameter in from_arguments)
    needs = tuple(
        parameter.name for parameter in from_arguments if parameter.default is parameter.empty
    )
    description = inspect.getdoc(function) or ""
    return Function(
        target,
        handler,
        description=description,
        schema=schema,
        takes=takes,
        needs=needs,
        _values=values,
    )


def _with_call(function: Callable[..., Any], callers: list[str]) -> Callable[..., Any]:
    def call(values: Mapping[str, Any], call: Call) -> Any:
        return function(**values, **dict.fromkeys(callers, call))

    return call


def _is_for_call(parameter: inspect.Parameter) -> bool:
    annotation = parameter.annotation
    return annotation is Call or Call in get_args(annotation)


def _read(
    parameters: list[inspect.Parameter],
) -> tuple[type[msgspec.Struct] | None, dict[str, Any] | None]:
    """A struct of the parameters, and its JSON Schema; None for what msgspec cannot decode."""
    try:
        values = msgspec.defstruct(
            "Arguments",
            [_field(parameter) for parameter in parameters],
            kw_only=True,
            module=__name__,
        )
        (struct_schema,), definitions = msgspec.json.schema_components(
            [values], ref_template="#/$defs/{name}"
        )
    except (TypeError, ValueError):
        return None, None
    schema = definitions.pop(definition_name(struct_schema))
    schema.pop("title", None)
    schema["additionalProperties"] = False
    return values, {**schema, "$defs": definitions} if definitions else schema


def _field(parameter: inspect.Parameter) -> Any:
    annotation = Any if parameter.annotation is parameter.empty else parameter.annotation
    if parameter.default is parameter.empty:
        return parameter.name, annotation
    value = parameter.default
    if isinstance(value, list | dict | set | bytearray):
        value = msgspec.field(default_factory=lambda: parameter.default)
    return parameter.name, annotation, value
