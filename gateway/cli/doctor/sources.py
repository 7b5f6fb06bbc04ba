"""Checks of `toolgate doctor` that compare the sources of the settings with the imported ones."""

from collections.abc import Iterator, Sequence

import psycopg

from config.settings import Settings
from gateway.cli.common.database import open_registry
from gateway.cli.doctor.checks import Check
from registry.database.embedded import DatabaseError, has_cluster
from registry.sources.specs import configured, removed_from_settings
from schemas.source import Source


async def unimported(settings: Settings) -> list[Check]:
    """The check `imported`, if the registry is readable; an embedded database that was never used
    is not created for it."""
    if not has_cluster(settings.database):
        return []
    try:
        async with open_registry(settings, migrate=False) as registry:
            return list(imported(settings, await registry.store.sources(registry.host_id)))
    except (DatabaseError, psycopg.Error):
        return []  # reported by the other checks of the registry


def imported(settings: Settings, sources: Sequence[Source]) -> Iterator[Check]:
    """Sources of the settings without an import, and imported ones missing in the settings."""
    known = {source.name for source in sources}
    for name, wanted in settings.sources.items():
        if name not in known and (spec := configured(name, wanted)):
            how = "`toolgate serve` imports it"
            if not spec.facts.loaded:
                how += f", or now: toolgate sources refresh {name}"
            yield Check(
                "source", "warning", f"{name}: the settings name it, not imported yet; {how}"
            )
        elif name not in known:
            yield Check("source", "warning", f"{name}: {ADJUSTS_NOTHING}")
    for name in removed_from_settings(sources, settings.sources):
        yield Check("source", "warning", f"{name}: {LEFT_OVER}")


ADJUSTS_NOTHING = (
    "the settings adjust it, but there is no such source: import it, or say what it is with "
    "openapi, graphql, hybrid, python, mcp or command"
)
LEFT_OVER = (
    "left over: the settings do not name it any more, so it is served without the headers and "
    "credentials that stood there; to remove it: toolgate sources prune"
)
