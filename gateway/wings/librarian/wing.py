"""The librarian as a wing."""

import importlib.resources
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from gateway.wings.abc import Offer, Wing, WingParts
from gateway.wings.librarian.hooks import SourceHooks
from gateway.wings.librarian.operations import operations_of
from gateway.wings.librarian.resources import LibraryResources
from gateway.wings.librarian.shelves import Shelves
from gateway.wings.librarian.sources import TrackedSources
from gateway.wings.librarian.tracking import HOOKS, HookSecrets
from registry.database.migrate import Component

MIGRATIONS = Component(
    "librarian", importlib.resources.files("gateway.wings.librarian").joinpath("sql")
)


@asynccontextmanager
async def opened(parts: WingParts) -> AsyncIterator[Offer]:
    sources = TrackedSources(parts.pool, Shelves(parts.library), parts.settings)
    hooks = SourceHooks(parts.call, sources, HookSecrets(parts.pool, parts.keys))
    yield Offer(
        operations=operations_of(parts),
        resources=LibraryResources(parts.call).resources,
        apps={HOOKS: hooks},
    )


WING = Wing(
    name="librarian",
    title="Librarian",
    open=opened,
    migrations=MIGRATIONS,
    mounts=(HOOKS,),
    commands={
        "add": ("gateway.cli.library:add", "Fill a collection, or have it follow a source."),
        "ask": ("gateway.cli.library:ask", "Answer a question from a collection."),
        "export": ("gateway.cli.library:export", "Export the chunks of a collection as XML."),
    },
)
