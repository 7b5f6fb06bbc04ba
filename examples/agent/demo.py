"""An agent over the pet shop: a search, a call, an approval, and a gateway that is killed.

.venv/bin/python examples/agent/demo.py
"""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from examples.agent.model import complete
from examples.run import TOOLGATE, child, gateway, pet_shop

SETTINGS = "examples/agent/toolgate.yaml"
GATEWAY = (sys.executable, "-m", "gateway", "serve", "-c", SETTINGS, "--port", "0")
STEP_S = 90


class Shop:
    """The pet shop behind a proxy, which never passes on the answer to the first new pet."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.added = asyncio.Event()  # a pet was added, and the result is not stored yet

    async def forward(self, request: web.Request) -> web.Response:
        body = await request.read()
        headers = {name: request.headers[name] for name in ("Content-Type",) if body}
        async with (
            aiohttp.ClientSession() as http,
            http.request(
                request.method, f"{self._url}{request.rel_url}", data=body, headers=headers
            ) as response,
        ):
            answer, status = await response.read(), response.status
        if request.method == "POST" and not self.added.is_set():
            self.added.set()
            await asyncio.Event().wait()
        return web.Response(body=answer, status=status, content_type="application/json")


@asynccontextmanager
async def serving(method: str, path: str, handle: Any) -> AsyncIterator[str]:
    """A server on loopback: its URL."""
    app = web.Application()
    app.router.add_route(method, path, handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    try:
        yield f"http://{host}:{port}"
    finally:
        await runner.cleanup()


async def send(url: str, path: str, body: Any = None) -> Any:
    async with (
        aiohttp.ClientSession() as http,
        http.request("POST" if body else "GET", f"{url}/agent/v1{path}", json=body) as response,
    ):
        answer = await response.json(content_type=None)
        assert response.status < 300, answer
        return answer


async def until(url: str, run: str, *states: str) -> Any:
    for _ in range(STEP_S * 10):
        found = await send(url, f"/runs/{run}")
        if found["state"] in states:
            return found
        await asyncio.sleep(0.1)
    raise SystemExit(f"the run is {found['state']}")


async def approve(approval: str, variables: dict[str, str]) -> None:
    command = (TOOLGATE, "approvals", "approve", approval, "-c", SETTINGS)
    async with child(*command, **variables) as process:
        assert await process.wait() == 0


async def main() -> None:
    async with AsyncExitStack() as stack:
        _, shop_url = await stack.enter_async_context(pet_shop())
        shop = Shop(shop_url)
        proxy = await stack.enter_async_context(serving("*", "/{path:.*}", shop.forward))
        model = await stack.enter_async_context(serving("POST", "/v1/{path:.*}", complete))
        variables = {"PETSHOP_URL": proxy, "MODEL_URL": f"{model}/v1"}
        async with gateway(*GATEWAY, **variables) as (process, url):
            found = await send(url, "/ask", {"message": "Which cats do you have?"})
            print("called:", ", ".join(one["tool"] for one in found["calls"]))
            print("answer:", found["answer"])
            asked = {"message": "Add Kiki, please.", "wait": False}
            run = (await send(url, "/ask", asked))["run"]
            waiting = await until(url, run, "waiting")
            print("waits for an approval of:", waiting["calls"][0]["tool"])
            await approve(waiting["approvals"][0], variables)
            await asyncio.wait_for(shop.added.wait(), STEP_S)
            process.kill()
            await process.wait()
            print("killed the gateway while the call was made")
        async with gateway(*GATEWAY, **variables) as (_, url):
            found = await until(url, run, "completed", "failed")
            print("called:", ", ".join(one["tool"] for one in found["calls"]))
            print("told:", found["calls"][0]["result"].split(":")[1].strip())
            print("answer:", found["answer"])
        async with aiohttp.ClientSession() as http, http.get(f"{shop_url}/pets") as response:
            pets = (await response.json())["pets"]
        print("pets called Kiki:", sum(one["name"] == "Kiki" for one in pets))


if __name__ == "__main__":
    asyncio.run(main())
