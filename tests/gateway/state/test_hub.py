import pytest

from gateway.context import Outbox
from gateway.state.hub import Hub
from schemas.errors import Unavailable

pytestmark = pytest.mark.anyio


async def test_news_reaches_the_followers_of_the_tenant_each_in_its_own_words():
    hub, ann, bob, other = Hub(10), Outbox(), Outbox(), Outbox()
    hub.follow("t", ann, b"for ann")
    hub.follow("t", bob, b"for bob")
    hub.follow("u", other, b"for u")
    hub.tools_changed("t")
    assert [await box.take(0) for box in (ann, bob, other)] == [[b"for ann"], [b"for bob"], []]


async def test_changes_that_nobody_read_yet_are_one_piece_of_news():
    hub, box = Hub(10), Outbox()
    hub.follow("t", box, b"changed")
    for _ in range(5):
        hub.tools_changed("t")
    assert await box.take(0) == [b"changed"]
    hub.tools_changed("t")
    assert await box.take(0) == [b"changed"]


async def test_who_left_hears_nothing():
    hub, box = Hub(10), Outbox()
    hub.follow("t", box, b"changed")
    hub.leave("t", box)
    hub.leave("t", box)
    hub.leave("nobody", box)
    hub.tools_changed("t")
    assert await box.take(0) == []
    assert hub._followers == {}


async def test_streams_are_counted_and_limited():
    hub = Hub(stream_limit=2)
    with hub.stream(Outbox()), hub.stream(Outbox()):
        assert hub.streams == 2
        with pytest.raises(Unavailable, match=r"limit 2"), hub.stream(Outbox()):
            pass
    assert hub.streams == 0
    with hub.stream(Outbox()):
        assert hub.streams == 1


async def test_closing_ends_streams_after_what_they_still_hold_and_refuses_more():
    hub, box = Hub(10), Outbox()
    with hub.stream(box):
        box.put(b"last words")
        hub.close()
        assert box.closed
        assert await box.take(5) == [b"last words"]
    with pytest.raises(Unavailable, match="shutting down"), hub.stream(Outbox()):
        pass
