"""Fragments of calls in the dialects of vendors, put together again."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.wings.models.messages import ModelCall
from gateway.wings.models.tool_call_assembly import CallAssembler, plain_arguments
from tests.properties import examples

# whether fragments have an index, and which; where the id comes; whether calls interleave
VENDORS = [
    "openai", "ollama", "gemini", "late id", "repeated id", "no id", "interleaved",
    "one id", "one id, repeated", "one id without index", "one id, interleaved", "other index",
]  # fmt: skip
arguments = st.dictionaries(st.text(max_size=5), st.integers() | st.text(max_size=8))
calls = st.lists(st.tuples(st.sampled_from(["f", "g", "h"]), arguments), min_size=1, max_size=4)


INDEXES = {
    "ollama": 0, "no id": 0, "gemini": None, "one id without index": None, "other index": 0,
}  # fmt: skip
REPEATED = ("repeated id", "one id, repeated", "one id, interleaved")


def cut(text: str, draw: Any) -> list[str]:
    places = sorted(draw.draw(st.lists(st.integers(0, len(text)), max_size=4)))
    return [text[a:b] for a, b in zip([0, *places], [*places, len(text)], strict=True)]


def fragments(vendor: str, found: list[tuple[str, dict[str, Any]]], draw: Any) -> list[Any]:
    """Index, id, name and arguments, as this vendor streams them."""
    streams = []
    for place, (name, members) in enumerate(found):
        pieces = cut(json.dumps(members), draw)
        index: int | None = INDEXES.get(vendor, place)
        id_ = "id" if vendor.startswith("one id") else "" if vendor == "no id" else f"id{place}"
        first = (index, "" if vendor == "late id" else id_, name, pieces[0])
        later = place if vendor == "other index" else index
        rest = [(later, id_ if vendor in REPEATED else "", "", one) for one in pieces[1:]]
        if vendor == "late id":
            rest.append((index, id_, "", ""))
        streams.append([first, *rest])
    if "interleaved" not in vendor:
        return [one for stream in streams for one in stream]
    mixed = []
    while any(streams):
        waiting = [stream for stream in streams if stream]
        mixed.append(draw.draw(st.sampled_from(waiting)).pop(0))
    return mixed


@settings(max_examples=examples(300), deadline=None)
@given(st.sampled_from(VENDORS), calls, st.data())
def test_fragments_of_every_vendor_are_put_together(
    vendor: str, found: list[tuple[str, dict[str, Any]]], draw: Any
) -> None:
    """Any split and interleaving of valid calls gives those calls (mending 32)."""
    assembler = CallAssembler("made")
    begun = [assembler.feed(*one) for one in fragments(vendor, found, draw)]
    whole = assembler.calls()
    assert sum(one is not None for one in begun) == len(whole)
    put_together = [(one.name, json.loads(one.arguments)) for one in whole]
    if "interleaved" in vendor:  # in the order in which they began
        assert sorted(map(repr, put_together)) == sorted(map(repr, found))
    else:
        assert put_together == found
    assert len({one.id for one in whole}) == len(found)


@pytest.mark.parametrize("index", [0, None])
def test_a_name_that_is_only_repeated_begins_no_call(index: int | None) -> None:
    assembler = CallAssembler("made")
    for arguments in ("", '{"a"', ":1}", "", " "):
        assembler.feed(index, "x", "f", arguments)
    assembler.feed(index, "x", "", "")
    assert [(one.id, json.loads(one.arguments)) for one in assembler.calls()] == [("x", {"a": 1})]


@pytest.mark.parametrize(
    ("written", "plain"),
    [
        ("null", "{}"),
        (" null ", "{}"),
        (json.dumps('{"a": 1}'), '{"a": 1}'),
        (json.dumps('{"a": 1, "a": 2}'), '{"a": 1, "a": 2}'),  # refused later, as it is
        ('"text"', '"text"'),
        ("nul", "nul"),
        ('{"a": null}', '{"a": null}'),
        ("\ud800", "\ud800"),
    ],
)
def test_arguments_inside_a_text_are_taken_out(written: str, plain: str) -> None:
    """Arguments that are double-encoded, or null, are what they mean (mending 32)."""
    assert plain_arguments(ModelCall("x", "f", written)).arguments == plain


def test_ids_that_are_missing_are_made() -> None:
    assembler = CallAssembler("made")
    assembler.feed(0, "", "f", "{}")
    assembler.feed(0, "", "g", "{}")
    assert [one.id for one in assembler.calls()] == ["made_0", "made_1"]
