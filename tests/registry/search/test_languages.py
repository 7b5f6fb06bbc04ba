"""Languages of queries, and what is told of those that a model does not know."""

import pytest

from registry.search.fusion import enough
from registry.search.languages import NO_WORDS, foreign_language, language_note, words_note

BUNDLED, MULTILINGUAL = "bundled/toolgate-minilm-4", "multilingual/e5-small-q4"


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("buchen Sie bitte einen Flug nach Rom", "German"),
        ("Überweisung ausführen", "German"),
        ("¿cuánto cuesta el envío?", "Spanish"),
        ("quiero reservar una mesa para cuatro", "Spanish"),
        ("quels trains partent dans la matinée", "French"),
        ("prenota il tavolo della sala", "Italian"),
        ("小鳥の写真を探して", "Japanese"),
        ("预订一张去上海的火车票", "Chinese"),
        ("비행기 표를 예약해 줘", "Korean"),
        ("забронировать столик", "texts in Cyrillic"),
        ("book a table for four in Rome", None),
        ("café with a view", None),
        ("GET /v2/users?limit=5", None),
        ("delete dns record, mit license", None),
        ("打开 https://example.net/news/42 把正文给我", "Chinese"),
        ("/var/log 안에 뭐 있어?", "Korean"),
        ("من استشهد ببحث «Attention Is All You Need»؟", "texts in Arabic letters"),
        ("Was steht in /srv/miete.txt auf unserem Speicher?", "German"),
        ("Che tempo fa a 41,9 N 12,5 E?", "Italian"),
        ("Apaga de vez o teste-antigo da Netlify", "Portuguese"),
        ("translate 你好 for a tourist", None),
        ("show me thai food near me", None),
        ("open a PDF in a new tab", None),
        ("48 plus 79", None),
        ("xqzv wqrt", None),
        ("12 + 7", None),
        ("", None),
    ],
)
def test_the_language_of_a_query_is_named(text: str, language: str | None) -> None:
    """A query in another language than English is recognised without a model (mending 45)."""
    assert foreign_language(text) == language


def test_a_query_that_nothing_answers_is_told() -> None:
    """The note depends on the model, on the language and on the words that were found
    (mending 45)."""
    german, docs = "buchen Sie bitte einen Flug", 50
    note = language_note(german, BUNDLED, bm25=0.0, docs=docs)
    assert note is not None
    assert "does not know German" in note
    assert len(note) < 300
    assert language_note(german, BUNDLED, bm25=enough(docs), docs=docs) is None
    assert language_note(german, MULTILINGUAL, bm25=1.0, docs=docs) is None
    assert words_note("xqzv wqrt", MULTILINGUAL, bm25=0.0, docs=docs) == NO_WORDS
    assert language_note("find birds", BUNDLED, bm25=1.0, docs=docs) is None
    assert language_note(german, None, bm25=0.0, docs=docs) is None
    assert language_note("xqzv wqrt", BUNDLED, bm25=0.0, docs=docs) is None
    assert words_note("xqzv", BUNDLED, bm25=0.0, docs=0) is None
    assert words_note("12 + 7", BUNDLED, bm25=0.0, docs=docs) is None
