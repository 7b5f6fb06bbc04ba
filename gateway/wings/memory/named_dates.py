"""Dates in words: those that are added to indexed texts, and those that queries name. Pure.

Questions name dates as people do ("in May 2023", "5月8日"), while the turn that answers them has
its date in a column. So the text that is indexed gets the date in words, and a memory that is of
another time than the query names loses a little of its score.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime

MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September",
    "October", "November", "December",
)  # fmt: skip
DATES = 8  # dates of a query that are compared
READ = 2000  # characters of a query in which dates are looked for

_MONTH = "|".join([*MONTHS, *(f"{name[:3]}\\.?" for name in MONTHS), "Sept\\.?"])
_DAY = r"(?P<{0}>[12][0-9]|3[01]|0?[1-9])(?:st|nd|rd|th)?"
_YEAR = r"(?P<{0}>(?:19|20)[0-9]{{2}})"
_ENGLISH = re.compile(
    rf"\b{_DAY.format('d1')}\s+(?:of\s+)?(?P<m1>{_MONTH})(?!\w)(?:,?\s+{_YEAR.format('y1')})?\b"
    rf"|\b(?P<m2>{_MONTH})\s+{_DAY.format('d2')}\b(?:,?\s+{_YEAR.format('y2')})?\b"
    rf"|\b(?P<m3>{_MONTH})(?!\w),?(?:\s+{_YEAR.format('y3')}\b)?",
    re.IGNORECASE,
)
_ISO = re.compile(r"\b(?P<y>(?:19|20)[0-9]{2})-(?P<m>0[1-9]|1[0-2])(?:-(?P<d>[0-3][0-9]))?\b")
_CHINESE = re.compile(
    r"(?:(?P<y>(?:19|20)[0-9]{2})\s?年)?\s?(?P<m>1[0-2]|0?[1-9])\s?月(?:份)?"
    r"(?:\s?(?P<d>[12][0-9]|3[01]|0?[1-9])\s?[日号])?|(?P<only>(?:19|20)[0-9]{2})\s?年"
)
_LONE_YEAR = re.compile(
    r"\b(?:in|of|since|during|until|before|after|by|year)\s+((?:19|20)[0-9]{2})\b"
)
# May and March are verbs, too, and "Mar" and "Dec" names: alone they need a word of time before.
_BEFORE_MONTH = re.compile(
    r"\b(?:in|on|of|last|this|next|during|since|until|till|by|before|after|early|mid|late|around|"
    r"from|to|and|between|each|every)[\s-]+$",
    re.IGNORECASE,
)
# A question for a time, and words of times in texts: a regular expression of PostgreSQL.
_TIME_QUESTION = re.compile(
    r"\bwhen (?:did|was|were|has|have|had|is|are|does|do|will)\b|^\W*(?:when|how long|since when)\b"
    r"|\b(?:what|which) (?:date|day|year|month|time)\b",
    re.IGNORECASE,
)
_DAYS = ("Sun", "Mon", "Tues", "Wednes", "Thurs", "Fri", "Satur")
_SPANS = "night|week|weekend|month|year|summer|winter|spring|fall|autumn|morning|evening"
TIME_WORDS = (
    r"\y([Yy]esterday|[Tt]oday|[Tt]onight|[Tt]omorrow|[Aa]go|[Ss]ince|(19|20)[0-9][0-9]"
    rf"|([Ll]ast|[Nn]ext|[Tt]his|[Pp]ast) (\w+ )?({_SPANS}|({'|'.join(_DAYS)})day)"
    rf"|({'|'.join(_DAYS)})day|{'|'.join(MONTHS)})s?\y"
)
_AMBIGUOUS = frozenset(("may", "march", "mar", "sun", "dec", "jan"))


@dataclass(frozen=True, slots=True)
class NamedDate:
    """A date that a query names; what it leaves open is None."""

    year: int | None = None
    month: int | None = None
    day: int | None = None

    def covers(self, time: datetime) -> bool:
        """Whether the time is in it, or within the month after: people tell of things later."""
        if self.month is None:
            return time.year == self.year
        years = [time.year, time.year - 1] if self.year is None else [self.year]
        return any(0 <= _months_between(year, self.month, time) <= 1 for year in years)


def named_dates(query: str) -> tuple[NamedDate, ...]:
    """The dates that a query names, in English or Chinese."""
    dates = dict.fromkeys(_find_dates(query[:READ]))
    years = {date.year for date in dates if date.month is not None}
    return tuple(date for date in dates if date.month is not None or date.year not in years)[:DATES]


def is_of_another_time(dates: Iterable[NamedDate], times: Iterable[datetime]) -> bool:
    """Whether dates are named, and none of the times is within one."""
    moments = tuple(times)
    named = tuple(dates)
    return bool(named) and not any(date.covers(time) for date in named for time in moments)


def asks_for_time(query: str) -> bool:
    """Whether an English query asks when something was, as "When did Ann move?" does."""
    return _TIME_QUESTION.search(query[:READ]) is not None


def in_words(time: datetime, *, chinese: bool = False) -> str:
    """ "8 May 2023", or "2023年5月8日"."""
    if chinese:
        return f"{time.year}年{time.month}月{time.day}日"
    return f"{time.day} {MONTHS[time.month - 1]} {time.year}"


def _find_dates(query: str) -> Iterator[NamedDate]:
    for match in _ENGLISH.finditer(query):
        if (date := _english(query, match)) is not None:
            yield date
    for match in _ISO.finditer(query):
        yield _named_date(match["y"], int(match["m"]), match["d"])
    for match in _CHINESE.finditer(query):
        month = int(match["m"]) if match["m"] else None
        yield _named_date(match["y"] or match["only"], month, match["d"])
    for match in _LONE_YEAR.finditer(query):
        yield _named_date(match[1], None, None)


def _english(query: str, match: re.Match[str]) -> NamedDate | None:
    month = match["m1"] or match["m2"] or match["m3"]
    day = match["d1"] or match["d2"]
    year = match["y1"] or match["y2"] or match["y3"]
    alone = day is None and year is None
    if alone and month.lower().rstrip(".") in _AMBIGUOUS:
        named = month[0].isupper() and _BEFORE_MONTH.search(query[: match.start()][-20:])
        if not named:
            return None
    number = next(at for at, name in enumerate(MONTHS, 1) if name[:3].lower() == month[:3].lower())
    return _named_date(year, number, day)


def _named_date(year: str | None, month: int | None, day: str | None) -> NamedDate:
    return NamedDate(int(year) if year else None, month, int(day) if day else None)


def _months_between(year: int, month: int, time: datetime) -> int:
    return (time.year - year) * 12 + time.month - month
