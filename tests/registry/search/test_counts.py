"""Counts are believed for a while; as many are kept as there is room for."""

from registry.search.filters import CACHE_ENTRIES, CACHE_LIFETIME_S, DocumentCounts


def test_a_count_is_believed_for_a_while() -> None:
    moments = iter([0.0, CACHE_LIFETIME_S - 1, CACHE_LIFETIME_S])
    counts = DocumentCounts(lambda: next(moments))
    assert counts.put(("a",), 7) == 7
    assert counts.get(("a",)) == 7
    assert counts.get(("a",)) is None


def test_one_count_too_many_takes_the_oldest_alone() -> None:
    counts = DocumentCounts(lambda: 0.0)
    for number in range(CACHE_ENTRIES + 1):
        counts.put((number,), number)
    assert counts.get((0,)) is None
    assert [counts.get((number,)) for number in (1, CACHE_ENTRIES)] == [1, CACHE_ENTRIES]
