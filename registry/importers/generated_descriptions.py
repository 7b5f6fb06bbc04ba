"""Generated descriptions for operations, fields and actions that have none, so that search finds
them: from path or name, parameters and types. Pure."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from registry.embedding.texts import identifier_words

PARAMETERS = 12  # parameters listed

_PLACE = re.compile(r"\{[^{}]*\}")
_SAYS_NOTHING = re.compile(r"(?:api|rest|v?\d[\d.-]*(?:alpha|beta)?\d*)", re.IGNORECASE)
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


def of_operation(method: str, path: str, schema: Mapping[str, Any]) -> str:
    """`GET /users/{id}/followers` gives "List followers of a user. Parameters: id (string)."."""
    nouns = _nouns(path)
    one, all_ = _VERBS.get(method.upper(), (method.capitalize(), method.capitalize()))
    if not nouns:
        return _whole(f"{one} {path}", schema)
    (last, placed), before = nouns[-1], [noun for noun, _ in nouns[:-1]]
    if placed:
        what = f"{'Change' if one == 'Do' else one} {_one(last)}"
    elif one == "Do" and not _is_many(last):  # POST /orders/{id}/cancel
        what, before = f"{last.capitalize()} {_one(before[-1]) if before else ''}", before[:-1]
    elif _is_many(last):
        created = method.upper() == "POST"
        what = f"{all_} {_one(last) if created else last}"
    else:
        what = f"{one} {last}"
    return _whole(" of ".join([what.strip(), *map(_one, reversed(before))]), schema)


def of_field(operation: str, name: str, answers: str, schema: Mapping[str, Any]) -> str:
    """Description of a field of Query or Mutation; `answers` is its type."""
    words = identifier_words(name)
    verb = "" if operation != "query" else "List " if answers.startswith("[") else "Get "
    told = _whole((verb + words) if verb else words.capitalize(), schema)
    return f"{told} Answers with {answers}."


def of_action(service: str, action: str, schema: Mapping[str, Any]) -> str:
    """Description of an action of a hybrid service; "" without a name."""
    name = identifier_words(action).capitalize()
    of = f", an action of the service {identifier_words(service)}" if service else ""
    return _whole(name + of, schema)


def _whole(said: str, schema: Mapping[str, Any]) -> str:
    parameters = _parameters(schema)
    return f"{said}. Parameters: {parameters}." if parameters else f"{said}."


def _parameters(schema: Mapping[str, Any]) -> str:
    """Names and types of the arguments, required ones first."""
    properties = schema.get("properties")
    if not isinstance(properties, Mapping):
        return ""
    required = schema.get("required") or ()
    names = sorted(properties, key=lambda name: name not in required)
    told = [f"{name}{_type(properties[name])}" for name in names[:PARAMETERS]]
    return ", ".join([*told, *(["and more"] if len(names) > PARAMETERS else [])])


def _type(schema: Any) -> str:
    kind = schema.get("type") if isinstance(schema, Mapping) else None
    return f" ({kind})" if isinstance(kind, str) else ""


def _nouns(path: str) -> Sequence[tuple[str, bool]]:
    """The words of a path, and whether a path variable selects one of them."""
    found: list[tuple[str, bool]] = []
    for segment in path.partition("?")[0].split("/"):
        words = identifier_words(_PLACE.sub(" ", segment.rpartition(".")[0] or segment))
        if words and not _SAYS_NOTHING.fullmatch(segment):
            found.append((words, "{" in segment))
        elif "{" in segment and found:
            found[-1] = (found[-1][0], True)
    return found


def _is_many(words: str) -> bool:
    return words.endswith("s") and not words.endswith(("ss", "us", "is"))


def _one(words: str) -> str:
    """`pet categories` gives "a pet category"."""
    if _is_many(words):
        for many, single in (
            ("ies", "y"),
            ("caches", "cache"),
            ("sses", "ss"),
            ("xes", "x"),
            ("ches", "ch"),
            ("s", ""),
        ):
            if words.endswith(many):
                words = words[: len(words) - len(many)] + single
                break
    return f"{'an' if _VOWEL.match(words) else 'a'} {words}"
