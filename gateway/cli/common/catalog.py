"""Hints for commands that find no tools, or not the source that was named."""

from config.settings import Settings
from gateway.cli.common.database import Registry
from gateway.cli.common.failure import no_such
from registry.sources.import_specs import configured_import


def how_to_get_tools(settings: Settings) -> str:
    if any(configured_import(name, source) for name, source in settings.sources.items()):
        return "Nothing is imported yet; `toolgate serve` imports the sources of the settings."
    return "Nothing is imported yet. Try: toolgate import openapi YOUR-API.yaml --name api"


async def check_source(registry: Registry, name: str | None) -> None:
    if name is not None and await registry.store.source(registry.host_id, name) is None:
        no_such(
            "source",
            name,
            [source.name for source in await registry.store.sources(registry.host_id)],
        )
