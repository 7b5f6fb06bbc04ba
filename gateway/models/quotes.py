"""Quotes of models, found again in the text that they claim to be from. Pure.

A quote that is not found is worth nothing: models invent them, and documents ask them to.
"""

import re
from collections.abc import Sequence

SHORTEST = 12  # characters of a quote; shorter ones stand everywhere
LONGEST = 2000
_WORD = re.compile("[A-Za-z0-9]")
_AROUND = "\"'`\u201c\u201d\u2018\u2019\u00ab\u00bb \t\r\n"


def find_quote(quote: str, text: str, *, least: int = SHORTEST) -> tuple[int, int] | None:
    """Begin and end of a quote in a text, as characters; None: it does not stand there. Runs of
    white space are equal to each other, quotation marks around the quote are not part of it, and
    words in ASCII are whole ones."""
    words = quote[: LONGEST + 1].strip(_AROUND).split()
    size = sum(map(len, words)) + len(words) - 1
    if not words or not least <= size <= LONGEST:
        return None
    found = re.search(_whole(r"\s+".join(map(re.escape, words)), words), text)
    return None if found is None else found.span()


def _whole(pattern: str, words: Sequence[str]) -> str:
    before = r"(?<![A-Za-z0-9])" if _WORD.match(words[0][0]) else ""
    after = r"(?![A-Za-z0-9])" if _WORD.match(words[-1][-1]) else ""
    return f"{before}{pattern}{after}"
