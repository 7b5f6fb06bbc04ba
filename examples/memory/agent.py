"""An agent that remembers, without a model: what one would decide is written down here.

    .venv/bin/python examples/memory/agent.py [URL] [STEP...]

Steps: `learn`, `recall` (other sessions, perhaps after a restart of the gateway), `forget`; without
one, all of them. Tokens of the users Ann and Bo are minted with DEVELOPMENT_SECRET.
"""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from typing import Any

import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

URL = "http://127.0.0.1:8765/mcp"
SETTINGS = Path(__file__).with_name("toolgate.yaml")


async def learn(url: str) -> None:
    """A first conversation: facts, a value that changes, and what is of this session alone."""
    async with agent(url, "ann") as ann:
        await remember(ann, "Ann is allergic to peanuts", trust="user", importance=0.9)
        await remember(ann, "Ann lives in Bern", slot="home.city", valid_from="2021-03-01")
        moved = await remember(ann, "Ann lives in Oslo", slot="home.city", trust="user")
        print(
            f"learn: Ann moved; the value before is {'kept' if 'superseded' in moved else 'gone'}"
        )
        await remember(ann, "Ann waits for a parcel today", scope="session")
        found = await recall(ann, "What does Ann wait for?")
        print("learn: in this session:", found[0]["content"])
    async with agent(url, "bo") as bo:
        await remember(bo, "Bo is vegetarian", trust="user")


async def recall_later(url: str) -> None:
    """Another session of each: the user's memories are there, those of the session and of other
    users are not."""
    async with agent(url, "ann") as ann:
        [fact, *_] = await recall(ann, "peanuts")
        print(f"recall: {fact['content']} ({fact['trust']})")
        [city, *_] = await recall(ann, "Where does Ann live?")
        print("recall:", city["content"])
        history = await ask(ann, "memory_history", memory=city["id"])
        for one in history["items"]:
            state = "until " + one["valid_to"][:10] if "valid_to" in one else "now"
            print(f"  history: {one['content']}, since {one['valid_from'][:10]}, {state}")
        [then, *_] = await recall(ann, "Where did Ann live?", valid_at="2022-01-01")
        print("recall: in 2022:", then["content"])
        everything = await recall(ann, "parcel vegetarian")
        contents = " ".join(one["content"] for one in everything)
        print("recall: the parcel of that session:", "parcel" in contents)
        print("recall: what Bo eats:", "vegetarian" in contents)
        context = await ask(ann, "memory_context", query="dinner for Ann")
        print("recall: for the prompt:")
        print(*(f"  {line}" for line in context["text"].splitlines()), sep="\n")


async def forget(url: str) -> None:
    """Ann asks that one thing be forgotten, and then everything."""
    async with agent(url, "ann") as ann:
        [fact, *_] = await recall(ann, "peanuts")
        gone = await ask(ann, "memory_forget", ids=[fact["id"]])
        left = [one["content"] for one in await recall(ann, "peanuts")]
        print(f"forget: {gone['memories']} memory; peanuts left: {'peanuts' in str(left)}")
        wanted = await ask(ann, "memory_forget", subject="ann", dry_run=True)
        gone = await ask(ann, "memory_forget", subject="ann", expect=wanted["memories"])
        print(f"forget: everything, as counted: {gone['memories'] == wanted['memories']}")
        print("forget: left of Ann:", len(await recall(ann, "Where does Ann live?")))
    async with agent(url, "bo") as bo:
        print("forget: left of Bo:", (await recall(bo, "food"))[0]["content"])


@asynccontextmanager
async def agent(url: str, user: str) -> AsyncIterator[Client]:
    """An MCP session of a user."""
    headers = {"Authorization": f"Bearer {token(user)}"}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=60) as http,
        Client(streamable_http_client(url, http_client=http), mode="legacy") as client,
    ):
        yield client


@cache
def token(user: str) -> str:
    scopes = "memory:read memory:write"
    command = ["-m", "gateway", "-c", str(SETTINGS), "token", "mint", "--sub", user]
    minted = subprocess.run(
        [sys.executable, *command, "--scope", scopes], check=True, capture_output=True, text=True
    )
    return minted.stdout.strip()


async def remember(client: Client, content: str, scope: str = "user", **more: Any) -> Any:
    added = await ask(client, "memory_add", content=content, scope=scope, **more)
    return added["items"][0]


async def recall(client: Client, query: str, **more: Any) -> Any:
    return (await ask(client, "memory_search", query=query, **more))["items"]


async def ask(client: Client, name: str, /, **arguments: Any) -> Any:
    result = await client.call_tool(name, arguments)
    if result.is_error:
        raise SystemExit(f"{name}: {result.content[0].text}")
    return result.structured_content


STEPS = {"learn": learn, "recall": recall_later, "forget": forget}


async def main(url: str, steps: list[str]) -> None:
    for step in steps or STEPS:
        await STEPS[step](url)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if sys.argv[1:] else URL, sys.argv[2:]))
