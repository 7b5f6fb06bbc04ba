"""Databases that have the tables of wings, used again by one test after the other."""

import asyncio
from collections.abc import Iterator

import msgspec

from config.settings import DatabaseSettings
from registry.database.migrate import Component
from registry.database.postgres import Database
from tests.fixtures_database import TEMPLATE, Cluster
from tests.recycling import Recycling


def with_tables(
    cluster: Cluster, *migrations: Component, base: str = TEMPLATE, name: str = ""
) -> Iterator[Recycling]:
    """`base`: WHOLE for gateways that have several wings; `name`: that of the first by default."""
    template = f"template_{name or migrations[0].name}"
    cluster.execute(f"CREATE DATABASE {template} TEMPLATE {base} STRATEGY file_copy")
    settings = msgspec.structs.replace(cluster.settings, url=cluster.url(template))
    asyncio.run(_migrate(settings, *migrations))
    recycling = Recycling(cluster.url, cluster.execute, template)
    yield recycling
    recycling.close()


async def _migrate(settings: DatabaseSettings, *migrations: Component) -> None:
    async with Database.open(settings, wait=False, migrate=True, components=migrations):
        pass
