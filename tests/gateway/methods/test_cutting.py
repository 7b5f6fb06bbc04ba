"""Where a long text is cut."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.methods.result_processing import cut_at

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=60,
)


def parts(text, limit, is_json):
    found = []
    while len(text) > limit:
        at = cut_at(text, limit, is_json)
        assert max(1, limit // 2) <= at <= limit
        found.append(text[:at])
        text = text[at:]
    return [*found, text]


def test_json_is_cut_between_members_of_the_outermost_array():
    text = json.dumps([{"id": n, "tags": ["a,b", "c"]} for n in range(100)])
    for part in parts(text, 500, True)[:-1]:
        assert part.endswith('"c"]},')


def test_members_of_an_array_inside_an_object_are_kept_whole():
    text = json.dumps({"data": [{"id": n, "name": "x" * 20} for n in range(50)], "more": True})
    for part in parts(text, 400, True)[:-1]:
        assert part.endswith("},")


def test_a_comma_in_a_text_is_no_place_to_cut_json():
    text = json.dumps(['a,\\",[{', "b" * 30, "c,,,,,,,,,,,,"])
    assert text[: cut_at(text, 48, True)].endswith('",')


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("line one\nline two\nline three", "line one\nline two\n"),
        ("words and words and words", "words and words and "),
        ("unbreakableunbreakableunbreakable", "unbreakableunbreakab"),
    ],
)
def test_text_is_cut_behind_lines_then_words(text, first):
    assert text[: cut_at(text, 20, False)] == first


@settings(deadline=None)  # a loaded machine is slow, not wrong
@given(text=st.text(max_size=300), limit=st.integers(1, 40), is_json=st.booleans())
def test_the_parts_of_any_text_are_the_whole(text, limit, is_json):
    assert "".join(parts(text, limit, is_json)) == text


@settings(deadline=None)  # a loaded machine is slow, not wrong
@given(value=JSON, limit=st.integers(1, 100))
def test_the_parts_of_any_json_are_the_whole(value, limit):
    text = json.dumps(value, ensure_ascii=False)
    assert "".join(parts(text, limit, True)) == text


def test_cutting_an_escaped_text_takes_linear_time():
    text = '"' + '\\"' * 400_000  # a pattern that went back would not end
    assert 0 < cut_at(text, 700_000, True) <= 700_000
