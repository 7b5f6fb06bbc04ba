"""completion/complete: what an argument of a prompt or of a resource template may be."""

from typing import Any

from msgspec import Raw

from gateway.abc import Relay, RelayRequest
from gateway.context import Context
from gateway.methods.capabilities import has, require
from gateway.methods.lists import Lists
from gateway.methods.prompts import find
from gateway.methods.relayed import handed_on, members_of, view
from gateway.protocol import failures
from gateway.protocol.shapes import Members
from registry.catalog.catalog import Catalog
from schemas.errors import InvalidParams, MethodNotFound, RelayedFault
from schemas.jsonrpc import Request
from schemas.mcp.messages import CompleteParams, PromptReference, ResourceReference, read
from schemas.mcp.revisions import V2024_11_05
from schemas.mcp.snapshot import Eras, ServerFacts
from schemas.source import Source

_NOTHING: Members = {"completion": Raw(b'{"values":[]}')}


class Completion:
    def __init__(self, lists: Lists, relay: Relay) -> None:
        self._lists = lists
        self._relay = relay

    async def complete(self, context: Context, request: Request) -> Members:
        catalog = self._lists.catalog(context)
        params = read(request.params, CompleteParams)
        if context.revision.annotations:  # before, no capability told of it
            require(catalog, "completions", request.method)
        source, own, eras = self._found(context, catalog, params.ref, request.method)
        seen = view(catalog, source.name, context)
        if not _completes(source.server):
            return seen.completed(_NOTHING)
        sent = members_of(request)
        asked = RelayRequest(source, request.method, {**sent, "ref": {**sent["ref"], **own}}, eras)
        try:
            return seen.completed(await self._relay.request(asked, handed_on(context, request)))
        except RelayedFault as fault:
            if fault.code == MethodNotFound.code:
                return seen.completed(_NOTHING)
            raise failures.shown(fault, context.revision) from fault

    def _found(
        self,
        context: Context,
        catalog: Catalog,
        ref: PromptReference | ResourceReference,
        method: str,
    ) -> tuple[Source, dict[str, Any], Eras]:
        """Whose thing it is, and what that server calls it. Raises InvalidParams for nobody's."""
        if isinstance(ref, PromptReference):
            prompt = find(catalog, ref.name, method)
            return catalog.sources[prompt.source], {"name": prompt.key}, prompt.eras
        for template in catalog.templates:
            if template.name == ref.uri and template.source in catalog.sources:
                return catalog.sources[template.source], {"uri": template.key}, template.eras
        located = self._lists.locate(context, catalog, ref.uri)
        if located is None:
            raise InvalidParams(f"Unknown resource template: {ref.uri[:200]}")
        return located.source, {"uri": located.uri}, located.eras


def _completes(facts: ServerFacts | None) -> bool:
    return facts is not None and (
        has(facts, "completions") or facts.handshake == V2024_11_05.name  # which has no such word
    )
