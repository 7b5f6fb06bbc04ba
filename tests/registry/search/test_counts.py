"""Counts are believed for a while; as many are kept as there is room for."""

from registry.search.filters import BELIEVED_S, KEPT, DocumentCounts


def test_a_count_is_believed_for_a_while() -> None:
    moments = iter([0.0, BELIEVED_S - 1, BELIEVED_S])
    counts = DocumentCounts(lambda: next(moments))
    assert counts.put(("a",), 7) == 7
    assert counts.get(("a",)) == 7
    assert counts.get(("a",)) is None


def test_one_count_too_many_takes_the_oldest_alone() -> None:
    counts = DocumentCounts(lambda: 0.0)
    for number in range(KEPT + 1):
        counts.put((number,), number)
    assert counts.get((0,)) is None
    assert [counts.get((number,)) for number in (1, KEPT)] == [1, KEPT]
