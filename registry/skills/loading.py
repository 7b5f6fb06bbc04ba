"""Loads the snapshot of a tenant's skills and agents, and the content of their files, from the
database."""

from collections import defaultdict
from dataclasses import replace
from typing import Any

from psycopg import AsyncCursor

from registry.database.postgres import Pool, borrowed
from registry.database.rows import RawLoader
from registry.skills.document import own_name, tools_of
from registry.skills.snapshot import Agent, Skill, SkillFile, SkillSnapshot, SkillTool

Rows = defaultdict[str, list[Any]]


async def load_skills(pool: Pool, host_id: str) -> SkillSnapshot:
    """Load the snapshot. Raises `psycopg.OperationalError`."""
    async with (
        borrowed(pool) as connection,
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
        useful: Rows = defaultdict(list)
        for skill_id, name, required in await cursor.fetchall():
            (needed if required else useful)[skill_id].append(name)
        skills = [
            replace(
                Skill(*row),
                tools=tuple(tools[row[0]]),
                named=tuple(own_name(name) for name in tools_of(row[5])),
                requires=tuple(needed[row[0]]),
                suggests=tuple(useful[row[0]]),
                files=tuple(files[row[0]]),
            )
            for row in rows
        ]
        return SkillSnapshot(skills, await _agents(cursor, host_id))


async def file_content(pool: Pool, host_id: str, skill: Skill, path: str) -> bytes | None:
    """The content of a file, as it was when `skill` was read; None: it no longer exists."""
    async with borrowed(pool) as connection:
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
    found: Rows = defaultdict(list)
    for skill_id, *values in await cursor.fetchall():
        found[skill_id].append(kind(*values))
    return found


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
