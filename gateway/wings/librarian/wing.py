"""The librarian as a wing."""

import importlib.resources
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from gateway.wings.abc import Offer, Wing, WingParts
from gateway.wings.librarian.operations import operations_of
from gateway.wings.librarian.resources import LibraryResources
from registry.database.migrate import Component

MIGRATIONS = Component(
    "librarian", importlib.resources.files("gateway.wings.librarian").joinpath("sql")
)


@asynccontextmanager
async def opened(parts: WingParts) -> AsyncIterator[Offer]:
    yield Offer(operations=operations_of(parts), resources=LibraryResources(parts.call).resources)


WING = Wing(name="librarian", title="Librarian", open=opened, migrations=MIGRATIONS)
