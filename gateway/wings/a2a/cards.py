"""Cards of agents, from the settings alone: they name no tool and no person."""

from collections.abc import Sequence
from typing import Any

import msgspec

from config.a2a import A2AAgent, A2ASettings
from registry.skills.snapshot import Skill
from schemas.a2a.model import (
    AgentCapabilities,
    AgentCard,
    AgentInterface,
    AgentSkill,
    HttpScheme,
    Scopes,
    SecurityRequirement,
    SecurityScheme,
)
from schemas.a2a.versions import Version
from schemas.tool import Tool
from schemas.untrusted_json import mapping, sequence

ROOT = "/a2a"
CARD = ".well-known/agent-card.json"
DATA, TEXT = "application/json", "text/plain"
ANY = "*/*"  # of files, which arguments of calls may be
MODES = (TEXT, DATA)  # of messages; words beside a call are for people
BEARER = SecurityScheme(http_auth_security_scheme=HttpScheme(scheme="bearer"))


def make_card(
    name: str,
    agent: A2AAgent,
    settings: A2ASettings,
    *,
    url: str,
    is_open: bool,
    skills: Sequence[Skill],
    tools: Sequence[Tool] = (),
) -> AgentCard:
    """`url` of the gateway; `is_open`: callers need no credential; `tools`: those that the caller
    may use, on the card that is for it alone."""
    place = f"{url.rstrip('/')}{ROOT}/{name}"
    spoken = [("JSONRPC", Version.V1_0), ("HTTP+JSON", Version.V1_0), ("JSONRPC", Version.V0_3)]
    own = AgentSkill(
        id=name,
        name=name,
        description=agent.description,
        tags=(agent.kind,),
        examples=agent.examples,
    )
    return AgentCard(
        name=name,
        description=agent.description,
        supported_interfaces=tuple(
            AgentInterface(place, binding, version.value, agent.tenant)
            for binding, version in spoken
            if version in settings.versions
        ),
        version="1.0.0",
        capabilities=AgentCapabilities(
            streaming=True, push_notifications=settings.push, extended_agent_card=not is_open
        ),
        default_input_modes=(*MODES, ANY) if agent.kind == "tools" else MODES,
        default_output_modes=MODES,
        skills=(own, *map(_skill_of, skills), *map(_tool_skill, tools)),
        security_schemes={} if is_open else {"bearer": BEARER},
        security_requirements=() if is_open else (SecurityRequirement({"bearer": Scopes()}),),
    )


def _skill_of(skill: Skill) -> AgentSkill:
    """A skill of the search chapter; tags and examples are those of its SKILL.md."""
    own: dict[str, Any] = mapping(msgspec.json.decode(skill.metadata))
    more = mapping(own.get("metadata")) | own
    return AgentSkill(
        id=skill.name,
        name=skill.name,
        description=skill.description,
        tags=_texts(more.get("tags")) or ("skill",),
        examples=_texts(more.get("examples")),
    )


def _texts(value: object) -> tuple[str, ...]:
    return tuple(text for text in sequence(value) if isinstance(text, str))


def _tool_skill(tool: Tool) -> AgentSkill:
    return AgentSkill(
        id=f"tool:{tool.name}", name=tool.name, description=tool.description, tags=("tool",)
    )
