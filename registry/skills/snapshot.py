"""The snapshot of the skills and agents of a tenant, used without the database.

Skills are also listed as prompts, as resources and as entries of `skills/list`. These entries are
those of the extension io.modelcontextprotocol/skills (SEP-2640): the front matter verbatim, and
every file with its digest, so that a client can verify what it reads.
"""

import hashlib
from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any
from urllib.parse import quote, unquote

from msgspec import Raw

from registry.names.tool_names import Naming
from registry.skills.skill_md import Access
from schemas.jsonrpc import encode
from schemas.mcp.snapshot import SnapshotItem
from schemas.skill_files import SKILL_FILE

Edges = Mapping[str, Sequence[str]]
"""To each skill those that it points to: that it requires, or its parent."""


def cycle_through(edges: Edges, start: str) -> list[str] | None:
    """A cycle through `start`, with `start` at both ends; None: there is none."""
    previous: dict[str, str] = {}
    waiting = [start]
    while waiting:
        at = waiting.pop()
        for following in edges.get(at, ()):
            if following == start:
                return [start, *_path_between(previous, start, at), start]
            if following not in previous:
                previous[following] = at
                waiting.append(following)
    return None


def _path_between(previous: Mapping[str, str], start: str, end: str) -> list[str]:
    path = []
    while end != start:
        path.append(end)
        end = previous[end]
    return path[::-1]


def dependency_order(edges: Edges, start: str) -> list[str]:
    """Depth-first postorder: `start` and all its dependencies, each after its own; in a cycle,
    which writes reject, each once."""
    ordered: dict[str, None] = {}
    seen = {start}
    stack = [(start, iter(edges.get(start, ())))]
    while stack:
        at, rest = stack[-1]
        following = next((candidate for candidate in rest if candidate not in seen), None)
        if following is None:
            ordered[at] = None
            stack.pop()
        else:
            seen.add(following)
            stack.append((following, iter(edges.get(following, ()))))
    return list(ordered)


def longest_path(edges: Edges, names: Iterable[str]) -> list[str]:
    """The longest path from any of `names`, in an acyclic graph."""
    best: dict[str, list[str]] = {}
    for name in names:
        for name_ in dependency_order(edges, name):
            tails = (best.get(following, []) for following in edges.get(name_, ()))
            best[name_] = [name_, *max(tails, key=len, default=[])]
    return max((best[name] for name in names if name in best), key=len, default=[])


SCHEME = "skill://"


@dataclass(frozen=True, slots=True)
class SkillTool:
    """A tool of a skill, and the access level that the skill has for it."""

    id: str
    name: str
    access: Access


@dataclass(frozen=True, slots=True)
class SkillFile:
    path: str
    media_type: str
    digest: str  # SHA-256
    size: int  # bytes


@dataclass(frozen=True, slots=True)
class Skill:
    id: str
    name: str
    description: str
    front_matter: str  # of its SKILL.md, fences included
    instructions: str  # the text after it
    metadata: Raw  # the front matter as JSON
    number: int
    version: str
    digest: str  # of all its files
    parent: str | None = None  # a name, like all that follow
    tools: tuple[SkillTool, ...] = ()
    named: tuple[str, ...] = ()  # tools that its SKILL.md names, existing or not
    requires: tuple[str, ...] = ()  # skills that it needs
    suggests: tuple[str, ...] = ()  # skills that may help beside it
    files: tuple[SkillFile, ...] = ()  # except SKILL.md

    @property
    def uri(self) -> str:
        return f"{SCHEME}{self.name}/{SKILL_FILE}"

    @property
    def text(self) -> str:
        """The text of its SKILL.md."""
        return self.front_matter + self.instructions

    @property
    def all_files(self) -> tuple[SkillFile, ...]:
        text = self.text.encode()
        skill_file = SkillFile(
            SKILL_FILE, "text/markdown", hashlib.sha256(text).hexdigest(), len(text)
        )
        return (skill_file, *self.files)


@dataclass(frozen=True, slots=True)
class Agent:
    id: str
    name: str
    description: str
    skills: tuple[str, ...]  # names, most important first


class SkillSnapshot:
    """An immutable snapshot; `registry.catalog.catalogs` has the current one with the catalog."""

    def __init__(
        self,
        skills: Iterable[Skill] = (),
        agents: Iterable[Agent] = (),
        visible: Container[str] | None = None,
        *,
        listed: bool = True,
    ) -> None:
        """`visible`: the names that clients can request; the others exist as dependencies.
        `listed`: they are prompts and resources, too."""
        self.listed = listed
        self._shown = visible
        self._skills = {skill.name: skill for skill in sorted(skills, key=lambda skill: skill.name)}
        self._agents = {agent.name: agent for agent in agents}
        self._children: dict[str, list[str]] = {}
        for skill in self._skills.values():
            if skill.parent is not None:
                self._children.setdefault(skill.parent, []).append(skill.name)
        self._edges: Mapping[str, Sequence[str]] = {
            name: [requirement for requirement in skill.requires if requirement in self._skills]
            for name, skill in self._skills.items()
        }
        self._of_agents: dict[str, dict[str, Skill]] = {}

    def __len__(self) -> int:
        return len(self.of(None))

    @property
    def names(self) -> Collection[str]:
        """All names, including those that clients cannot request here."""
        return self._skills.keys()

    def get(self, name: str) -> Skill | None:
        return self.of(None).get(name)

    def agent(self, name: str) -> Agent | None:
        return self._agents.get(name)

    @property
    def agents(self) -> list[str]:
        return sorted(self._agents)

    def of(self, agent: Agent | None) -> Mapping[str, Skill]:
        """The skills of an agent, most important first: those granted, each followed by its
        descendants. Without an agent: all, ordered by name."""
        key = agent.name if agent else ""
        if key not in self._of_agents:
            roots = agent.skills if agent else self._roots()
            self._of_agents[key] = {
                name: self._skills[name]
                for top in roots
                for name in self._below(top)
                if self._shown is None or name in self._shown
            }
        return self._of_agents[key]

    def within(self, tools: Container[str]) -> "SkillSnapshot":
        """Skills without those whose tools are all elsewhere; `tools` are the ids of those here."""
        visible = {
            skill.name
            for skill in self._skills.values()
            if not skill.tools or any(tool.id in tools for tool in skill.tools)
        }
        return SkillSnapshot(
            self._skills.values(), self._agents.values(), visible, listed=self.listed
        )

    def without_listing(self) -> "SkillSnapshot":
        """These skills, which are neither prompts nor resources."""
        return SkillSnapshot(
            self._skills.values(), self._agents.values(), self._shown, listed=False
        )

    def children(self, name: str) -> list[Skill]:
        return [
            self._skills[child] for child in self._children.get(name, ()) if child in self.of(None)
        ]

    def with_requirements(self, name: str) -> list[Skill]:
        """The skills to load before a skill can be used, in order; the skill itself is last."""
        return [self._skills[child] for child in dependency_order(self._edges, name)]

    @cached_property
    def digest(self) -> bytes:
        """A digest, equal for equal lists of prompts and resources, for any caller."""
        if not self.listed:
            return b""
        agents = (f"{skill.name} {' '.join(skill.skills)}" for skill in self._agents.values())
        digests = (f"{skill.name} {skill.digest}" for skill in self.of(None).values())
        return hashlib.sha256("\n".join([*digests, *agents]).encode()).digest()

    def _roots(self) -> list[str]:
        skills = self._skills.values()
        return [skill.name for skill in skills if skill.parent not in self._skills]

    def _below(self, name: str) -> list[str]:
        """The skill itself, if it exists, and its descendants, each after its parent."""
        below: dict[str, None] = {}
        waiting = [name]
        while waiting:
            at = waiting.pop()
            if at in self._skills and at not in below:
                below[at] = None
                waiting += reversed(self._children.get(at, []))
        return list(below)


NO_SKILLS = SkillSnapshot()


OWN = ""  # the source of these items: the registry itself
DIRECTORY = "inode/directory"

Json = dict[str, Any]


def prefixed_items(items: Iterable[SnapshotItem], skills: SkillSnapshot) -> list[SnapshotItem]:
    """Items of other servers. A prompt with the name of a skill is prefixed with its source:
    clients know our skills by name, and no prompt may impersonate one."""
    unprefixed = list(items)
    if not skills.listed:
        return unprefixed
    skill_names = set(map(str.casefold, skills.names))
    used_names = skill_names | {
        item.name.casefold() for item in unprefixed if item.kind == "prompt"
    }
    for at, item in enumerate(unprefixed):
        if item.kind == "prompt" and item.name.casefold() in skill_names:
            names = Naming(item.source).names(item.name, item.key)
            name = next(candidate for candidate in names if candidate.casefold() not in used_names)
            used_names.add(name.casefold())
            unprefixed[at] = replace(item, name=name)
    return unprefixed


def prompts_of(skills: Iterable[Skill]) -> list[SnapshotItem]:
    return [
        SnapshotItem(
            "prompt",
            skill.name,
            skill.name,
            Raw(encode({"name": skill.name, "description": skill.description})),
            source=OWN,
        )
        for skill in skills
    ]


def resources_of(skills: Iterable[Skill]) -> list[SnapshotItem]:
    """The SKILL.md of each; its other files are found by links in that."""
    return [
        SnapshotItem("resource", skill.uri, skill.uri, Raw(_resource(skill)), source=OWN)
        for skill in skills
    ]


def entry_of(skill: Skill) -> Json:
    files = [
        {"uri": uri_of(skill, file.path), "digest": f"sha256:{file.digest}", "size": file.size}
        for file in skill.all_files
    ]
    return {"uri": skill.uri, "frontmatter": skill.metadata, "resources": files}


def uri_of(skill: Skill, path: str) -> str:
    return f"{SCHEME}{skill.name}/{quote(path)}"


def parse_uri(uri: str) -> tuple[str, str] | None:
    """The skill and the path that a URI refers to; "" is the skill's directory."""
    if not uri.startswith(SCHEME):
        return None
    name, _, path = uri.removeprefix(SCHEME).partition("/")
    return name, unquote(path)


def file_at(skill: Skill, path: str) -> SkillFile | None:
    return next((file for file in skill.all_files if file.path == path), None)


def children_of(skill: Skill, path: str) -> list[Json] | None:
    """Entries of a directory of the skill, ordered by name; None: there is no such directory."""
    before = f"{path}/" if path else ""
    children: dict[str, Json] = {}
    for file in skill.all_files:
        if file.path.startswith(before):
            name, _, below = file.path.removeprefix(before).partition("/")
            kind = DIRECTORY if below else file.media_type
            member = {"uri": uri_of(skill, before + name), "name": name, "mimeType": kind}
            children[name] = member if below else {**member, "size": file.size}
    return [children[name] for name in sorted(children)] or None


def _resource(skill: Skill) -> bytes:
    skill_file = next(file for file in skill.all_files if file.path == SKILL_FILE)
    members: Mapping[str, Any] = {
        "uri": skill.uri,
        "name": skill.name,
        "description": skill.description,
        "mimeType": skill_file.media_type,
        "size": skill_file.size,
    }
    return encode(members)
