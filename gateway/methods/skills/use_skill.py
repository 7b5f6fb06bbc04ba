"""use_skill and list_skills: instructions of a skill, its tools and its files.

They are `Upstream`s; everything but the files comes from the catalog.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from anyio import to_thread
from msgspec import Raw

from gateway.context import Context, Session
from gateway.interfaces import SessionChange
from gateway.methods.describe_tools import answer
from gateway.methods.lists import Lists
from gateway.methods.search_tools import BY_WORDS, UNSEARCHABLE, Find, unsearchable_result
from gateway.methods.skills.acting_agents import Agents, GrantedTools, Handles, granted_tools
from gateway.state.change_streams import LIST_NOTIFICATIONS
from registry.catalog import lookup as wording
from registry.catalog.catalog import Catalog
from registry.display.discovery_tools import DESCRIBES
from registry.display.profiles import SelectedProfile
from registry.display.schema_summaries import first_sentence, shorten
from registry.display.token_budgets import CHARACTERS
from registry.display.tool_shaper import ListedTool, ListingBudget, length
from registry.embedding.search_kinds import SKILL
from registry.search.query import Filters, SearchQuery
from registry.skills.snapshot import Skill, SkillFile, file_at, uri_of
from schemas.errors import InvalidParams, Unreachable
from schemas.jsonrpc import encode
from schemas.source import Source
from schemas.tool import TextContent, Tool, ToolResult

LINE = 100  # characters of a shortened description
AROUND = 200  # characters of an answer besides its parts

Json = dict[str, Any]


class ListSkills:
    def __init__(
        self, lists: Lists, agents: Agents, *, find: Find, limit: int, tokens: int
    ) -> None:
        """`limit`: skills in an answer to a query; `tokens`: size limit of any answer."""
        self._lists = lists
        self._agents = agents
        self._find = find
        self._limit = limit
        self._tokens = tokens

    async def call(
        self, _tool: Tool, _source: Source | None, arguments: Any, context: Context
    ) -> ToolResult:
        catalog = self._lists.visible(context)
        skills = self._agents.skills(context, catalog)
        room = self._tokens * CHARACTERS - AROUND
        query = arguments.get("query", "").strip()
        if not query:
            return answer(_tree(skills, room))
        try:
            skills_found, note = await self._find_skills(query, skills, context)
        except Unreachable as fault:
            return unsearchable_result(fault)
        return answer(_hits(skills_found, note, room))

    async def _find_skills(
        self, query: str, skills: Mapping[str, Skill], context: Context
    ) -> tuple[list[Skill], str | None]:
        by_id = {skill.id: skill for skill in skills.values()}
        if not by_id:
            return [], None
        filters = Filters(context.principal.tenant, ids=list(by_id))
        try:
            result = await self._find(
                SearchQuery(query, self._limit, "hybrid", filters, SKILL, details=False)
            )
        except UNSEARCHABLE:
            return by_words(skills.values(), query, self._limit), BY_WORDS
        return [by_id[hit.id] for hit in result.hits if hit.id in by_id], result.note


def _tree(skills: Mapping[str, Skill], room: int) -> Json:
    """Skills as a tree; truncated to the first that fit into `room`."""
    entries, shortened = _entries(skills.values(), room)
    lines = dict(zip(skills, entries, strict=True))
    top: list[Json] = []
    left_out = 0
    for name, line in lines.items():
        room -= length(line) + len(',"skills":[]')
        if room < 0:
            left_out += 1
            continue
        parent = skills[name].parent
        above = lines.get(parent) if parent is not None else None
        (top if above is None else above.setdefault("skills", [])).append(line)
    more = [f"{left_out} left out: ask with a query for what is needed."] if left_out else []
    if shortened:
        more.append("Descriptions are shortened; ask with a query.")
    if not skills:
        more.append("There are no skills here.")
    return {"skills": top, **({"more": " ".join(more)} if more else {})}


def _hits(skills: Sequence[Skill], note: str | None, room: int) -> Json:
    entries, shortened = _entries(skills, room)
    answer: Json = {"skills": entries[: max(1, room // (LINE + 100))]}
    if shortened:
        answer["more"] = "Descriptions are shortened."
    if note:
        answer["note"] = shorten(note, AROUND)
    return (
        answer if skills else {**answer, "more": "Nothing was found; without a query all are told."}
    )


def _entries(skills: Collection[Skill], room: int) -> tuple[list[Json], bool]:
    """Names and descriptions, and whether descriptions were shortened."""
    full_entries = [{"name": skill.name, "description": skill.description} for skill in skills]
    if sum(map(length, full_entries)) <= room:
        return full_entries, False
    lines = [line_of(skill) for skill in skills]
    return lines, lines != full_entries


def line_of(skill: Skill) -> Json:
    return {"name": skill.name, "description": first_sentence(skill.description, LINE)}


def by_words(skills: Iterable[Skill], query: str, limit: int) -> list[Skill]:
    by_name = {skill.name: skill for skill in skills}
    descriptions = {name: skill.description for name, skill in by_name.items()}
    return [by_name[name] for name, _ in wording.by_words(descriptions, query, limit)]


NAMES = 20  # of anything, in an answer


ReadFile = Callable[[str, Skill, str], Awaitable[bytes | None]]
"""The content of a file: tenant, skill, path; None: it is there no more. Raises Unavailable."""

Change = Callable[[Session, SessionChange], Awaitable[None]]
Tell = Callable[[Session, bytes], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class SkillLimits:
    answer_tokens: int  # of the tools in an answer
    instructions_tokens: int
    handle_ttl_s: float


class UseSkill:
    def __init__(
        self,
        lists: Lists,
        agents: Agents,
        *,
        handles: Handles,
        limits: SkillLimits,
        read_file: ReadFile,
        change: Change,
        tell: Tell,
    ) -> None:
        """`change` stores a session's skills; `tell` sends a notification to a session."""
        self._lists = lists
        self._agents = agents
        self._handles = handles
        self._limits = limits
        self._read_file = read_file
        self._change = change
        self._tell = tell
        self._turn = asyncio.Lock()  # concurrent calls in a session must not lose a skill

    async def call(
        self, _tool: Tool, _source: Source | None, arguments: Any, context: Context
    ) -> ToolResult:
        """Raises InvalidParams for a skill or file that is missing or hidden from the caller."""
        catalog, profile = self._lists.visible(context), self._lists.profile(context)
        skill = self._skill(arguments["name"], context, catalog)
        after, path = arguments.get("after", 0), arguments.get("file")
        if path is not None:
            text = await self._file(skill, path, context)
            return _read({"name": skill.name, "file": path}, text, after, self._limits)
        grants = granted_tools(skill, catalog)
        head: Json = {"name": skill.name, "version": skill.version}
        if after:
            return _read(head, instructions_of(grants), after, self._limits)
        unlisted: Sequence[str] = ()
        if context.session is not None:
            left_out = await self._use(context.session, skill, catalog, profile)
            if left_out and await self._lists.is_short(context, catalog, profile):
                unlisted = left_out
            head["skill"] = skill.name
        else:
            head["skill"] = await self._handles.seal(context, catalog, skill)
            head["good_for_s"] = self._limits.handle_ttl_s
        about = await to_thread.run_sync(self._about, grants, catalog, profile, unlisted)
        return _read({**head, **about}, instructions_of(grants), 0, self._limits)

    def _skill(self, name: str, context: Context, catalog: Catalog) -> Skill:
        skills = self._agents.skills(context, catalog)
        if name in skills:
            return skills[name]
        similar_names = [
            candidate.name for candidate in by_words(skills.values(), name.replace("-", " "), NAMES)
        ]
        there = f"; there is {', '.join((similar_names or list(skills))[:NAMES])}" if skills else ""
        raise InvalidParams(f"name: there is no skill {name[:100]!r}{there}")

    async def _use(
        self, session: Session, skill: Skill, catalog: Catalog, profile: SelectedProfile
    ) -> list[str]:
        """Add the skill's tools to the session's tool list and notify the client; returns the
        skills, old or new, whose tools do not fit into the list."""
        async with self._turn:
            before = frozenset(session.skills)
            names = [skill.name, *sorted(before - {skill.name})]
            fitting, _ = await to_thread.run_sync(self._lists.fitting, names, catalog, profile)
        added_names, dropped_names = (
            sorted(set(fitting) - before),
            sorted(before.difference(fitting)),
        )
        if added_names or dropped_names:
            await self._change(
                session, SessionChange(use=tuple(added_names), leave=tuple(dropped_names))
            )
            await self._tell(session, LIST_NOTIFICATIONS["tools"])
        return [name for name in names if name not in fitting]

    def _about(
        self,
        grant: GrantedTools,
        catalog: Catalog,
        profile: SelectedProfile,
        unlisted: Sequence[str],
    ) -> Json:
        """`unlisted`: skills whose tools are not in the client's list."""
        skill, answer = grant.skill, dict[str, Any]()
        if len(grant.loaded) > 1:
            answer["loaded"] = [loaded_skill.name for loaded_skill in grant.loaded]
        answer |= self._tools(grant, catalog, profile, unlisted)
        if grant.withheld:
            names = [f"{name} ({level})" for name, level in grant.withheld.items()]
            answer["withheld"] = names[:NAMES]
        if grant.missing:
            answer["missing"] = grant.missing[:NAMES]
        if skill.files:
            answer["files"] = [file.path for file in skill.files][:NAMES]
            answer["directory"] = uri_of(skill, "").rstrip("/")
        near = [*catalog.skills.children(skill.name), *map(catalog.skills.get, skill.suggests)]
        if near := [skill_near for skill_near in near if skill_near is not None]:
            answer["see_also"] = [line_of(skill_near) for skill_near in near[:NAMES]]
        return answer

    def _tools(
        self,
        grant: GrantedTools,
        catalog: Catalog,
        profile: SelectedProfile,
        unlisted: Sequence[str],
    ) -> Json:
        ceiling = ListingBudget(self._limits.answer_tokens, self._lists.shaper, profile, DESCRIBES)
        entries = [
            ListedTool(replace(tool, name=catalog.display_name(tool, profile)), {})
            for tool in grant.tools.values()
        ]
        fitted = ceiling.fit(entries, ceiling.tokens * CHARACTERS - AROUND, schemas=True)
        more = []
        if fitted.folded:
            more.append(f"{fitted.folded} without input schema: {DESCRIBES} tells it.")
        if fitted.left_out:
            left_out = [entry.tool.name for entry in entries[len(fitted.entries) :]][:NAMES]
            more.append(f"{fitted.left_out} left out: {', '.join(left_out)}.")
        if unlisted:
            skills = ", ".join(unlisted[:NAMES])
            more.append(f"tools/list has no room for the tools of {skills}: call them by name, or")
            more.append("with call_tool.")
        return {"tools": fitted.entries, **({"more_tools": " ".join(more)} if more else {})}

    async def _file(self, skill: Skill, path: str, context: Context) -> str:
        file = file_at(skill, path)
        if file is None:
            paths = ", ".join(file.path for file in skill.all_files[:NAMES])
            raise InvalidParams(f"file: {skill.name} has no {path[:100]!r}; there is {paths}")
        content = await content_of(self._read_file, context.principal.tenant, skill, file)
        try:
            return content.decode("utf-8")
        except UnicodeDecodeError as error:
            uri = uri_of(skill, path)
            raise InvalidParams(f"file: {path} is no text; read the resource {uri}") from error


async def content_of(read_file: ReadFile, tenant: str, skill: Skill, file: SkillFile) -> bytes:
    """Read a file's content. Raises Unavailable when the database does not answer, InvalidParams
    for a file that has just been deleted."""
    if file == skill.all_files[0]:
        return skill.text.encode()
    content = await read_file(tenant, skill, file.path)
    if content is None:
        raise InvalidParams(f"file: {skill.name} has no {file.path[:100]!r} any longer")
    return content


def instructions_of(grant: GrantedTools) -> str:
    """Instructions of the skill, after those of the skills it requires."""
    if len(grant.loaded) == 1:
        return grant.skill.instructions.strip()
    parts = [f"# Skill {skill.name}\n\n{skill.instructions.strip()}" for skill in grant.loaded]
    return "\n\n".join(parts)


def _read(about: Json, text: str, after: int, limits: SkillLimits) -> ToolResult:
    """One part of `text`, from character `after` on, within the size limit."""
    room = limits.instructions_tokens * CHARACTERS
    part = text[after : after + room]
    member = "content" if "file" in about else "instructions"
    answer = {**about, member: part}
    if after + room < len(text):
        answer["after"] = after + room
        answer["more"] = f"These are {after:,} to {after + room:,} of {len(text):,} characters."
        answer["more"] += " Call again with this `after` for what follows."
    others = {key: value for key, value in answer.items() if key != member}
    content = (TextContent(part or _nothing(text, member)), TextContent(encode(others).decode()))
    return ToolResult(content, Raw(encode(answer)))


def _nothing(text: str, member: str) -> str:
    """Explanation of an empty part of `text`."""
    if text:
        return f"(Nothing follows: the text has {len(text):,} characters.)"
    return "(The file is empty.)" if member == "content" else "(It has no instructions.)"
