"""Cards of agents, from the settings alone: they name no tool and no person."""

from collections.abc import Mapping, Sequence
from typing import Any
from unicodedata import combining, normalize

import msgspec
from msgspec.structs import replace

from config.a2a import A2AAgent, A2ASettings
from gateway.wings.interface import CallerSettings, SignDetached
from registry.skills.snapshot import Skill
from schemas.a2a.model import (
    AgentCapabilities,
    AgentCard,
    AgentInterface,
    AgentSkill,
    ApiKeyScheme,
    CardSignature,
    HttpScheme,
    OAuth2Scheme,
    OpenIdScheme,
    Scopes,
    SecurityRequirement,
    SecurityScheme,
)
from schemas.a2a.versions import Version, decode, encode
from schemas.canonical_json import canonical_json
from schemas.tool import Tool
from schemas.untrusted_json import mapping, sequence

ROOT = "/a2a"
CARD = ".well-known/agent-card.json"
DATA, TEXT = "application/json", "text/plain"
ANY = "*/*"  # of files, which arguments of calls may be
MODES = (TEXT, DATA)  # of messages; words beside a call are for people
TASK_SCOPES, RUN_SCOPES = ("a2a:read", "a2a:write"), ("agent:read", "agent:write")


def make_card(
    name: str,
    agent: A2AAgent,
    settings: A2ASettings,
    *,
    url: str,
    schemes: Mapping[str, SecurityScheme],
    skills: Sequence[Skill],
    tools: Sequence[Tool] = (),
) -> AgentCard:
    """`url` of the gateway; `schemes`: of credentials, of which callers need one; `tools`: those
    that the caller may use, on the card that is for it alone."""
    place = f"{url.rstrip('/')}{ROOT}/{name}"
    spoken = [("JSONRPC", Version.V1_0), ("HTTP+JSON", Version.V1_0), ("JSONRPC", Version.V0_3)]
    scopes = TASK_SCOPES if agent.kind == "tools" else (*TASK_SCOPES, *RUN_SCOPES)
    agent_skill = AgentSkill(
        id=name,
        name=name,
        description=agent.description or name,
        tags=(agent.kind,),
        examples=agent.examples,
    )
    return AgentCard(
        name=name,
        description=agent.description or name,
        supported_interfaces=tuple(
            AgentInterface(place, binding, version.value, agent.tenant)
            for binding, version in spoken
            if version in settings.versions
        ),
        version="1.0.0",
        capabilities=AgentCapabilities(
            streaming=True, push_notifications=settings.push, extended_agent_card=bool(schemes)
        ),
        default_input_modes=(*MODES, ANY) if agent.kind == "tools" else MODES,
        default_output_modes=MODES,
        skills=(agent_skill, *map(_skill_of, skills), *map(_tool_skill, tools)),
        security_schemes=dict(schemes),
        security_requirements=tuple(
            SecurityRequirement({scheme: Scopes(scopes)}) for scheme in schemes
        ),
    )


def security_schemes(callers: CallerSettings, public_url: str) -> dict[str, SecurityScheme]:
    """The ways to send a credential that the settings have."""
    auth, scopes = callers.auth, dict.fromkeys(TASK_SCOPES, "agents and their tasks")
    scopes |= dict.fromkeys(RUN_SCOPES, "runs of the agent")
    form = "JWT" if auth.mode == "jwt" else ""
    schemes = {"bearer": SecurityScheme(http_auth_security_scheme=HttpScheme("bearer", form))}
    if auth.mode == "keys" or auth.api_keys:
        key = ApiKeyScheme("header", "X-API-Key")
        schemes["key"] = SecurityScheme(api_key_security_scheme=key)
    if callers.login.enabled:
        issuer = public_url.rstrip("/")
        ends = {"authorizationUrl": f"{issuer}/authorize", "tokenUrl": f"{issuer}/token"}
        flows = {"authorizationCode": {**ends, "scopes": scopes, "pkceRequired": True}}
        metadata = f"{issuer}/.well-known/oauth-authorization-server"
        schemes["login"] = SecurityScheme(oauth2_security_scheme=OAuth2Scheme(flows, metadata))
    for number, server in enumerate(callers.oauth.authorization_servers, 1):
        address = f"{server.rstrip('/')}/.well-known/openid-configuration"
        scheme = SecurityScheme(open_id_connect_security_scheme=OpenIdScheme(address))
        schemes[f"server{number}"] = scheme
    return schemes


async def sign_card(card: AgentCard, sign: SignDetached, public_url: str) -> AgentCard:
    """The card with a signature (specification, 8.4). Verifiers differ on members that are empty,
    and on text that is not ASCII, so that it has none. Raises Unavailable."""
    value = _plain(encode(Version.V1_0, card))
    jwks = f"{public_url.rstrip('/')}/.well-known/jwks.json"
    header = {"typ": "JOSE", "jku": jwks}
    protected, signature = await sign(canonical_json(value), header)
    plain = decode(Version.V1_0, AgentCard, value)
    return replace(plain, signatures=(CardSignature(protected, signature),))


def _plain(value: Any) -> Any:
    """JSON in ASCII, without empty members; None: it is empty itself."""
    if isinstance(value, str):
        letters = (letter for letter in normalize("NFKD", value) if not combining(letter))
        return "".join(letters).encode("ascii", "replace").decode() or None
    if isinstance(value, list):
        return [item for item in map(_plain, value) if item is not None] or None
    if isinstance(value, dict):
        members = ((key, _plain(member)) for key, member in value.items())
        return {key: member for key, member in members if member is not None} or None
    return value


def _skill_of(skill: Skill) -> AgentSkill:
    """A skill of the search chapter; tags and examples are those of its SKILL.md."""
    skill_metadata: dict[str, Any] = mapping(msgspec.json.decode(skill.metadata))
    more = mapping(skill_metadata.get("metadata")) | skill_metadata
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
        id=f"tool:{tool.name}",
        name=tool.name,
        description=tool.description or tool.name,
        tags=("tool",),
    )
