"""Agents: whose skills a caller has, and which of them are in use."""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass

from msgspec import Struct

from gateway.context import Context
from gateway.protocol.sealed import Sealer
from registry.catalog.catalog import Catalog
from registry.skills.document import Access, allows
from registry.skills.snapshot import Agent, Skill
from schemas.errors import Forbidden, InvalidParams
from schemas.jsonrpc import encode
from schemas.tool import Tool

NAMED = 20  # agents, in an error


class Agents:
    def __init__(self, claim: str) -> None:
        """`claim` of a token names the agent; "" looks at none."""
        self._claim = claim

    def agent(self, context: Context, catalog: Catalog) -> Agent | None:
        """None: the caller is no agent in particular. Raises InvalidParams for one that there is
        not, and Forbidden for another than the token is of."""
        if not catalog.skills.agents and context.wishes.agent is None:
            return None  # there are none: if a token has such a claim, it means something else
        name = self._name(context)
        if name is None:
            return None
        agent = catalog.skills.agent(name)
        if agent is None:
            there = _others(catalog) if context.wishes.agent else "ask for another"
            raise InvalidParams(f"There is no agent {name[:100]!r}; {there}")
        return agent

    def skills(self, context: Context, catalog: Catalog) -> Mapping[str, Skill]:
        """Those of the agent, the most important first. Raises as `agent` does."""
        return catalog.skills.of(self.agent(context, catalog))

    def has_skills(self, context: Context, catalog: Catalog) -> bool:
        """The same, for lists; true for an agent that there is not, so that who looks for its
        skills hears that."""
        try:
            return bool(self.skills(context, catalog))
        except (Forbidden, InvalidParams):
            return True

    def _name(self, context: Context) -> str | None:
        told = context.principal.claims.get(self._claim) if self._claim else None
        name = told if isinstance(told, str) and told and context.identity.verified else None
        wish = context.wishes.agent
        if name is not None and wish is not None and wish != name:
            raise Forbidden(f"The token is of the agent {name[:100]!r}, the address of another")
        return name or wish


def _others(catalog: Catalog) -> str:
    known = ", ".join(catalog.skills.agents[:NAMED])
    return f"there is {known}" if known else "there are none: toolgate agents add makes one"


@dataclass(frozen=True, slots=True)
class GrantedTools:
    """The tools of one skill, and of those that it requires, as a caller may use them."""

    skill: Skill
    loaded: list[Skill]  # what it requires, and itself at the end
    tools: dict[str, Tool]  # by id
    withheld: dict[str, Access]  # by name: tools that now need more than this level
    missing: list[str]  # tools that it names and that are not here

    def check(self, tool: Tool) -> None:
        """Raises InvalidParams for a tool that is not to be called with this skill."""
        if tool.id in self.tools:
            return
        if tool.name in self.withheld:
            raise InvalidParams(
                f"The skill {self.skill.name} may use {tool.name} with the access level "
                f"{self.withheld[tool.name]} only, and the tool needs more"
            )
        raise InvalidParams(f"{tool.name} is not a tool of the skill {self.skill.name}")


def given(skill: Skill, catalog: Catalog) -> GrantedTools:
    """`catalog` is what the caller sees."""
    loaded = catalog.skills.needed(skill.name)
    found = GrantedTools(skill, loaded, {}, {}, [])
    absent: dict[str, None] = {}
    for one in loaded:
        for link in one.tools:
            tool = catalog.by_id(link.id)
            if tool is None and link.id not in catalog.denied:
                absent[link.name] = None
            elif tool is None:
                continue  # nobody is told of what they may not call
            elif allows(link.access, tool.annotations):
                found.tools[tool.id] = tool
            else:
                found.withheld[tool.name] = link.access
        known = {link.name for link in one.tools}
        absent |= dict.fromkeys(name for name in one.named if name not in known)
    for tool in found.tools.values():  # another of the skills may have it with a higher level
        found.withheld.pop(tool.name, None)
    found.missing.extend(absent)
    return found


def fitting(
    names: Iterable[str], catalog: Catalog, cost: Callable[[Tool], int], most: int
) -> tuple[list[str], list[Tool]]:
    """Those of the skills whose tools cost no more than `most` together, the first first; and these
    tools, by name."""
    kept: list[str] = []
    tools: dict[str, Tool] = {}
    for name in names:
        skill = catalog.skills.get(name)
        of_it = given(skill, catalog).tools.values() if skill is not None else ()
        new = {tool.name: tool for tool in of_it if tool.name not in tools}
        costs = sum(map(cost, new.values()))
        if costs <= most:
            most -= costs
            kept.append(name)
            tools |= new
    return kept, [tools[name] for name in sorted(tools)]


PURPOSE = "skill"


class Handle(Struct, frozen=True, array_like=True):
    """What a handle says: which skill its bearer uses."""

    skill: str
    agent: str | None


class Handles:
    """Which skill a caller means: by its name, or by what use_skill gave to who has no session."""

    def __init__(
        self, agents: Agents, sealer: Callable[[], Awaitable[Sealer]], handle_s: float
    ) -> None:
        self._agents = agents
        self._sealer = sealer
        self._handle_s = handle_s

    async def seal(self, context: Context, catalog: Catalog, skill: Skill) -> str:
        agent = self._agents.agent(context, catalog)
        payload = Handle(skill.name, agent.name if agent else None)
        return (await self._sealer()).seal(PURPOSE, payload, _owner(context), self._handle_s)

    async def given(self, context: Context, catalog: Catalog, text: str) -> GrantedTools:
        """What the skill that `text` names, or is the handle of, gives to the caller; `catalog` is
        what they see. Raises InvalidParams."""
        skills = self._agents.skills(context, catalog)
        if text in skills:
            return given(skills[text], catalog)
        try:
            handle = (await self._sealer()).unseal(PURPOSE, text, Handle, _owner(context))
        except InvalidParams as error:
            raise InvalidParams(
                f"skill: {text[:64]!r} is no skill here, nor a handle that is good for you still; "
                "list_skills tells the skills, and use_skill gives a handle"
            ) from error
        asking = self._agents.agent(context, catalog)
        if asking is not None and asking.name != handle.agent:
            raise InvalidParams(
                f"skill: its handle is not of the agent {asking.name}; use_skill gives another"
            )
        agent = catalog.skills.agent(handle.agent) if handle.agent is not None else None
        granted = catalog.skills.of(agent) if agent or handle.agent is None else {}
        if handle.skill not in granted:
            raise InvalidParams("skill: its handle is of a skill that is here no longer")
        return given(granted[handle.skill], catalog)


def _owner(context: Context) -> bytes:
    return encode(context.principal.key)
