"""Dates in words, in texts and in queries."""

from datetime import UTC, datetime

import pytest

from gateway.wings.memory.named_dates import (
    NamedDate,
    asks_for_time,
    in_words,
    is_of_another_time,
    named_dates,
)
from gateway.wings.memory.text_similarity import is_known, main_script

MAY_8 = datetime(2023, 5, 8, 13, tzinfo=UTC)


def at(year: int, month: int, day: int = 1) -> datetime:
    return datetime(year, month, day, tzinfo=UTC)


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("What did Ann do on 8 May 2023?", [(2023, 5, 8)]),
        ("what happened May 8th, 2023", [(2023, 5, 8)]),
        ("the 1st of June", [(None, 6, 1)]),
        ("Where was John in August?", [(None, 8, None)]),
        ("during Sept. 2022 and Oct 2022", [(2022, 9, None), (2022, 10, None)]),
        ("in May", [(None, 5, None)]),
        ("since 2019", [(2019, None, None)]),
        ("in 2019, on 3 July 2019", [(2019, 7, 3)]),
        ("on 2023-05-08 and in 2023-06", [(2023, 5, 8), (2023, 6, None)]),
        ("在2023年5月8日这天", [(2023, 5, 8)]),
        ("我4月30号为什么", [(None, 4, 30)]),
        ("2022年我去了哪里", [(2022, None, None)]),
        ("五月份", []),
        ("May I ask what they march for?", []),
        ("She may come", []),
        ("Mayor Marchetti has 2019 sheep", []),
        ("room 2023", []),
        ("", []),
    ],
)
def test_dates_of_queries(query: str, expected: list[tuple[int | None, ...]]) -> None:
    assert named_dates(query) == tuple(NamedDate(*one) for one in expected)


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("When did Ann move?", True),
        ("how long has she lived there", True),
        ("In which month was the party?", True),
        ("Do you know when Ann moved?", False),
        ("Where was Ann when it rained?", False),
        ("What did Ann do in May?", False),
        ("", False),
    ],
)
def test_questions_for_a_time(query: str, *, expected: bool) -> None:
    assert asks_for_time(query) == expected


def test_few_dates_of_long_queries_are_read() -> None:
    assert len(named_dates(" ".join(f"{day} May" for day in range(1, 29)))) == 8
    assert named_dates("x" * 5000 + " in June 2023") == ()


@pytest.mark.parametrize(
    ("named", "time", "is_within"),
    [
        (NamedDate(2023, 5, 8), MAY_8, True),
        (NamedDate(2023, 5), at(2023, 6, 30), True),
        (NamedDate(2023, 5), at(2023, 7), False),
        (NamedDate(2023, 5), at(2023, 4, 30), False),
        (NamedDate(2023, 12), at(2024, 1), True),
        (NamedDate(None, 12), at(2024, 1), True),
        (NamedDate(None, 5), at(1999, 5), True),
        (NamedDate(None, 5), at(1999, 8), False),
        (NamedDate(2023), at(2023, 12, 31), True),
        (NamedDate(2023), at(2024, 1), False),
    ],
)
def test_a_named_date_covers_its_time_and_the_month_after(
    named: NamedDate, time: datetime, is_within: bool
) -> None:
    assert named.covers(time) is is_within
    assert is_of_another_time([named], [time]) is not is_within


def test_a_single_matching_date_or_time_is_enough() -> None:
    may, june = NamedDate(2023, 5), NamedDate(2022, 6)
    assert not is_of_another_time([may, june], [at(1990, 1), at(2022, 6)])
    assert not is_of_another_time([], [at(1990, 1)])


def test_a_date_in_words_is_readable_in_queries() -> None:
    assert in_words(MAY_8) == "8 May 2023"
    assert in_words(MAY_8, chinese=True) == "2023年5月8日"
    assert named_dates(in_words(MAY_8)) == named_dates(in_words(MAY_8, chinese=True))


@pytest.mark.parametrize(
    ("text", "script", "known"),
    [
        ("I like tea", "LATIN", True),
        ("我喜欢 tea", "CJK", False),
        ("naïve café", "LATIN", True),
        ("\uff21\uff22", "LATIN", True),
        ("Привет", "CYRILLIC", False),
        ("42!?", "", True),
        ("", "", True),
    ],
)
def test_the_main_script_decides_on_the_use_of_a_model(text: str, script: str, known: bool) -> None:
    assert main_script(text) == script
    assert is_known(text, frozenset({"LATIN"})) is known
    assert is_known(text, frozenset())
