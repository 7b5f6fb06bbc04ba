"""Masking of memories before they are stored and embedded, by the built-in rules and a function of
the operator."""

import logging
from collections.abc import Callable, Mapping
from typing import Any, Literal

from config.user_modules import load_function
from gateway.operations.problems import unavailable
from schemas.errors import ToolgateError
from schemas.personal_data import mask

log = logging.getLogger("toolgate.memory")

Mode = Literal["off", "mask", "refuse"]
Mask = Callable[[str, Mapping[str, Any]], tuple[str, tuple[str, ...]]]
"""A masking hook: gets a text and the facts of its memory (scope, kind, trust, owner, agent), and
returns the text to be stored and the kinds of what it replaced, each once."""


class ContentRefused(ToolgateError):
    """The text contains what its scope refuses. Names the kinds, and nothing of the text."""


def built_in(text: str, _facts: Mapping[str, Any]) -> tuple[str, tuple[str, ...]]:
    """The built-in hook."""
    return mask(text)


def hook_of(target: str) -> Mask:
    """The built-in hook, and after it the function of an operator, "": none. Where that fails,
    nothing is stored: the hook raises ProblemDetails. Raises ToolgateError if it cannot be
    imported."""
    if not target:
        return built_in
    function = load_function(target, "memory.masking.hook")

    def mask_with_function(text: str, facts: Mapping[str, Any]) -> tuple[str, tuple[str, ...]]:
        text, kinds = mask(text)
        try:
            changed, function_kinds = function(text, facts)
            return str(changed), tuple(dict.fromkeys((*kinds, *map(str, function_kinds))))
        except Exception as error:  # code of the operator
            log.exception("masking_hook_failed")
            raise unavailable("The masking of texts failed: nothing was stored.") from error

    return mask_with_function


def mask_text(mode: Mode, hook: Mask, text: str, facts: Mapping[str, Any]) -> tuple[str, list[str]]:
    """The text as its scope stores it, and the kinds of what was masked. Raises ContentRefused."""
    if mode == "off":
        return text, []
    changed, kinds = hook(text, facts)
    if kinds and mode == "refuse":
        raise ContentRefused(
            f"the content contains {' and '.join(kinds)}, which the scope {facts.get('scope')} "
            "does not store; leave it out"
        )
    return changed, list(kinds)


def masked_json(
    mode: Mode, hook: Mask, value: Any, facts: Mapping[str, Any]
) -> tuple[Any, list[str]]:
    """`masked` for the texts and numbers inside a JSON value; names of members too."""
    kinds: dict[str, None] = {}

    def change(inner: Any) -> Any:
        if isinstance(inner, dict):
            return {change(name): change(member) for name, member in inner.items()}
        if isinstance(inner, list):
            return [change(item) for item in inner]
        if isinstance(inner, bool) or not isinstance(inner, str | int | float):
            return inner
        value_text = str(inner)
        text, kinds_found = mask_text(mode, hook, value_text, facts)
        kinds.update(dict.fromkeys(kinds_found))
        return inner if text == value_text else text

    return change(value), list(kinds)
