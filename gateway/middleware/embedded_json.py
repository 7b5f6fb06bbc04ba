"""Extraction of JSON from a text: alone, line by line (NDJSON, JSON text sequences, server-sent
events) or surrounded by prose, as in "HTTP 400" and the body below. Pure."""

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from schemas.jsonrpc import encode
from schemas.masking import json_in

MISSES = 16  # failed parses per text, of prose that resembles JSON: "[0-9]", "[1, 2"

_BEGINS = re.compile(r'[{\[]\s*(?:(?P<sure>[{\["]|\\+")|[\]}0-9tfn-])')
_decoder = json.JSONDecoder()

Change = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class EmbeddedJson:
    """The parts of a text in order, each as (its text, its decoded JSON), or (its text, None) for
    prose."""

    parts: tuple[tuple[str, Any], ...]

    @classmethod
    def of(cls, text: str) -> "EmbeddedJson | None":
        """Split `text`; None if it has unreadable JSON: cut off, broken or too deep."""
        whole_text_value = json_in(text)
        if whole_text_value is not None:
            return cls(((text, whole_text_value),))
        try:
            return cls(tuple(_parts(text)))
        except (ValueError, RecursionError):
            return None

    @property
    def prose(self) -> str:
        return " ".join(text for text, value in self.parts if value is None)

    def change(self, value: Change, prose: Callable[[str], str]) -> str:
        """The text with `value` applied to its JSON and `prose` to the rest."""
        return "".join(_write_part(text, parsed, value, prose) for text, parsed in self.parts)


def _write_part(text: str, document: Any, value: Change, prose: Callable[[str], str]) -> str:
    if document is None:
        return prose(text)
    after = value(document)
    return text if after is document else encode(after).decode()


def _parts(text: str) -> Iterator[tuple[str, Any]]:
    """Split into JSON and prose. Raises ValueError and RecursionError for malformed JSON."""
    at = start = misses = 0
    while match := _BEGINS.search(text, at):
        try:
            _, end = _decoder.raw_decode(text, match.start())
        except ValueError:
            misses += 1
            if match["sure"] or misses > MISSES:
                raise
            at = match.end()
            continue
        value = json_in(text[match.start() : end])
        if value is None:  # Python's decoder accepts more than JSON
            raise ValueError("no JSON")
        yield text[start : match.start()], None
        yield text[match.start() : end], value
        at = start = end
    yield text[start:], None
