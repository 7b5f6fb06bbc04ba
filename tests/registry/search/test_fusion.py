"""One score out of two."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from registry.embedding.texts import readable
from registry.search.fusion import (
    COVERAGE,
    DIGITS,
    Candidate,
    RankedCandidate,
    covering,
    enough,
    rank,
)
from registry.search.word_selection import Word, idfs, last_word, plan


def candidate(name: str, bm25: float, cosine: float | None, weight: float = 1.0) -> Candidate:
    return Candidate(f"id-{name}", name, weight, bm25, cosine)


def names(candidates: list[Candidate], share: float = 0.7, limit: int = 10) -> list[str]:
    return [one.candidate.name for one in rank(candidates, share, limit)]


def test_a_score_is_the_sum_of_meaning_and_of_words_relative_to_the_best() -> None:
    found = rank([candidate("a", 8.0, 0.5), candidate("b", 4.0, 0.9)], 0.7, 10)
    scores = {one.candidate.name: one.score for one in found}
    assert scores == {"a": pytest.approx(0.35 + 0.3), "b": pytest.approx(0.63 + 0.15)}
    assert [one.candidate.name for one in found] == ["b", "a"]


def test_few_words_of_the_best_hit_weigh_little() -> None:
    found = [candidate("a", 8.0, 0.5), candidate("b", 4.0, 0.6)]
    assert [one.candidate.name for one in rank(found, 0.7, 10)] == ["a", "b"]
    (first, second) = rank(found, 0.7, 10, enough=80.0)
    assert first.candidate.name == "b"
    assert first.score == pytest.approx(0.42 + 0.3 * 4 / 80)
    assert second.score == pytest.approx(0.35 + 0.3 * 8 / 80)


def test_the_sufficient_score_grows_with_the_number_of_documents() -> None:
    assert enough(199) == pytest.approx(21.2, abs=0.1)
    assert enough(4000) == pytest.approx(33.2, abs=0.1)
    assert enough(0) == 0


def test_the_weight_multiplies_the_whole_score() -> None:
    (one,) = rank([candidate("a", 8.0, 0.5, weight=0.8)], 0.7, 10)
    assert one.score == pytest.approx(0.8 * (0.35 + 0.3))


def test_equals_come_by_name() -> None:
    assert names([candidate(name, 1.0, 0.5) for name in "cab"]) == ["a", "b", "c"]


def test_scores_equal_up_to_rounding_are_ties() -> None:
    assert names([candidate("b", 1.0, 0.1 + 0.2), candidate("a", 1.0, 0.3)]) == ["a", "b"]


def test_a_deprecated_tool_ranks_behind_its_equal() -> None:
    assert names([candidate("a", 2.0, 0.5, 0.8), candidate("b", 2.0, 0.5)]) == ["b", "a"]


def test_tools_without_a_vector_count_by_words() -> None:
    found = [candidate("new", 9.0, None), candidate("other", 3.0, 0.6), candidate("far", 0, 0.5)]
    assert names(found) == ["new", "other", "far"]


def test_without_vectors_words_decide_and_without_words_vectors() -> None:
    found = [candidate("words", 5.0, 0.1), candidate("meaning", 1.0, 0.9)]
    assert names(found, share=0.0) == ["words", "meaning"]
    assert names(found, share=1.0) == ["meaning", "words"]


@given(
    st.lists(
        st.builds(
            candidate,
            st.text("abc", min_size=1, max_size=3),
            st.floats(0, 50),
            st.none() | st.floats(-1, 1),
            st.floats(0, 2),
        ),
        max_size=20,
    ),
    st.floats(0, 1),
)
def test_any_order_of_candidates_gives_one_answer(found: list[Candidate], share: float) -> None:
    once = [one.score for one in rank(found, share, 50)]
    assert once == [one.score for one in rank(found[::-1], share, 50)]
    assert once == sorted(once, reverse=True)
    assert len(once) == len(found)


def test_rare_words_are_looked_up_first_until_the_budget_is_used() -> None:
    words = [Word("get", 900), Word("invoice", 20), Word("list", 400), Word("none", 0)]
    made = plan(words, docs=1000, length=20_000.0, postings_limit=500)
    assert [word.term for word in made.scanned] == ["invoice", "list"]
    assert [word.term for word in made.rest] == ["get"]
    assert (made.docs, made.average) == (1000, 20.0)


def test_a_single_word_is_always_looked_up() -> None:
    made = plan([Word("get", 900)], docs=1000, length=1.0, postings_limit=5)
    assert [word.term for word in made.scanned] == ["get"]


def test_of_very_many_words_the_rarest_count() -> None:
    made = plan([Word(f"w{n}", n) for n in range(1, 500)], 1000, 1.0, 10**9)
    assert [word.docs for word in made.scanned] == list(range(1, 65))


def test_nothing_to_search_needs_no_average() -> None:
    assert plan([], 0, 0.0, 5).average == 1.0


def test_rare_words_are_worth_more_and_no_word_is_worthless() -> None:
    rare, half, all_, more = idfs([Word("w", docs) for docs in (1, 50, 100, 101)], 100)
    assert rare == pytest.approx(math.log(1 + 99.5 / 1.5))
    assert rare > half > all_ > 0
    assert more > 0  # counts of two moments


@pytest.mark.parametrize(
    ("text", "word"),
    [("create iss", "iss"), ("Create ISS", "iss"), ("create ", ""), ("a-b_c", "c"), ("", "")],
)
def test_the_last_word_is_unterminated(text: str, word: str) -> None:
    assert last_word(text) == word


@given(st.text(st.characters(exclude_categories=()), max_size=50))
def test_any_text_becomes_storable_in_postgresql(text: str) -> None:
    found = readable(text, 20)
    assert "\0" not in found
    assert len(found.encode()) >= 0  # lone surrogates would raise
    assert len(found) <= 20


def near(name: str, *sentences: float, weight: float = 1.0) -> RankedCandidate:
    score = max(sentences, default=0.0) * weight
    return RankedCandidate(Candidate(name, name, weight, 0.0, score, sentences or None), score)


def choose_names(found: list[RankedCandidate], limit: int = 10) -> str:
    best = covering(found, limit)
    assert [one.score for one in best] == sorted((one.score for one in best), reverse=True)
    return " ".join(one.candidate.name for one in best)


def test_every_sentence_has_its_tools_before_another_of_one_sentence() -> None:
    found = [near("a", 0.9, 0.1), near("b", 0.88, 0.1), near("c", 0.85, 0.1), near("d", 0.1, 0.8)]
    assert choose_names(found) == "a d b c"
    assert choose_names(found, limit=2) == "a d"


def test_a_sentence_does_not_promote_distant_tools() -> None:
    assert choose_names([near("a", 0.9, 0.2), near("b", 0.8, 0.1), near("c", 0.1, 0.3)]) == "a b c"


def test_tools_without_a_vector_keep_their_scores_beside_sentences() -> None:
    found = [near("a", 0.9, 0.1), RankedCandidate(Candidate("b", "b", 1.0, 9.0, None), 0.95)]
    assert choose_names(found) == "a b"
    assert [one.candidate.name for one in covering(found[1:], 10)] == ["b"]


def test_deprecated_tools_gain_less_by_a_sentence() -> None:
    assert choose_names([near("a", 0.5, 0.5, weight=0.8), near("b", 0.4, 0.4)]) == "a b"
    assert choose_names([near("a", 0.5, 0.5, weight=0.8), near("b", 0.45, 0.45)]) == "b a"


def test_a_query_of_one_sentence_keeps_its_order() -> None:
    found = rank([candidate("a", 8.0, 0.5), candidate("b", 4.0, 0.9)], 0.7, 10)
    assert covering(found, 1) == found[:1]


@given(
    st.lists(st.lists(st.floats(-1, 1), min_size=3, max_size=3), max_size=30), st.integers(0, 30)
)
def test_nothing_is_lost_or_doubled_by_coverage(rows: list[list[float]], limit: int) -> None:
    found = [near(str(at), *row) for at, row in enumerate(rows)]
    best = [one.candidate.name for one in covering(found, limit)]
    assert len(best) == len(set(best)) == min(limit, len(rows))


Rows = list[list[float]]


def choose_greedily(found: list[RankedCandidate], limit: int) -> list[tuple[float, str]]:
    """Scores and names of a choice that scores all that are left each time."""
    left, chosen, nearest = list(found), list[tuple[float, str]](), [0.0] * 3
    while left and len(chosen) < limit:
        scores = [
            round(one.score + round(COVERAGE * _gain(one, nearest), DIGITS), DIGITS) for one in left
        ]
        best = left.pop(scores.index(max(scores)))
        chosen.append((max(scores), best.candidate.name))
        nearest = [*map(max, nearest, best.candidate.sentences or nearest)]
    return chosen


def _gain(ranked: RankedCandidate, nearest: list[float]) -> float:
    pairs = zip(ranked.candidate.sentences or (), nearest, strict=False)
    return sum(max(0.0, own - before) for own, before in pairs)


@given(
    st.lists(
        st.one_of(
            st.just([]),
            st.lists(st.sampled_from([-0.5, 0.0, 0.1, 0.2, 0.3, 0.7, 0.8]), min_size=3, max_size=3),
        ),
        max_size=30,
    ).filter(any),
    st.integers(1, 20),
)
def test_lazy_choice_equals_greedy_choice(rows: Rows, limit: int) -> None:
    found = [near(str(at), *row) for at, row in enumerate(rows)]
    found.sort(key=lambda ranked: -ranked.score)
    lazy = [(ranked.score, ranked.candidate.name) for ranked in covering(found, limit)]
    assert lazy == choose_greedily(found, limit)
