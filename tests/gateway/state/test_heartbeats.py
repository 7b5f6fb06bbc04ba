import anyio
import pytest

from gateway.state.memory import MemorySessions
from gateway.state.peer_nodes import send_heartbeats
from tests.gateway.state.conftest import Shared

pytestmark = pytest.mark.anyio


async def test_a_node_is_alive_while_sending_heartbeats():
    store = Shared()
    assert not await store.is_alive("aa")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(send_heartbeats, store, "aa", 5)
        await anyio.wait_all_tasks_blocked()
        assert await store.is_alive("aa")
        tasks.cancel_scope.cancel()


async def test_heartbeats_end_at_once_without_a_shared_store():
    with anyio.fail_after(30):
        await send_heartbeats(MemorySessions(), "aa", 5)
