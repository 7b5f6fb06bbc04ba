"""Generated descriptions for operations, fields and actions that have none, so that search finds
them: from path or name, parameters and types. Pure."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from registry.embedding.texts import identifier_words

PARAMETERS_LISTED = 12  # parameters listed

_PLACEHOLDER = re.compile(r"\{[^{}]*\}")
_MEANINGLESS = re.compile(r"(?:api|rest|v?\d[\d.-]*(?:alpha|beta)?\d*)", re.IGNORECASE)
_VOWEL = re.compile("[aeio]|u(?!s|ni)")
_VERBS: Mapping[str, tuple[str, str]] = {  # of one item, of a collection
    "GET": ("Get", "List"),
    "HEAD": ("Check", "Check"),
    "POST": ("Do", "Create"),
    "PUT": ("Replace", "Replace"),
    "PATCH": ("Update", "Update"),
    "DELETE": ("Delete", "Delete"),
    "OPTIONS": ("Tell the options of", "Tell the options of"),
    "QUERY": ("Query", "Query"),
}


def operation_description(method: str, path: str, schema: Mapping[str, Any]) -> str:
    """`GET /users/{id}/followers` gives "List followers of a user. Parameters: id (string)."."""
    nouns = _nouns(path)
    singular, all_ = _VERBS.get(method.upper(), (method.capitalize(), method.capitalize()))
    if not nouns:
        return _with_parameters(f"{singular} {path}", schema)
    (last, is_placeholder), before = nouns[-1], [noun for noun, _ in nouns[:-1]]
    if is_placeholder:
        phrase = f"{'Change' if singular == 'Do' else singular} {_singular(last)}"
    elif singular == "Do" and not _is_plural(last):  # POST /orders/{id}/cancel
        phrase, before = (
            f"{last.capitalize()} {_singular(before[-1]) if before else ''}",
            before[:-1],
        )
    elif _is_plural(last):
        created = method.upper() == "POST"
        phrase = f"{all_} {_singular(last) if created else last}"
    else:
        phrase = f"{singular} {last}"
    return _with_parameters(
        " of ".join([phrase.strip(), *map(_singular, reversed(before))]), schema
    )


def field_description(operation: str, name: str, answers: str, schema: Mapping[str, Any]) -> str:
    """Description of a field of Query or Mutation; `answers` is its type."""
    words = identifier_words(name)
    verb = "" if operation != "query" else "List " if answers.startswith("[") else "Get "
    described = _with_parameters((verb + words) if verb else words.capitalize(), schema)
    return f"{described} Answers with {answers}."


def action_description(service: str, action: str, schema: Mapping[str, Any]) -> str:
    """Description of an action of a hybrid service; "" without a name."""
    name = identifier_words(action).capitalize()
    of = f", an action of the service {identifier_words(service)}" if service else ""
    return _with_parameters(name + of, schema)


def _with_parameters(sentence: str, schema: Mapping[str, Any]) -> str:
    parameters = _parameters(schema)
    return f"{sentence}. Parameters: {parameters}." if parameters else f"{sentence}."


def _parameters(schema: Mapping[str, Any]) -> str:
    """Names and types of the arguments, required ones first."""
    properties = schema.get("properties")
    if not isinstance(properties, Mapping):
        return ""
    required = schema.get("required") or ()
    names = sorted(properties, key=lambda name: name not in required)
    described = [f"{name}{_type(properties[name])}" for name in names[:PARAMETERS_LISTED]]
    return ", ".join([*described, *(["and more"] if len(names) > PARAMETERS_LISTED else [])])


def _type(schema: Any) -> str:
    kind = schema.get("type") if isinstance(schema, Mapping) else None
    return f" ({kind})" if isinstance(kind, str) else ""


def _nouns(path: str) -> Sequence[tuple[str, bool]]:
    """The words of a path, and whether a path variable selects one of them."""
    nouns: list[tuple[str, bool]] = []
    for segment in path.partition("?")[0].split("/"):
        words = identifier_words(_PLACEHOLDER.sub(" ", segment.rpartition(".")[0] or segment))
        if words and not _MEANINGLESS.fullmatch(segment):
            nouns.append((words, "{" in segment))
        elif "{" in segment and nouns:
            nouns[-1] = (nouns[-1][0], True)
    return nouns


def _is_plural(words: str) -> bool:
    return words.endswith("s") and not words.endswith(("ss", "us", "is"))


def _singular(words: str) -> str:
    """`pet categories` gives "a pet category"."""
    if _is_plural(words):
        for plural, single in (
            ("ies", "y"),
            ("caches", "cache"),
            ("sses", "ss"),
            ("xes", "x"),
            ("ches", "ch"),
            ("s", ""),
        ):
            if words.endswith(plural):
                words = words[: len(words) - len(plural)] + single
                break
    return f"{'an' if _VOWEL.match(words) else 'a'} {words}"
