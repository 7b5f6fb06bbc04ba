"""Kinds of entities that are searched by words and by meaning: tools, skills, and those of wings.

A kind is declared once in SQL and once here. In SQL, in migrations of its component: a table, the
views <name>_source_v (host_id, entity_id, active, source_text) and <name>_search_v (the columns of
tool_search_v), and the calls `search_kind_add(name, purpose)` and `search_kind_watch(name, table,
id column, owner column)`, which make every write of the table indexed and embedded. Here: a
`SearchKind`, which workers (to read texts) and searches (to filter and to weigh) are given.
"""

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, TypeAlias

from anyio.lowlevel import checkpoint
from msgspec import Struct
from psycopg import AsyncConnection, sql

from registry.embedding.texts import ToolFields, skill_text, tool_text

TOOLS = "tools"
"""The purpose of the embedding model of tools and skills."""
TOGETHER = 16  # texts are made in a millisecond; then yield to other tasks
_IDENTIFIER = re.compile(r"[a-z][a-z0-9_]{0,31}\Z")  # names end up in those of views

Key: TypeAlias = tuple[str, str]  # host_id, entity_id


class SourceText(Struct, frozen=True):
    text: str  # input of the model; a blank text needs no task
    source_hash: str  # of entity_source_v.source_text


ReadTexts: TypeAlias = Callable[[AsyncConnection, Sequence[Key]], Awaitable[dict[Key, SourceText]]]
"""Reads the texts of those entities that exist and are active."""


@dataclass(frozen=True, slots=True)
class SearchKind:
    """A kind of entities that is embedded and searched.

    `owned`: each entity has an owner, and a search names the owners whose entities it may find.
    `expires`: entities are found from valid_from to valid_to. `purpose`: which of the configured
    embedding models it uses, as in its row of search_kind_t. `semantic_share`: the weight of
    meaning against words; None: that of the settings. `texts` reads what the model is given; None:
    the source_text.
    """

    name: str
    purpose: str = TOOLS
    owned: bool = False
    expires: bool = False
    semantic_share: float | None = None
    texts: ReadTexts | None = None

    def __post_init__(self) -> None:
        for value in (self.name, self.purpose):
            if not _IDENTIFIER.match(value):
                raise ValueError(
                    f"kind of search {self.name!r}: {value!r} is not a name of lower-case letters, "
                    "digits and underscores, at most 32"
                )

    @property
    def read_texts(self) -> ReadTexts:
        return self.texts or _source_texts(self.name)


Kinds: TypeAlias = Mapping[str, SearchKind]
"""Kinds by name, as in `entity_type` of the tables."""


def of_purpose(kinds: Kinds, purpose: str) -> Kinds:
    return {name: kind for name, kind in kinds.items() if kind.purpose == purpose}


def search_kinds(more: Iterable[SearchKind] = ()) -> Kinds:
    """All kinds: tools, skills, and these. Raises ValueError for two of one name."""
    kinds: dict[str, SearchKind] = {}
    for kind in (TOOL, SKILL, *more):
        if kind.name in kinds:
            raise ValueError(f"there are two kinds of search of the name {kind.name!r}")
        kinds[kind.name] = kind
    return MappingProxyType(kinds)


def _source_texts(name: str) -> ReadTexts:
    async def read(connection: AsyncConnection, keys: Sequence[Key]) -> dict[Key, SourceText]:
        # OFFSET 0: the plan is kept, of when there were few rows perhaps; it then joined what the
        # view joins in another order, all of a tenant first.
        rows = await connection.execute(
            sql.SQL("""
            SELECT source.host_id::text, source.entity_id::text, source_hash(source_text),
                source_text
            FROM unnest(%s::uuid[], %s::uuid[]) AS wanted (host_id, entity_id)
            CROSS JOIN LATERAL (SELECT * FROM {view} AS one
                WHERE one.host_id = wanted.host_id AND one.entity_id = wanted.entity_id
                    AND active OFFSET 0
            ) AS source
            """).format(view=sql.Identifier(f"{name}_source_v")),
            columns(keys),
        )
        return {
            (host_id, entity_id): SourceText(text, source_hash)
            async for host_id, entity_id, source_hash, text in rows
        }

    return read


async def _tool_texts(connection: AsyncConnection, keys: Sequence[Key]) -> dict[Key, SourceText]:
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
        JOIN tool_source_v AS source
            ON (source.host_id, source.entity_id) = (wanted.host_id, wanted.entity_id)
        WHERE tool.active
        """,
        columns(keys),
    )
    texts: dict[Key, SourceText] = {}
    async for host_id, tool_id, source_hash, *row in rows:
        texts[host_id, tool_id] = SourceText(tool_text(_fields(row)), source_hash)
        if len(texts) % TOGETHER == 0:
            await checkpoint()
    return texts


def _fields(row: Sequence[Any]) -> ToolFields:
    name, title, description, source, endpoint, domain, namespace, tags, keywords, parameters = row
    return ToolFields(
        name=name,
        title=title or "",
        description=description,
        source=source or "",
        endpoint=endpoint or "",
        domain=domain or "",
        namespace=namespace or "",
        tags=tags,
        keywords=_split_list(keywords),
        parameters=_split_list(parameters),
    )


async def _skill_texts(connection: AsyncConnection, keys: Sequence[Key]) -> dict[Key, SourceText]:
    rows = await connection.execute(
        """
        SELECT skill.host_id::text, skill.skill_id::text, source_hash(source.source_text),
            skill.name, skill.description, left(skill.content_markdown, 1000)
        FROM unnest(%s::uuid[], %s::uuid[]) AS wanted (host_id, entity_id)
        JOIN skill_t AS skill
            ON (skill.host_id, skill.skill_id) = (wanted.host_id, wanted.entity_id)
        JOIN skill_source_v AS source
            ON (source.host_id, source.entity_id) = (wanted.host_id, wanted.entity_id)
        WHERE skill.active
        """,
        columns(keys),
    )
    return {
        (host_id, skill_id): SourceText(
            skill_text(name, description or "", content or ""), source_hash
        )
        async for host_id, skill_id, source_hash, name, description, content in rows
    }


def columns(keys: Sequence[Key]) -> list[list[str]]:
    return [[host_id for host_id, _ in keys], [entity_id for _, entity_id in keys]]


def _split_list(text: str | None) -> list[str]:
    return text.split(", ") if text else []


TOOL = SearchKind("tool", texts=_tool_texts)
SKILL = SearchKind("skill", texts=_skill_texts)
KINDS = search_kinds()
"""The kinds of the registry."""
