"""The registry as a wing: it publishes what the catalog has, and serves it from memory."""

import importlib.resources
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import msgspec
from msgspec.structs import replace

from gateway.wings.interface import Wing, WingContributions, WingParts
from gateway.wings.subregistry.entries import content_digest, read_approved, toolset_document
from gateway.wings.subregistry.http_api import ROOT, RegistryApi
from gateway.wings.subregistry.listing import ListedVersion, Listing
from gateway.wings.subregistry.store import VersionStore
from registry.database.migrate import Component
from schemas.mcp.registry_entries import ServerDetail

FILES = importlib.resources.files("gateway.wings.subregistry")
TABLES = Component("subregistry", FILES.joinpath("sql"))


class Publisher:
    """Adds versions of listed toolsets whenever the catalog of the gateway's tenant changes."""

    def __init__(self, parts: WingParts) -> None:
        self._parts = parts
        self._store = VersionStore(parts.pool, parts.tenant)
        self._changed = anyio.Event()
        settings = parts.settings
        self._approved = read_approved(settings.entries, settings.namespace)
        self.listing = Listing(self._approved)
        parts.events.catalog_loaded.subscribe(self._note_change)
        parts.events.lists_changed.subscribe(self._note_change)

    def _note_change(self, tenant: str, *_kinds: Any) -> None:
        if tenant == self._parts.tenant:
            self._changed.set()

    async def run(self) -> None:
        """Background task, until cancelled."""
        while True:
            await self._changed.wait()
            self._changed = anyio.Event()
            await self.publish()

    async def publish(self) -> None:
        """Raises psycopg.OperationalError."""
        parts, catalogs = self._parts, self._parts.catalogs
        listed = {name: toolset for name, toolset in catalogs.toolsets.items() if toolset.listed}
        names = []
        for name, toolset in listed.items():
            server = toolset_document(parts, name, toolset)
            document = msgspec.json.encode(server)
            catalog = catalogs.visible(catalogs.of(parts.tenant, name))
            content = content_digest(document, toolset, catalog)
            if catalog.tools:  # it may not be loaded yet
                await self._store.add(server.name, content, document, parts.settings.versions)
            names.append(server.name)
        own_versions = [
            ListedVersion(
                replace(
                    msgspec.json.decode(stored.document, type=ServerDetail),
                    version=f"1.0.{stored.patch}",
                ),
                stored.patch,
                stored.published_ts,
            )
            for stored in await self._store.versions(names)
        ]
        self.listing = Listing([*self._approved, *own_versions])


@asynccontextmanager
async def open_subregistry(parts: WingParts) -> AsyncIterator[WingContributions]:
    publisher = Publisher(parts)
    await publisher.publish()
    api = RegistryApi(parts.settings, lambda: publisher.listing, parts.identify)
    yield WingContributions(tasks=[publisher.run], apps={ROOT: api})


WING = Wing(
    name="subregistry",
    title="MCP registry",
    open=open_subregistry,
    migrations=TABLES,
    mounts=(ROOT,),
    public=frozenset({ROOT}),
)
