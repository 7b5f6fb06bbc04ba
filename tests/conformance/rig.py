"""Real processes: the fixture server, and `toolgate serve` in front of it."""

import asyncio
import json
import re
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp

from tests.conformance.node import ROOT
from tests.servers.everything_wire import Era

START_TIMEOUT_S = 60
STOP_TIMEOUT_S = 15
POLL_S = 0.05
META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}


class Unready(Exception):
    """A server that did not start, or did not become what it should be."""


@asynccontextmanager
async def fixture(era: Era, log: Path) -> AsyncIterator[str]:
    """URL of the "everything" server."""
    command = [sys.executable, "-m", "tests.servers.everything", "--era", era]
    async with _start_server(command, log) as url:
        yield url


@asynccontextmanager
async def gateway(
    sources: Mapping[str, Mapping[str, str]],
    log: Path,
    tools: Sequence[str] = ("test_simple_text",),
) -> AsyncIterator[str]:
    """URL of a gateway with all defaults but its sources, when it lists all these tools.

    As root the embedded database runs as another user, hence a directory that anybody may enter.
    """
    home = Path(tempfile.mkdtemp(prefix="toolgate-conformance-"))
    home.chmod(0o755)
    settings = {
        "server": {"port": 0},
        "database": {"data_dir": str(home / "data"), "system_user": "nobody"},
        "sources": sources,
    }
    file = home / "toolgate.yaml"
    file.write_text(json.dumps(settings))  # JSON is YAML
    try:
        command = [sys.executable, "-m", "gateway", "serve", "--config", str(file)]
        async with _start_server(command, log) as url:
            await _wait_for_tools(url, tools)
            yield url
    finally:
        shutil.rmtree(home, ignore_errors=True)


@asynccontextmanager
async def _start_server(command: Sequence[str], log: Path) -> AsyncIterator[str]:
    """The URL in the first line that a command prints; `log` takes its standard error."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as errors:
        process = await asyncio.create_subprocess_exec(
            *command, cwd=ROOT, stdout=asyncio.subprocess.PIPE, stderr=errors
        )
        try:
            yield await _address(process, log)
        finally:
            await _stop(process)


async def _address(process: asyncio.subprocess.Process, log: Path) -> str:
    assert process.stdout is not None
    async with asyncio.timeout(START_TIMEOUT_S):
        line = (await process.stdout.readline()).decode()
    found = re.search(r"http://\S+", line)
    if found is None:
        raise Unready(f"no address in {line!r}; the end of its log:\n{log.read_text()[-2000:]}")
    return found[0]


async def _stop(process: asyncio.subprocess.Process) -> None:
    if process.returncode is not None:
        return
    process.terminate()
    try:
        async with asyncio.timeout(STOP_TIMEOUT_S):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()


async def _wait_for_tools(url: str, tools: Sequence[str]) -> None:
    """Wait until the gateway lists tools of the servers behind it."""
    headers = {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/list"}
    request = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": META}}
    answer = None
    try:
        async with asyncio.timeout(START_TIMEOUT_S), aiohttp.ClientSession(headers=headers) as http:
            while any(f'"{tool}"' not in json.dumps(answer) for tool in tools):
                await asyncio.sleep(POLL_S)
                async with http.post(url, json=request) as response:
                    answer = await response.json()
    except TimeoutError:
        said = json.dumps(answer)[:1000]
        raise Unready(f"the gateway never listed {tools}, but answered {said}") from None
