"""Forms of servers (elicitation) that are answered apart from their call, and their answers."""

from typing import Any

import msgspec

from schemas.json_schema.checker import Checker

FORM_BYTES = 64 << 10


def is_askable(schema: Any) -> bool:
    """Whether a schema is a form that answers can be checked by, and not too large."""
    if not isinstance(schema, dict):
        return False
    encoded = msgspec.json.encode(schema)
    try:
        return len(encoded) <= FORM_BYTES and Checker(encoded) is not None
    except ValueError:
        return False


def find_misfit(schema: dict[str, Any], content: Any) -> str:
    """The first reason why the content of an answer does not fit its form; "": it fits. Raises
    ValueError where it cannot be checked."""
    problems = Checker(msgspec.json.encode(schema)).explain(content)
    return f"{problems[0].argument or 'answer'}: {problems[0].message}" if problems else ""
