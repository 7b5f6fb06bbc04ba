"""Quotes of models, found again in the text that they claim to be from. Pure.

A quote that is not found is worth nothing: models invent them, and documents ask them to.
"""

import re
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate

SHORTEST = 12  # characters of a quote; shorter ones stand everywhere
LONGEST = 2000
_LETTER = "[A-Za-z0-9]"
_WORD = re.compile(r"\S+")
_AROUND = "\"'`\u201c\u201d\u2018\u2019\u00ab\u00bb \t\r\n"


def find_quote(quote: str, text: str, *, least: int = SHORTEST) -> tuple[int, int] | None:
    """Begin and end of a quote in a text, as characters; None: it does not stand there. Runs of
    white space are equal to each other, quotation marks around the quote are not part of it, and
    words in ASCII are whole ones."""
    plain_quote = " ".join(quote[: LONGEST + 1].strip(_AROUND).split())
    if not plain_quote or not least <= len(plain_quote) <= LONGEST:
        return None
    words = [match.span() for match in _WORD.finditer(text)]
    plain = " ".join(text[begin:end] for begin, end in words)
    if plain_quote not in plain:
        return None
    match = re.search(_whole(plain_quote), plain)
    return None if match is None else _span(words, *match.span())


def lines_of(text: str, span: tuple[int, int], first: int) -> tuple[int, int]:
    """The lines of a span of a text that begins in the line `first`."""
    begin = first + text.count("\n", 0, span[0])
    return begin, begin + text.count("\n", *span)


def _whole(plain_quote: str) -> str:
    """An expression for a text of which no letter goes on over an edge."""
    before = f"(?<!{_LETTER})" if re.match(_LETTER, plain_quote) else ""
    after = f"(?!{_LETTER})" if re.match(_LETTER, plain_quote[-1]) else ""
    return f"{before}{re.escape(plain_quote)}{after}"


def _span(words: Sequence[tuple[int, int]], begin: int, end: int) -> tuple[int, int]:
    """The place in a text of characters of its words, which are joined by spaces."""
    starts = [0, *accumulate(stop - start + 1 for start, stop in words)]
    first, last = bisect_right(starts, begin) - 1, bisect_right(starts, end - 1) - 1
    return words[first][0] + begin - starts[first], words[last][0] + end - starts[last]
