"""list_skills: descriptions only, the most important first. An upstream like any other."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from gateway.context import Context
from gateway.methods.describe_tools import answer
from gateway.methods.lists import Lists
from gateway.methods.search_tools import AWAY, BY_WORDS, Find, unsearched
from gateway.methods.skills.agents import Agents
from registry.catalog import lookup as wording
from registry.display.budgets import CHARACTERS
from registry.display.fitting import length
from registry.display.summaries import first_sentence, shorten
from registry.search.query import Filters, SearchQuery
from registry.skills.snapshot import Skill
from schemas.errors import Unreachable
from schemas.source import Source
from schemas.tool import Tool, ToolResult

LINE = 100  # characters of a description, where whole ones do not fit
AROUND = 200  # characters of an answer besides its parts

Json = dict[str, Any]


class ListSkills:
    def __init__(self, lists: Lists, agents: Agents, find: Find, limit: int, tokens: int) -> None:
        """`limit` is of the skills in an answer to a query, `tokens` of any answer."""
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
            found, note = await self._found(query, skills, context)
        except Unreachable as fault:
            return unsearched(fault)
        return answer(_hits(found, note, room))

    async def _found(
        self, query: str, skills: Mapping[str, Skill], context: Context
    ) -> tuple[list[Skill], str | None]:
        by_id = {skill.id: skill for skill in skills.values()}
        if not by_id:
            return [], None
        filters = Filters(context.principal.tenant, ids=list(by_id))
        try:
            found = await self._find(SearchQuery(query, self._limit, "hybrid", filters, "skill"))
        except AWAY:
            return by_words(skills.values(), query, self._limit), BY_WORDS
        return [by_id[hit.id] for hit in found.hits if hit.id in by_id], found.note


def _tree(skills: Mapping[str, Skill], room: int) -> Json:
    """All of them, below their parents; the first that there is room for."""
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


def _hits(found: Sequence[Skill], note: str | None, room: int) -> Json:
    entries, shortened = _entries(found, room)
    told: Json = {"skills": entries[: max(1, room // (LINE + 100))]}
    if shortened:
        told["more"] = "Descriptions are shortened."
    if note:
        told["note"] = shorten(note, AROUND)
    return told if found else {**told, "more": "Nothing was found; without a query all are told."}


def _entries(skills: Collection[Skill], room: int) -> tuple[list[Json], bool]:
    """Names and descriptions, and whether these had to be shortened."""
    whole = [{"name": one.name, "description": one.description} for one in skills]
    if sum(map(length, whole)) <= room:
        return whole, False
    lines = [line_of(one) for one in skills]
    return lines, lines != whole


def line_of(skill: Skill) -> Json:
    return {"name": skill.name, "description": first_sentence(skill.description, LINE)}


def by_words(skills: Iterable[Skill], query: str, limit: int) -> list[Skill]:
    by_name = {skill.name: skill for skill in skills}
    said = {name: skill.description for name, skill in by_name.items()}
    return [by_name[name] for name, _ in wording.by_words(said, query, limit)]
