"""A gateway for all the cases of a version, each a source of its own."""

import json
import shutil
from collections.abc import AsyncIterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from msgspec.structs import replace

from config.load import load
from config.settings import DatabaseSettings, Settings, Toolset
from config.sources import SourceSettings
from tests.fixtures_database import TEMPLATE, Cluster, own_database
from tests.fixtures_gateway import Client, running
from tests.fixtures_servers import serving
from tests.registry.importers.features.case import Case
from tests.registry.importers.features.cases import CASES_OF
from tests.registry.importers.features.service import Scripted

INLINE_BYTES = 1000  # longer answers are downloads
TOKENS = 500  # longer ones are cut
TOOLSET = "marked"  # has what descriptions put into it


@dataclass(frozen=True)
class Rig:
    """A gateway, and the service behind it."""

    client: Client
    service: Scripted

    async def result(self, tool: str, arguments: Any) -> dict[str, Any]:
        """The result of `tools/call`; a fault counts as one that is an error."""
        _, answer = await self.client.modern("tools/call", {"name": tool, "arguments": arguments})
        if "error" in answer:
            content = [{"type": "text", "text": answer["error"]["message"]}]
            return {"content": content, "isError": True}
        return dict(answer["result"])


@pytest.fixture(scope="package")
def anyio_backend() -> str:
    """As everywhere, for as long as a gateway here lasts."""
    return "asyncio"


def describe_source(case: Case, version: str, folder: Path, service: Scripted) -> SourceSettings:
    """The source that `case` is."""
    home = folder / case.name
    files = case.file_texts(version, service.url)
    if case.layout == "json":
        files = {"openapi.json": json.dumps(yaml.safe_load(files["openapi.yaml"]))}
    for name, text in files.items():
        file = home / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
        service.files[f"/docs/{case.name}/{name}"] = text.encode()
    settings = {"base_url": f"{service.url}/{case.name}", **case.settings}
    if case.overlay:
        settings["overlay"] = str(home / "overlay.yaml")
        (home / "overlay.yaml").write_text(case.overlay.replace("THIS", case.name))
    return SourceSettings(openapi=_location(case, home, service), **settings)


def _location(case: Case, home: Path, service: Scripted) -> str:
    match case.layout:
        case "directory":
            return str(home)
        case "zip":
            return shutil.make_archive(str(home), "zip", home)
        case "url":
            return f"{service.url}/docs/{case.name}/openapi.yaml"
        case "json":
            return str(home / "openapi.json")
        case _:
            return str(home / "openapi.yaml")


@pytest.fixture(scope="package")
async def rig(
    request: pytest.FixtureRequest,
    cluster: Cluster,
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncIterator[Rig]:
    """`request.param` is the version."""
    version = request.param
    folder = tmp_path_factory.mktemp("descriptions")
    service = Scripted(files={"/files/hello.txt": b"hello"})
    own = contextmanager(own_database)
    async with serving(service) as url:
        service.url = url
        sources = {
            case.name: describe_source(case, version, folder, service) for case in CASES_OF[version]
        }
        with own(cluster, TEMPLATE) as database:
            async with running(_settings(database, sources)) as client:
                yield Rig(client, service)


def _settings(database: DatabaseSettings, sources: dict[str, SourceSettings]) -> Settings:
    settings = load(None, {})
    answers = replace(settings.answers, inline_bytes=INLINE_BYTES, tokens=TOKENS)
    upstream = replace(settings.upstream, upload_private_networks=True)
    return replace(
        settings,
        database=database,
        sources=sources,
        answers=answers,
        upstream=upstream,
        toolsets={TOOLSET: Toolset(include=("none of these",))},
    )
