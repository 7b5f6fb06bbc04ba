"""prompts/list and prompts/get."""

from msgspec import Raw

from gateway.abc import Relay, RelayRequest
from gateway.context import Context
from gateway.methods.capabilities import require
from gateway.methods.lists import Lists
from gateway.methods.relayed import handed_on, members_of, view
from gateway.methods.skills.files import SkillFiles
from gateway.protocol import failures
from gateway.protocol.shapes import Members
from registry.catalog.catalog import Catalog
from schemas.errors import InvalidParams, RelayedFault
from schemas.jsonrpc import Request
from schemas.mcp.messages import PromptParams, read
from schemas.mcp.snapshot import SnapshotItem


class Prompts:
    def __init__(self, lists: Lists, relay: Relay, skills: SkillFiles) -> None:
        self._lists = lists
        self._relay = relay
        self._skills = skills

    async def list(self, context: Context, request: Request) -> Raw:
        catalog = self._lists.catalog(context)
        require(catalog, "prompts", request.method)
        agent = self._skills.agents.agent(context, catalog)
        return self._lists.page(context, request, "prompt", agent)

    async def get(self, context: Context, request: Request) -> Members:
        catalog, name = self._lists.catalog(context), read(request.params, PromptParams).name
        if catalog.prompt(name) is None and (own := self._skills.prompt(context, name)):
            return own
        prompt = find(catalog, name, request.method)
        params = {**members_of(request), "name": prompt.key}
        asked = RelayRequest(catalog.sources[prompt.source], request.method, params, prompt.eras)
        try:
            members = await self._relay.request(asked, handed_on(context, request))
        except RelayedFault as fault:
            raise failures.shown(fault, context.revision) from fault
        return view(catalog, prompt.source, context).prompted(members)


def find(catalog: Catalog, name: str, method: str) -> SnapshotItem:
    """The prompt that clients know by this name. Raises InvalidParams when there is none."""
    prompt = catalog.prompt(name)
    if prompt is None or prompt.source not in catalog.sources:
        require(catalog, "prompts", method)
        raise InvalidParams(f"Unknown prompt: {name[:100]}")
    return prompt
