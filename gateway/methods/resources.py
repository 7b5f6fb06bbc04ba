"""resources/*: lists from the catalog, reads and subscriptions relayed to other servers, and reads
of skill files and of stored answers of tools that were truncated."""

import asyncio
import base64
import codecs
import re
from collections.abc import Callable, Sequence

from msgspec import Raw

from gateway.context import Context, Session
from gateway.interfaces import Relay, RelayRequest
from gateway.methods.capabilities import require, subscribes
from gateway.methods.lists import Lists
from gateway.methods.prompts import params_of, relay_context, view
from gateway.methods.results_by_revision import ENCODED_SERVER
from gateway.methods.skills.skill_prompts_and_resources import SkillFiles
from gateway.protocol import upstream_errors
from gateway.protocol.revision_adapter import Members, View
from gateway.state.change_streams import Hub
from gateway.state.stored_answers import StoredAnswer, StoredAnswers, handle_of
from registry.catalog.catalog import Catalog, ResourceLocation
from schemas.errors import MethodNotFound, RelayedFault, SessionRequired
from schemas.jsonrpc import Request, encode
from schemas.mcp.messages import ResourceParams, read
from schemas.mcp.revisions import Revision

_EMPTY = re.compile(rb"\[\s*\]")


class ResourceMethods:
    def __init__(
        self,
        lists: Lists,
        relay: Relay,
        *,
        hub: Hub,
        stored_answers: StoredAnswers,
        skills: SkillFiles,
    ) -> None:
        self._skills = skills
        self._lists = lists
        self._relay = relay
        self._hub = hub
        self._kept = stored_answers

    async def list(self, context: Context, request: Request) -> Raw:
        catalog = self._lists.catalog(context)
        require(catalog, "resources", request.method)
        agent = self._skills.agents.agent(context, catalog)
        return self._lists.page(context, request, "resource", agent)

    async def templates(self, context: Context, request: Request) -> Raw:
        require(self._lists.catalog(context), "resources", request.method)
        return self._lists.page(context, request, "template")

    async def read(self, context: Context, request: Request) -> Members:
        uri = read(request.params, ResourceParams).uri
        if (handle := handle_of(uri)) is not None:
            return await self._answer(context, uri, handle)
        if not context.revision.mcp:  # plain JSON-RPC reads stored answers only
            raise upstream_errors.missing(uri, context.revision)
        if (skill_contents := await self._skills.read(context, uri)) is not None:
            return skill_contents  # before other servers: none of them may shadow one of our skills
        catalog = self._lists.catalog(context)
        located = self._locate(context, catalog, uri, request.method)
        params = {**params_of(request), "uri": located.uri}
        relay_request = RelayRequest(located.source, request.method, params, located.eras)
        try:
            members = await self._relay.request(relay_request, relay_context(context, request))
        except RelayedFault as fault:
            raise upstream_errors.read_fault(fault, context.revision, uri) from fault
        members = view(catalog, located.source.name, context).read(members, located.uri)
        if _is_nothing(members, context.revision):
            raise upstream_errors.missing(uri, context.revision)
        return members

    async def _answer(self, context: Context, uri: str, handle: str) -> Members:
        """An answer stored for this caller. Raises Fault where there is none, or it has expired."""
        answer = await self._kept.whole(context.principal, handle)
        if answer is None:
            raise upstream_errors.missing(uri, context.revision)
        members = {"contents": Raw(await _contents(uri, answer))}
        return View(context.revision, str, ENCODED_SERVER).read(members)

    async def subscribe(self, context: Context, request: Request) -> Members:
        catalog, uri = self._lists.catalog(context), read(request.params, ResourceParams).uri
        located = self._locate(context, catalog, uri, request.method)
        facts = located.source.server
        if facts is None or not subscribes(facts):
            raise MethodNotFound("The server of this resource does not tell of its changes")
        await self._hub.subscribe(_session(context), uri)
        return {}

    def _locate(
        self, context: Context, catalog: Catalog, uri: str, method: str
    ) -> ResourceLocation:
        located = self._lists.locate(context, catalog, uri)
        if located is not None:
            return located
        require(catalog, "resources", method)
        raise upstream_errors.missing(uri, context.revision)

    async def unsubscribe(self, context: Context, request: Request) -> Members:
        """Idempotent: a missing subscription is no error, as with the SDKs."""
        uri = read(request.params, ResourceParams).uri
        await self._hub.unsubscribe(_session(context), uri)
        return {}


async def _contents(uri: str, answer: StoredAnswer) -> bytes:
    """Encode `answer` as text if it is valid UTF-8, else base64. Yields to other tasks between
    pieces: there may be many megabytes."""
    head = encode({"uri": uri, "mimeType": answer.info.mime_type})[:-1]
    if answer.info.text:
        decoder = codecs.getincrementaldecoder("utf-8")()
        try:
            text = await _write_pieces(
                answer.pieces, lambda piece: encode(decoder.decode(piece))[1:-1]
            )
            decoder.decode(b"", final=True)
            return b'[%s,"text":"%s"}]' % (head, text)
        except UnicodeDecodeError:
            pass
    return b'[%s,"blob":"%s"}]' % (head, await _write_pieces(answer.pieces, base64.b64encode))


async def _write_pieces(pieces: Sequence[bytes], part: Callable[[bytes], bytes]) -> bytes:
    written = []
    for piece in pieces:
        written.append(part(piece))
        await asyncio.sleep(0)
    return b"".join(written)


def _session(context: Context) -> Session:
    if context.session is None:
        raise SessionRequired("Changes are told in sessions only: send `initialize` first")
    return context.session


def _is_nothing(members: Members, revision: Revision) -> bool:
    """Whether empty contents mean a missing resource, as older servers send them: 2026-07-28
    requires an error instead."""
    contents = members.get("contents")
    return (
        revision.result_type
        and contents is not None
        and _EMPTY.fullmatch(memoryview(contents)) is not None
    )
