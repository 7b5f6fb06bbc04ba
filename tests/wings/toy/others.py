"""Wings that cannot be served."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from starlette.responses import PlainTextResponse

from gateway.operations.operation import Operation, OperationInput
from gateway.wings.interface import Wing, WingContributions, WingParts


async def nothing(_request: OperationInput) -> None:
    pass


async def give_up() -> None:
    raise ValueError("the task gave up")


def offering(
    offer: WingContributions,
) -> Callable[[WingParts], AbstractAsyncContextManager[WingContributions]]:
    @asynccontextmanager
    async def open_offer(_parts: WingParts) -> AsyncIterator[WingContributions]:
        yield offer

    return open_offer


LIST = Operation("list", "GET", "/notes", "List.", "", nothing)
BAD_NAME = Wing(name="second", open=offering(WingContributions(operations=[LIST])))
BAD_PATH = Wing(
    name="second", open=offering(WingContributions(apps={"/else": PlainTextResponse("")}))
)
BAD_TASK = Wing(name="second", open=offering(WingContributions(tasks=[give_up])))
