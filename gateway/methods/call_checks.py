"""Checks of a call before it is executed: its arguments, idempotency key and scope."""

from collections.abc import Iterable, Mapping
from typing import Any

from gateway.context import Identity
from registry.display.schemas_for_profiles import argument_aliases
from schemas.binding import ServiceBinding
from schemas.errors import InvalidParams, ParseError
from schemas.hybrid import BAD_IDEMPOTENCY_KEY, StatusFault
from schemas.json_schema.checker import ArgumentProblem, Checker
from schemas.json_schema.validators import SchemaTooCostly
from schemas.jsonrpc import decode_json
from schemas.tool import Tool

IDEMPOTENCY_KEY_LIMIT = 128  # characters, as the portal's database has it


def own_argument_names(tool: Tool) -> dict[str, str]:
    """Names of arguments by those in lists of clients that reject them."""
    if tool.binding.facts.own or tool.binding.facts.typed:
        return {}
    try:
        schema = decode_json(bytes(tool.input_schema))
    except ParseError:
        return {}
    aliases = argument_aliases(schema) if isinstance(schema, dict) else {}
    return {alias: name for name, alias in aliases.items()}


def restore_names(arguments: dict[str, Any], own_names: Mapping[str, str]) -> dict[str, Any]:
    """The arguments by their own names; one that is given by both keeps both."""
    if not own_names or own_names.keys().isdisjoint(arguments):
        return arguments
    renamed = {name: own_names[name] for name in arguments if name in own_names}
    clear = {name: own_name for name, own_name in renamed.items() if own_name not in arguments}
    return {clear.get(name, name): value for name, value in arguments.items()}


def without_null(tool: Tool, checker: Checker, arguments: dict[str, Any]) -> dict[str, Any] | None:
    """Refused arguments without those that are null where their request cannot say so: models
    write the null for what they do not give. None: they do not fit the schema even so."""
    names = tool.binding.without_null
    kept_arguments = {
        name: value for name, value in arguments.items() if value is not None or name not in names
    }
    return (
        kept_arguments
        if len(kept_arguments) < len(arguments) and checker.accepts(kept_arguments)
        else None
    )


def problems_of(checker: Checker, arguments: dict[str, Any]) -> list[ArgumentProblem]:
    """Schema violations of `arguments`; empty if valid. Raises InvalidParams if uncheckable."""
    try:
        return [] if checker.accepts(arguments) else checker.explain(arguments)
    except ValueError as error:
        raise uncheckable(error) from error


def uncheckable(error: ValueError) -> InvalidParams:
    """The fault of arguments that a checker refuses to look at."""
    if isinstance(error, SchemaTooCostly):
        return InvalidParams(f"The arguments cannot be checked: {error}")
    return InvalidParams("The arguments are nested too deeply")


def problem_text(problems: Iterable[ArgumentProblem]) -> str:
    return "; ".join(f"{p.argument}: {p.message}" if p.argument else p.message for p in problems)


def check_idempotency_key(binding: ServiceBinding, key: str | None) -> None:
    """Check the idempotency key before execution; queries need none. Raises StatusFault."""
    if key is not None and binding.side != "query" and not 1 <= len(key) <= IDEMPOTENCY_KEY_LIMIT:
        raise StatusFault(BAD_IDEMPOTENCY_KEY, len(key))


def check_scope(binding: ServiceBinding, identity: Identity) -> None:
    """Require one of the action's scopes (light-4j's `enableVerifyScope`). Raises StatusFault."""
    if not binding.skip_auth:
        identity.require_scope(set((binding.scope or "").split()))
