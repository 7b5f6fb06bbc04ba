"""Writing skills, in the caller's transaction with the tenant locked."""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import uuid4

import msgspec
from psycopg import AsyncConnection
from psycopg.types.json import Json

from config.settings import SkillsSettings as Limits
from registry.skills.document import SkillDocument
from registry.skills.folders import SkillFolder
from registry.skills.known import KnownSkill, KnownSkills, Links


@dataclass(frozen=True, slots=True)
class SavedSkill:
    """What became of one skill."""

    name: str
    outcome: str  # "added", "changed", "linked" (only what it is linked with), "unchanged"
    number: int
    version: str
    tools: tuple[str, ...]
    missing: tuple[str, ...]  # tools that it names and that are not here


class SkillWriter:
    def __init__(
        self, connection: AsyncConnection, host_id: str, known: KnownSkills, limits: Limits
    ) -> None:
        self._connection = connection
        self._host_id = host_id
        self._known = known
        self._limits = limits

    async def run(self, folders: Sequence[SkillFolder], origin: str) -> list[SavedSkill]:
        """Raises SkillRefused; nothing is to be committed then."""
        documents = [folder.document for folder in folders]
        links = [self._known.links(document) for document in documents]
        self._known.add(documents, self._limits.depth)
        outcomes = [await self._write(folder, origin) for folder in folders]
        saved = []
        for folder, found, outcome in zip(folders, links, outcomes, strict=True):
            changed = await self.relate(folder.document, found)
            skill = self._known.skills[folder.document.name]
            if outcome == "unchanged" and changed:
                outcome = "linked"
            saved.append(self._saved(folder.document, skill, found, outcome))
        return saved

    async def relate(self, document: SkillDocument, links: Links) -> bool:
        """Link the skill with what its document names, and with nothing that an older one named;
        whether that changed anything."""
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
        """Make a version, which is stored, the one that is served."""
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
        """Versions that are too many, the oldest first."""
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

    def _saved(
        self, document: SkillDocument, skill: KnownSkill, links: Links, outcome: str
    ) -> SavedSkill:
        tools = tuple(tool.name for tool, _ in links.tools.values())
        version = label(document, skill.number)
        return SavedSkill(document.name, outcome, skill.number, version, tools, links.missing)


def label(document: SkillDocument, number: int) -> str:
    """What a version calls itself, else what we do."""
    return document.version or f"1.0.{number - 1}"


def _columns(document: SkillDocument) -> list[object]:
    return [
        document.description,
        document.front_matter,
        document.instructions,
        Json(document.metadata, dumps=msgspec.json.encode),
    ]
