"""Which upstream subscriptions there are: one for each resource that somebody listens to."""

import asyncio
from dataclasses import dataclass, field

import anyio
import pytest

from gateway.context import Outbox
from gateway.state.change_streams import ResourceWatches
from schemas.errors import RelayedFault
from tests.polling import until

pytestmark = pytest.mark.anyio

URI = "test://x"


@dataclass(eq=False)
class Listener:
    outbox: Outbox = field(default_factory=Outbox)


@dataclass
class Upstream:
    """Remembers what it was told; answers when it may, refuses when it is to."""

    said: list[tuple[str, str, bool]] = field(default_factory=list)
    may: asyncio.Event = field(default_factory=asyncio.Event)
    refuses: bool = False

    async def connect(self, tenant: str, uri: str, begins: bool) -> None:
        self.said.append((tenant, uri, begins))
        await self.may.wait()
        if self.refuses:
            raise RelayedFault(-32000, "no")


@pytest.fixture
async def upstream(anyio_backend):
    upstream = Upstream()
    upstream.may.set()
    return upstream


@pytest.fixture
def watches(upstream):
    return ResourceWatches(upstream.connect)


async def test_the_first_listener_begins_and_the_last_ends(watches, upstream):
    ann, bob = Listener(), Listener()
    await watches.add("t", URI, ann, b"for ann")
    await watches.add("t", URI, bob, b"for bob")
    await watches.add("u", URI, ann, b"elsewhere")
    assert upstream.said == [("t", URI, True), ("u", URI, True)]
    watches.update("t", URI)
    assert [await one.outbox.take(0) for one in (ann, bob)] == [[b"for ann"], [b"for bob"]]
    await watches.remove("t", URI, ann)
    watches.update("t", URI)
    assert await ann.outbox.take(0) == []
    await watches.remove("t", URI, bob)
    await watches.remove("t", URI, bob)
    await watches.remove("u", URI, ann)
    assert upstream.said[2:] == [("t", URI, False), ("u", URI, False)]
    assert len(watches) == 0


async def test_a_server_that_refuses_is_asked_again_by_the_next_listener(watches, upstream):
    upstream.refuses = True
    ann, bob = Listener(), Listener()
    with pytest.raises(RelayedFault, match="no"):
        await watches.add("t", URI, ann, b"x")
    assert len(watches) == 0
    upstream.refuses = False
    await watches.add("t", URI, bob, b"x")
    assert len(upstream.said) == 2
    watches.update("t", URI)
    assert await ann.outbox.take(0) == []
    assert await bob.outbox.take(0) == [b"x"]


async def test_a_server_that_will_not_end_is_not_listened_to(watches, upstream):
    ann = Listener()
    await watches.add("t", URI, ann, b"x")
    upstream.refuses = True
    await watches.remove("t", URI, ann)
    assert len(watches) == 0


async def test_concurrent_listeners_leave_the_right_subscriptions(watches, upstream):
    upstream.may.clear()
    ann, bob = Listener(), Listener()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(watches.add, "t", URI, ann, b"x")
        tasks.start_soon(watches.add, "t", URI, bob, b"x")
        await until(lambda: upstream.said)
        tasks.start_soon(watches.remove, "t", URI, ann)
        tasks.start_soon(watches.remove, "t", URI, bob)
        await anyio.wait_all_tasks_blocked()
        assert upstream.said == [("t", URI, True)]  # one after the other
        upstream.may.set()
    assert upstream.said == [("t", URI, True), ("t", URI, False)]
    assert len(watches) == 0
