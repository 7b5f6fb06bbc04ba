"""What waits for one request until whoever made it takes it."""

import asyncio
from collections import deque

from gateway.upstreams.mcp.wire import Message

LIMIT = 1000  # messages


class Mailbox:
    def __init__(self) -> None:
        self.over: Exception | None = None  # nothing comes any more
        self._waiting: deque[Message] = deque()
        self._woken = asyncio.Event()

    def put(self, message: Message, kept: bool = False) -> None:
        if kept or len(self._waiting) < LIMIT:
            self._waiting.append(message)
            self._woken.set()

    def fail(self, error: Exception) -> None:
        self.over = self.over or error
        self._woken.set()

    async def get(self) -> Message:
        while not self._waiting:
            if self.over is not None:
                raise self.over
            self._woken.clear()
            await self._woken.wait()
        return self._waiting.popleft()
