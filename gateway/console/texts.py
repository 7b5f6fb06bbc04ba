"""Texts of the console in the visitor's language. The text in English is the key."""

import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

import msgspec

OUTCOMES: Mapping[str, str] = {
    "tool_error": "error result",
    "crashed": "error of the gateway",
    "1429": "limit reached",
    "1500": "error of the service",
    "1502": "no answer",
    "1503": "overloaded",
    "-32601": "unknown method",
    "-32602": "invalid arguments",
    "-32603": "error of the gateway",
}
"""Outcomes of calls that are codes, in words."""

PROBLEMS = (
    "Required scope: {scope}. The scope admin is that of the admin API.",  # before its beginning
    "Required scope: {scope}. {action} takes it.",
    "Required scope: {scope}.",
    "This takes the role {role}: it is about all tenants.",
    "There is no tool '{name}'.",
    "There is no source '{name}'.",
    "There is no registry to ask: name one in the settings, as in registries: {example}.",
    "{server} is published only as {kinds}, which is not enabled here: see {settings}.",
    "The strategy {name} has no address: set {setting}",
    "The strategy {name} has no key: set {setting}, or store it with {command}",
    "Embeddings are disabled (embedding.provider).",
    "embeddings are disabled",
    "The resource has changed: read it again, and repeat the change with its new ETag.",
)
"""Sentences in English that parts of the gateway write about problems."""

LANGUAGES: Mapping[str, str] = {"en": "English", "zh": "中文"}
# Invisible characters that change how the rest of a line is shown, and control characters.
_INVISIBLE = re.compile(
    r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]"
)


@cache
def translations(language: str) -> Mapping[str, str]:
    """Texts of a language by those in English; none for English."""
    if language == "en" or language not in LANGUAGES:
        return {}
    data = files("gateway.console").joinpath(f"locale/{language}.json").read_bytes()
    return msgspec.json.decode(data, type=dict[str, str])


class Texts(NamedTuple):
    language: str

    def __call__(self, text: str, **values: object) -> str:
        """The text, with `values` in place of {names}. What a value has in braces stays."""
        translation = translations(self.language).get(text, text)
        return translation.format(**values) if values else translation

    def sentence(self, incident: Mapping[str, Any], member: str) -> str:
        """Title or detail of an incident, in the visitor's language if it has its values apart."""
        sentence = incident.get("sentences", {}).get(member)
        return self(sentence["text"], **sentence["values"]) if sentence else str(incident[member])

    def problem(self, text: str) -> str:
        """A problem of PROBLEMS with its values, in the visitor's language; others as they are."""
        if self.language == "en":
            return text
        for sentence, pattern in _problems():
            if match := pattern.fullmatch(text):
                return self(sentence, **match.groupdict())
        return text


@cache
def _problems() -> list[tuple[str, re.Pattern[str]]]:
    return [
        (text, re.compile(re.sub(r"\\\{(\w+)\\\}", r"(?P<\1>.+?)", re.escape(text)), re.DOTALL))
        for text in PROBLEMS
    ]


def language_of(cookie: str, accept: str) -> str:
    """The language of the cookie, else the first known one of Accept-Language, else English."""
    if cookie in LANGUAGES:
        return cookie
    for accepted_language in accept.lower().split(","):
        language = accepted_language.split(";")[0].strip()[:2]
        if language in LANGUAGES:
            return language
    return "en"


def encode_json(value: Any) -> str:
    """Any value as JSON that can be copied: invisible characters, which pages write out, are
    escapes in it."""
    text = msgspec.json.encode(value).decode()
    return _INVISIBLE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def visible(text: str) -> str:
    """The text with invisible characters written out: text of others must not reorder a line."""
    return _INVISIBLE.sub(lambda match: f"⟨U+{ord(match[0]):04X}⟩", text)
