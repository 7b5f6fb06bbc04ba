from contextlib import ExitStack, contextmanager

import anyio
import pytest

from gateway.context import Outbox
from gateway.state.change_streams import (
    LIST_NOTIFICATIONS,
    SUBSCRIPTION_LIMIT,
    Endpoint,
    Follower,
    Hub,
    ResourceWatches,
    changed_lists,
    update_notification,
)
from gateway.state.memory import MemorySessions
from schemas.errors import InvalidParams, TooManyRequests, Unavailable
from tests import polling
from tests.gateway.state.conftest import Node, stores_of

pytestmark = pytest.mark.anyio


def follower(tenant="t", message=b"changed", toolset=None, **others):
    return Follower(tenant, toolset, Outbox(), {"tools": message, **others})


@contextmanager
def following(hub, *followers):
    with ExitStack() as stack:
        for one in followers:
            stack.enter_context(hub.stream(one.outbox, one))
        yield


async def test_news_reaches_the_followers_of_the_tenant_each_in_its_own_words():
    hub = Hub(10)
    ann, bob, other = follower(message=b"for ann"), follower(message=b"for bob"), follower("u")
    with following(hub, ann, bob, other):
        hub.change("t", {"tools"})
        taken = [await one.outbox.take(0) for one in (ann, bob, other)]
    assert taken == [[b"for ann"], [b"for bob"], []]


async def test_followers_hear_only_of_subscribed_lists():
    hub = Hub(10)
    both, one = follower(prompts=b"prompts"), follower()
    with following(hub, both, one):
        hub.change("t", {"prompts", "resources"})
        assert await both.outbox.take(0) == [b"prompts"]
        assert await one.outbox.take(0) == []


async def test_changes_that_nobody_read_yet_are_one_piece_of_news():
    hub, box = Hub(10), follower()
    with following(hub, box):
        for _ in range(5):
            hub.change("t", {"tools"})
        assert await box.outbox.take(0) == [b"changed"]
        hub.change("t", {"tools"})
        assert await box.outbox.take(0) == [b"changed"]


async def test_changes_soon_after_each_other_are_told_together():
    hub, box = Hub(10, debounce_s=0.02), follower(prompts=b"prompts")
    with following(hub, box), anyio.fail_after(30):
        hub.change("t", {"tools"})
        assert await box.outbox.take(0) == []  # not at once
        hub.change("t", {"prompts"})
        assert sorted(await box.outbox.take(5)) == [b"changed", b"prompts"]
        assert await box.outbox.take(0.05) == []  # and not twice


async def test_followers_joining_after_a_change_are_not_notified():
    hub, before, after = Hub(10, debounce_s=0.02), follower(), follower()
    with following(hub, before), anyio.fail_after(30):
        hub.change("t", {"tools"})
        with following(hub, after):
            assert await before.outbox.take(5) == [b"changed"]
            assert await after.outbox.take(0) == []
            hub.change("t", {"tools"})
            assert await after.outbox.take(5) == [b"changed"]


async def test_departed_followers_hear_nothing():
    hub, box = Hub(10), follower()
    with following(hub, box):
        pass
    hub.change("t", {"tools"})
    assert await box.outbox.take(0) == []
    assert hub._followers == {}


async def test_a_follower_has_the_current_version_of_its_lists():
    hub = Hub(10, version=lambda tenant, toolset: f"{tenant}/{toolset}")
    box, narrow = follower(), follower(toolset="reading")
    with following(hub, box, narrow):
        hub.change("t", {"tools"})
    assert (box.outbox.lists_version, narrow.outbox.lists_version) == ("t/None", "t/reading")


async def test_streams_are_counted_and_limited():
    hub = Hub(stream_limit=2)
    with hub.stream(Outbox()), hub.stream(Outbox()):
        assert hub.streams == 2
        with pytest.raises(Unavailable, match=r"limit 2"), hub.stream(Outbox()):
            pass
    assert hub.streams == 0
    with hub.stream(Outbox()):
        assert hub.streams == 1


async def test_one_client_cannot_have_all_streams():
    hub, ann, bob = Hub(stream_limit=1000), ("t", "ann"), ("t", "bob")
    with ExitStack() as streams:
        for _ in range(100):
            streams.enter_context(hub.stream(Outbox(), owner=ann))
        with (
            pytest.raises(TooManyRequests, match="100 open streams"),
            hub.stream(Outbox(), owner=ann),
        ):
            pass
        with hub.stream(Outbox(), owner=bob), hub.stream(Outbox()):
            assert hub.streams == 102
    with hub.stream(Outbox(), owner=ann):
        assert hub.streams == 1


async def test_a_small_stream_limit_grants_one_client_a_larger_share():
    hub = Hub(stream_limit=60)
    with ExitStack() as streams:
        for _ in range(50):
            streams.enter_context(hub.stream(Outbox(), owner=("t", "ann")))
        with pytest.raises(TooManyRequests), hub.stream(Outbox(), owner=("t", "ann")):
            pass


async def test_one_client_has_as_many_streams_as_the_settings_say():
    hub, ann = Hub(stream_limit=1000, owner_limit=2), ("t", "ann")
    with hub.stream(Outbox(), owner=ann), hub.stream(Outbox(), owner=ann):
        with pytest.raises(TooManyRequests) as caught, hub.stream(Outbox(), owner=ann):
            pass
        assert caught.value.data == {"retryAfter": 1, "limit": "limits.principal_streams"}


async def test_where_all_are_one_nobody_has_a_share():
    hub, ann = Hub(stream_limit=1000, owner_limit=1, distinct_principals=False), ("t", "anonymous")
    with hub.stream(Outbox(), owner=ann), hub.stream(Outbox(), owner=ann):
        assert hub.streams == 2


async def test_closing_ends_streams_after_their_pending_messages():
    hub, box = Hub(10), Outbox()
    with hub.stream(box):
        box.put(b"last words")
        hub.close()
        assert box.closed
        assert await box.take(5) == [b"last words"]
    with pytest.raises(Unavailable, match="shutting down"), hub.stream(Outbox()):
        pass


@pytest.mark.parametrize(
    ("told", "now", "kinds"),
    [
        ("AAAABBBBCCCC", "AAAABBBBCCCC", []),
        ("AAAABBBBCCCC", "AAAXBBBBCCCC", ["tools"]),
        ("AAAABBBBCCCC", "AAAABBBBCCCX", ["resources"]),
        ("AAAABBBBCCCC", "XXXXXXXXXXXX", ["tools", "prompts", "resources"]),
        ("", "AAAABBBBCCCC", ["tools", "prompts", "resources"]),  # nobody knows
        ("AAAA", "AAAABBBBCCCC", ["prompts", "resources"]),
    ],
)
def test_versions_differ_in_the_changed_lists(told, now, kinds):
    assert changed_lists(told, now) == kinds


async def test_a_session_is_notified_of_changes_to_subscribed_resources(anyio_backend):
    node = Node(stores_of(MemorySessions()))
    session, other = await node.open(), await node.open()
    await node.hub.subscribe(session, "test://x")
    await node.hub.subscribe(session, "test://x")
    node.hub.resource_updated("tenant", None, "test://x")
    node.hub.resource_updated("tenant", None, "test://x")
    node.hub.resource_updated("tenant", None, "test://y")
    node.hub.resource_updated("another tenant", None, "test://x")
    with node.sessions.stream(session) as outbox:
        assert await outbox.take(0) == [update_notification("test://x")]
        await node.hub.unsubscribe(session, "test://x")
        node.hub.resource_updated("tenant", None, "test://x")
        assert await outbox.take(0) == []
    assert await other.outbox.take(0) == []
    assert len(node.hub.watches) == 0


async def test_a_session_that_ends_no_longer_watches(anyio_backend):
    node = Node(stores_of(MemorySessions()))
    session = await node.open()
    await node.hub.subscribe(session, "test://x")
    node.sessions.close(session)
    await node.sessions.close_all()
    assert len(node.hub.watches) == 0


async def test_a_session_can_subscribe_to_so_many_resources(anyio_backend):
    node = Node(stores_of(MemorySessions()))
    session = await node.open()
    for number in range(SUBSCRIPTION_LIMIT):
        await node.hub.subscribe(session, f"test://{number}")
    with pytest.raises(InvalidParams, match="can subscribe to 500"):
        await node.hub.subscribe(session, "test://one-more")
    await node.hub.subscribe(session, "test://1")  # is one already


async def test_parallel_subscriptions_of_a_session_keep_its_limit(anyio_backend):
    node = Node(stores_of(MemorySessions()))
    session = await node.open()
    release = anyio.Event()
    refused = []

    async def wait(_place: Endpoint, _uri: str, _begin: bool) -> None:
        await release.wait()

    async def subscribe(number: int) -> None:
        try:
            await node.hub.subscribe(session, f"test://{number}")
        except InvalidParams:
            refused.append(number)

    node.hub.watches = ResourceWatches(wait)
    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            for number in range(SUBSCRIPTION_LIMIT + 3):
                tasks.start_soon(subscribe, number)
            await polling.until(lambda: len(session.watched) >= SUBSCRIPTION_LIMIT)
            release.set()
    assert (len(session.subscriptions), len(refused)) == (SUBSCRIPTION_LIMIT, 3)


def test_notifications_match_the_specification():
    expected = b'{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}'
    assert LIST_NOTIFICATIONS["tools"] == expected
    assert update_notification("x:y") == (
        b'{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"x:y"}}'
    )


async def accept_watch(_place: Endpoint, _uri: str, _begin: bool) -> None:
    """As `Connect` of servers that accept all subscriptions."""


async def test_subscriptions_of_one_principal_are_limited_across_its_sessions():
    watches, ann, bob = ResourceWatches(accept_watch, owner_limit=3), ("t", "ann"), ("t", "bob")
    first, second, place = follower(), follower(), ("t", None)
    for uri in ("a", "b"):
        await watches.add(place, uri, first, b"", owner=ann)
    await watches.add(place, "a", second, b"", owner=ann)
    with pytest.raises(TooManyRequests, match="3 resources") as caught:
        await watches.add(place, "b", second, b"", owner=ann)
    assert caught.value.data["limit"] == "limits.principal_subscriptions"
    await watches.add(place, "b", second, b"", owner=bob)
    await watches.remove(place, "a", first)
    await watches.add(place, "c", second, b"", owner=ann)


async def test_refused_subscriptions_leave_the_share_of_their_principal():
    async def refuse(_place: Endpoint, _uri: str, _begin: bool) -> None:
        raise Unavailable("The server is away")

    watches, ann = ResourceWatches(refuse, owner_limit=1), ("t", "ann")
    for _ in range(3):
        with pytest.raises(Unavailable):
            await watches.add(("t", None), "a", follower(), b"", owner=ann)


async def test_failed_subscription_leaves_its_later_repetition_by_the_same_listener():
    attempts, release = [], anyio.Event()

    async def refuse_first(_place: Endpoint, _uri: str, begin: bool) -> None:
        attempts.append(begin)
        if len(attempts) == 1:
            await release.wait()
            raise Unavailable("The server is away")

    watches, listener, place = ResourceWatches(refuse_first), follower(), ("t", None)

    async def fail() -> None:
        with pytest.raises(Unavailable):
            await watches.add(place, "a", listener, b"changed")

    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(fail)
            await polling.until(lambda: attempts)
            watches.drop(place, "a", listener)
            tasks.start_soon(watches.add, place, "a", listener, b"changed")
            await anyio.wait_all_tasks_blocked()
            release.set()
    watches.update(place, "a")
    assert await listener.outbox.take(0) == [b"changed"]
    assert attempts == [True, True]
