"""`python -m tests.conformance.agents`: a gateway with the scripted agent of A2A, and its judges:
the TCK, or the official SDKs as clients.

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
from gateway.wings.a2a import task_agents
from tests.conformance.node import FOLDER, install
from tests.fixtures_gateway import running, wordless
from tests.fuzz.rig import database
from tests.wings.a2a.scripted import scripted_agent

KEY = base64.b64encode(bytes(32)).decode()
CLIENT = Path(__file__).with_name("agents_client.py")
SUITES = {
    "1.0": ("--sut-host", "--transport", "jsonrpc,http_json", "--level", "must"),
    "0.3": ("--sut-url", "--category", "mandatory"),
}


def settings_for(defaults: Settings, judge: str) -> Settings:
    agent = A2AAgent(description="Does what the TCK says.", kind="scripted")  # type: ignore[arg-type]
    a2a = replace(
        defaults.a2a,
        enabled=True,
        agents={"tck": agent},
        default="tck",
        versions=("1.0",) if judge == "1.0" else ("1.0", "0.3"),  # whose cards it takes
        repeat_s=0,
        poll_s=0.05,
        push_private=True,
    )
    return replace(defaults, a2a=a2a, secrets=replace(defaults.secrets, key=KEY))


def signing(settings: Settings) -> Settings:
    """Settings of a gateway whose cards are signed."""
    return replace(
        settings,
        auth=replace(settings.auth, mode="jwt"),
        login=replace(settings.login, enabled=True, users=True),
        server=replace(settings.server, public_url="http://127.0.0.1:1"),
        a2a=replace(settings.a2a, sign=True),
    )


@click.command()
@click.argument("judge", type=click.Choice(["sdk", *SUITES]))
@click.argument("folder", type=click.Path(path_type=Path, exists=True), default=FOLDER.parent)
@click.option("--python", default=sys.executable, help="Interpreter with the judge's packages.")
@click.option("--port", default=0)
def main(judge: str, folder: Path, python: str, port: int) -> None:
    """Have the gateway judged by the SDKs, or by the TCK of a version, which is in FOLDER."""
    sys.exit(asyncio.run(run_judge(judge, folder, python, port)))


async def run_judge(judge: str, folder: Path, python: str, port: int) -> int:
    task_agents.KINDS["scripted"] = scripted_agent
    with database() as cluster:
        settings = replace(settings_for(wordless(), judge), database=cluster.settings)
        async with running(settings, port) as client:
            await client.gateway.wait_for_wings()
            if judge == "sdk":
                async with running(signing(settings)) as signer:
                    await signer.gateway.wait_for_wings()
                    programs = ([python, str(CLIENT)], install().script("agents_client.mjs"))
                    urls = client.url, signer.url
                    return max([await run([*program, *urls], FOLDER) for program in programs])
            where, *options = SUITES[judge]
            address = client.url if judge == "1.0" else f"{client.url}/a2a/tck"
            return await run([python, "run_tck.py", where, address, *options], folder)


async def run(command: Sequence[str], folder: Path) -> int:
    """The exit status of a program."""
    process = await asyncio.create_subprocess_exec(*command, cwd=folder)
    return await process.wait()


if __name__ == "__main__":
    main(prog_name="python -m tests.conformance.agents")
