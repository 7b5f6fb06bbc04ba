"""What workers read of each kind of entity: its text for the model, and the hash that says whether
that is still the text that was queued."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from anyio.lowlevel import checkpoint
from psycopg import AsyncConnection

from registry.embedding.texts import ToolFields, skill_text, tool_text

TOGETHER = 16  # texts are made in a millisecond; then others have their turn

Key: TypeAlias = tuple[str, str]  # host_id, entity_id


@dataclass(frozen=True, slots=True)
class Text:
    text: str  # for the model; blank: there is nothing to embed
    source_hash: str  # of entity_source_v.source_text


Load: TypeAlias = Callable[[AsyncConnection, Sequence[Key]], Awaitable[dict[Key, Text]]]
"""The texts of those entities that are there and in service."""


async def tools(connection: AsyncConnection, keys: Sequence[Key]) -> dict[Key, Text]:
    rows = await connection.execute(
        """
        SELECT tool.host_id::text, tool.tool_id::text, source_hash(source.source_text), tool.name,
            tool.title, tool.description,
            source_of_tool(tool.host_id, tool.endpoint_id, tool.source_api_id),
            upper(tool.api_method) || ' ' || tool.api_endpoint, tool.routing_domain,
            tool.semantic_namespace, tool.tags, semantic_keywords(tool.tool_metadata),
            property_names(tool.input_schema)
        FROM unnest(%s::uuid[], %s::uuid[]) AS wanted (host_id, entity_id)
        JOIN tool_t AS tool ON (tool.host_id, tool.tool_id) = (wanted.host_id, wanted.entity_id)
        JOIN entity_source_v AS source ON (source.host_id, source.entity_type, source.entity_id)
            = (wanted.host_id, 'tool', wanted.entity_id)
        WHERE tool.active
        """,
        columns(keys),
    )
    found: dict[Key, Text] = {}
    async for host_id, tool_id, source_hash, *rest in rows:
        found[host_id, tool_id] = Text(tool_text(_fields(*rest)), source_hash)
        if len(found) % TOGETHER == 0:
            await checkpoint()
    return found


def _fields(
    name: str,
    title: str | None,
    description: str,
    source: str | None,
    endpoint: str | None,
    domain: str | None,
    namespace: str | None,
    tags: list[str],
    keywords: str | None,
    parameters: str | None,
) -> ToolFields:
    return ToolFields(
        name=name,
        title=title or "",
        description=description,
        source=source or "",
        endpoint=endpoint or "",
        domain=domain or "",
        namespace=namespace or "",
        tags=tags,
        keywords=_listed(keywords),
        parameters=_listed(parameters),
    )


async def skills(connection: AsyncConnection, keys: Sequence[Key]) -> dict[Key, Text]:
    rows = await connection.execute(
        """
        SELECT skill.host_id::text, skill.skill_id::text, source_hash(source.source_text),
            skill.name, skill.description, left(skill.content_markdown, 1000)
        FROM unnest(%s::uuid[], %s::uuid[]) AS wanted (host_id, entity_id)
        JOIN skill_t AS skill
            ON (skill.host_id, skill.skill_id) = (wanted.host_id, wanted.entity_id)
        JOIN entity_source_v AS source ON (source.host_id, source.entity_type, source.entity_id)
            = (wanted.host_id, 'skill', wanted.entity_id)
        WHERE skill.active
        """,
        columns(keys),
    )
    return {
        (host_id, skill_id): Text(skill_text(name, description or "", content or ""), source_hash)
        async for host_id, skill_id, source_hash, name, description, content in rows
    }


def columns(keys: Sequence[Key]) -> list[list[str]]:
    return [[host_id for host_id, _ in keys], [entity_id for _, entity_id in keys]]


def _listed(joined: str | None) -> list[str]:
    return joined.split(", ") if joined else []


SOURCES: Mapping[str, Load] = {"tool": tools, "skill": skills}
"""By entity_type."""
