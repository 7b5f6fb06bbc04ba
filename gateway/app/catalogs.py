"""Catalogs of a gateway, made from its settings."""

from typing import Any

from config.settings import Settings
from gateway.interfaces import Events
from gateway.wings.table import with_tasks
from registry.catalog.catalogs import Catalogs
from registry.catalog.tool_lists import OwnTasks
from registry.display.tool_shaper import ToolShaper


def _own_tasks(settings: Settings) -> OwnTasks | None:
    """How calls run as tasks of the gateway. Who cannot be told from others has no list
    of own ones."""
    lists: dict[str, Any] = {} if settings.auth.mode == "none" else {"list": {}}
    wing = with_tasks(settings)
    capability = {**lists, "cancel": {}, "requests": {"tools": {"call": {}}}}
    return None if wing is None else OwnTasks(capability, wing)


def personal_places(settings: Settings) -> frozenset[str]:
    """Places of the sources at which callers have accounts of their own."""
    return frozenset(place for place, source in settings.sources.items() if source.connect.has_page)


def make_catalogs(settings: Settings, events: Events) -> Catalogs:
    host_id, skills = settings.tenant.host_id, settings.skills
    return Catalogs(
        settings.toolsets,
        ToolShaper.of(settings),
        lists_skills=skills.listed,
        own=host_id,
        shows_scripts=settings.scripts.enabled,
        own_tasks=_own_tasks(settings),
        personal=personal_places(settings),
        has_code=settings.code.disclosure != "off",
        events=events,
    )
