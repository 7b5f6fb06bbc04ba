"""Lists of all kinds, page by page. They come from the catalog, so no server has to answer."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from anyio import to_thread
from msgspec import Raw

from gateway.context import Context
from gateway.methods.checks import scopes_of
from gateway.methods.server import STAMP
from gateway.protocol import cursors
from registry.catalog import Catalog, Page
from registry.catalogs import Catalogs
from registry.profiles import Chosen
from schemas.errors import Unreachable
from schemas.jsonrpc import Request, encode
from schemas.mcp.messages import META_CLIENT, ListParams, read
from schemas.mcp.snapshot import ItemKind

Down = Callable[[str, Catalog], Sequence[str]]
"""The names of the sources in the catalog of a tenant whose lists may have changed unheard."""

_MEMBER: Mapping[str, str] = {
    "tool": "tools",
    "prompt": "prompts",
    "resource": "resources",
    "template": "resourceTemplates",
}


class Lists:
    def __init__(
        self,
        catalogs: Catalogs,
        page_size: int,
        ttl_ms: int,
        down: Down,
        fail_closed: bool,
        verify_scope: bool = True,
    ) -> None:
        """With `fail_closed` there are no lists while they may be incomplete; with `verify_scope`
        nobody is shown the hybrid actions that their token does not open."""
        self._verify_scope = verify_scope
        self._catalogs = catalogs
        self._page_size = page_size
        self._ttl_ms = ttl_ms
        self._down = down
        self._fail_closed = fail_closed
        self._preparing = asyncio.Lock()  # who waits for it wants the same, or can wait

    def catalog(self, context: Context) -> Catalog:
        """What there is for who asks, at the endpoint that they ask."""
        return self._catalogs.of(context.principal.tenant, context.toolset)

    def visible(self, context: Context) -> Catalog:
        """The same without what they may not call. Raises the Fault of a token that does not
        hold."""
        catalog = self.catalog(context)
        if self._verify_scope and context.identity.verified:
            return catalog.visible_to(scopes_of(context.identity))
        return catalog

    def profile(self, context: Context, request: Request | None = None) -> Chosen:
        """How tools are to be written for the client: as the address has it that it asks at, else
        as its name tells, which it said in its session or says in the request."""
        profiles = self._catalogs.shaping.profiles
        wanted = context.profile and profiles.named(context.profile)
        return wanted or profiles.of(_client(context, request))

    async def prepare(self, context: Context, request: Request) -> None:
        """Have the list of tools ready that the client asks for: the first of its kind takes as
        long as there are many."""
        catalog, chosen = self.visible(context), self.profile(context, request)
        if not catalog.is_made(chosen):
            async with self._preparing:
                await to_thread.run_sync(catalog.prepare, [chosen])

    def ttl_ms(self, context: Context) -> int:
        """For how long a list holds: no time, while it may be wrong already."""
        return 0 if self._down(context.principal.tenant, self.catalog(context)) else self._ttl_ms

    def page(self, context: Context, request: Request, kind: ItemKind | Literal["tool"]) -> Raw:
        """The result of a list method. Raises Unreachable that names the servers at fault."""
        after = cursors.unseal(read(request.params, ListParams).cursor)
        catalog, revision = self.catalog(context), context.revision
        ttl_ms = self._checked_ttl(context, catalog)
        if kind == "tool":
            chosen = self.profile(context, request)
            page = self.visible(context).page(revision, after, self._page_size, chosen)
        else:
            page = catalog.item_page(kind, revision, after, self._page_size)
        key = f"{revision.name} {ttl_ms}"
        result = page.results.get(key)
        if result is None:  # a megabyte for a thousand tools: encoded once for all who list it
            hold = {"resultType": "complete", "ttlMs": ttl_ms, "cacheScope": "private"}
            stamp = {**hold, "_meta": STAMP} if revision.result_type else {}
            result = page.results[key] = Raw(encode({**_listed(kind, page), **stamp}))
        return result

    def _checked_ttl(self, context: Context, catalog: Catalog) -> int:
        down = self._down(context.principal.tenant, catalog)
        if down and self._fail_closed:
            names = ", ".join(sorted(down))
            raise Unreachable(f"The list may be incomplete: {names} cannot be reached")
        return 0 if down else self._ttl_ms


def _client(context: Context, request: Request | None) -> Any:
    """What the client calls itself; None: it did not say."""
    if context.session is not None:
        return context.session.client.get("name")
    params = request.params if request is not None else context.params
    meta = params.get("_meta") if isinstance(params, Mapping) else None
    told = meta.get(META_CLIENT) if isinstance(meta, dict) else None
    return told.get("name") if isinstance(told, dict) else None


def _listed(kind: str, page: Page) -> dict[str, Any]:
    listed: dict[str, Any] = {_MEMBER[kind]: page.entries}
    return listed if page.last is None else {**listed, "nextCursor": cursors.seal(page.last)}
