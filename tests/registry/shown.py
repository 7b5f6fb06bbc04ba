"""Tools of a description, and how they are shown."""

from typing import Any

from msgspec import Raw
from msgspec.json import decode, encode
from msgspec.structs import replace

from config.load import load
from config.settings import Budgets
from registry.catalog.catalog import Catalog
from registry.display.profiles import Profiles
from registry.display.tool_shaper import ToolShaper
from schemas.binding import OpenAPIBinding
from schemas.mcp.revisions import V2026_07_28
from schemas.tool import Annotations, Tool

SETTINGS = load(None, {})

Json = dict[str, Any]


def describe_tool(name: str, schema: Json | None = None, **fields: Any) -> Tool:
    output = fields.pop("output", None)
    schema = schema or {"type": "object"}
    return Tool(
        id=name,
        name=name,
        title=fields.pop("title", None),
        description=fields.pop("description", ""),
        input_schema=Raw(encode(schema)),
        output_schema=None if output is None else Raw(encode(output)),
        annotations=Annotations(),
        binding=fields.pop("binding", OpenAPIBinding("GET", "/")),
        source="api",
        digest=f"{name} {encode((schema, output))!r}",
        **fields,
    )


def shaper(**budgets: Any) -> ToolShaper:
    """With the default settings, but for these budgets."""
    changed: Budgets = replace(SETTINGS.budgets, **budgets)
    return ToolShaper(changed, Profiles(SETTINGS.profiles))


def list_tools(
    catalog: Catalog, profile: str = "plain", rules: ToolShaper | None = None
) -> list[Json]:
    """What a client of the profile sees."""
    chosen = (rules or shaper()).profiles.profile(profile)
    entries: list[Json] = decode(catalog.lists.page(V2026_07_28, None, 1000, chosen).entries)
    return entries
