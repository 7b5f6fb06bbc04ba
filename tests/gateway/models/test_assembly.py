"""Fragments of calls in the dialects of vendors, put together again."""

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.models.assembly import CallAssembler

# whether fragments have an index, and which; where the id comes; whether calls interleave
VENDORS = ["openai", "ollama", "gemini", "late id", "repeated id", "no id", "interleaved"]
arguments = st.dictionaries(st.text(max_size=5), st.integers() | st.text(max_size=8), min_size=1)
calls = st.lists(st.tuples(st.sampled_from(["f", "g", "h"]), arguments), min_size=1, max_size=4)


def cut(text: str, draw: Any) -> list[str]:
    places = sorted(draw.draw(st.lists(st.integers(0, len(text)), max_size=4)))
    return [text[a:b] for a, b in zip([0, *places], [*places, len(text)], strict=True)]


def fragments(vendor: str, found: list[tuple[str, dict[str, Any]]], draw: Any) -> list[Any]:
    """Index, id, name and arguments, as this vendor streams them."""
    streams = []
    for place, (name, members) in enumerate(found):
        pieces = cut(json.dumps(members), draw)
        index: int | None = {"ollama": 0, "no id": 0, "gemini": None}.get(vendor, place)
        id_ = "" if vendor == "no id" else f"id{place}"
        first = (index, "" if vendor == "late id" else id_, name, pieces[0])
        rest = [(index, id_ if vendor == "repeated id" else "", "", one) for one in pieces[1:]]
        if vendor == "late id":
            rest.append((index, id_, "", ""))
        streams.append([first, *rest])
    if vendor != "interleaved":
        return [one for stream in streams for one in stream]
    mixed = []
    while any(streams):
        waiting = [stream for stream in streams if stream]
        mixed.append(draw.draw(st.sampled_from(waiting)).pop(0))
    return mixed


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(VENDORS), calls, st.data())
def test_fragments_of_every_vendor_are_put_together(
    vendor: str, found: list[tuple[str, dict[str, Any]]], draw: Any
) -> None:
    assembler = CallAssembler("made")
    begun = [assembler.feed(*one) for one in fragments(vendor, found, draw)]
    whole = assembler.calls()
    assert sum(one is not None for one in begun) == len(whole)
    if vendor == "interleaved":
        whole = tuple(sorted(whole, key=lambda one: one.id))
    assert [(one.name, json.loads(one.arguments)) for one in whole] == found
    assert len({one.id for one in whole}) == len(found)


def test_ids_that_are_missing_are_made() -> None:
    assembler = CallAssembler("made")
    assembler.feed(0, "", "f", "{}")
    assembler.feed(0, "", "g", "{}")
    assert [one.id for one in assembler.calls()] == ["made_0", "made_1"]
