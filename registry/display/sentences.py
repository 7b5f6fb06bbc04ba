"""Descriptions, cut where a sentence ends. Pure."""

import bisect
import re
from functools import lru_cache

MARK = " …"  # what stands behind a text that goes on

# Kept whole: code in fences, code in a line, links and addresses. All bounded, so that nothing a
# description holds makes the search slow.
_WHOLE = re.compile(
    r"```.*?(?:```|\Z)|`[^`\n]{0,400}`|!?\[[^\[\]\n]{0,200}\]\([^()\s]{0,400}\)|<?https?://\S{1,400}",
    re.DOTALL,
)
# A full stop, an empty line, or the line before an item of a list.
_END = re.compile(
    r"[.!?][\"')\]*_`]{0,3}(?=\s|$)|[\u3002\uff01\uff1f]"
    r"|\n\s{0,40}\n|\n(?=\s{0,40}(?:[-*#]|\d{1,3}[.)]) )"
)
_ABBREVIATED = re.compile(
    r"(?:\b(?:e\.g|i\.e|a\.k\.a|etc|vs|cf|approx|incl|resp|no|nr|fig|sec|ca|mr|mrs|ms|dr|st|inc|ltd"
    r"|corp|jan|feb|mar|apr|jun|jul|aug|sept?|oct|nov|dec)|\b[A-Za-z]|(?:^|\n)\s{0,20}\d{1,3})\.$",
    re.IGNORECASE,
)
REMEMBERED = 2048  # texts: descriptions say the same of many tools
_BEFORE = 24  # characters before a full stop that tell an abbreviation
_LINK_LONGEST = 1000  # of what is kept whole; a longer one may be cut


@lru_cache(maxsize=REMEMBERED)
def shorten(text: str, limit: int) -> str:
    """At most `limit` characters of `text`, up to the end of a sentence where one is near, else of
    a word. What is left out is marked by an ellipsis."""
    if len(text) <= limit:
        return text
    room = limit - len(MARK)
    if room < 1:
        return "…"[:limit]
    head = text[: limit + _LINK_LONGEST]
    spans = [match.span() for match in _WHOLE.finditer(head)]
    ends = (match.end() for match in _END.finditer(head, 0, room + 1))
    best = max((end for end in ends if _is_end(head, end, room, spans)), default=0)
    if best < limit // 3:
        best = max(best, _word_end(head, room, spans))
    return text[:best].rstrip() + MARK if best else text[: limit - 1] + "…"


@lru_cache(maxsize=REMEMBERED)
def first_sentence(text: str, limit: int) -> str:
    """How `text` begins: its first sentence, if that has at most `limit` characters."""
    text = text.strip()
    head = text[: limit + _LINK_LONGEST]
    spans = [match.span() for match in _WHOLE.finditer(head)]
    for match in _END.finditer(head, 0, limit + 1):
        if _is_end(head, match.end(), limit, spans):
            return text[: match.end()].strip()
    return shorten(text, limit)


def _is_end(text: str, end: int, room: int, spans: list[tuple[int, int]]) -> bool:
    if end > room or _inside(end, spans):
        return False
    return not _ABBREVIATED.search(text[max(0, end - _BEFORE) : end].rstrip("\"')]*_`"))


def _word_end(text: str, room: int, spans: list[tuple[int, int]]) -> int:
    """The last end of a word that lies in nothing to be kept whole; 0: there is none."""
    end = room
    while end > 0:
        end = max(text.rfind(" ", 0, end), text.rfind("\n", 0, end))
        if not _inside(end, spans):
            return max(end, 0)
    return 0


def _inside(at: int, spans: list[tuple[int, int]]) -> bool:
    index = bisect.bisect_left(spans, (at, 0)) - 1
    return index >= 0 and spans[index][0] < at < spans[index][1]
