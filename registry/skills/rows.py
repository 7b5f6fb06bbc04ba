"""Skills in the database: the snapshot of a tenant and the content of files; and, in a transaction
that writes, with the tenant locked, what its checks need.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Any, NoReturn

import msgspec
from psycopg import AsyncConnection, AsyncCursor

from registry.database.postgres import Pool, borrow
from registry.database.tool_and_source_rows import RawLoader
from registry.skills.skill_errors import NoSuchEntry, SkillRefused
from registry.skills.skill_md import (
    Access,
    SkillDocument,
    allows,
    needed_access,
    own_name,
    tools_of,
)
from registry.skills.snapshot import (
    Agent,
    Edges,
    Skill,
    SkillFile,
    SkillSnapshot,
    SkillTool,
    cycle_through,
    longest_path,
)
from schemas.tool import Annotations

Rows = defaultdict[str, list[Any]]


async def load_skills(pool: Pool, host_id: str) -> SkillSnapshot:
    """Load the snapshot. Raises `psycopg.OperationalError`."""
    async with (
        borrow(pool) as connection,
        connection.transaction(),
        connection.cursor() as cursor,
    ):
        cursor.adapters.register_loader("json", RawLoader)
        await cursor.execute(_SKILLS, [host_id])
        rows = await cursor.fetchall()
        if not rows:
            return SkillSnapshot((), await _agents(cursor, host_id))
        tools = await _by_skill(cursor, _TOOLS, host_id, SkillTool)
        files = await _by_skill(cursor, _FILES, host_id, SkillFile)
        await cursor.execute(_DEPENDENCIES, [host_id])
        needed: Rows = defaultdict(list)
        optional: Rows = defaultdict(list)
        for skill_id, name, required in await cursor.fetchall():
            (needed if required else optional)[skill_id].append(name)
        skills = [
            replace(
                Skill(*row),
                tools=tuple(tools[row[0]]),
                named=tuple(own_name(name) for name in tools_of(row[5])),
                requires=tuple(needed[row[0]]),
                suggests=tuple(optional[row[0]]),
                files=tuple(files[row[0]]),
            )
            for row in rows
        ]
        return SkillSnapshot(skills, await _agents(cursor, host_id))


async def file_content(pool: Pool, host_id: str, skill: Skill, path: str) -> bytes | None:
    """The content of a file, as it was when `skill` was read; None: it no longer exists."""
    async with borrow(pool) as connection:
        rows = await connection.execute(
            "SELECT content FROM skill_file_t"
            " WHERE (host_id, skill_id, number, path) = (%s, %s, %s, %s)",
            [host_id, skill.id, skill.number, path],
            binary=True,
        )
        row = await rows.fetchone()
    return bytes(row[0]) if row else None


async def _by_skill(cursor: AsyncCursor, query: bytes, host_id: str, kind: Any) -> Rows:
    await cursor.execute(query, [host_id])
    by_skill: Rows = defaultdict(list)
    for skill_id, *values in await cursor.fetchall():
        by_skill[skill_id].append(kind(*values))
    return by_skill


async def _agents(cursor: AsyncCursor, host_id: str) -> list[Agent]:
    await cursor.execute(_AGENTS, [host_id])
    return [
        Agent(id_, name, description, tuple(skills))
        for id_, name, description, skills in await cursor.fetchall()
    ]


# In the order of the fields of `Skill`.
_SKILLS = b"""
SELECT skill.skill_id::text, skill.name, skill.description, skill.front_matter,
    skill.content_markdown, skill.metadata, skill.number, skill.version, skill.digest, parent.name
FROM skill_t AS skill
LEFT JOIN skill_t AS parent ON parent.active
    AND (parent.host_id, parent.skill_id) = (skill.host_id, skill.parent_skill_id)
WHERE skill.host_id = %s AND skill.active
"""
# The names of tools that are not served are reported as missing.
_TOOLS = b"""
SELECT link.skill_id::text, tool.tool_id::text, tool.name, link.access_level
FROM skill_tool_t AS link JOIN tool_t AS tool USING (host_id, tool_id)
WHERE host_id = %s AND link.active
ORDER BY link.skill_id, link.origin, link.sequence_id, tool.name COLLATE "C"
"""
_FILES = b"""
SELECT file.skill_id::text, file.path, file.media_type, file.digest, file.size
FROM skill_file_t AS file JOIN skill_t AS skill USING (host_id, skill_id, number)
WHERE host_id = %s AND skill.active
ORDER BY file.skill_id, file.path COLLATE "C"
"""
_DEPENDENCIES = b"""
SELECT dependency.skill_id::text, needed.name, dependency.required
FROM skill_dependency_t AS dependency
JOIN skill_t AS needed ON needed.active
    AND (needed.host_id, needed.skill_id) = (dependency.host_id, dependency.depends_on_skill_id)
WHERE dependency.host_id = %s AND dependency.active
ORDER BY dependency.skill_id, needed.name COLLATE "C"
"""
_AGENTS = b"""
SELECT agent.agent_def_id::text, agent.name, agent.description, ARRAY(
    SELECT skill.name::text
    FROM agent_skill_t AS granted JOIN skill_t AS skill USING (host_id, skill_id)
    WHERE (granted.host_id, granted.agent_def_id) = (agent.host_id, agent.agent_def_id)
        AND granted.active AND skill.active
    ORDER BY granted.priority DESC, granted.sequence_id, skill.name COLLATE "C")
FROM agent_definition_t AS agent
WHERE agent.host_id = %s AND agent.active
"""


_annotations = msgspec.json.Decoder(Annotations)


@dataclass(frozen=True, slots=True)
class KnownSkill:
    id: str
    number: int
    digest: str
    parent: str | None  # a name


@dataclass(frozen=True, slots=True)
class KnownTool:
    id: str
    name: str
    annotations: Annotations

    def access(self, requested_access: Access | None) -> Access:
        """The access level of the link: the requested one, otherwise the lowest that allows its
        use. Raises SkillRefused for one that would not."""
        level = requested_access or needed_access(self.annotations)
        if not allows(level, self.annotations):
            needed_level = needed_access(self.annotations)
            raise SkillRefused(
                f"{self.name} needs the access level {needed_level}, not {level}: its annotations "
                f"do not state that it {'only reads' if level == 'read' else 'destroys nothing'}"
            )
        return level


@dataclass(frozen=True, slots=True)
class Links:
    """The tools that a document names, resolved."""

    tools: dict[str, tuple[KnownTool, Access]]  # by id, in the order of the document
    missing: tuple[str, ...]  # as named in the document


class KnownSkills:
    def __init__(
        self,
        skills: Mapping[str, KnownSkill],
        requires: Mapping[str, Sequence[str]],
        by_hand: Mapping[str, Sequence[str]],
        tools: Mapping[str, KnownTool],
    ) -> None:
        """`requires`: the dependencies of each skill; `by_hand` those that no document names."""
        self.skills = dict(skills)
        self._requires: dict[str, Sequence[str]] = dict(requires)
        self._by_hand = by_hand
        self._parents = {name: skill.parent for name, skill in skills.items()}
        self._tools = tools

    def skill(self, name: str) -> KnownSkill:
        """The skill. Raises SkillRefused."""
        return (
            self.skills[name] if name in self.skills else raise_missing("skill", name, self.skills)
        )

    def tool(self, name: str) -> KnownTool:
        """The tool, by its current or a former name. Raises SkillRefused."""
        tool = self._tools.get(name) or self._tools.get(own_name(name))
        return tool or raise_missing("tool", name, self._tools)

    def links(self, document: SkillDocument) -> Links:
        """The document's links. Raises SkillRefused for a level that does not allow the use of its
        tool."""
        links: dict[str, tuple[KnownTool, Access]] = {}
        absent = []
        for name in document.tools:
            tool = self._tools.get(name) or self._tools.get(own_name(name))
            if tool is None:
                absent.append(name)
            else:
                links[tool.id] = (tool, tool.access(document.access.get(name)))
        return Links(links, tuple(absent))

    def add(self, documents: Iterable[SkillDocument], depth: int) -> None:
        """Add the dependencies that the documents name. Raises SkillRefused for an unknown skill, a
        cycle, or a depth beyond `depth`."""
        documents = list(documents)
        names = self.skills.keys() | {document.name for document in documents}
        for document in documents:
            parents = (document.parent,) if document.parent else ()
            for named in (*document.requires, *document.suggests, *parents):
                if named not in names:
                    raise_missing(
                        "skill", named, names, f"{document.name} names the skill {named!r}, and"
                    )
            by_hand = self._by_hand.get(document.name, ())
            self._requires[document.name] = (*document.requires, *document.suggests, *by_hand)
            self._parents[document.name] = document.parent
        self.check((document.name for document in documents), depth)

    def depend(self, name: str, on: str, depth: int) -> None:
        """Add one dependency. Raises SkillRefused."""
        self._requires[name] = (*self._requires.get(name, ()), on)
        self.check([name], depth)

    def check(self, names: Iterable[str], depth: int) -> None:
        names = list(names)
        parents = {name: [parent] for name, parent in self._parents.items() if parent}
        _check(self._requires, names, depth, "depends on itself", unit="dependencies")
        _check(parents, names, depth, "is its own parent", unit="levels")


async def read_known(connection: AsyncConnection, host_id: str) -> KnownSkills:
    rows = await connection.execute(
        """
        SELECT skill.name, skill.skill_id::text, skill.number, skill.digest, parent.name,
            coalesce(dependency.named, '{}'), coalesce(dependency.by_hand, '{}')
        FROM skill_t AS skill
        LEFT JOIN skill_t AS parent
            ON (parent.host_id, parent.skill_id) = (skill.host_id, skill.parent_skill_id)
        LEFT JOIN LATERAL (
            SELECT array_agg(needed.name::text) AS named,
                array_agg(needed.name::text) FILTER (WHERE dependency.origin = 'manual') AS by_hand
            FROM skill_dependency_t AS dependency
            JOIN skill_t AS needed ON (needed.host_id, needed.skill_id)
                = (dependency.host_id, dependency.depends_on_skill_id)
            WHERE (dependency.host_id, dependency.skill_id) = (skill.host_id, skill.skill_id)
        ) AS dependency ON true
        WHERE skill.host_id = %s AND skill.active
        """,
        [host_id],
    )
    rows_ = await rows.fetchall()
    return KnownSkills(
        {name: KnownSkill(*rest) for name, *rest, _, _ in rows_},
        {row[0]: row[-2] for row in rows_},
        {row[0]: row[-1] for row in rows_},
        await _tools(connection, host_id),
    )


def raise_missing(kind: str, name: str, known_names: Iterable[str], prefix: str = "") -> NoReturn:
    near = get_close_matches(name, list(known_names), n=3)
    hint = f"; did you mean {' or '.join(near)}?" if near else ""
    raise NoSuchEntry(kind, name, f"{prefix} there is no {kind} {name!r}{hint}".strip())


async def _tools(connection: AsyncConnection, host_id: str) -> dict[str, KnownTool]:
    """Tools by current and former names."""
    async with connection.cursor() as cursor:
        cursor.adapters.register_loader("jsonb", RawLoader)
        await cursor.execute(
            """
            SELECT alias.name, tool.tool_id::text, tool.name, tool.annotations
            FROM tool_t AS tool
            LEFT JOIN tool_alias_t AS alias USING (host_id, tool_id)
            WHERE host_id = %s AND tool.active
            """,
            [host_id],
        )
        rows: list[Any] = await cursor.fetchall()
    tools: dict[str, KnownTool] = {}
    for alias, id_, name, annotations in rows:
        tool = KnownTool(id_, name, _annotations.decode(annotations))
        if alias is not None:
            tools.setdefault(alias, tool)
        tools[name] = tool
    return tools


def _check(edges: Edges, names: Sequence[str], depth: int, cycle_text: str, *, unit: str) -> None:
    for name in names:
        if path := cycle_through(edges, name):
            raise SkillRefused(f"the skill {name} {cycle_text}: {' -> '.join(path)}")
    path = longest_path(edges, names)
    if len(path) > depth:
        raise SkillRefused(
            f"the skill {path[0]} has more than {depth} {unit} (skills.depth): {' -> '.join(path)}"
        )
