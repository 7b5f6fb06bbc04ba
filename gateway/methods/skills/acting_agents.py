"""Agents: which agent a caller acts as, and the skills and tools it is granted."""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass

from msgspec import Struct

from gateway.context import Context
from gateway.protocol.sealed_state import Sealer
from registry.catalog.catalog import Catalog
from registry.skills.skill_md import Access, allows
from registry.skills.snapshot import Agent, Skill
from schemas.errors import Forbidden, InvalidParams
from schemas.jsonrpc import encode
from schemas.tool import Tool

AGENTS_NAMED = 20  # agents, in an error


class Agents:
    def __init__(self, claim: str) -> None:
        """`claim`: the token claim that names the agent; "" for none."""
        self._claim = claim

    def agent(self, context: Context, catalog: Catalog) -> Agent | None:
        """The caller's agent; None: not an agent. Raises InvalidParams for an unknown agent, and
        Forbidden for an agent other than the token's."""
        if not catalog.skills.agents and context.options.agent is None:
            return None  # no agents are defined: such a claim in a token has another meaning
        name = self._name(context)
        if name is None:
            return None
        agent = catalog.skills.agent(name)
        if agent is None:
            there = _others(catalog) if context.options.agent else "ask for another"
            raise InvalidParams(f"There is no agent {name[:100]!r}; {there}")
        return agent

    def skills(self, context: Context, catalog: Catalog) -> Mapping[str, Skill]:
        """Skills of the caller's agent, most important first. Raises as `agent` does."""
        return catalog.skills.of(self.agent(context, catalog))

    def has_skills(self, context: Context, catalog: Catalog) -> bool:
        """Whether the caller has skills, for lists; true for an unknown agent, so that the skill
        tools are listed and report the error."""
        try:
            return bool(self.skills(context, catalog))
        except (Forbidden, InvalidParams):
            return True

    def _name(self, context: Context) -> str | None:
        claim = context.principal.claims.get(self._claim) if self._claim else None
        name = claim if isinstance(claim, str) and claim and context.identity.verified else None
        wish = context.options.agent
        if name is not None and wish is not None and wish != name:
            raise Forbidden(f"The token is of the agent {name[:100]!r}, the address of another")
        return name or wish


def _others(catalog: Catalog) -> str:
    agents = ", ".join(catalog.skills.agents[:AGENTS_NAMED])
    return f"there is {agents}" if agents else "there are none: toolgate agents add makes one"


@dataclass(frozen=True, slots=True)
class GrantedTools:
    """The tools that a skill and its required skills grant to a caller."""

    skill: Skill
    loaded: list[Skill]  # required skills, then itself
    tools: dict[str, Tool]  # by id
    withheld: dict[str, Access]  # by name: granted level, of tools that now need a higher one
    missing: list[str]  # tools that it names but the catalog lacks

    def check(self, tool: Tool) -> None:
        """Raises InvalidParams for a tool that this skill does not grant."""
        if tool.id in self.tools:
            return
        if tool.name in self.withheld:
            raise InvalidParams(
                f"The skill {self.skill.name} may use {tool.name} with the access level "
                f"{self.withheld[tool.name]} only, and the tool needs more"
            )
        raise InvalidParams(f"{tool.name} is not a tool of the skill {self.skill.name}")


def granted_tools(skill: Skill, catalog: Catalog) -> GrantedTools:
    """Resolve the grants of `skill`; `catalog` is the caller's."""
    loaded = catalog.skills.with_requirements(skill.name)
    grants = GrantedTools(skill, loaded, {}, {}, [])
    absent: dict[str, None] = {}
    for loaded_skill in loaded:
        for link in loaded_skill.tools:
            tool = catalog.by_id(link.id)
            if tool is None and link.id not in catalog.denied:
                absent[link.name] = None
            elif tool is None:
                continue  # tools that the caller may not call stay hidden
            elif allows(link.access, tool.annotations):
                grants.tools[tool.id] = tool
            else:
                grants.withheld[tool.name] = link.access
        linked_names = {link.name for link in loaded_skill.tools}
        absent |= dict.fromkeys(name for name in loaded_skill.named if name not in linked_names)
    for tool in grants.tools.values():  # another skill may grant it with a higher level
        grants.withheld.pop(tool.name, None)
    grants.missing.extend(absent)
    return grants


def fitting(
    names: Iterable[str], catalog: Catalog, cost: Callable[[Tool], int], most: int
) -> tuple[list[str], list[Tool]]:
    """The skills, in the given order, whose tools cost at most `most` in total; and these tools,
    sorted by name."""
    fitting_names: list[str] = []
    tools: dict[str, Tool] = {}
    for name in names:
        skill = catalog.skills.get(name)
        of_it = granted_tools(skill, catalog).tools.values() if skill is not None else ()
        new = {tool.name: tool for tool in of_it if tool.name not in tools}
        costs = sum(map(cost, new.values()))
        if costs <= most:
            most -= costs
            fitting_names.append(name)
            tools |= new
    return fitting_names, [tools[name] for name in sorted(tools)]


PURPOSE = "skill"


class Handle(Struct, frozen=True, array_like=True):
    """Payload of a handle: the skill that its bearer uses."""

    skill: str
    agent: str | None


class Handles:
    """Resolves a skill by its name, or by the handle that use_skill gave a sessionless client."""

    def __init__(
        self, agents: Agents, sealer: Callable[[], Awaitable[Sealer]], handle_ttl_s: float
    ) -> None:
        self._agents = agents
        self._sealer = sealer
        self._handle_s = handle_ttl_s

    async def seal(self, context: Context, catalog: Catalog, skill: Skill) -> str:
        agent = self._agents.agent(context, catalog)
        payload = Handle(skill.name, agent.name if agent else None)
        return (await self._sealer()).seal(PURPOSE, payload, _owner(context), self._handle_s)

    async def granted_tools(self, context: Context, catalog: Catalog, text: str) -> GrantedTools:
        """Grants of the skill whose name or handle is `text`; `catalog` is the caller's. Raises
        InvalidParams."""
        skills = self._agents.skills(context, catalog)
        if text in skills:
            return granted_tools(skills[text], catalog)
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
        return granted_tools(granted[handle.skill], catalog)


def _owner(context: Context) -> bytes:
    return encode(context.principal.key)
