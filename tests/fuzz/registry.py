"""`python -m tests.fuzz.registry OPENAPI SCHEMA`: schemathesis over the registry of a gateway, by
the openapi.yaml of the official MCP registry, and its entries by server.schema.json; exit 1 when an
answer is wrong. Both files come from the repositories of the registry; neither is here.
"""

import asyncio
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import click
import yaml
from jsonschema import Draft7Validator
from msgspec.structs import replace

from tests.fixtures_gateway import Recorder, settings_of_pets
from tests.fuzz.rig import database
from tests.polling import until
from tests.wings.subregistry.rig import Reader, reading, with_registry

# The published description has no 400 for reads, and says nothing of names of servers.
CONFIG = """
seed = {seed}
[generation]
database = "none"
[checks.positive_data_acceptance]
expected-statuses = ["2xx", "304", "400", "404", "501"]
[checks.not_a_server_error]
expected-statuses = ["2xx", "3xx", "4xx", "501"]
[parameters]
"path.serverName" = "com.example/keepers"
"""


@click.command()
@click.option("--seconds", type=click.IntRange(2), default=30, show_default=True)
@click.option("--seed", type=int, default=1, show_default=True)
@click.argument("openapi", type=click.Path(exists=True, path_type=Path))
@click.argument("schema", type=click.Path(exists=True, path_type=Path))
def main(openapi: Path, schema: Path, seconds: int, seed: int) -> None:
    """Judge the registry by the published description and schema."""
    sys.exit(asyncio.run(_judge(openapi, schema, seconds, seed)))


async def _judge(openapi: Path, schema: Path, seconds: int, seed: int) -> int:
    with database() as cluster, tempfile.TemporaryDirectory(prefix="toolgate-fuzz-") as name:
        folder = Path(name)
        cluster.execute("CREATE DATABASE fuzz_registry STRATEGY file_copy")
        own = replace(cluster.settings, url=cluster.url("fuzz_registry"))
        settings = with_registry(settings_of_pets(own, Recorder(), folder), folder)
        async with reading(settings) as reader:
            wrong = await _invalid_entries(reader, json.loads(schema.read_text()))
            return wrong | await _schemathesis(reader, folder, openapi, seconds, seed)


async def _invalid_entries(reader: Reader, schema: dict[str, object]) -> int:
    servers = await until(lambda: _all_servers(reader))
    problems = [
        f"{server['name']} {server['version']}: {error.message}"
        for server in servers
        for error in Draft7Validator(schema).iter_errors(server)
    ]
    click.echo("\n".join(problems) or f"{len(servers)} entries are valid by server.schema.json")
    return 1 if problems or not servers else 0


async def _all_servers(reader: Reader) -> list[Any]:
    """Those of the listing, once the toolsets are among them."""
    servers = await reader.servers("?limit=100")
    return servers if servers[0]["name"].startswith("com.") else []


async def _schemathesis(
    reader: Reader, folder: Path, openapi: Path, seconds: int, seed: int
) -> int:
    config, description = folder / "schemathesis.toml", folder / "openapi.json"
    config.write_text(CONFIG.format(seed=seed))
    described = yaml.safe_load(openapi.read_text())
    for path in described["paths"].values():
        for operation in path.values():
            operation["responses"].setdefault("400", {"description": "Invalid parameter"})
    description.write_text(json.dumps(described))
    run = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "schemathesis.cli", "--config-file", str(config), "run"),
        *(str(description), "--url", f"{reader.client.url}/registry", "--checks", "all"),
        *("--exclude-checks", "ignored_auth,unsupported_method,missing_required_header"),
        *("--include-method", "GET", "--max-time", str(seconds)),
        *("--suppress-health-check", "all", "--warnings", "off", "--no-color"),
        cwd=folder,  # it keeps notes
    )
    return await run.wait()


if __name__ == "__main__":
    main(prog_name="python -m tests.fuzz.registry")
