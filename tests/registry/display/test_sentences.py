"""Descriptions cut where a sentence ends."""

import pytest

from registry.display.schema_summaries import first_sentence, shorten

LONG = "x" * 500


@pytest.mark.parametrize("text", ["", "Short.", "y" * 60])
def test_a_text_that_fits_stays(text: str) -> None:
    assert shorten(text, 60) == text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"One sentence is here. Another one. {LONG}", "One sentence is here. Another one. …"),
        (f"Use it with care, e.g. for pets. {LONG}", "Use it with care, e.g. for pets. …"),
        (f"Is this it (really)? It is so! {LONG}", "Is this it (really)? It is so! …"),
        (f"Costs 3.50 dollars for all. {LONG}", "Costs 3.50 dollars for all. …"),
        (f"Made by Ada B. Carter for us. {LONG}", "Made by Ada B. Carter for us. …"),
        (f"A title without a stop\n\nMore text {LONG}", "A title without a stop …"),
        (f"What there is in it:\n- one thing\n- {LONG}", "What there is in it:\n- one thing …"),
        (f"Names of the animals `a. b. {'c. ' * 30}`", "Names of the animals …"),
        (f"Read [the guide. All of it](https://x.example/a.%20b) {LONG}",
         "Read [the guide. All of it](https://x.example/a.%20b) …"),
        (f"First a sentence of it.\n```\ncode. more. {LONG}\n```", "First a sentence of it. …"),
        (f"名前を返します。次の文です。{LONG}", "名前を返します。次の文です。 …"),
    ],
)  # fmt: skip
def test_a_longer_text_is_cut_behind_a_sentence_with_links_and_code_whole(
    text: str, expected: str
) -> None:
    assert shorten(text, 60) == expected


def test_a_text_without_sentences_is_cut_behind_a_word() -> None:
    assert shorten("many words " * 20, 60) == f"{('many words ' * 20)[:54].rstrip()} …"
    assert shorten(LONG, 60) == f"{'x' * 59}…"


@pytest.mark.parametrize("limit", range(1, 120))
def test_shortened_texts_respect_the_limit(limit: int) -> None:
    text = "Some `code. here` and e.g. [a link](https://example.com/a). The end? " * 3
    assert len(shorten(text, limit)) <= limit
    assert len(first_sentence(text, limit)) <= limit


def test_a_first_sentence_ends_at_its_full_stop() -> None:
    assert first_sentence("Lists pets, e.g. cats. All of them.", 100) == "Lists pets, e.g. cats."
    assert first_sentence("No stop", 100) == "No stop"
    assert first_sentence(f"Too long {LONG}", 20) == "Too long …"
