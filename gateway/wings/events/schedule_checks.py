"""Checks of schedules and hooks: skills that do not exist, and calls that failed."""

from collections.abc import AsyncIterator, Iterator, Sequence

import msgspec

from config.events import EventsSettings
from gateway.operations.job_declarations import SCHEDULE
from gateway.wings.events.invocation_journal import Invocation, Journal
from gateway.wings.interface import Concern, Finding, Sentence
from registry.catalog.catalog import Catalog
from registry.database.postgres import Pool
from registry.jobs.store import JobStore
from registry.sources.tool_store import ToolStore


async def check_schedules(
    settings: EventsSettings, host_id: str, pool: Pool | None
) -> AsyncIterator[Finding]:
    """The findings of `toolgate doctor` and `toolgate config check`; without a database nothing
    is known of tools and calls."""
    texts: list[str] = []
    if pool is not None and (settings.schedules or settings.inbound):
        catalog = Catalog(await ToolStore(pool).tools(host_id))
        texts += unknown_skills(settings, catalog)
        texts += [
            f"events.schedules.{name}: the last invocation failed "
            f"({invocation.reason}); toolgate events show {invocation.invocation_id}"
            async for name, invocation in _schedule_failures(settings, host_id, pool)
        ]
    for text in texts:
        yield Finding("warning", text)
    if not texts:
        yield Finding("ok", "can be opened")


async def _schedule_failures(
    settings: EventsSettings, host_id: str, pool: Pool
) -> AsyncIterator[tuple[str, Invocation]]:
    """Schedules whose last invocation failed after it was accepted, with that invocation."""
    operations = {f"events_schedule_{name}": name for name in settings.schedules}
    for row in await JobStore(pool).newest_ended(host_id, SCHEDULE):
        if row.operation not in operations or not row.result:
            continue
        accepted = msgspec.json.decode(row.result)
        invocation = await Journal(pool).get(host_id, accepted["id"])
        if invocation is not None and invocation.status == "FAILED":
            yield operations[row.operation], invocation


async def failed_schedules(
    settings: EventsSettings, gateway_tenant: str, pool: Pool, tenant: str
) -> Sequence[Concern]:
    """Schedules whose last invocation failed; only `gateway_tenant` has schedules."""
    if not settings.schedules or tenant != gateway_tenant:
        return ()
    return [
        Concern(
            "schedules",
            f"invocation of {name}",
            Sentence("The call of the schedule {name} failed", {"name": name}),
            Sentence(f"{invocation.skill_name}: {invocation.reason}."),
            f"events/{invocation.invocation_id}",
        )
        async for name, invocation in _schedule_failures(settings, gateway_tenant, pool)
    ]


def unknown_skills(settings: EventsSettings, catalog: Catalog) -> Iterator[str]:
    """A sentence on each schedule and hook whose skill is neither of the settings nor a tool."""
    for section, entries in (("schedules", settings.schedules), ("inbound", settings.inbound)):
        for name, entry in entries.items():
            if entry.skill not in settings.skills and not catalog.find_called(entry.skill):
                yield (
                    f"events.{section}.{name}.skill: there is no tool and no entry of "
                    f"events.skills {entry.skill!r}, so each invocation will be refused"
                )
