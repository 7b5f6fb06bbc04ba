"""Quotes of models, found again in the text that they claim to be from. Pure.

A quote that is not found is worth nothing: models invent them, and documents ask them to.
"""

import re
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate

SHORTEST = 12  # characters of a quote; shorter ones stand everywhere
LONGEST = 2000
_LETTER = re.compile("[A-Za-z0-9]")
_WORD = re.compile(r"\S+")
_AROUND = "\"'`\u201c\u201d\u2018\u2019\u00ab\u00bb \t\r\n"


def find_quote(quote: str, text: str, *, least: int = SHORTEST) -> tuple[int, int] | None:
    """Begin and end of a quote in a text, as characters; None: it does not stand there. Runs of
    white space are equal to each other, quotation marks around the quote are not part of it, and
    words in ASCII are whole ones. The time is linear, which that of one expression for all words
    would not be."""
    wanted = " ".join(quote[: LONGEST + 1].strip(_AROUND).split())
    if not wanted or not least <= len(wanted) <= LONGEST:
        return None
    words = [one.span() for one in _WORD.finditer(text)]
    plain = " ".join(text[begin:end] for begin, end in words)
    at = plain.find(wanted)
    while at >= 0 and not _whole(plain, at, at + len(wanted)):
        at = plain.find(wanted, at + 1)
    return None if at < 0 else _span(words, at, at + len(wanted))


def _whole(text: str, begin: int, end: int) -> bool:
    """Whether no letter goes on over an edge."""
    edges = (text[max(begin - 1, 0) : begin + 1], text[end - 1 : end + 1])
    return all(len(_LETTER.findall(edge)) < 2 for edge in edges)


def _span(words: Sequence[tuple[int, int]], begin: int, end: int) -> tuple[int, int]:
    """The place in a text of characters of its words, which are joined by spaces."""
    starts = [0, *accumulate(stop - start + 1 for start, stop in words)]
    first, last = bisect_right(starts, begin) - 1, bisect_right(starts, end - 1) - 1
    return words[first][0] + begin - starts[first], words[last][0] + end - starts[last]
