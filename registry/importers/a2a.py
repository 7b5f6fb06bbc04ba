"""An agent's card (Agent2Agent) as a tool. Skills of a card cannot be called: they are prose, and
become text of the tool's description. So do their tags: rules and toolsets select by tags of tools,
which a stranger must not choose. Pure."""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Literal, cast
from urllib.parse import urlsplit

import msgspec
from msgspec.json import encode

from registry.importers.drafts import ImportedDescription, plain_description, truncate
from registry.names.tool_names import legal, qualify
from schemas.a2a.errors import A2AFault
from schemas.a2a.model import AgentCard, AgentInterface
from schemas.a2a.versions import Version, decode_card, read_version
from schemas.binding import A2aBinding
from schemas.errors import ImportRejected, ParseError
from schemas.jsonrpc import decode_json
from schemas.source import A2aOptions, Outcome
from schemas.tool import Annotations, ToolDraft

KEY = "agent"  # of the one tool in its source
TRANSPORTS = {Version.V1_0: ("JSONRPC", "HTTP+JSON"), Version.V0_3: ("JSONRPC",)}
URL_LENGTH = 2_048
SKILLS = 100  # whose texts are in the description, which is cut as well

_INPUT: dict[str, Any] = {
    "type": "object",
    "properties": {
        "message": {"type": "string", "description": "What the agent is to do, in words."},
        "data": {"type": "object", "description": "Structured input, beside or without a message."},
        "files": {
            "type": "array",
            "maxItems": 20,
            "description": "Each base64, a data: or http(s) URL, the URI of a resource, or an "
            "object with one of `data`, `text` and `uri`, and `filename` and `mimeType`.",
            "items": {"type": ["string", "object"]},
        },
        "context": {
            "type": "string",
            "description": "`context` of an earlier answer, whose conversation goes on.",
        },
        "task": {
            "type": "string",
            "description": "`task` of an earlier answer: a message answers what it asked; without "
            "one its present state is returned.",
        },
    },
    "additionalProperties": False,
}


def read_card(
    document: bytes, location: str, name: str, options: A2aOptions
) -> ImportedDescription:
    """The tool `name` of a card that was named as `location`, and those of its skills where they
    are wanted. Raises ImportRejected."""
    value = parse_card(document, location)
    card = _decode(value, location)
    _check_extensions(card, location)
    interface = _choose(card, location)
    _check_home(interface.url, location, options.allowed_hosts)
    tool = _draft(card, interface, value, name)
    tools = (tool, *_skill_drafts(card, tool)) if options.per_skill else (tool,)
    return ImportedDescription(
        _line(card.name),
        _line(card.version),
        (interface.url,),
        tools,
        tuple(Outcome(each.key, str(each.title), each.name, "imported") for each in tools),
        notes=tuple(_notes(card, interface)),
    )


def parse_card(document: bytes, location: str) -> dict[str, Any]:
    """The members of a card. Raises ImportRejected."""
    try:
        value = decode_json(document)
    except (ParseError, RecursionError) as error:
        raise ImportRejected(f"{location}: expected the card of an agent, as JSON") from error
    if not isinstance(value, dict):
        raise ImportRejected(f"{location}: expected the card of an agent, a JSON object")
    return value


def _decode(value: dict[str, Any], location: str) -> AgentCard:
    try:
        return decode_card(value)
    except (A2AFault, RecursionError) as error:
        text = getattr(error, "message", "it is nested too deeply")
        raise ImportRejected(f"{location}: expected the card of an agent: {text}") from error


def _check_extensions(card: AgentCard, location: str) -> None:
    required = [extension.uri for extension in card.capabilities.extensions if extension.required]
    if required:
        raise ImportRejected(
            f"{location}: the agent requires extensions that are not known here: "
            f"{_line(', '.join(required))}"
        )


def _choose(card: AgentCard, location: str) -> AgentInterface:
    """The first interface, in the card's order, of a known transport and version."""
    for interface in card.supported_interfaces:
        if _is_spoken(interface):
            return interface
    offered = [
        f"{each.protocol_binding} {each.protocol_version}" for each in card.supported_interfaces
    ]
    raise ImportRejected(
        f"{location}: expected an interface of JSONRPC in version 1.0 or 0.3, or of HTTP+JSON in "
        f"1.0, found {_line(', '.join(offered)) or 'none'}"
    )


def _is_spoken(interface: AgentInterface) -> bool:
    """0.3 over HTTP+JSON is not: the JSON of its official SDK is not that of its specification."""
    try:
        version = read_version(interface.protocol_version)
    except A2AFault:
        return False
    return interface.protocol_binding in TRANSPORTS[version]


def _check_home(url: str, location: str, allowed_hosts: Sequence[str]) -> None:
    """Raises ImportRejected for an interface at another origin than the card's, unless its host is
    allowed; never from https to http."""
    try:
        here, there = urlsplit(location), urlsplit(url)
        _, _ = here.port, there.port
    except ValueError as error:
        raise ImportRejected(f"{location}: its interface {_line(url)} is no URL") from error
    is_plain = url.isascii() and url.isprintable() and " " not in url and len(url) <= URL_LENGTH
    is_web = there.scheme in ("http", "https") and there.hostname is not None
    if not is_plain or not is_web or "@" in there.netloc:
        raise ImportRejected(
            f"{location}: its interface {_line(url)} is no http(s) URL without credentials"
        )
    if there.fragment or there.query:
        raise ImportRejected(f"{location}: its interface {_line(url)} has a query or a fragment")
    if here[:2] == there[:2]:
        return
    if (here.scheme, there.scheme) == ("https", "http"):
        raise ImportRejected(f"{location}: its interface {_line(url)} is without TLS")
    if {there.hostname, there.netloc}.isdisjoint(allowed_hosts):
        raise ImportRejected(
            f"{location}: its interface is at another host, {_line(there.netloc)}: expected "
            "that in --allow-host, or allowed_hosts in the settings"
        )


def _draft(
    card: AgentCard, interface: AgentInterface, value: dict[str, Any], name: str
) -> ToolDraft:
    unsigned = {key: member for key, member in value.items() if key != "signatures"}
    binding = A2aBinding(
        url=interface.url,
        transport=cast('Literal["JSONRPC", "HTTP+JSON"]', interface.protocol_binding),
        version=read_version(interface.protocol_version).value,
        card=hashlib.sha256(encode(unsigned, order="deterministic")).hexdigest(),
        tenant=interface.tenant,
        streams=bool(card.capabilities.streaming),
    )
    return ToolDraft(
        KEY,
        name,
        _description(card),
        _INPUT,
        binding,
        title=_line(card.name),
        annotations=Annotations(open_world_hint=True),
    )


def _skill_drafts(card: AgentCard, tool: ToolDraft) -> Iterator[ToolDraft]:
    """Aliases of the tool, each for a skill: the agent hears of it by the first sentence of
    messages."""
    for skill in {each.id: each for each in card.skills[:SKILLS]}.values():
        skill_name = _line(skill.name)
        first = f"Sends a message to the agent {_line(card.name)}, for its skill {skill_name}."
        yield replace(
            tool,
            key=f"skill:{skill.id}",
            name=qualify(tool.name, legal(skill.id) or legal(skill.name) or "skill"),
            description=truncate(f"{first} {plain_description(skill.description)}"),
            binding=msgspec.structs.replace(tool.binding, skill=skill_name),
            title=skill_name,
        )


def _description(card: AgentCard) -> str:
    lines = [
        f"Sends a message to the agent {_line(card.name)}. {plain_description(card.description)}"
    ]
    if card.skills:
        lines.append("Skills:")
    lines.extend(
        f"- {_line(skill.name)}: {_line(plain_description(skill.description), 500)}"
        f" ({_line(', '.join(skill.tags))})"
        for skill in card.skills[:SKILLS]
    )
    return truncate("\n".join(lines))


def _notes(card: AgentCard, interface: AgentInterface) -> list[str]:
    spoken = f"{interface.protocol_binding}, A2A {interface.protocol_version}"
    notes = [f"calls go to {interface.url} ({spoken})"]
    if card.security_requirements:
        schemes = (name for each in card.security_requirements for name in each.schemes)
        text = _line(", ".join(dict.fromkeys(schemes)))
        notes.append(f"the agent asks for credentials ({text}): see headers and connect")
    return notes


def _line(text: str, limit: int = 200) -> str:
    """Text of a stranger in one line of printable characters."""
    printable = "".join(char if char.isprintable() else " " for char in text[: 2 * limit])
    return " ".join(printable.split())[:limit]
