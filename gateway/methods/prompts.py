"""prompts/list and prompts/get."""

from msgspec import Raw

from gateway.abc import Asked, Relay
from gateway.context import Context
from gateway.methods.lists import Lists
from gateway.methods.offers import require
from gateway.methods.relayed import handed_on, members_of, view
from gateway.protocol import failures
from gateway.protocol.shapes import Members
from registry.catalog import Catalog
from schemas.errors import InvalidParams, RelayedFault
from schemas.jsonrpc import Request
from schemas.mcp.messages import PromptParams, read
from schemas.mcp.snapshot import Item


class Prompts:
    def __init__(self, lists: Lists, relay: Relay) -> None:
        self._lists = lists
        self._relay = relay

    async def list(self, context: Context, request: Request) -> Raw:
        require(self._lists.catalog(context), "prompts", request.method)
        return self._lists.page(context, request, "prompt")

    async def get(self, context: Context, request: Request) -> Members:
        catalog = self._lists.catalog(context)
        prompt = find(catalog, read(request.params, PromptParams).name, request.method)
        params = {**members_of(request), "name": prompt.key}
        asked = Asked(catalog.sources[prompt.source], request.method, params, prompt.eras)
        try:
            members = await self._relay.request(asked, handed_on(context, request))
        except RelayedFault as fault:
            raise failures.shown(fault, context.revision) from fault
        return view(catalog, prompt.source, context).prompted(members)


def find(catalog: Catalog, name: str, method: str) -> Item:
    """The prompt that clients know by this name. Raises InvalidParams when there is none."""
    prompt = catalog.prompt(name)
    if prompt is None or prompt.source not in catalog.sources:
        require(catalog, "prompts", method)
        raise InvalidParams(f"Unknown prompt: {name[:100]}")
    return prompt
