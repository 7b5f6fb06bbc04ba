"""Skills in the registry: imported, linked, rolled back, exported, removed."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from uuid import uuid4

import msgspec
from psycopg import AsyncConnection
from psycopg.types.json import Json

from config.settings import SkillsSettings as Limits
from registry.database.postgres import Pool, borrow
from registry.database.tables import Tables
from registry.database.tenants import lock_tenant
from registry.skills.folders import FolderFile, SkillFolder
from registry.skills.rows import (
    KnownSkill,
    KnownSkills,
    Links,
    load_skills,
    read_known,
)
from registry.skills.skill_errors import NoSuchEntry, SkillRefused
from registry.skills.skill_md import Access, SkillDocument, read_document
from registry.skills.snapshot import Skill, SkillSnapshot


@dataclass(frozen=True, slots=True)
class SavedSkill:
    """The outcome of saving one skill."""

    name: str
    outcome: str  # "added", "changed", "linked" (only its links changed), "unchanged"
    number: int
    version: str
    tools: tuple[str, ...]
    missing: tuple[str, ...]  # named tools that do not exist


class SkillWriter:
    def __init__(
        self, connection: AsyncConnection, host_id: str, tenant_skills: KnownSkills, limits: Limits
    ) -> None:
        self._connection = connection
        self._host_id = host_id
        self._known = tenant_skills
        self._limits = limits

    async def run(self, folders: Sequence[SkillFolder], origin: str) -> list[SavedSkill]:
        """Run the save. Raises SkillRefused; the transaction must then be rolled back."""
        documents = [folder.document for folder in folders]
        links = [self._known.links(document) for document in documents]
        self._known.add(documents, self._limits.depth)
        outcomes = [await self._write(folder, origin) for folder in folders]
        saved = []
        for folder, skill_links, outcome in zip(folders, links, outcomes, strict=True):
            changed = await self.relate(folder.document, skill_links)
            skill = self._known.skills[folder.document.name]
            if outcome == "unchanged" and changed:
                outcome = "linked"
            saved.append(self._saved_skill(folder.document, skill, skill_links, outcome))
        return saved

    async def relate(self, document: SkillDocument, links: Links) -> bool:
        """Link the skill with exactly what its document names, dropping links of older versions;
        returns whether that changed any link."""
        skill = self._known.skills[document.name]
        parent = self._known.skills[document.parent].id if document.parent else None
        moved = await self._connection.execute(
            "UPDATE skill_t SET parent_skill_id = %s WHERE (host_id, skill_id) = (%s, %s)"
            " AND parent_skill_id IS DISTINCT FROM %s",
            [parent, self._host_id, skill.id, parent],
        )
        tools = await self._link(skill, links)
        skills = await self._depend(skill, document)
        return bool(moved.rowcount) or tools or skills

    async def serve(
        self, skill: KnownSkill, number: int, document: SkillDocument, digest: str
    ) -> None:
        """Serve this stored version."""
        await self._connection.execute(
            """
            UPDATE skill_t SET description = %s, front_matter = %s, content_markdown = %s,
                metadata = %s, number = %s, version = %s, digest = %s,
                aggregate_version = aggregate_version + 1, update_ts = current_timestamp,
                update_user = session_user
            WHERE (host_id, skill_id) = (%s, %s)
            """,
            [*_columns(document), number, label(document, number), digest, self._host_id, skill.id],
        )

    async def _write(self, folder: SkillFolder, origin: str) -> str:
        document, digest = folder.document, folder.digest
        skill = self._known.skills.get(document.name)
        if skill is not None and skill.digest == digest:
            return "unchanged"
        if skill is None:
            skill = await self._insert(document, digest, origin)
            number, outcome = 1, "added"
        else:
            number, outcome = await self._next(skill), "changed"
        await self._store(skill, number, folder)
        if outcome == "changed":
            await self.serve(skill, number, document, digest)
            await self._forget(skill, number)
        self._known.skills[document.name] = KnownSkill(skill.id, number, digest, document.parent)
        return outcome

    async def _insert(self, document: SkillDocument, digest: str, origin: str) -> KnownSkill:
        skill_id = str(uuid4())
        await self._connection.execute(
            "INSERT INTO skill_t (host_id, skill_id, name, description, front_matter,"
            " content_markdown, metadata, version, digest, origin)"
            " VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s)",
            [
                self._host_id,
                skill_id,
                document.name,
                *_columns(document),
                label(document, 1),
                digest,
                origin[:80],
            ],
        )
        return KnownSkill(skill_id, 1, digest, None)

    async def _next(self, skill: KnownSkill) -> int:
        rows = await self._connection.execute(
            "SELECT max(number) FROM skill_version_t WHERE (host_id, skill_id) = (%s, %s)",
            [self._host_id, skill.id],
        )
        row = await rows.fetchone()
        return int(row[0] if row else skill.number) + 1

    async def _store(self, skill: KnownSkill, number: int, folder: SkillFolder) -> None:
        version = label(folder.document, number)
        await self._connection.execute(
            "INSERT INTO skill_version_t (host_id, skill_id, number, description, front_matter,"
            " content_markdown, metadata, version, digest)"
            " VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s)",
            [self._host_id, skill.id, number, *_columns(folder.document), version, folder.digest],
        )
        for file in folder.files:
            await self._connection.execute(
                "INSERT INTO skill_file_t (host_id, skill_id, number, path, media_type, digest,"
                " size, content) VALUES (%s, %s, %s, %s, %s, %s, %s, %s)",
                [
                    self._host_id,
                    skill.id,
                    number,
                    file.path,
                    file.media_type,
                    file.digest,
                    len(file.content),
                    file.content,
                ],
            )

    async def _forget(self, skill: KnownSkill, number: int) -> None:
        """Delete versions beyond the limit, oldest first."""
        await self._connection.execute(
            "DELETE FROM skill_version_t WHERE (host_id, skill_id) = (%(host)s, %(skill)s)"
            " AND number <> %(number)s AND number NOT IN ("
            " SELECT number FROM skill_version_t WHERE (host_id, skill_id) = (%(host)s, %(skill)s)"
            " ORDER BY number DESC LIMIT %(kept)s)",
            {
                "host": self._host_id,
                "skill": skill.id,
                "number": number,
                "kept": self._limits.versions_kept,
            },
        )

    async def _link(self, skill: KnownSkill, links: Links) -> bool:
        ids = list(links.tools)
        levels = [access for _, access in links.tools.values()]
        values = {"host": self._host_id, "skill": skill.id, "ids": ids, "levels": levels}
        gone = await self._connection.execute(
            "DELETE FROM skill_tool_t WHERE (host_id, skill_id) = (%(host)s, %(skill)s)"
            " AND origin = 'document' AND tool_id <> ALL(%(ids)s::uuid[])",
            values,
        )
        new = await self._connection.execute(
            """
            INSERT INTO skill_tool_t AS old (host_id, skill_id, tool_id, access_level, origin,
                sequence_id)
            SELECT %(host)s, %(skill)s, named.tool_id, named.level, 'document', named.n
            FROM unnest(%(ids)s::uuid[], %(levels)s::text[]) WITH ORDINALITY
                AS named (tool_id, level, n)
            ON CONFLICT (host_id, skill_id, tool_id) DO UPDATE SET
                access_level = excluded.access_level, sequence_id = excluded.sequence_id,
                aggregate_version = old.aggregate_version + 1, update_ts = current_timestamp
            WHERE old.origin = 'document' AND (old.access_level, old.sequence_id)
                <> (excluded.access_level, excluded.sequence_id)
            """,
            values,
        )
        return bool(gone.rowcount or new.rowcount)

    async def _depend(self, skill: KnownSkill, document: SkillDocument) -> bool:
        named = dict.fromkeys(document.requires, True)
        named |= {name: False for name in document.suggests if name not in named}
        values = {
            "host": self._host_id,
            "skill": skill.id,
            "ids": [self._known.skills[name].id for name in named],
            "required": list(named.values()),
        }
        gone = await self._connection.execute(
            "DELETE FROM skill_dependency_t WHERE (host_id, skill_id) = (%(host)s, %(skill)s)"
            " AND origin = 'document' AND depends_on_skill_id <> ALL(%(ids)s::uuid[])",
            values,
        )
        new = await self._connection.execute(
            """
            INSERT INTO skill_dependency_t AS old (host_id, skill_id, depends_on_skill_id, required,
                origin)
            SELECT %(host)s, %(skill)s, named.skill_id, named.required, 'document'
            FROM unnest(%(ids)s::uuid[], %(required)s::boolean[]) AS named (skill_id, required)
            ON CONFLICT (host_id, skill_id, depends_on_skill_id) DO UPDATE SET
                required = excluded.required, aggregate_version = old.aggregate_version + 1,
                update_ts = current_timestamp
            WHERE old.origin = 'document' AND old.required <> excluded.required
            """,
            values,
        )
        return bool(gone.rowcount or new.rowcount)

    def _saved_skill(
        self, document: SkillDocument, skill: KnownSkill, links: Links, outcome: str
    ) -> SavedSkill:
        tools = tuple(tool.name for tool, _ in links.tools.values())
        version = label(document, skill.number)
        return SavedSkill(
            document.name, outcome, skill.number, version, tools=tools, missing=links.missing
        )


def label(document: SkillDocument, number: int) -> str:
    """The version in the document's metadata, otherwise one of our own."""
    return document.version or f"1.0.{number - 1}"


def _columns(document: SkillDocument) -> list[object]:
    return [
        document.description,
        document.front_matter,
        document.instructions,
        Json(document.metadata, dumps=msgspec.json.encode),
    ]


__all__ = ["RelatedSkills", "SavedSkill", "SkillRefused", "SkillStore", "SkillVersion"]


@dataclass(frozen=True, slots=True)
class SkillVersion:
    number: int
    version: str  # as in its metadata
    description: str
    created: datetime
    user: str
    current: bool


@dataclass(frozen=True, slots=True)
class RelatedSkills:
    """Skills related to a removed skill, by name."""

    below: list[str]  # those that lost their parent
    naming: list[str]  # those that no longer suggest it


class SkillStore(Tables):
    """Skills of all tenants. All methods raise `psycopg.OperationalError`; writers raise
    SkillRefused, with no rows written."""

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
        """Save these skills atomically. `strict`: refuse all if one names an unknown tool.
        `dry_run`: only report the outcomes."""
        async with self._writing(host_id) as (connection, tenant_skills):
            saved = await SkillWriter(connection, host_id, tenant_skills, self._limits).run(
                folders, origin
            )
            if strict and (lacking := [skill for skill in saved if skill.missing]):
                each = "; ".join(f"{skill.name}: {', '.join(skill.missing)}" for skill in lacking)
                raise SkillRefused(f"there are no such tools here: {each}")
            if dry_run:
                await connection.rollback()
        return saved

    async def remove(self, host_id: str, name: str) -> RelatedSkills:
        """Remove a skill with its versions. Refused while other skills require it."""
        async with self._writing(host_id) as (connection, tenant_skills):
            skill = tenant_skills.skill(name)
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
        below = sorted(
            skill_name
            for skill_name, known_skill in tenant_skills.skills.items()
            if known_skill.parent == name
        )
        return RelatedSkills(below, list(naming))

    async def link(
        self, host_id: str, name: str, tools: Sequence[str], access: Access | None
    ) -> dict[str, Access]:
        """Link tools to the skill; returns the access level of each, by name."""
        async with self._writing(host_id) as (connection, tenant_skills):
            skill = tenant_skills.skill(name)
            known_tools = [tenant_skills.tool(tool) for tool in tools]
            levels = {tool.name: tool.access(access) for tool in known_tools}
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
                    list(dict.fromkeys(tool.id for tool in known_tools)),
                    list({tool.id: levels[tool.name] for tool in known_tools}.values()),
                ],
            )
        return levels

    async def unlink(self, host_id: str, name: str, tools: Sequence[str]) -> list[str]:
        """Unlink tools from the skill; returns the names of those that were linked."""
        async with self._writing(host_id) as (connection, tenant_skills):
            skill = tenant_skills.skill(name)
            rows = await connection.execute(
                "DELETE FROM skill_tool_t AS link USING tool_t AS tool"
                " WHERE (link.host_id, link.tool_id) = (tool.host_id, tool.tool_id)"
                " AND (link.host_id, link.skill_id) = (%s, %s) AND tool.name = ANY(%s)"
                " RETURNING tool.name",
                [host_id, skill.id, list(tools)],
            )
            gone = {tool async for (tool,) in rows}
            if lacking := [tool for tool in tools if tool not in gone]:
                text = f"{name} has no tool {', '.join(lacking)}"
                raise NoSuchEntry("tool", lacking[0], text)
        return sorted(gone)

    async def depend(self, host_id: str, name: str, on: str, *, required: bool) -> None:
        """Make a skill depend on another. Refused where that would create a cycle."""
        async with self._writing(host_id) as (connection, tenant_skills):
            skill, prerequisite = tenant_skills.skill(name), tenant_skills.skill(on)
            tenant_skills.depend(name, on, self._limits.depth)
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
                [host_id, skill.id, prerequisite.id, required],
            )

    async def undepend(self, host_id: str, name: str, on: str) -> None:
        async with self._writing(host_id) as (connection, tenant_skills):
            gone = await connection.execute(
                "DELETE FROM skill_dependency_t"
                " WHERE (host_id, skill_id, depends_on_skill_id) = (%s, %s, %s)",
                [host_id, tenant_skills.skill(name).id, tenant_skills.skill(on).id],
            )
            if not gone.rowcount:
                raise NoSuchEntry("dependency", on, f"{name} does not depend on {on}")

    async def versions(self, host_id: str, name: str) -> list[SkillVersion]:
        """Versions, newest first."""
        rows = await self._fetch(
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
        return [SkillVersion(*row) for row in rows]

    async def rollback(self, host_id: str, name: str, number: int) -> SavedSkill:
        """Serve an earlier version again. The next import makes a new one."""
        async with self._writing(host_id) as (connection, tenant_skills):
            skill = tenant_skills.skill(name)
            document, digest = await _version(connection, host_id, skill.id, name, number=number)
            links = tenant_skills.links(document)
            tenant_skills.add([document], self._limits.depth)
            saving = SkillWriter(connection, host_id, tenant_skills, self._limits)
            await saving.serve(skill, number, document, digest)
            await saving.relate(document, links)
        tools = tuple(tool.name for tool, _ in links.tools.values())
        return SavedSkill(
            name, "changed", number, label(document, number), tools=tools, missing=links.missing
        )

    async def files(self, host_id: str, skill: Skill) -> list[FolderFile]:
        """The files beside its SKILL.md."""
        async with borrow(self._pool) as connection:
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

    async def tools_by_tag(self, host_id: str, source: str) -> dict[str, list[str]]:
        """The ids of the active tools of a source, by tag."""
        rows = await self._fetch(
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
        return dict(rows)

    async def document(self, host_id: str, skill: Skill, number: int) -> SkillDocument:
        async with borrow(self._pool) as connection:
            document, _ = await _version(connection, host_id, skill.id, skill.name, number=number)
        return document

    @asynccontextmanager
    async def _writing(self, host_id: str) -> AsyncIterator[tuple[AsyncConnection, KnownSkills]]:
        async with borrow(self._pool) as connection:
            await lock_tenant(connection, host_id)
            yield connection, await read_known(connection, host_id)


async def _version(
    connection: AsyncConnection, host_id: str, skill_id: str, name: str, *, number: int
) -> tuple[SkillDocument, str]:
    rows = await connection.execute(
        "SELECT front_matter || content_markdown, digest FROM skill_version_t"
        " WHERE (host_id, skill_id, number) = (%s, %s, %s)",
        [host_id, skill_id, number],
    )
    row = await rows.fetchone()
    if row is None:
        text = f"there is no version {number} of {name}, or it is kept no longer"
        raise NoSuchEntry("version", str(number), text)
    return read_document(row[0].encode(), f"version {number} of {name}"), row[1]
