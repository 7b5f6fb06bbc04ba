"""Characters that nobody sees: left out for models, written out for people."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.invisible_characters import visible, visible_json, without_hidden, without_hidden_in

HIDDEN = {
    "tags": ("a\U000e0041\U000e0042b", r"a\u{e0041}\u{e0042}b"),
    "an override of direction": ("a\u202eb", r"a\u{202e}b"),
    "an isolate": ("a\u2066b\u2069", r"a\u{2066}b\u{2069}"),
    "a mark of direction in Latin text": ("a\u200fb", r"a\u{200f}b"),
    "zero width": ("a\u200b\u2060\ufeff\u200db", r"a\u{200b}\u{2060}\u{feff}\u{200d}b"),
    "an escape sequence": ("a\x1b[2Jb", r"a\u{1b}[2Jb"),
    "C1 and NUL": ("a\x9b\0b", r"a\u{9b}\u{0}b"),
    "selectors as data": ("a\ufe0f\ufe01\U000e0101b", r"a\u{fe0f}\u{fe01}\u{e0101}b"),
    "selectors in a row": ("\u2764\ufe0f\ufe01\ufe02", "\u2764\ufe0f\\u{fe01}\\u{fe02}"),
    "joiners in a row": ("\u0915\u200d\u200c\u200d\u0937", None),
    "private use": ("a\ue000\U000f0000b", r"a\u{e000}\u{f0000}b"),
    "a soft hyphen and a filler": ("a\u00ad\u3164b", r"a\u{ad}\u{3164}b"),
    "another flag": ("\U0001f3f4\U000e0061\U000e007f", "\U0001f3f4\\u{e0061}\\u{e007f}"),
}
LEGITIMATE = [
    "Plain text\twith tabs,\r\nlines and (brackets) \\u{41}.",
    "Gr\u00fc\u00dfe, na\u00efve, \u0152uvre, \u4f60\u597d, \ud55c\uad6d\uc5b4",
    "\U0001f468\u200d\U0001f469\u200d\U0001f467",  # family
    "\u2764\ufe0f\u200d\U0001f525 1\ufe0f\u20e3 \U0001f44d\U0001f3fd",
    "\U0001f3f4\U000e0067\U000e0062\U000e0073\U000e0063\U000e0074\U000e007f",  # Scotland
    "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645",  # Persian, with ZWNJ
    "\u0915\u094d\u200d\u0937 \u0d28\u0d4d\u200d",  # Devanagari, Malayalam, with ZWJ
    "\u05d0\u200f!",  # Hebrew
    "\u845b\U000e0100",  # an ideograph and its variant
]


@pytest.mark.parametrize(("text", "shown"), HIDDEN.values(), ids=HIDDEN)
def test_hidden_characters_are_removed_and_can_be_made_visible(
    text: str, shown: str | None
) -> None:
    left = without_hidden(text)
    assert len(left) < len(text)
    assert without_hidden(left) == left
    assert shown is None or visible(text) == shown


@pytest.mark.parametrize("text", LEGITIMATE)
def test_joiners_needed_by_scripts_and_emoji_stay(text: str) -> None:
    assert without_hidden(text) == visible(text) == text


@given(st.text())
def test_visible_text_has_no_hidden_characters(text: str) -> None:
    assert without_hidden(visible(text)) == visible(text)


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_json_keeps_its_value_with_hidden_characters_escaped(text: str) -> None:
    written = visible_json(json.dumps({"a": text}, ensure_ascii=False))
    assert json.loads(written) == {"a": text}


def test_values_are_cleaned_all_through_and_stay_themselves_otherwise() -> None:
    value = {"a\u200b": ["b\u202e", 1, None], "c": {"d": "e"}}
    assert without_hidden_in(value) == {"a": ["b", 1, None], "c": {"d": "e"}}
    clean = without_hidden_in(value)
    assert without_hidden_in(clean) is clean


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("to\u200b", r"to\u{200b}"),
        (r"to\u{200b}", r"to\u{5c}u{200b}"),
        (r"to\u{5c}u{200b}", r"to\u{5c}u{5c}u{200b}"),
        (r"\u{41} \u{110000} \u{200B}", r"\u{41} \u{110000} \u{200B}"),
    ],
)
def test_no_two_texts_are_written_out_alike(text: str, written: str) -> None:
    assert visible(text) == written
