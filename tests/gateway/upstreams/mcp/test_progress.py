"""Progress on its way from a server to the client of a call."""

from typing import Any

import msgspec
import pytest

from gateway.context import Context, Identity, Principal
from gateway.upstreams.mcp.link_and_handlers import ClientHandler
from schemas.mcp.revisions import V2025_11_25

pytestmark = pytest.mark.anyio

PROGRESS = "notifications/progress"


class Client:
    """Implements `Peer`: remembers the progress that it gets."""

    def __init__(self) -> None:
        self.progress: list[Any] = []

    async def notify(self, message: bytes) -> None:
        self.progress.append(msgspec.json.decode(message)["params"]["progress"])

    async def ask(self, method: str, params: Any) -> Any:
        raise AssertionError(f"asked {method} with {params}")


async def relay_progress(*values: Any) -> list[Any]:
    client = Client()
    context = Context(Identity(Principal("ada", "t")), V2025_11_25, "r", peer=client)
    context.params = {"_meta": {"progressToken": "mine"}}
    handler = ClientHandler(context, lambda _method, _params: None)
    for value in values:
        await handler.on_notification(PROGRESS, {"progressToken": 1, "progress": value})
    return client.progress


async def test_progress_that_goes_back_is_not_forwarded() -> None:
    """Progress of a call never decreases for its client (mending 22)."""
    assert await relay_progress(1, 3, 2, 0.5, 3, 4.5, 4) == [1, 3, 3, 4.5]


@pytest.mark.parametrize("value", [None, "7", True, [1], {}])
async def test_progress_that_is_no_number_is_not_forwarded(value: Any) -> None:
    """Progress without a number is dropped: clients would fail to read it (mending 22)."""
    assert await relay_progress(1, value, 2) == [1, 2]


async def test_progress_may_begin_below_zero() -> None:
    assert await relay_progress(-2, -1) == [-2, -1]
