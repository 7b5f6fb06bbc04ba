"""Two things at a time."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from anyio import create_task_group

A = TypeVar("A")
B = TypeVar("B")


async def both(
    first: Callable[[], Awaitable[A]], second: Callable[[], Awaitable[B]]
) -> tuple[A, B]:
    """The results of both. What one of them raises is raised as it is, and ends the other."""
    found: list[B] = []

    async def beside() -> None:
        found.append(await second())

    try:
        async with create_task_group() as group:
            group.start_soon(beside)
            one = await first()
    except ExceptionGroup as failed:
        raise failed.exceptions[0] from None
    return one, found[0]
