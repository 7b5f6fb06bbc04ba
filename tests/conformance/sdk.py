"""Clients made with the official TypeScript SDKs, in front of the gateway."""

import asyncio
import json
from collections.abc import Iterator

from tests.conformance.node import FOLDER, Node
from tests.conformance.suite import Check, Scenario

SCRIPT = "client.mjs"
TIMEOUT_S = 120


async def run_clients(node: Node, url: str) -> list[Scenario]:
    """The client of each era is a scenario; each line that it prints is a check."""
    return [await _client(node, era, url) for era in ("handshake", "stateless")]


async def _client(node: Node, era: str, url: str) -> Scenario:
    process = await asyncio.create_subprocess_exec(
        *node.script(SCRIPT, era, url),
        cwd=FOLDER,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(TIMEOUT_S):
            said, complaint = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    ended = process.returncode or 0
    checks = tuple(_checks(said.decode(), ended, complaint.decode(errors="replace")))
    return Scenario(f"typescript-{era}", True, checks)


def _checks(output: str, ended: int, complaint: str) -> Iterator[Check]:
    for line in output.splitlines():
        found = json.loads(line)
        yield Check(found["check"], "SUCCESS" if found["good"] else "FAILURE", found["said"])
    if ended != 0:
        yield Check("ended", "FAILURE", f"exit {ended}: {' '.join(complaint.split())[-1000:]}")
