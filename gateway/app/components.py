"""Parts of the product with tables of their own, as the settings have them on."""

from config.settings import Settings
from gateway.wings.table import with_jobs
from registry.database.migrate import REGISTRY, Component


def has_jobs(settings: Settings) -> bool:
    """Whether operations run as jobs: of wings, or of the admin API, whose callers have an
    identity."""
    has_admin = settings.admin.enabled and settings.auth.mode != "none"
    return settings.jobs.enabled and (has_admin or bool(with_jobs(settings)))


def components_of(settings: Settings) -> tuple[Component, ...]:
    """In the order in which they are migrated."""
    components: tuple[Component, ...] = (REGISTRY,)  # nothing is imported of what is off
    if has_jobs(settings):
        from registry.jobs.store import JOBS

        components = (*components, JOBS)
    if settings.console.enabled or settings.login.enabled:
        from gateway.console.sessions import CONSOLE

        components = (*components, CONSOLE)
    if settings.login.enabled:
        from registry.connections import CONNECTIONS
        from registry.login import LOGIN

        components = (*components, LOGIN, CONNECTIONS)
    return components
