"""Checks of wings, for `toolgate doctor` and `toolgate config check`."""

from collections.abc import AsyncIterator

from config.settings import Settings
from gateway.cli.doctor.checks import Check
from gateway.wings.table import enabled, load_wing, section
from registry.database.postgres import Pool
from schemas.errors import ToolgateError


async def wings(settings: Settings, pool: Pool | None = None) -> AsyncIterator[Check]:
    """Whether each wing that is switched on can be imported, and what it finds itself. `pool`
    None: without a database."""
    for name in enabled(settings):
        try:
            wing = load_wing(name)
        except ToolgateError as error:
            yield Check("wing", "failed", str(error))
            continue
        if wing.checks is None:
            yield Check("wing", "ok", f"{name}: can be opened")
            continue
        async for one in wing.checks(section(settings, name), settings.tenant.host_id, pool):
            yield Check("wing", one.status, f"{name}: {one.detail}")
