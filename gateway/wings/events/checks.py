"""Checks of the wing's settings: schedules that call what does not exist."""

from collections.abc import AsyncIterator, Collection, Iterator

from config.settings import EventsSettings
from gateway.wings.abc import Finding
from registry.database.postgres import Pool
from registry.sources.store import ToolStore


async def checked(
    settings: EventsSettings, host_id: str, pool: Pool | None
) -> AsyncIterator[Finding]:
    """The findings of `toolgate doctor` and `toolgate config check`; skills need the database."""
    if pool is not None and settings.schedules:
        tools = {tool.name for tool in await ToolStore(pool).tools(host_id)}
        unknown = [*unknown_skills(settings, tools)]
        for text in unknown:
            yield Finding("warning", text)
        if unknown:
            return
    yield Finding("ok", "can be opened")


def unknown_skills(settings: EventsSettings, tools: Collection[str]) -> Iterator[str]:
    """A sentence on each schedule whose skill is neither of the settings nor a tool."""
    for name, schedule in settings.schedules.items():
        if schedule.skill not in settings.skills and schedule.skill not in tools:
            yield (
                f"events.schedules.{name}.skill: there is no tool and no entry of events.skills "
                f"{schedule.skill!r}, so each invocation will be refused"
            )
