"""Skills in the registry: imported, linked, rolled back, exported, removed."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime

from psycopg import AsyncConnection

from config.settings import SkillsSettings as Limits
from registry.database.postgres import Pool, borrowed
from registry.database.tenants import lock
from registry.skills.access import Access
from registry.skills.document import SkillDocument, read_document
from registry.skills.folders import FolderFile, SkillFolder
from registry.skills.known import KnownSkills, SkillRefused, read_known
from registry.skills.loading import load_skills
from registry.skills.saving import SavedSkill, SkillWriter, label
from registry.skills.snapshot import Skill, SkillSnapshot

__all__ = ["Freed", "SavedSkill", "SkillRefused", "SkillStore", "SkillVersion"]


@dataclass(frozen=True, slots=True)
class SkillVersion:
    number: int
    version: str  # what it calls itself
    description: str
    created: datetime
    user: str
    current: bool


@dataclass(frozen=True, slots=True)
class Freed:
    """Skills that a skill which was removed stood with, by name."""

    below: list[str]  # that have no parent any more
    naming: list[str]  # that suggest it no longer


class SkillStore:
    """Of all tenants. All methods raise `psycopg.OperationalError`; what writes raises
    SkillRefused, and has then written nothing."""

    def __init__(self, pool: Pool, limits: Limits) -> None:
        self._pool = pool
        self._limits = limits

    async def skills(self, host_id: str) -> SkillSnapshot:
        return await load_skills(self._pool, host_id)

    async def save(
        self,
        host_id: str,
        folders: Sequence[SkillFolder],
        origin: str = "import",
        *,
        strict: bool = False,
        dry_run: bool = False,
    ) -> list[SavedSkill]:
        """Make the skills these, all or none. `strict`: none, if one names a tool that there is
        not. `dry_run`: only tell what would become of them."""
        async with self._writing(host_id) as (connection, known):
            saved = await SkillWriter(connection, host_id, known, self._limits).run(folders, origin)
            if strict and (lacking := [one for one in saved if one.missing]):
                each = "; ".join(f"{one.name}: {', '.join(one.missing)}" for one in lacking)
                raise SkillRefused(f"there are no such tools here: {each}")
            if dry_run:
                await connection.rollback()
        return saved

    async def remove(self, host_id: str, name: str) -> Freed:
        """With its versions. Refused while other skills require it."""
        async with self._writing(host_id) as (connection, known):
            skill = known.skill(name)
            rows = await connection.execute(
                "SELECT skill.name, required FROM skill_dependency_t AS dependency"
                " JOIN skill_t AS skill USING (host_id, skill_id)"
                " WHERE host_id = %s AND depends_on_skill_id = %s ORDER BY 1",
                [host_id, skill.id],
            )
            naming = {user: required async for user, required in rows}
            if users := [user for user, required in naming.items() if required]:
                raise SkillRefused(f"{name} is required by {', '.join(users)}")
            await connection.execute(
                "DELETE FROM skill_t WHERE (host_id, skill_id) = (%s, %s)", [host_id, skill.id]
            )
        below = sorted(one for one, other in known.skills.items() if other.parent == name)
        return Freed(below, list(naming))

    async def link(
        self, host_id: str, name: str, tools: Sequence[str], access: Access | None
    ) -> dict[str, Access]:
        """Give the skill tools; the level that each got, by name."""
        async with self._writing(host_id) as (connection, known):
            skill = known.skill(name)
            found = [known.tool(tool) for tool in tools]
            levels = {tool.name: tool.access(access) for tool in found}
            await connection.execute(
                """
                INSERT INTO skill_tool_t AS old (host_id, skill_id, tool_id, access_level)
                SELECT %s, %s, named.tool_id, named.level
                FROM unnest(%s::uuid[], %s::text[]) AS named (tool_id, level)
                ON CONFLICT (host_id, skill_id, tool_id) DO UPDATE SET
                    access_level = excluded.access_level, origin = 'manual', active = true,
                    aggregate_version = old.aggregate_version + 1,
                    update_ts = current_timestamp, update_user = session_user
                """,
                [
                    host_id,
                    skill.id,
                    list(dict.fromkeys(tool.id for tool in found)),
                    list({tool.id: levels[tool.name] for tool in found}.values()),
                ],
            )
        return levels

    async def unlink(self, host_id: str, name: str, tools: Sequence[str]) -> list[str]:
        """Take tools from the skill; the names of those that it had."""
        async with self._writing(host_id) as (connection, known):
            skill = known.skill(name)
            rows = await connection.execute(
                "DELETE FROM skill_tool_t AS link USING tool_t AS tool"
                " WHERE (link.host_id, link.tool_id) = (tool.host_id, tool.tool_id)"
                " AND (link.host_id, link.skill_id) = (%s, %s) AND tool.name = ANY(%s)"
                " RETURNING tool.name",
                [host_id, skill.id, list(tools)],
            )
            gone = {tool async for (tool,) in rows}
            if lacking := [tool for tool in tools if tool not in gone]:
                raise SkillRefused(f"{name} has no tool {', '.join(lacking)}")
        return sorted(gone)

    async def depend(self, host_id: str, name: str, on: str, *, required: bool) -> None:
        """Let a skill depend on another. Refused where that would go in a circle."""
        async with self._writing(host_id) as (connection, known):
            skill, other = known.skill(name), known.skill(on)
            known.depend(name, on, self._limits.depth)
            await connection.execute(
                """
                INSERT INTO skill_dependency_t AS old
                    (host_id, skill_id, depends_on_skill_id, required)
                VALUES (%s, %s, %s, %s)
                ON CONFLICT (host_id, skill_id, depends_on_skill_id) DO UPDATE SET
                    required = excluded.required, origin = 'manual', active = true,
                    aggregate_version = old.aggregate_version + 1,
                    update_ts = current_timestamp, update_user = session_user
                """,
                [host_id, skill.id, other.id, required],
            )

    async def undepend(self, host_id: str, name: str, on: str) -> None:
        async with self._writing(host_id) as (connection, known):
            gone = await connection.execute(
                "DELETE FROM skill_dependency_t"
                " WHERE (host_id, skill_id, depends_on_skill_id) = (%s, %s, %s)",
                [host_id, known.skill(name).id, known.skill(on).id],
            )
            if not gone.rowcount:
                raise SkillRefused(f"{name} does not depend on {on}")

    async def versions(self, host_id: str, name: str) -> list[SkillVersion]:
        """The newest first."""
        async with borrowed(self._pool) as connection:
            rows = await connection.execute(
                """
                SELECT version.number, version.version, version.description, version.created_ts,
                    version.update_user, version.number = skill.number
                FROM skill_t AS skill
                JOIN skill_version_t AS version USING (host_id, skill_id)
                WHERE host_id = %s AND skill.name = %s AND skill.active
                ORDER BY version.number DESC
                """,
                [host_id, name],
            )
            return [SkillVersion(*row) async for row in rows]

    async def rollback(self, host_id: str, name: str, number: int) -> SavedSkill:
        """Serve a version of before again. The next import makes a new one."""
        async with self._writing(host_id) as (connection, known):
            skill = known.skill(name)
            document, digest = await _version(connection, host_id, skill.id, name, number)
            links = known.links(document)
            known.add([document], self._limits.depth)
            saving = SkillWriter(connection, host_id, known, self._limits)
            await saving.serve(skill, number, document, digest)
            await saving.relate(document, links)
        tools = tuple(tool.name for tool, _ in links.tools.values())
        return SavedSkill(name, "changed", number, label(document, number), tools, links.missing)

    async def files(self, host_id: str, skill: Skill) -> list[FolderFile]:
        """What lies beside its SKILL.md."""
        async with borrowed(self._pool) as connection:
            rows = await connection.execute(
                "SELECT path, media_type, content FROM skill_file_t"
                ' WHERE (host_id, skill_id, number) = (%s, %s, %s) ORDER BY path COLLATE "C"',
                [host_id, skill.id, skill.number],
                binary=True,
            )
            return [
                FolderFile(path, media_type, bytes(content))
                async for path, media_type, content in rows
            ]

    async def tagged(self, host_id: str, source: str) -> dict[str, list[str]]:
        """The ids of the active tools of a source, by tag."""
        async with borrowed(self._pool) as connection:
            rows = await connection.execute(
                """
                SELECT tag, array_agg(tool.tool_id::text)
                FROM tool_t AS tool
                JOIN api_endpoint_t AS endpoint USING (host_id, endpoint_id)
                JOIN api_t AS api USING (host_id, api_id), unnest(tool.tags) AS tag
                WHERE host_id = %s AND api.name = %s AND tool.active
                GROUP BY tag ORDER BY tag COLLATE "C"
                """,
                [host_id, source],
            )
            return {tag: ids async for tag, ids in rows}

    async def document(self, host_id: str, skill: Skill, number: int) -> SkillDocument:
        async with borrowed(self._pool) as connection:
            found, _ = await _version(connection, host_id, skill.id, skill.name, number)
        return found

    @asynccontextmanager
    async def _writing(self, host_id: str) -> AsyncIterator[tuple[AsyncConnection, KnownSkills]]:
        async with borrowed(self._pool) as connection:
            await lock(connection, host_id)
            yield connection, await read_known(connection, host_id)


async def _version(
    connection: AsyncConnection, host_id: str, skill_id: str, name: str, number: int
) -> tuple[SkillDocument, str]:
    rows = await connection.execute(
        "SELECT front_matter || content_markdown, digest FROM skill_version_t"
        " WHERE (host_id, skill_id, number) = (%s, %s, %s)",
        [host_id, skill_id, number],
    )
    row = await rows.fetchone()
    if row is None:
        raise SkillRefused(f"there is no version {number} of {name}, or it is kept no longer")
    return read_document(row[0].encode(), f"version {number} of {name}"), row[1]
