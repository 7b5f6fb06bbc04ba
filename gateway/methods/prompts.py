"""prompts/list, prompts/get and completion/complete."""

import itertools
from functools import partial
from typing import Any

from msgspec import Raw
from msgspec.structs import replace

from gateway.context import Context
from gateway.interfaces import Relay, RelayRequest
from gateway.methods.capabilities import has, require
from gateway.methods.lists import Lists
from gateway.methods.results_by_revision import ENCODED_SERVER
from gateway.methods.skills.skill_prompts_and_resources import SkillFiles
from gateway.protocol import upstream_errors
from gateway.protocol.revision_adapter import Members, View
from registry.catalog.catalog import Catalog
from schemas.errors import InvalidParams, MethodNotFound, RelayedFault
from schemas.jsonrpc import Request
from schemas.mcp.messages import (
    CompleteParams,
    PromptParams,
    PromptReference,
    ResourceReference,
    read,
)
from schemas.mcp.revisions import V2024_11_05
from schemas.mcp.snapshot import Eras, ServerFacts, SnapshotItem
from schemas.source import Source


def view(catalog: Catalog, source: str, context: Context) -> View:
    """The translation of one message of a source into the client's revision and names."""
    expose = partial(catalog.expose, source, lookups=itertools.count())
    refer = partial(catalog.refer, source)
    return View(context.revision, expose, ENCODED_SERVER, refer)


def relay_context(context: Context, request: Request) -> Context:
    """`context` for a request that is relayed to another server unchanged."""
    return replace(context, params=params_of(request))


def params_of(request: Request) -> dict[str, Any]:
    return request.params if isinstance(request.params, dict) else {}


_NOTHING: Members = {"completion": Raw(b'{"values":[]}')}


class Completion:
    def __init__(self, lists: Lists, relay: Relay) -> None:
        self._lists = lists
        self._relay = relay

    async def complete(self, context: Context, request: Request) -> Members:
        catalog = self._lists.catalog(context)
        params = read(request.params, CompleteParams)
        if context.revision.annotations:  # earlier revisions have no such capability
            require(catalog, "completions", request.method)
        source, reference_members, eras = self._find_reference(
            context, catalog, params.ref, request.method
        )
        source_view = view(catalog, source.name, context)
        if not _completes(source.server):
            return source_view.completion_result(_NOTHING)
        params_sent = params_of(request)
        relay_request = RelayRequest(
            source,
            request.method,
            {**params_sent, "ref": {**params_sent["ref"], **reference_members}},
            eras,
        )
        try:
            return source_view.completion_result(
                await self._relay.request(relay_request, relay_context(context, request))
            )
        except RelayedFault as fault:
            if fault.code == MethodNotFound.code:
                return source_view.completion_result(_NOTHING)
            raise upstream_errors.fault_for_client(fault, context.revision) from fault

    def _find_reference(
        self,
        context: Context,
        catalog: Catalog,
        ref: PromptReference | ResourceReference,
        method: str,
    ) -> tuple[Source, dict[str, Any], Eras]:
        """The source of `ref`, the reference in that server's names, and its eras. Raises
        InvalidParams for an unknown reference."""
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
        has(facts, "completions") or facts.handshake == V2024_11_05.name  # has no such capability
    )


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
        if catalog.prompt(name) is None and (skill_prompt := self._skills.prompt(context, name)):
            return skill_prompt
        prompt = find(catalog, name, request.method)
        params = {**params_of(request), "name": prompt.key}
        relay_request = RelayRequest(
            catalog.sources[prompt.source], request.method, params, prompt.eras
        )
        try:
            members = await self._relay.request(relay_request, relay_context(context, request))
        except RelayedFault as fault:
            raise upstream_errors.fault_for_client(fault, context.revision) from fault
        return view(catalog, prompt.source, context).prompt_result(members)


def find(catalog: Catalog, name: str, method: str) -> SnapshotItem:
    """The prompt of this listed name. Raises InvalidParams when there is none."""
    prompt = catalog.prompt(name)
    if prompt is None or prompt.source not in catalog.sources:
        require(catalog, "prompts", method)
        raise InvalidParams(f"Unknown prompt: {name[:100]}")
    return prompt
