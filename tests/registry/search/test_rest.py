"""Rest of what failed."""

from registry.search.search_breaker import SearchBreaker


def test_failures_of_one_moment_begin_one_rest() -> None:
    now = [0.0]
    rest = SearchBreaker(60.0, lambda: now[0])
    assert [rest.rests() for _ in range(5)] == [False] * 5
    assert [rest.record_failure() for _ in range(5)] == [1.0] * 5
    assert rest.rests()
    now[0] = 1.0
    assert [rest.rests(), rest.rests()] == [False, True]  # one tries
    assert [rest.record_failure(), rest.record_failure()] == [2.0, 2.0]
    now[0] = 2.9
    assert rest.rests()
    now[0] = 3.0
    assert not rest.rests()
    assert rest.record_answer()
    assert (rest.rests(), rest.record_failure()) == (False, 1.0)
