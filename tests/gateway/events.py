"""Server-sent events as a client reads them (WHATWG HTML, section 9.2)."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp

from tests.fixtures_gateway import Client

BOTH = "application/json, text/event-stream"


@dataclass
class Sent:
    """One event; `data` is "" for one that only says where to come back to."""

    name: str = ""
    data: str = ""
    id: str = ""
    retry: str = ""

    @property
    def message(self) -> Any:
        return json.loads(self.data)

    @property
    def text(self) -> Any:
        """What a message of `test/say` says."""
        return self.message["params"]["data"]


class Events:
    """The server-sent events of one response."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self.response = response

    async def event(self) -> Sent:
        """The next one; comments are skipped. Raises EOFError at the end."""
        sent, fields = Sent(), 0
        async with asyncio.timeout(30):
            while True:
                line = (await self.response.content.readline()).decode()
                if not line:
                    raise EOFError
                name, _, value = line.rstrip("\r\n").partition(":")
                value = value.removeprefix(" ")
                if name in {"data", "id", "retry"}:
                    setattr(sent, name, value)
                    fields += 1
                elif name == "event":
                    sent.name = value
                    fields += 1
                elif line.strip() == "" and fields:
                    return sent

    async def next(self) -> tuple[str, str]:
        """Name and data of the next event that says something."""
        sent = await self.event()
        while not sent.data:
            sent = await self.event()
        return sent.name, sent.data

    async def message(self) -> Any:
        name, data = await self.next()
        assert name == "message"
        return json.loads(data)

    async def rest(self) -> list[Sent]:
        """All that follow, to the end."""
        found = []
        try:
            while True:
                found.append(await self.event())
        except EOFError:
            return found


@asynccontextmanager
async def listening(
    client: Client, path: str, headers: dict[str, str] | None = None, body: Any = None
) -> AsyncIterator[Events]:
    sent = {"Accept": BOTH, **(headers or {})}
    method = "GET" if body is None else "POST"
    async with client.http.request(method, client.url + path, json=body, headers=sent) as response:
        assert response.status == 200, await response.text()
        assert response.headers["Content-Type"].startswith("text/event-stream")
        yield Events(response)


async def refusal_of_stream(
    client: Client, path: str, headers: dict[str, str] | None = None
) -> tuple[int, Any]:
    """Status and error of a GET that opens no stream."""
    sent = {"Accept": "text/event-stream", **(headers or {})}
    async with client.http.get(client.url + path, headers=sent) as response:
        assert response.headers["Content-Type"] == "application/json", await response.text()
        return response.status, (await response.json())["error"]
