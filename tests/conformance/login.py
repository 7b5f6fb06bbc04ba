"""The official suite against the login: its metadata, and a code grant in which a browser logs a
person in."""

import asyncio
import re
from pathlib import Path

import aiohttp
from msgspec.structs import replace

from config.login import LoginClient
from tests.conformance.node import ROOT, Node
from tests.conformance.suite import TIMEOUT_S, Scenario, records
from tests.fixtures_servers import free_ports
from tests.fuzz.rig import database
from tests.gateway.login.company import Browser, browsing, company

SCENARIOS = ("authorization-server-metadata-endpoint", "authorization-code-grant")
ASKED = re.compile(r"http://\S+/authorize\?\S+")


async def run_authorization(node: Node, folder: Path) -> list[Scenario]:
    folder.mkdir(parents=True, exist_ok=True)
    [port] = free_ports(1)
    client = LoginClient(redirect_uris=(f"http://127.0.0.1:{port}/callback",))
    with database() as cluster:
        settings = replace(cluster.settings, url=cluster.url("postgres"))
        async with company(settings, clients={"judge": client}) as made, browsing() as browser:
            command = node.suite(
                *("authorization", "--url", made.url, "--client-id", "judge"),
                *("--resource", f"{made.url}/mcp", "--port", str(port), "-o", str(folder)),
            )
            process = await asyncio.create_subprocess_exec(
                *command,
                cwd=ROOT,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
            )
            assert process.stdout is not None
            said = []
            try:
                async with asyncio.timeout(TIMEOUT_S):
                    async for line in process.stdout:
                        said.append(line.decode(errors="replace"))
                        if asked := ASKED.search(said[-1]):
                            back = await browser.log_in(asked[0])
                            await return_to_suite(browser, back.location)
                    await process.wait()
            finally:
                if process.returncode is None:
                    process.kill()
                    await process.wait()
            (folder / "authorization.log").write_text("".join(said))
    return [
        Scenario(name, True, tuple(records(folder, f"authorization-server-{name}")))
        for name in SCENARIOS
    ]


async def return_to_suite(browser: Browser, url: str) -> None:
    """Follow the way back to the suite, which asks for a login just before it listens."""
    while True:
        try:
            await browser.get(url)
        except aiohttp.ClientConnectorError:
            await asyncio.sleep(0.05)
        else:
            return
