"""Parts of the product with tables of their own, as the settings have them on."""

from config.settings import Settings
from registry.database.migrate import REGISTRY, Component
from registry.jobs.store import JOBS


def has_jobs(settings: Settings) -> bool:
    """Whether operations run as jobs. Only callers with an identity have some."""
    return settings.jobs.enabled and settings.admin.enabled and settings.auth.mode != "none"


def components_of(settings: Settings) -> tuple[Component, ...]:
    """In the order in which they are migrated."""
    return (REGISTRY, JOBS) if has_jobs(settings) else (REGISTRY,)
