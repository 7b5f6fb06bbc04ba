"""Which skill a caller uses: by its name, or by the handle that who has no session was given."""

from collections.abc import Awaitable, Callable

from msgspec import Struct

from gateway.context import Context
from gateway.methods.skills.agents import Agents, GrantedTools, given
from gateway.protocol.sealed import Sealer
from registry.catalog.catalog import Catalog
from registry.skills.snapshot import Skill
from schemas.errors import InvalidParams
from schemas.jsonrpc import encode

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
