"""Two gateways, two workers, one report: the worker that writes it is killed, and the client gets
its report from the other gateway.

    .venv/bin/python -m examples.events.run

All are child processes, with a database of their own.
"""

import asyncio
import json
import os
import re
import signal
import sys
import tempfile
from asyncio.subprocess import Process
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import aiohttp

from examples.run import Stopped, child, first_line, step

CONFIG = ("-c", "examples/events/toolgate.yaml")
SERVE = (sys.executable, "-m", "gateway", "serve", *CONFIG)
WORK = (sys.executable, "-m", "gateway", "worker", "--events", *CONFIG)
REVISION = "2025-11-25"
PAGES = 10


class Client:
    """A client of MCP 2025-11-25, with a session at one gateway."""

    def __init__(self, http: aiohttp.ClientSession, url: str) -> None:
        self._http = http
        self._url = url
        self._headers = {"Accept": "application/json, text/event-stream"}
        self._last = 0

    async def open(self) -> None:
        asked = {
            "protocolVersion": REVISION,
            "capabilities": {},
            "clientInfo": {"name": "example", "version": "1"},
        }
        await self.call("initialize", asked)
        self._headers["MCP-Protocol-Version"] = REVISION

    async def call(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        self._last += 1
        sent = {"jsonrpc": "2.0", "id": self._last, "method": method, "params": params}
        async with self._http.post(self._url, json=sent, headers=self._headers) as response:
            if session := response.headers.get("Mcp-Session-Id"):
                self._headers["Mcp-Session-Id"] = session
            text = await response.text()
        answer = decoded(text)
        if "error" in answer:
            raise Stopped(f"{method}: {answer['error']['message']}")
        result: dict[str, Any] = answer["result"]
        return result


def decoded(text: str) -> Any:
    """The last message of an answer, which may be a stream of events."""
    if text.startswith("{"):
        return json.loads(text)
    return json.loads(re.findall(r"^data: (\{.*)$", text, re.MULTILINE)[-1])


async def main() -> None:
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        log = folder / "progress"
        log.touch()
        own = {"REPORT_LOG": str(log)}

        async def start(*command: str) -> tuple[Process, str]:
            process = await stack.enter_async_context(child(*command, **own))
            return process, await first_line(process, "process")

        step("Starting two gateways and two workers ...")
        one, first = await start(*SERVE, "--port", "0")  # makes the database
        (_, second), *workers = await asyncio.gather(
            start(*SERVE, "--port", "0"), start(*WORK), start(*WORK)
        )
        by_pid = {process.pid: process for process, _ in workers}
        http = await stack.enter_async_context(aiohttp.ClientSession())

        client = Client(http, address(first))
        await client.open()
        asked = {"name": "reports_generateReport", "arguments": {"title": "2026", "pages": PAGES}}
        task = (await client.call("tools/call", {**asked, "task": {}}))["task"]
        print(f"Accepted: the report is {task['status']}.")

        pid = int(await until(lambda: first_word(log)))
        by_pid[pid].send_signal(signal.SIGKILL)
        await by_pid[pid].wait()
        print("Killed the worker that wrote it.")
        one.send_signal(signal.SIGTERM)
        await one.wait()
        print("Stopped the gateway that accepted it.")

        client = Client(http, address(second))
        await client.open()
        result = await client.call("tasks/result", {"taskId": task["taskId"]})
        report = result["structuredContent"]
        other = "the other worker" if report["worker"] != pid else "the killed worker"
        print(f"Report {report['title']}: {report['pages']} pages, by {other}.")


def address(line: str) -> str:
    found = re.search(r"http://\S+", line)
    if found is None:
        raise Stopped(f"A gateway said: {line}")
    return found[0]


def first_word(log: Path) -> str:
    return log.read_text().partition(" ")[0]


async def until(found: Callable[[], str]) -> str:
    """What `found` gives, once that is something."""
    while not (word := found()):  # noqa: ASYNC110 - of another process
        await asyncio.sleep(0.02)
    return word


if __name__ == "__main__":
    os.environ.setdefault("TOOLGATE_LOGGING__LEVEL", "error")
    asyncio.run(main())
