"""resources/*: lists from the catalog, and reading and watching what other servers have."""

import re

from msgspec import Raw

from gateway.abc import Asked, Relay
from gateway.context import Context, Session
from gateway.methods.lists import Lists
from gateway.methods.offers import require, subscribes
from gateway.methods.relayed import handed_on, members_of, view
from gateway.protocol import failures
from gateway.protocol.shapes import Members
from gateway.state.hub import Hub
from registry.catalog import Catalog, Located
from schemas.errors import MethodNotFound, RelayedFault, SessionRequired
from schemas.jsonrpc import Request
from schemas.mcp.messages import ResourceParams, read
from schemas.mcp.revisions import Revision

_EMPTY = re.compile(rb"\[\s*\]")


class Resources:
    def __init__(self, lists: Lists, relay: Relay, hub: Hub) -> None:
        self._lists = lists
        self._relay = relay
        self._hub = hub

    async def list(self, context: Context, request: Request) -> Raw:
        require(self._lists.catalog(context), "resources", request.method)
        return self._lists.page(context, request, "resource")

    async def templates(self, context: Context, request: Request) -> Raw:
        require(self._lists.catalog(context), "resources", request.method)
        return self._lists.page(context, request, "template")

    async def read(self, context: Context, request: Request) -> Members:
        catalog, uri = self._lists.catalog(context), read(request.params, ResourceParams).uri
        located = _located(catalog, uri, context.revision, request.method)
        params = {**members_of(request), "uri": located.uri}
        asked = Asked(located.source, request.method, params, located.eras)
        try:
            members = await self._relay.request(asked, handed_on(context, request))
        except RelayedFault as fault:
            raise failures.of_reading(fault, context.revision, uri) from fault
        members = view(catalog, located.source.name, context).read(members)
        if _is_nothing(members, context.revision):
            raise failures.missing(uri, context.revision)
        return members

    async def subscribe(self, context: Context, request: Request) -> Members:
        catalog, uri = self._lists.catalog(context), read(request.params, ResourceParams).uri
        located = _located(catalog, uri, context.revision, request.method)
        facts = located.source.server
        if facts is None or not subscribes(facts):
            raise MethodNotFound("The server of this resource does not tell of its changes")
        await self._hub.subscribe(_session(context), uri)
        return {}

    async def unsubscribe(self, context: Context, request: Request) -> Members:
        """What nobody subscribed to is not subscribed to: no error, as with the SDKs."""
        uri = read(request.params, ResourceParams).uri
        await self._hub.unsubscribe(_session(context), uri)
        return {}


def _located(catalog: Catalog, uri: str, revision: Revision, method: str) -> Located:
    located = catalog.locate(uri)
    if located is not None:
        return located
    require(catalog, "resources", method)
    raise failures.missing(uri, revision)


def _session(context: Context) -> Session:
    if context.session is None:
        raise SessionRequired("Changes are told in sessions only: send `initialize` first")
    return context.session


def _is_nothing(members: Members, revision: Revision) -> bool:
    """2026-07-28 wants an error for what is not there; older servers may say that with nothing."""
    contents = members.get("contents")
    return (
        revision.result_type
        and contents is not None
        and _EMPTY.fullmatch(memoryview(contents)) is not None
    )
