"""Resources and prompts of wings: stored like those of MCP servers, answered in this process."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import Raw

from gateway.context import Context
from gateway.interfaces import Relay, RelayRequest
from gateway.protocol.upstream_errors import RESOURCE_NOT_FOUND
from gateway.wings.interface import WingContributions, WingPrompt, WingResource
from registry.importers.drafts import ImportedDescription, ItemDraft
from registry.names.uris import Template, UriBits
from schemas.errors import InvalidParams, RelayedFault, Unavailable
from schemas.jsonrpc import encode
from schemas.mcp.revisions import V2025_11_25, V2026_07_28
from schemas.mcp.snapshot import ServerFacts
from schemas.source import Outcome, Source
from schemas.tool import ToolDraft


def offered_import(
    name: str, drafts: Sequence[ToolDraft], offer: WingContributions
) -> ImportedDescription:
    """Import of the source of the wing `name`, with everything it offers to clients."""
    items = tuple(_items(offer))
    outcomes = [Outcome(item.key, item.key, item.name, "imported") for item in drafts]
    outcomes += [Outcome(item.id, item.key, item.name, "imported") for item in items]
    return ImportedDescription(
        name, None, (), tuple(drafts), tuple(outcomes), items=items, server=_facts(offer)
    )


class WingRelay:
    """Answers requests for the items of wings, and relays others. Implements `Relay`."""

    def __init__(self, relay: Relay, offers: Mapping[str, WingContributions]) -> None:
        """`offers` of the wings that are open, by name, which changes as they are opened and
        closed."""
        self._relay = relay
        self._offers = offers

    async def request(self, request: RelayRequest, context: Context) -> dict[str, Raw]:
        source = request.source
        if not source.facts.own:
            return await self._relay.request(request, context)
        offer = self._offers.get(source.name)
        if offer is None:
            raise Unavailable(f"The wing {source.name} is not open in this gateway")
        if request.method == "prompts/get":
            return await _prompt_result(offer.prompts, request.params, context)
        return await _read(offer.resources, request.params["uri"], context)

    async def watch(self, source: Source, uri: str) -> None:
        await self._relay.watch(source, uri)

    async def unwatch(self, source: Source, uri: str) -> None:
        await self._relay.unwatch(source, uri)


def _items(offer: WingContributions) -> Iterator[ItemDraft]:
    for resource in offer.resources:
        about = {
            "name": resource.name,
            "description": resource.description,
            "mimeType": resource.media_type,
        }
        if "{" in resource.uri:
            yield ItemDraft(
                "template", resource.uri, resource.uri, {"uriTemplate": resource.uri, **about}
            )
        else:
            yield ItemDraft("resource", resource.uri, resource.uri, {"uri": resource.uri, **about})
    for prompt in offer.prompts:
        arguments = [
            {"name": name, "description": text, "required": True}
            for name, text in prompt.arguments.items()
        ]
        definition = {"description": prompt.description, "arguments": arguments}
        yield ItemDraft("prompt", prompt.name, prompt.name, {"name": prompt.name, **definition})


def _facts(offer: WingContributions) -> ServerFacts | None:
    """The capabilities of the items; None: there are none."""
    offered = {"resources": offer.resources, "prompts": offer.prompts}
    capabilities: dict[str, Any] = {name: {} for name, items in offered.items() if items}
    if not capabilities:
        return None
    return ServerFacts(V2025_11_25.name, capabilities, V2026_07_28.name, capabilities)


async def _read(resources: Sequence[WingResource], uri: str, context: Context) -> dict[str, Raw]:
    for resource in resources:
        if _names(resource.uri, uri) and (text := await resource.read(context, uri)) is not None:
            contents = [{"uri": uri, "mimeType": resource.media_type, "text": text}]
            return {"contents": Raw(encode(contents))}
    raise RelayedFault(RESOURCE_NOT_FOUND, "Resource not found", {"uri": uri})


def _names(template: str, uri: str) -> bool:
    if "{" not in template:
        return template == uri
    return Template.read(template).matches(UriBits(uri))


async def _prompt_result(
    prompts: Sequence[WingPrompt], params: Mapping[str, Any], context: Context
) -> dict[str, Raw]:
    prompt = next((candidate for candidate in prompts if candidate.name == params["name"]), None)
    if prompt is None:
        raise InvalidParams(f"Unknown prompt: {params['name'][:100]}")
    arguments = params.get("arguments") or {}
    for name in prompt.arguments:
        if not isinstance(arguments.get(name), str):
            raise InvalidParams(f"The prompt {prompt.name} takes the argument {name}, a text")
    text = await prompt.text(context, arguments)
    message = {"role": "user", "content": {"type": "text", "text": text}}
    return {
        "description": Raw(encode(prompt.description)),
        "messages": Raw(encode([message])),
    }
