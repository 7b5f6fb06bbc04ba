"""The skills, tools and dependencies of a tenant during a write, and the checks that need all of
them. Read in the transaction that writes, with the tenant locked."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, NoReturn

import msgspec
from psycopg import AsyncConnection

from registry.database.rows import RawLoader
from registry.skills.document import Access, SkillDocument, allows, needed, own_name
from registry.skills.snapshot import Edges, circle, longest
from schemas.errors import ToolgateError
from schemas.tool import Annotations

_annotations = msgspec.json.Decoder(Annotations)


class SkillRefused(ToolgateError):
    """A change to a skill, or an agent, is invalid."""


class NoSuchEntry(SkillRefused):
    """A skill, or an entry named with it, does not exist."""

    def __init__(self, kind: str, name: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind
        self.name = name


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

    def access(self, wanted: Access | None) -> Access:
        """The access level of the link: the requested one, otherwise the lowest that allows its
        use. Raises SkillRefused for one that would not."""
        level = wanted or needed(self.annotations)
        if not allows(level, self.annotations):
            enough = needed(self.annotations)
            raise SkillRefused(
                f"{self.name} needs the access level {enough}, not {level}: it does not say of "
                f"itself that it {'only reads' if level == 'read' else 'destroys nothing'}"
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
        self._parents = {name: one.parent for name, one in skills.items()}
        self._tools = tools

    def skill(self, name: str) -> KnownSkill:
        """The skill. Raises SkillRefused."""
        return self.skills[name] if name in self.skills else missing("skill", name, self.skills)

    def tool(self, name: str) -> KnownTool:
        """The tool, by its current or a former name. Raises SkillRefused."""
        found = self._tools.get(name) or self._tools.get(own_name(name))
        return found or missing("tool", name, self._tools)

    def links(self, document: SkillDocument) -> Links:
        """The document's links. Raises SkillRefused for a level that does not allow the use of its
        tool."""
        found: dict[str, tuple[KnownTool, Access]] = {}
        absent = []
        for name in document.tools:
            tool = self._tools.get(name) or self._tools.get(own_name(name))
            if tool is None:
                absent.append(name)
            else:
                found[tool.id] = (tool, tool.access(document.access.get(name)))
        return Links(found, tuple(absent))

    def add(self, documents: Iterable[SkillDocument], depth: int) -> None:
        """Add the dependencies that the documents name. Raises SkillRefused for an unknown skill, a
        cycle, or a depth beyond `depth`."""
        documents = list(documents)
        names = self.skills.keys() | {one.name for one in documents}
        for one in documents:
            parents = (one.parent,) if one.parent else ()
            for named in (*one.requires, *one.suggests, *parents):
                if named not in names:
                    missing("skill", named, names, f"{one.name} names the skill {named!r}, and")
            by_hand = self._by_hand.get(one.name, ())
            self._requires[one.name] = (*one.requires, *one.suggests, *by_hand)
            self._parents[one.name] = one.parent
        self.check((one.name for one in documents), depth)

    def depend(self, name: str, on: str, depth: int) -> None:
        """Add one dependency. Raises SkillRefused."""
        self._requires[name] = (*self._requires.get(name, ()), on)
        self.check([name], depth)

    def check(self, names: Iterable[str], depth: int) -> None:
        names = list(names)
        above = {name: [parent] for name, parent in self._parents.items() if parent}
        _check(self._requires, names, depth, "depends on itself", "dependencies")
        _check(above, names, depth, "is its own parent", "levels")


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
    found = await rows.fetchall()
    return KnownSkills(
        {name: KnownSkill(*rest) for name, *rest, _, _ in found},
        {row[0]: row[-2] for row in found},
        {row[0]: row[-1] for row in found},
        await _tools(connection, host_id),
    )


def missing(kind: str, name: str, there: Iterable[str], begin: str = "") -> NoReturn:
    near = get_close_matches(name, list(there), n=3)
    hint = f"; did you mean {' or '.join(near)}?" if near else ""
    raise NoSuchEntry(kind, name, f"{begin} there is no {kind} {name!r}{hint}".strip())


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
    found: dict[str, KnownTool] = {}
    for alias, id_, name, annotations in rows:
        tool = KnownTool(id_, name, _annotations.decode(annotations))
        if alias is not None:
            found.setdefault(alias, tool)
        found[name] = tool
    return found


def _check(edges: Edges, names: Sequence[str], depth: int, what: str, counted: str) -> None:
    for name in names:
        if way := circle(edges, name):
            raise SkillRefused(f"the skill {name} {what}: {' -> '.join(way)}")
    way = longest(edges, names)
    if len(way) > depth:
        raise SkillRefused(
            f"the skill {way[0]} has more than {depth} {counted} (skills.depth): {' -> '.join(way)}"
        )
