"""Skills: uploaded, linked with tools, rolled back, exported, removed."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from anyio import to_thread
from msgspec import Meta, Struct

from config.settings import SkillsSettings
from config.value_types import SourceName
from gateway.admin.registry_parts import RegistryParts
from gateway.admin.resources.member_texts import (
    SKILL_DEPENDENCY,
    SKILL_IMPORT,
    SKILL_ROLLBACK,
    TOOL_LINKS,
)
from gateway.operations.operation import (
    Line,
    Operation,
    OperationDependencies,
    OperationInput,
    ToolName,
)
from gateway.operations.paging import ListPage, Paging
from gateway.operations.problems import invalid, not_found
from registry.skills.folders import SKILLS_LIMIT, SkillFolder, check_names, folder_from
from registry.skills.generated import generate_skills, tag_texts
from registry.skills.skill_md import Access
from registry.skills.snapshot import Skill, SkillFile
from registry.skills.store import RelatedSkills, SavedSkill, SkillStore, SkillVersion
from registry.sources.tool_store import ToolStore
from registry.tools.tool_edits import ToolEdits

READ, WRITE = "admin:registry:read", "admin:registry:write"
ORIGIN = "admin"


class FileUpload(Struct, frozen=True, forbid_unknown_fields=True):
    """A file beside a SKILL.md, at a path below the directory of the skill."""

    path: Line
    content: bytes  # base64


class SkillUpload(Struct, frozen=True, forbid_unknown_fields=True):
    """Contents of a skill's directory. `document`: its SKILL.md; `directory`: its name in
    errors."""

    document: Annotated[str, Meta(min_length=1)]
    files: tuple[FileUpload, ...] = ()
    directory: Annotated[str, Meta(max_length=4096)] = ""


class SkillImport(Struct, frozen=True, forbid_unknown_fields=True):
    """Skills to import, atomically. `strict`: reject all if a tool that one of them names is
    missing; `dry_run`: only report the outcome."""

    skills: Annotated[tuple[SkillUpload, ...], Meta(min_length=1, max_length=SKILLS_LIMIT)]
    strict: bool = False
    dry_run: bool = False


class SkillsSaved(Struct, frozen=True):
    skills: tuple[SavedSkill, ...]


class ToolLinks(Struct, frozen=True, forbid_unknown_fields=True):
    """Tools, and the access that a skill gets to them."""

    tools: Annotated[tuple[ToolName, ...], Meta(min_length=1, max_length=1000)]
    access: Annotated[
        Access | None, Meta(description="access level; by default what each tool requires")
    ] = None


class DependencyRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """Kind of a dependency."""

    required: Annotated[
        bool, Meta(description="load it before the skill; else the skill only mentions it")
    ] = True


class SkillRollback(Struct, frozen=True, forbid_unknown_fields=True):
    """The version to serve."""

    to: Annotated[int, Meta(ge=1, le=2**31 - 1, description="number of the version to serve")]


class SkillGeneration(Struct, frozen=True, forbid_unknown_fields=True):
    """Skills to generate: one from each tag of a source."""

    source: Annotated[SourceName, Meta(description="source of the tools")]
    tags: Annotated[tuple[Line, ...], Meta(max_length=1000, description="only these tags")] = ()
    dry_run: Annotated[bool, Meta(description="only report the outcome")] = False


class GeneratedSkills(Struct, frozen=True):
    """Outcomes of a generation, and the SKILL.md of each skill."""

    skills: tuple[SavedSkill, ...]
    documents: tuple[str, ...]


class SkillRow(Struct, frozen=True):
    """Summary of a skill."""

    name: str
    description: str
    version: str
    number: int
    parent: str | None
    tools: int


class SkillView(Struct, frozen=True):
    """Details of a skill. `tools`: with their access levels; `disabled`: those of them that are
    not served; `missing`: tools that its SKILL.md names and the registry lacks; `document`: its
    SKILL.md."""

    name: str
    description: str
    version: str
    number: int
    parent: str | None
    tools: dict[str, Access]
    missing: tuple[str, ...]
    requires: tuple[str, ...]
    suggests: tuple[str, ...]
    files: tuple[SkillFile, ...]
    digest: str
    document: str
    disabled: tuple[str, ...]


class SkillText(Struct, frozen=True):
    """The SKILL.md of a version."""

    number: int
    document: str


class SkillExport(Struct, frozen=True):
    """A skill in import format: its SKILL.md, and the files beside it."""

    name: str
    document: str
    files: tuple[FileUpload, ...]


class SkillOperations:
    def __init__(self, dependencies: OperationDependencies, limits: SkillsSettings) -> None:
        self._dependencies = dependencies
        self._limits = limits

    @classmethod
    def of(cls, parts: RegistryParts) -> "SkillOperations":
        return cls(parts.dependencies, parts.settings.skills)

    @property
    def operations(self) -> Sequence[Operation]:
        item = "/skills/{skill}"
        return (
            Operation(
                "listSkills", "GET", "/skills", "List the skills.", READ, self.list,
                ListPage[SkillRow], query=Paging,
            ),
            Operation(
                "importSkills", "POST", "/skills", "Import skills: all of them, or none.", WRITE,
                self.save, SkillsSaved, body=SkillImport, members=SKILL_IMPORT,
            ),
            Operation(
                "generateSkills", "POST", "/skills/generation",
                "Generate a skill from each tag of a source.", WRITE, self.generate,
                GeneratedSkills, body=SkillGeneration, problems=(404,),
            ),
            Operation("getSkill", "GET", item, "Show a skill.", READ, self.get, SkillView),
            Operation(
                "deleteSkill", "DELETE", item, "Remove a skill with all its versions.", WRITE,
                self.delete, RelatedSkills, match="optional", problems=(422,),
            ),
            Operation(
                "exportSkill", "GET", f"{item}/export", "Show a skill with its files.", READ,
                self.export, SkillExport,
            ),
            Operation(
                "linkTools", "POST", f"{item}/tools", "Link tools to a skill.", WRITE, self.link,
                SkillView, body=ToolLinks, members=TOOL_LINKS, match="optional", of="getSkill",
            ),
            Operation(
                "unlinkTools", "DELETE", f"{item}/tools/{{tool}}", "Unlink a tool from a skill.",
                WRITE, self.unlink, status=204, match="optional", of="getSkill",
            ),
            Operation(
                "dependSkill", "PUT", f"{item}/dependencies/{{dependency}}",
                "Add a dependency of a skill.", WRITE, self.depend, SkillView,
                body=DependencyRequest, members=SKILL_DEPENDENCY, match="optional", of="getSkill",
            ),
            Operation(
                "undependSkill", "DELETE", f"{item}/dependencies/{{dependency}}",
                "Remove a dependency of a skill.", WRITE, self.undepend, status=204,
                match="optional", of="getSkill",
            ),
            Operation(
                "listSkillVersions", "GET", f"{item}/versions", "List the versions of a skill.",
                READ, self.versions, ListPage[SkillVersion], query=Paging,
            ),
            Operation(
                "getSkillVersion", "GET", f"{item}/versions/{{version}}",
                "Show the text of a version.", READ, self.version, SkillText,
            ),
            Operation(
                "rollBackSkill", "POST", f"{item}/rollback", "Serve an older version again.",
                WRITE, self.roll_back, SavedSkill, body=SkillRollback, members=SKILL_ROLLBACK,
                match="optional",
                of="getSkill",
            ),
        )  # fmt: skip

    async def list(self, request: OperationInput) -> ListPage[SkillRow]:
        skills = (await self._store.skills(request.tenant)).of(None)
        rows = [_row(skill) for skill in skills.values()]
        return self._dependencies.pages.page(request.query, rows, lambda row: row.name)

    async def get(self, request: OperationInput) -> SkillView:
        skill = await self._find_skill(request)
        gone = await ToolEdits(self._dependencies.pool, request.tenant).list_disabled()
        names = {tool.name for tool in gone}
        suspects = [tool for tool in skill.tools if tool.name in names]
        tools = await ToolStore(self._dependencies.pool).tools(request.tenant) if suspects else ()
        served = {tool.id for tool in tools}  # another tool may have the name now
        return _view(skill, [tool.name for tool in suspects if tool.id not in served])

    async def generate(self, request: OperationInput) -> GeneratedSkills:
        body: SkillGeneration = request.body
        source, tools = body.source, ToolStore(self._dependencies.pool)
        if await tools.source(request.tenant, source) is None:
            raise not_found("source", source)
        stored = await tools.document(request.tenant, source)
        texts = tag_texts(stored[0], source) if stored else {}
        served = await tools.tools(request.tenant)
        tagged = await self._store.tools_by_tag(request.tenant, source)
        folders = generate_skills(source, served, tagged, texts, tags=body.tags)
        if not folders:
            lacks = "one of these tags" if body.tags else "a tag"
            raise invalid(
                f"No tool of {source} has {lacks}; tags come from the `tags` of operations."
            )
        saved = await self._store.save(
            request.tenant, folders, f"generated:{source}", dry_run=body.dry_run
        )
        return GeneratedSkills(tuple(saved), tuple(folder.document.text for folder in folders))

    async def save(self, request: OperationInput) -> SkillsSaved:
        body: SkillImport = request.body
        folders = await to_thread.run_sync(self._folders, body.skills)  # front matter takes seconds
        saved = await self._store.save(
            request.tenant, folders, ORIGIN, strict=body.strict, dry_run=body.dry_run
        )
        return SkillsSaved(tuple(saved))

    async def delete(self, request: OperationInput) -> RelatedSkills:
        return await self._store.remove(request.tenant, request.names["skill"])

    async def export(self, request: OperationInput) -> SkillExport:
        skill = await self._find_skill(request)
        files = await self._store.files(request.tenant, skill)
        uploads = tuple(FileUpload(file.path, file.content) for file in files)
        return SkillExport(skill.name, skill.text, uploads)

    async def link(self, request: OperationInput) -> SkillView:
        body: ToolLinks = request.body
        await self._store.link(request.tenant, request.names["skill"], body.tools, body.access)
        return await self.get(request)

    async def unlink(self, request: OperationInput) -> None:
        await self._store.unlink(request.tenant, request.names["skill"], [request.names["tool"]])

    async def depend(self, request: OperationInput) -> SkillView:
        name, on = request.names["skill"], request.names["dependency"]
        await self._store.depend(request.tenant, name, on, required=request.body.required)
        return await self.get(request)

    async def undepend(self, request: OperationInput) -> None:
        await self._store.undepend(
            request.tenant, request.names["skill"], request.names["dependency"]
        )

    async def versions(self, request: OperationInput) -> ListPage[SkillVersion]:
        await self._find_skill(request)
        versions = await self._store.versions(request.tenant, request.names["skill"])
        return self._dependencies.pages.page(
            request.query, versions, lambda version: f"{2**31 - version.number:010}"
        )

    async def version(self, request: OperationInput) -> SkillText:
        skill, number = await self._find_skill(request), int(request.names["version"])
        document = await self._store.document(request.tenant, skill, number)
        return SkillText(number, document.text)

    async def roll_back(self, request: OperationInput) -> SavedSkill:
        return await self._store.rollback(request.tenant, request.names["skill"], request.body.to)

    @property
    def _store(self) -> SkillStore:
        return SkillStore(self._dependencies.pool, self._limits)

    async def _find_skill(self, request: OperationInput) -> Skill:
        name = request.names["skill"]
        skill = (await self._store.skills(request.tenant)).get(name)
        if skill is None:
            raise not_found("skill", name)
        return skill

    def _folders(self, uploads: Sequence[SkillUpload]) -> tuple[SkillFolder, ...]:
        """The parsed uploads. Raises ImportRejected."""
        folders = tuple(self._folder(*upload) for upload in enumerate(uploads))
        check_names(folders)
        return folders

    def _folder(self, number: int, upload: SkillUpload) -> SkillFolder:
        """The parsed upload. Raises ImportRejected."""
        files = ((file.path, file.content) for file in upload.files)
        text = upload.document.encode()
        place = Path(upload.directory or f"skills[{number}]")
        return folder_from(place, text, files, self._limits)


def _row(skill: Skill) -> SkillRow:
    return SkillRow(
        name=skill.name,
        description=skill.description,
        version=skill.version,
        number=skill.number,
        parent=skill.parent,
        tools=len(skill.tools),
    )


def _view(skill: Skill, disabled_names: Sequence[str]) -> SkillView:
    tools = {tool.name: tool.access for tool in skill.tools}
    return SkillView(
        name=skill.name,
        description=skill.description,
        version=skill.version,
        number=skill.number,
        parent=skill.parent,
        tools=tools,
        missing=tuple(name for name in skill.named if name not in tools),
        requires=skill.requires,
        suggests=skill.suggests,
        files=skill.files,
        digest=skill.digest,
        document=skill.text,
        disabled=tuple(disabled_names),
    )
