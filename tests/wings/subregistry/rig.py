"""A gateway that lists toolsets, and a server of others, in its registry."""

import hashlib
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msgspec.structs import replace
from yarl import URL

from config.settings import Settings, Toolset
from config.subregistry import ApprovedServer
from schemas.mcp.registry_entries import SCHEMA
from tests.fixtures_gateway import Client, running

PUBLIC = "https://tools.example.com/gw"
TOOLSETS = {
    "keepers": Toolset(include=("getPet", "listPets"), listed=True, description="Looks at pets."),
    "breeders": Toolset(include=("createPet",), listed=True, instructions="Be kind."),
    "secret": Toolset(include=("deletePet",)),
    "empty": Toolset(include=("nothing*",), listed=True),
}


@dataclass
class Reader:
    """A client of the registry."""

    client: Client

    async def get(
        self, path: str, method: str = "GET", **headers: str
    ) -> tuple[int, Any, Mapping[str, str]]:
        """Status, decoded body and headers. `path` is sent as it is, below /registry."""
        url = URL(f"{self.client.url}/registry{path}", encoded=True)
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        async with self.client.http.request(method, url, headers=named) as response:
            body = await response.read()
            return response.status, json.loads(body) if body else None, response.headers

    async def servers(self, query: str = "") -> list[Any]:
        status, answer, _ = await self.get(f"/v0.1/servers{query}")
        assert status == 200, answer
        assert answer["metadata"]["count"] == len(answer["servers"])
        return [item["server"] for item in answer["servers"]]


def write_entry(folder: Path, number: str, /, **members: Any) -> ApprovedServer:
    """A server of others, as a file with its SHA-256."""
    server = {
        "$schema": SCHEMA,
        "name": "io.github.others/weather",
        "description": "Weather.",
        "version": number,
        "packages": [
            {
                "registryType": "npm",
                "identifier": "@others/weather",
                "version": number,
                "transport": {"type": "stdio"},
            }
        ],
        **members,
    }
    file = folder / f"weather-{number}.json"
    file.write_text(json.dumps(server))
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    return ApprovedServer(str(file), digest, "https://registry.example.org")


def with_registry(settings: Settings, folder: Path, **changes: Any) -> Settings:
    own = replace(
        settings.subregistry,
        enabled=True,
        namespace="com.example",
        entries=(write_entry(folder, "1.9.0"), write_entry(folder, "1.10.0")),
    )
    return replace(
        settings,
        server=replace(settings.server, public_url=PUBLIC),
        toolsets=TOOLSETS,
        subregistry=replace(own, **changes),
    )


@asynccontextmanager
async def reading(settings: Settings) -> AsyncIterator[Reader]:
    async with running(settings) as client:
        await client.gateway.wait_for_wings()
        yield Reader(client)
