"""Texts of the console in the visitor's language. The text in English is the key."""

import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

import msgspec

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


def language_of(cookie: str, accepted: str) -> str:
    """The language of the cookie, else the first known one of Accept-Language, else English."""
    if cookie in LANGUAGES:
        return cookie
    for accepted_language in accepted.lower().split(","):
        wanted = accepted_language.split(";")[0].strip()[:2]
        if wanted in LANGUAGES:
            return wanted
    return "en"


def encode_json(value: Any) -> str:
    """Any value as JSON that can be copied: invisible characters, which pages write out, are
    escapes in it."""
    text = msgspec.json.encode(value).decode()
    return _INVISIBLE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def visible(text: str) -> str:
    """The text with invisible characters written out: text of others must not reorder a line."""
    return _INVISIBLE.sub(lambda found: f"⟨U+{ord(found[0]):04X}⟩", text)
