"""Rest of what failed."""

from registry.search.rest import Rest


def test_failures_of_one_moment_begin_one_rest() -> None:
    now = [0.0]
    rest = Rest(60.0, lambda: now[0])
    assert [rest.rests() for _ in range(5)] == [False] * 5
    assert [rest.failed() for _ in range(5)] == [1.0] * 5
    assert rest.rests()
    now[0] = 1.0
    assert [rest.rests(), rest.rests()] == [False, True]  # one tries
    assert [rest.failed(), rest.failed()] == [2.0, 2.0]
    now[0] = 2.9
    assert rest.rests()
    now[0] = 3.0
    assert not rest.rests()
    assert rest.answered()
    assert (rest.rests(), rest.failed()) == (False, 1.0)
