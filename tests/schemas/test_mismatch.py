"""Mismatches of data with types of ours, in the words that every front uses."""

from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec
import pytest
from msgspec import Meta, Struct, ValidationError

from schemas.json_schema.checker import Checker
from schemas.mismatch import explain_mismatch, mismatch_text

TIME = "expected a time with its zone, as RFC 3339 has it, such as 2030-01-31T12:00:00Z"
Colour = Annotated[str, Meta(pattern="^#[0-9a-f]{6}$", description="a colour such as #00ff00")]


class Room(Struct, frozen=True, forbid_unknown_fields=True):
    paint: Colour
    floors: Annotated[int, Meta(ge=1, le=9)] = 1


class House(Struct, frozen=True, forbid_unknown_fields=True):
    rooms: tuple[Room, ...] = ()
    hall: Room | None = None
    heated: Literal["gas", "wood"] = "wood"
    built: Annotated[datetime, Meta(tz=True, description="the year it was built")] | None = None


class Even(Struct, frozen=True):
    number: int

    def __post_init__(self) -> None:
        if self.number % 2:
            raise ValueError("expected an even number")


def mismatch(value: Any, kind: Any = House, *, secret: bool = False) -> list[tuple[str, str]]:
    with pytest.raises(ValidationError) as refused:
        msgspec.convert(value, kind)
    problems = explain_mismatch(value, kind, refused.value, secret=secret)
    return [(one.argument, one.message) for one in problems]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ([], [("", "expected object, got an array")]),
        ({"heated": "oil"}, [("heated", 'expected one of "gas", "wood", got "oil"')]),
        ({"heatd": "gas"}, [("heatd", "is not known; did you mean 'heated'?")]),
        ({"rooms": [{}]}, [("rooms[0].paint", "is required")]),
        (
            {"hall": {"paint": "red"}},
            [("hall.paint", 'expected a colour such as #00ff00, got "red"')],
        ),
        (
            {"rooms": [{"paint": "#00ff00", "floor": 2}]},
            [("rooms[0].floor", "is not known; did you mean 'floors'?")],
        ),
        (
            {"rooms": [{"paint": "#00ff00", "floors": 10}]},
            [("rooms[0].floors", "expected at most 9, got 10")],
        ),
        (
            {"hall": {"paint": "http://ann:pw@paint.example/?key=k"}},
            [
                (
                    "hall.paint",
                    'expected a colour such as #00ff00, got "http://***@paint.example/?***"',
                )
            ],
        ),
        ({"built": "yesterday"}, [("built", TIME)]),
    ],
)
def test_a_mismatch_is_explained_by_its_type(value: Any, expected: list[tuple[str, str]]) -> None:
    """A REST body, a form and a command get the words of tool calls (mending 40)."""
    assert mismatch(value) == expected


def test_all_mismatches_are_told_at_once() -> None:
    problems = mismatch({"heated": "oil", "hall": {"paint": "red", "floors": 0}})
    assert {place for place, _ in problems} == {"heated", "hall.paint", "hall.floors"}


def test_checks_of_a_type_itself_keep_their_words() -> None:
    assert mismatch({"number": 3}, Even) == [("", "expected an even number")]


def test_values_of_secrets_are_not_shown() -> None:
    problems = mismatch({"hall": {"paint": "hunter2", "floors": 77}}, secret=True)
    assert problems == [
        ("hall.paint", "expected a colour such as #00ff00"),
        ("hall.floors", "expected at most 9"),
    ]


def test_a_tool_call_is_refused_with_the_same_words() -> None:
    value = {"heated": "oil", "hall": {"paint": "red", "floor": 2}}
    schema = msgspec.json.encode(msgspec.json.schema(House))
    told = [(one.argument, one.message) for one in Checker(schema, described=True).explain(value)]
    assert told == mismatch(value)


def test_values_of_any_depth_are_explained() -> None:
    value: Any = 1
    for _ in range(2000):
        value = [value]
    with pytest.raises(ValidationError) as refused:
        msgspec.convert({"hall": value}, House)
    assert mismatch_text({"hall": value}, House, refused.value)
