"""`python -m tests.fuzz.admin`: schemathesis against the admin API of a real gateway, with its
database, sources, sessions and authentication; exit 1 when an answer is wrong.

All checks are on. What a request that is as described may be answered with is said below: also by a
condition that does not hold (412, 428), and by what can be read and cannot be done (422).
"""

import asyncio
import json
import logging
import signal
import sys
import tempfile
from pathlib import Path
from random import SystemRandom

import click
from msgspec.structs import replace

from config.settings import Settings, Toolset
from config.sources import SourceSettings
from tests.fixtures_database import Cluster
from tests.fixtures_gateway import Client, pets, running, wordless
from tests.fixtures_servers import serving
from tests.fuzz.rig import KEY, database, upstream
from tests.fuzz.run import Crashes
from tests.gateway.guards.signing import FOREVER, by_jwks

ROOT = "/admin/v1"
ROUND = 1_000_000  # seeds are smaller, to be typed again
CONFIG = """
seed = {seed}
[generation]
allow-x00 = false
database = "none"
[checks.positive_data_acceptance]
expected-statuses = ["2xx", "304", "401", "403", "404", "409", "412", "422", "428"]
[checks.negative_data_rejection]
expected-statuses = ["400", "401", "403", "404", "405", "406", "409", "412", "415", "422", "428"]
"""

# What there is: most names that are made up name nothing.
KNOWN = """
[parameters]
"path.source" = "pets"
"path.tool" = "getPet"
"path.toolset" = "some"
"path.rule" = "known"
"path.key" = "{key}"
"path.session" = "{session}"
"""


@click.command()
@click.option("--seconds", type=click.IntRange(2), default=75, show_default=True)
@click.option("--seed", type=int, help="The same seed gives the same cases; random when absent.")
@click.argument("more", nargs=-1, type=click.UNPROCESSED)
def main(seconds: int, seed: int | None, more: tuple[str, ...]) -> None:
    """Send what the description of the admin API allows, and what it does not. MORE is for
    `schemathesis run`."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # the database is stopped then, too
    seed = SystemRandom().randrange(ROUND) if seed is None else seed
    click.echo(f"admin API: seed {seed}")
    sys.exit(asyncio.run(_fuzz(seed, seconds, more)))


async def _fuzz(seed: int, seconds: int, more: tuple[str, ...]) -> int:
    crashes = Crashes()
    logging.getLogger("toolgate").addHandler(crashes)
    logging.getLogger("uvicorn").addHandler(crashes)
    with database() as cluster, tempfile.TemporaryDirectory(prefix="toolgate-fuzz-") as name:
        folder = Path(name)
        async with serving(upstream) as url, running(_settings(cluster, folder, url)) as client:
            token = KEY.token(sub="root", scope="admin", exp=FOREVER)
            known = await _furnish(client, token)
            status = 0
            for config in (CONFIG, CONFIG + KNOWN):
                text = config.format(seed=seed, **known)
                status |= await _schemathesis(client, folder, token, text, seconds // 2, more)
    for record in crashes.records:
        click.echo(f"\n{record}", err=True)
    return 1 if crashes.records else status


def _settings(cluster: Cluster, folder: Path, url: str) -> Settings:
    cluster.execute("CREATE DATABASE fuzz_admin STRATEGY file_copy")
    (folder / "pets.json").write_text(json.dumps(pets()))
    own = SourceSettings(openapi=str(folder / "pets.json"), base_url=url)
    defaults = wordless()
    return replace(
        defaults,
        database=replace(cluster.settings, url=cluster.url("fuzz_admin")),
        auth=by_jwks(folder, [KEY.jwk()]),
        audit=replace(defaults.audit, spool_dir=str(folder / "audit")),
        admin=replace(defaults.admin, requests=0),
        secrets=replace(defaults.secrets, key="A" * 43 + "="),
        sources={"own": own},
        toolsets={"some": Toolset(include=("get*",))},
    )


async def _furnish(client: Client, token: str) -> dict[str, str]:
    """A session, a key, and a source that may be changed; the names of some."""
    client.http.headers.update({"Authorization": f"Bearer {token}"})
    await client.session()
    wanted = {"kind": "openapi", "name": "pets", "document": json.dumps(pets())}
    status, answer, _ = await client.post(f"{ROOT}/sources", wanted)
    assert status == 201, answer
    _, made, _ = await client.post(f"{ROOT}/keys", {"name": "known"})
    async with client.http.get(f"{client.url}{ROOT}/sessions") as response:
        session = (await response.json())["items"][0]["id"]
    return {"key": made["key"]["id"], "session": session}


async def _schemathesis(
    client: Client, folder: Path, token: str, text: str, seconds: int, more: tuple[str, ...]
) -> int:
    description = folder / "openapi.json"
    async with client.http.get(f"{client.url}{ROOT}/openapi.json") as response:
        description.write_bytes(await response.read())
    config = folder / "schemathesis.toml"
    config.write_text(text)
    run = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "schemathesis.cli", "--config-file", str(config), "run"),
        *(str(description), "--url", f"{client.url}{ROOT}", "--checks", "all"),
        *("--exclude-checks", "use_after_free"),  # keys that were revoked stay listed
        *("-H", f"Authorization: Bearer {token}", "--max-time", str(seconds)),
        *("--suppress-health-check", "all", "--warnings", "off", "--no-color", *more),
        cwd=folder,  # it keeps notes
    )
    try:
        return await run.wait()
    finally:
        if run.returncode is None:
            run.terminate()


if __name__ == "__main__":
    main(prog_name="python -m tests.fuzz.admin")
