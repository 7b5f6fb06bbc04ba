"""Two gateways on loopback, each an agent of the other: README.md has the story.

    .venv/bin/python -m examples.agents.run

Both are child processes, each with a database of its own.
"""

import asyncio
import json
import os
import sys
from contextlib import AsyncExitStack
from dataclasses import dataclass
from itertools import cycle, islice
from typing import Any

import aiohttp

from examples.run import Stopped, child, gateway, step

TOOLGATE = (sys.executable, "-m", "gateway", "-c", "examples/agents/toolgate.yaml")
NAMES = ("north", "south")
DATA_DIR = "AGENTS_DATA_DIR"  # folder of both databases
COUNT = {"tool": "stock_countBoxes", "arguments": {}}
METHOD_NOT_FOUND = -32601


@dataclass(frozen=True)
class Office:
    name: str
    url: str
    http: aiohttp.ClientSession

    async def import_agent(self, peer: "Office") -> None:
        url = f"{peer.url}/a2a/desk"
        command = (*TOOLGATE, "import", "a2a", url, "--name", peer.name)
        async with child(*command, **own_variables(self.name)) as process:
            assert process.stdout is not None
            printed = await process.stdout.read()
            if await process.wait():
                raise Stopped(f"{self.name} did not import {url}: {printed.decode()}")
        print(f"{self.name} imports {url} as {peer.name}.")

    async def ask(self, peer: str, call: dict[str, Any]) -> str:
        """The answer of the agent of a peer to a call, or the last line of its error."""
        body = {"jsonrpc": "2.0", "id": 1, "method": peer, "params": {"data": call}}
        while True:
            async with self.http.post(f"{self.url}/rpc", json=body) as response:
                answer = await response.json()
            if "result" in answer:
                return json.dumps(answer["result"])
            if answer["error"]["code"] != METHOD_NOT_FOUND:
                return last_line(answer["error"])
            await asyncio.sleep(0.1)  # the news of the import are on their way


def last_line(error: dict[str, Any]) -> str:
    line: str = error["data"]["content"][-1]["text"].splitlines()[-1]
    return line


def hand_on(*names: str) -> dict[str, Any]:
    """A call that the offices hand on, each to the next; the last counts its boxes."""
    call: dict[str, Any] = COUNT
    for name in reversed(names):
        call = {"tool": name, "arguments": {"data": call}}
    return call


def own_variables(name: str) -> dict[str, str]:
    """Variables of the gateway of an office."""
    folder = os.environ.get(DATA_DIR)
    data_dir = {"TOOLGATE_DATABASE__DATA_DIR": f"{folder}/{name}"} if folder else {}
    return {"OFFICE": name, **data_dir}


async def main() -> None:
    async with AsyncExitStack() as stack:
        step("Starting two gateways ...")
        http = await stack.enter_async_context(aiohttp.ClientSession())

        async def start(name: str) -> Office:
            serving = gateway(*TOOLGATE, "serve", "--port", "0", **own_variables(name))
            _, url = await stack.enter_async_context(serving)
            return Office(name, url, http)

        north, south = await asyncio.gather(*map(start, NAMES))
        await asyncio.gather(north.import_agent(south), south.import_agent(north))
        print("north asks south:", await north.ask("south", COUNT))
        print("north asks south, which asks north:", await north.ask("south", hand_on("north")))
        rounds = hand_on(*islice(cycle(NAMES), 6))
        print("north asks south, which asks north, and so on:", await north.ask("south", rounds))


if __name__ == "__main__":
    os.environ.setdefault("TOOLGATE_LOGGING__LEVEL", "error")
    asyncio.run(main())
