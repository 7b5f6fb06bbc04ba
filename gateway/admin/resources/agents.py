"""Agents, and the skills granted to them."""

from collections.abc import Sequence
from decimal import Decimal
from typing import Annotated

from msgspec import Meta, Struct

from gateway.admin.registry_parts import RegistryParts
from gateway.admin.resources.member_texts import AGENT, SKILL_GRANT
from gateway.operations.operation import (
    Operation,
    OperationDependencies,
    OperationInput,
    OperationOutput,
    SkillName,
)
from gateway.operations.paging import ListPage, Paging
from gateway.operations.problems import not_found
from registry.skills.agents import AgentDraft, AgentStore, GrantedSkills

READ, WRITE = "admin:registry:read", "admin:registry:write"


class AgentRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """Purpose and model of an agent; informational."""

    description: Annotated[str, Meta(max_length=65536, description="purpose of the agent")] = ""
    model_provider: (
        Annotated[str, Meta(max_length=64, description="provider of the model")] | None
    ) = None
    model_name: Annotated[str, Meta(max_length=126, description="model of the agent")] | None = None
    temperature: (
        Annotated[float, Meta(ge=0, le=2, description="temperature, of at most two decimals")]
        | None
    ) = None
    max_tokens: (
        Annotated[int, Meta(ge=1, le=2**31 - 1, description="most tokens of a response")] | None
    ) = None

    def __post_init__(self) -> None:
        if self.temperature is not None and round(self.temperature, 2) != self.temperature:
            raise ValueError(f"temperature: expected at most two decimals, not {self.temperature}")


class SkillGrant(Struct, frozen=True, forbid_unknown_fields=True):
    """An ordered list of skills."""

    skills: Annotated[tuple[SkillName, ...], Meta(min_length=1, max_length=1000)]
    priority: Annotated[
        int, Meta(ge=-(2**31), le=2**31 - 1, description="priority; the highest is listed first")
    ] = 0
    sequence: (
        Annotated[
            int,
            Meta(
                ge=0,
                le=10**6,
                description="position of the first one among equal priorities; by default after "
                "the others",
            ),
        ]
        | None
    ) = None


class AgentView(Struct, frozen=True):
    """An agent; `skills` are those granted to it, highest priority first."""

    name: str
    description: str
    model_provider: str | None
    model_name: str | None
    temperature: float | None
    max_tokens: int | None
    skills: tuple[GrantedSkills, ...]


class AgentOperations:
    def __init__(self, dependencies: OperationDependencies) -> None:
        self._dependencies = dependencies

    @classmethod
    def of(cls, parts: RegistryParts) -> "AgentOperations":
        return cls(parts.dependencies)

    @property
    def operations(self) -> Sequence[Operation]:
        item = "/agents/{agent}"
        return (
            Operation(
                "listAgents", "GET", "/agents", "List the agents.", READ, self.list,
                ListPage[AgentView], query=Paging,
            ),
            Operation("getAgent", "GET", item, "Show an agent.", READ, self.get, AgentView),
            Operation(
                "putAgent", "PUT", item, "Add or update an agent; its skills stay.",
                WRITE, self.put, AgentView, body=AgentRequest, members=AGENT,
                creates=True, match="optional",
            ),
            Operation(
                "deleteAgent", "DELETE", item, "Remove an agent; its skills stay.", WRITE,
                self.delete, status=204, match="optional",
            ),
            Operation(
                "grantSkills", "POST", f"{item}/skills", "Grant skills to an agent.", WRITE,
                self.grant, AgentView, body=SkillGrant, members=SKILL_GRANT,
                match="optional", of="getAgent",
            ),
            Operation(
                "revokeSkills", "DELETE", f"{item}/skills/{{skill}}", "Revoke a skill of an agent.",
                WRITE, self.revoke, status=204, match="optional", of="getAgent",
            ),
        )  # fmt: skip

    async def list(self, request: OperationInput) -> ListPage[AgentView]:
        agents = await self._store.agents(request.tenant)
        views = [_view(*agent) for agent in agents]
        return self._dependencies.pages.page(request.query, views, lambda view: view.name)

    async def get(self, request: OperationInput) -> AgentView:
        name = request.names["agent"]
        for agent, has in await self._store.agents(request.tenant):
            if agent.name == name:
                return _view(agent, has)
        raise not_found("agent", name)

    async def put(self, request: OperationInput) -> OperationOutput:
        name, body = request.names["agent"], request.body
        warmth = None if body.temperature is None else Decimal(str(body.temperature))
        draft = AgentDraft(
            name,
            body.description,
            model_provider=body.model_provider,
            model_name=body.model_name,
            temperature=warmth,
            max_tokens=body.max_tokens,
        )
        new = await self._store.add(request.tenant, draft)
        view = await self.get(request)
        return OperationOutput(view, 201, f"/agents/{name}") if new else OperationOutput(view)

    async def delete(self, request: OperationInput) -> None:
        await self._store.remove(request.tenant, request.names["agent"])

    async def grant(self, request: OperationInput) -> AgentView:
        body: SkillGrant = request.body
        name, skills = request.names["agent"], list(body.skills)
        await self._store.grant(
            request.tenant, name, skills=skills, priority=body.priority, sequence=body.sequence
        )
        return await self.get(request)

    async def revoke(self, request: OperationInput) -> None:
        names = request.names
        await self._store.revoke(request.tenant, names["agent"], [names["skill"]])

    @property
    def _store(self) -> AgentStore:
        return AgentStore(self._dependencies.pool)


def _view(agent: AgentDraft, has: Sequence[GrantedSkills]) -> AgentView:
    warmth = None if agent.temperature is None else float(agent.temperature)
    return AgentView(
        name=agent.name,
        description=agent.description,
        model_provider=agent.model_provider,
        model_name=agent.model_name,
        temperature=warmth,
        max_tokens=agent.max_tokens,
        skills=tuple(has),
    )
