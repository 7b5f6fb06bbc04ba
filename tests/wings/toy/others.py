"""Wings that cannot be served."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from starlette.responses import PlainTextResponse

from gateway.operations.operation import Operation, OperationInput
from gateway.wings.abc import Offer, Wing, WingParts


async def nothing(_asked: OperationInput) -> None:
    pass


async def give_up() -> None:
    raise ValueError("the task gave up")


def offering(offer: Offer) -> Callable[[WingParts], AbstractAsyncContextManager[Offer]]:
    @asynccontextmanager
    async def opened(_parts: WingParts) -> AsyncIterator[Offer]:
        yield offer

    return opened


LIST = Operation("list", "GET", "/notes", "List.", "", nothing)
BAD_NAME = Wing(name="second", open=offering(Offer(operations=[LIST])))
BAD_PATH = Wing(name="second", open=offering(Offer(apps={"/else": PlainTextResponse("")})))
BAD_TASK = Wing(name="second", open=offering(Offer(tasks=[give_up])))
