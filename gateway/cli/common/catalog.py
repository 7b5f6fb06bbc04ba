"""Hint for commands that find no tools."""

from config.settings import Settings


def how_to_get_tools(settings: Settings) -> str:
    if any(source.is_imported for source in settings.sources.values()):
        return "Nothing is imported yet; `toolgate serve` imports the sources of the settings."
    return "Nothing is imported yet. Try: toolgate import openapi YOUR-API.yaml --name api"
