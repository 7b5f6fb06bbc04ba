import pytest

from schemas.signals import AsyncSignal, Signal


def test_listeners_are_called_in_order_of_subscription() -> None:
    signal, heard = Signal[str, int](), list[tuple[str, str, int]]()
    signal.publish("too early", 0)
    signal.subscribe(lambda name, number: heard.append(("first", name, number)))
    signal.subscribe(lambda name, number: heard.append(("second", name, number)))
    signal.publish("a", 1)
    assert heard == [("first", "a", 1), ("second", "a", 1)]


@pytest.mark.anyio
async def test_an_error_of_a_listener_is_the_publishers_once_all_have_heard() -> None:
    """Erasures of a person reach all parts that hold something, whichever of them fails."""
    signal, heard = AsyncSignal[str](), list[str]()

    async def hear(name: str) -> None:
        heard.append(name)

    async def refuse(name: str) -> None:
        raise ValueError(name)

    async def fail(name: str) -> None:
        raise LookupError(name)

    for listener in (hear, refuse, hear, fail):
        signal.subscribe(listener)
    with pytest.raises(ValueError, match="a"):
        await signal.publish("a")
    assert heard == ["a", "a"]


@pytest.mark.anyio
async def test_errors_after_the_first_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    """The publisher has room for one error alone (mending 35)."""
    signal = AsyncSignal[str]()

    async def fail(word: str) -> None:
        raise ValueError(word)

    async def fail_otherwise(word: str) -> None:
        raise OSError(word)

    signal.subscribe(fail)
    signal.subscribe(fail_otherwise)
    with pytest.raises(ValueError, match="gone"):
        await signal.publish("gone")
    [record] = caplog.records
    assert record.message == "listener_failed"
    assert record.exc_info is not None
    assert isinstance(record.exc_info[1], OSError)
