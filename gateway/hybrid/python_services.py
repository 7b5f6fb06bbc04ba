"""Hybrid services of Python modules: their marked functions, loaded, checked and described."""

import inspect
import logging
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any, get_args

from anyio import CapacityLimiter, to_thread

from config.user_modules import load_module
from gateway.context import Principal
from registry.importers.hybrid import (
    ID_LIMIT,
    ServiceDescription,
    UnusableSchema,
    close_schema,
    read_file,
    size_of,
)
from schemas.errors import ToolgateError
from schemas.hybrid import Action, Side, Status

log = logging.getLogger("toolgate.hybrid")

SPEC = "HYBRID_SPEC"
_MARK = "__hybrid_action__"

Function = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Call:
    """The context of one call."""

    principal: Principal
    request_id: str
    service: str  # the id that was called
    correlation_id: str | None = None
    idempotency_key: str | None = None


class Failure(ToolgateError):
    """The action failed."""

    def __init__(self, status: int, body: Mapping[str, Any] | Status | str) -> None:
        """`status` is the HTTP status, 400 to 599; `body` a Status, or text."""
        if not 400 <= status <= 599:
            raise ValueError(f"the HTTP status of a Failure is 400 to 599, not {status}")
        super().__init__(body if isinstance(body, str) else f"HTTP {status}")
        self.status = status
        self.body = body


def action(
    id_: str,
    *,
    schema: Mapping[str, Any] | None = None,
    scope: str | None = None,
    skip_auth: bool = False,
    side: Side | None = None,
    description: str = "",
    positional: Sequence[str] = (),
    rest: str | None = None,
) -> Callable[[Function], Function]:
    """Serve the function as the action `id_`: host/service/action/version, or any method name.

    `schema` is the JSON Schema of the data; without one the data are not checked. `side` "command"
    or "query" restricts it to that portal path; only a query counts as read-only. `positional`
    names the arguments that an array of params stands for, `rest` the one that takes the remaining
    ones.

    Raises TypeError and ValueError for invalid arguments.
    """
    declaration = declare_action(
        id_,
        description=description,
        schema=schema,
        scope=scope,
        skip_auth=skip_auth,
        side=side,
        positional=positional,
        rest=rest,
    )

    def mark(function: Function) -> Function:
        text = description or inspect.getdoc(function) or ""
        setattr(function, _MARK, replace(declaration, description=text))
        return function

    return mark


@dataclass(frozen=True, slots=True)
class Handler:
    """A marked function and its calling convention."""

    function: Function
    takes_call: bool
    is_async: bool

    async def __call__(self, data: Any, call: Call) -> Any:
        arguments = (data, call) if self.takes_call else (data,)
        if self.is_async:
            return await self.function(*arguments)
        # Concurrency is bounded by the caller.
        return await to_thread.run_sync(self.function, *arguments, limiter=CapacityLimiter(1))


@dataclass(frozen=True, slots=True)
class Service:
    """The actions of one module."""

    target: str  # the module, or the path of the file
    actions: tuple[Action, ...]
    handlers: Mapping[str, Handler]  # by the id of the action


def load(target: str) -> Service:
    """The service in the module, or the .py file, `target`. Raises ToolgateError."""
    loaded = load_module(target)
    marked = _marked_functions(loaded)
    described = _described_actions(loaded, [mark for mark, _ in marked.values()])
    if not described:
        raise ToolgateError(f"{target} has no actions: mark functions with @hybrid.action(...)")
    handlers = {action.id: _handler(marked[action.id][1], target) for action in described}
    return Service(target, tuple(described), handlers)


def _marked_functions(module: ModuleType) -> dict[str, tuple[Action, Function]]:
    """The marked functions of the module, by the ids of their actions."""
    by_id: dict[str, tuple[Action, Function]] = {}
    for function in vars(module).values():
        mark = getattr(function, _MARK, None)
        if not isinstance(mark, Action):
            continue
        if mark.id in by_id and by_id[mark.id][1] is not function:
            raise ToolgateError(f"{module.__file__} has two functions for the action {mark.id}")
        by_id[mark.id] = (mark, function)
    return by_id


def _described_actions(module: ModuleType, actions: list[Action]) -> list[Action]:
    """The served actions: the marked ones, with the spec's description if the module has one."""
    named = getattr(module, SPEC, None)
    if named is None:
        return actions
    file = _spec_file(module, named)
    described = _read_spec(file)
    in_spec = {action.id: action for action in described.actions}
    for action in actions:
        if action.id not in in_spec:
            log.warning(
                "action_description_missing", extra={"action": action.id, "spec": str(file)}
            )
    for id_ in in_spec.keys() - {action.id for action in actions}:
        log.warning("action_not_written", extra={"action": id_})
    return [_merge_action(in_spec[action.id], action) for action in actions if action.id in in_spec]


def _spec_file(module: ModuleType, location: Any) -> Path:
    if not isinstance(location, str | os.PathLike):
        raise ToolgateError(f"{module.__file__}: {SPEC}: expected a path, found {location!r:.60}")
    return Path(module.__file__ or "").parent / location


def _read_spec(file: Path) -> ServiceDescription:
    try:
        described = read_file(file.read_bytes(), str(file))
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise ToolgateError(f"{SPEC}: {file}: {reason}") from error
    except ToolgateError as error:
        raise ToolgateError(f"{SPEC}: {error}") from error
    for note in described.notes:
        log.warning("service_description_invalid", extra={"spec": str(file), "reason": note})
    for outcome in described.outcomes:
        if outcome.reason:
            members = {
                "action": outcome.operation,
                "becomes": outcome.status,
                "reason": outcome.reason,
            }
            log.warning("action_description_invalid", extra=members)
    return described


def _merge_action(description: Action, action: Action) -> Action:
    """Merge: the spec takes precedence; a docstring replaces a generated description."""
    made_up = description.description == f"Service {description.id}"
    return replace(
        description,
        description=action.description
        if made_up and action.description
        else description.description,
        side=action.side,
        positional=action.positional,
        rest=action.rest,
    )


def _handler(function: Function, target: str) -> Handler:
    is_async = any(map(inspect.iscoroutinefunction, (function, type(function).__call__)))
    return Handler(function, _takes_call(function, target), is_async)


_BY_POSITION = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def _takes_call(function: Function, target: str) -> bool:
    """Whether the function takes the `Call` too. Raises ToolgateError when it takes neither that
    nor the data alone."""
    signature = inspect.signature(function)
    places = [
        parameter for parameter in signature.parameters.values() if parameter.kind in _BY_POSITION
    ]
    takes_call = len(places) > 1 and (places[1].default is places[1].empty or _for_call(places[1]))
    try:
        signature.bind(*([None] * (2 if takes_call else 1)))
    except TypeError as error:
        name = getattr(function, "__qualname__", type(function).__qualname__)
        text = f"{target}: {name} must take (data) or (data, call), not {signature}"
        raise ToolgateError(text) from error
    return takes_call


def _for_call(parameter: inspect.Parameter) -> bool:
    """Whether the parameter's name or annotation, possibly still text, marks it as the `Call`."""
    annotation = parameter.annotation
    if isinstance(annotation, str):
        return parameter.name == "call" or Call.__name__ in re.findall(r"\w+", annotation)
    return parameter.name == "call" or Call in (annotation, *get_args(annotation))


_SIDES = get_args(Side)
_ID = 'an id such as "lightapi.net/rule/deleteRule/0.1.0"'
_SCHEMA = 'a JSON Schema such as {"type": "object", "required": ["ruleId"]}'


def declare_action(
    id_: Any,
    *,
    description: Any,
    schema: Any,
    scope: Any,
    skip_auth: Any,
    side: Any,
    positional: Any,
    rest: Any,
) -> Action:
    """Raises TypeError and ValueError, which name what was expected."""
    checked = _id(id_)
    _expect(checked, "side", side is None or side in _SIDES, f"None or one of {_SIDES}", value=side)
    _expect(checked, "skip_auth", isinstance(skip_auth, bool), "True or False", value=skip_auth)
    _expect(checked, "description", isinstance(description, str), "text", value=description)
    _expect(checked, "rest", rest is None or isinstance(rest, str), "None or a name", value=rest)
    return Action(
        checked,
        description,
        _schema(checked, schema),
        scope=_scope(checked, scope),
        skip_auth=skip_auth,
        side=side,
        positional=_names(checked, positional),
        rest=rest,
    )


def _id(id_: Any) -> str:
    if callable(id_):
        raise TypeError(
            f"@hybrid.action stands without its id: write @hybrid.action(...) with {_ID}"
        )
    if not isinstance(id_, str):
        raise TypeError(f"expected {_ID}, found {_excerpt(id_)}")
    if not id_.strip() or not id_.isprintable() or size_of(id_) > ID_LIMIT:
        raise ValueError(f"expected {_ID} of 1 to {ID_LIMIT} bytes, found {_excerpt(id_)}")
    return id_


def _scope(id_: str, scope: Any) -> str | None:
    """A blank scope is an error: it would leave the action open."""
    is_text = isinstance(scope, str) and bool(scope.strip())
    _expect(
        id_, "scope", scope is None or is_text, "None or scopes separated by blanks", value=scope
    )
    return scope  # type: ignore[no-any-return]  # checked above


def _names(id_: str, positional: Any) -> tuple[str, ...]:
    listed = isinstance(positional, Sequence) and not isinstance(positional, str)
    fits = listed and all(isinstance(name, str) for name in positional)
    _expect(id_, "positional", fits, "a list of names", value=positional)
    return tuple(positional)


def _schema(id_: str, schema: Any) -> dict[str, Any] | None:
    if schema is None:
        return None
    if schema == {...}:
        raise TypeError(f"{id_}: schema={{...}} is a placeholder: write {_SCHEMA} in its place")
    _expect(id_, "schema", isinstance(schema, Mapping), f"None or {_SCHEMA}", value=schema)
    try:
        close_schema(dict(schema))
    except UnusableSchema as problem:
        raise ValueError(f"{id_}: schema: {problem}") from problem
    return dict(schema)


def _expect(id_: str, name: str, fits: bool, expected: str, *, value: Any) -> None:
    if not fits:
        raise TypeError(f"{id_}: {name}: expected {expected}, found {_excerpt(value)}")


def _excerpt(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:59]}…"
