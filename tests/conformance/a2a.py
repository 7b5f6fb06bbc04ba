"""`python -m tests.conformance.a2a`: a gateway with the scripted agent, judged by the TCK of A2A.

The TCK is on no package registry: clone github.com/a2aproject/a2a-tck, install it into the
interpreter that is named, and give the folder of a checkout (branch 1.0-dev, or 0.3.x).
"""

import asyncio
import base64
import sys
from collections.abc import Sequence
from pathlib import Path

import click
from msgspec.structs import replace

from config.a2a import A2AAgent
from config.settings import Settings
from gateway.wings.a2a import agents
from tests.fixtures_gateway import running, wordless
from tests.fuzz.rig import database
from tests.wings.a2a.scripted import scripted_agent

KEY = base64.b64encode(bytes(32)).decode()
SUITES = {
    "1.0": ("--sut-host", "--transport", "jsonrpc,http_json", "--level", "must"),
    "0.3": ("--sut-url", "--category", "all"),
}


def settings_for(defaults: Settings, version: str) -> Settings:
    agent = A2AAgent(description="Does what the TCK says.", kind="scripted")  # type: ignore[arg-type]
    a2a = replace(
        defaults.a2a,
        enabled=True,
        agents={"tck": agent},
        default="tck",
        versions=("1.0",) if version == "1.0" else ("1.0", "0.3"),  # whose cards it takes
        repeat_s=0,
        poll_s=0.05,
        push_private=True,
    )
    return replace(defaults, a2a=a2a, secrets=replace(defaults.secrets, key=KEY))


@click.command()
@click.argument("version", type=click.Choice(list(SUITES)))
@click.argument("folder", type=click.Path(path_type=Path, exists=True))
@click.option("--python", default=sys.executable, help="Interpreter with the TCK's packages.")
@click.option("--port", default=0)
@click.argument("more", nargs=-1)
def main(version: str, folder: Path, python: str, port: int, more: Sequence[str]) -> None:
    """Run the TCK of a version, in FOLDER, against the gateway."""
    sys.exit(asyncio.run(judge(version, folder, python, port, more)))


async def judge(version: str, folder: Path, python: str, port: int, more: Sequence[str]) -> int:
    agents.KINDS["scripted"] = scripted_agent
    with database() as cluster:
        settings = replace(settings_for(wordless(), version), database=cluster.settings)
        async with running(settings, port) as client:
            await client.gateway.wait_for_wings()
            where, *options = SUITES[version]
            address = client.url if version == "1.0" else f"{client.url}/a2a/tck"
            command = [python, "run_tck.py", where, address, *options, *more]
            process = await asyncio.create_subprocess_exec(*command, cwd=folder)
            return await process.wait()


if __name__ == "__main__":
    main(prog_name="python -m tests.conformance.a2a")
