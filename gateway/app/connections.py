"""Wiring of connections. Imported only where people log in."""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import anyio
import msgspec
from msgspec import Struct

from config.settings import Settings
from gateway.app.access import Access
from gateway.connections.accounts_tool import AccountsTool
from gateway.connections.call_guard import ConnectionGuard
from gateway.connections.connect_pages import ConnectionPages, ServiceFacts
from gateway.connections.connector import PersonalConnector
from gateway.connections.identity_assertions import IdentityAssertions
from gateway.connections.oauth_accounts import OAuthAccounts
from gateway.connections.required_accounts import most_needed
from gateway.context import Context, Identity, new_request_id
from gateway.login.login_records import RecordLogin
from gateway.login.provider_tokens import ProviderTokens
from gateway.login.server import LoginServer
from gateway.methods.lists import Lists
from gateway.policy.visibility import PolicyView
from gateway.upstreams.http.source_pools import SourcePools
from registry.catalog.catalogs import Catalogs
from registry.connections.accounts import StoredConnection
from registry.database.postgres import AWAY, Pool
from schemas.errors import Fault, Unavailable
from schemas.jsonrpc import Request, encode
from schemas.mcp.revisions import V2025_11_25

COUNT_INTERVAL_S = 60.0  # between counts for the metrics
WRONG = 300  # characters of the text of a failed check


class _Text(Struct):
    text: str = ""


class _Checked(Struct, rename="camel"):
    content: list[_Text] = []
    is_error: bool = False


class PersonalConnections:
    """People's accounts at sources, made before the pages on which they connect them."""

    def __init__(
        self,
        settings: Callable[[], Settings],
        pool: Callable[[], Pool | None],
        record: RecordLogin = lambda _act: None,
    ) -> None:
        self._settings = settings
        self._record = record
        self._opened = pool
        now = settings()
        self._oauth = OAuthAccounts(settings, self._pool)
        self.connector = PersonalConnector(
            settings,
            self._pool,
            self._oauth,
            record=record,
            assertions=IdentityAssertions(
                settings, ProviderTokens(now, self._pool), self._oauth.keys
            ),
        )

    async def run(self) -> None:
        """Count connections for the metrics until cancelled."""
        while True:
            is_open = self._opened() is not None
            if is_open:
                with suppress(*AWAY):
                    await self.count()
            await anyio.sleep(COUNT_INTERVAL_S if is_open else 1)

    async def count(self) -> None:
        """Count connections by source and state. Raises Unavailable and OperationalError."""
        self.connector.metrics.states = await self.connector.connections.count()

    def guard(self, policy_view: PolicyView) -> ConnectionGuard:
        """The guard of calls that are made with accounts of people."""
        limits = self._settings().connections
        return ConnectionGuard(
            self.connector, limits, lambda tenant: policy_view.engine(tenant).reads_connection
        )

    def tool(self, catalogs: Catalogs, pools: SourcePools, lists: Lists) -> AccountsTool:
        """The tool by which callers see and change their accounts."""
        services = ServicesOfPeople(self._settings, catalogs, pools)
        return AccountsTool(
            self.connector,
            facts=services.facts,
            sources=lambda context: lists.visible(context).sources.values(),
            record=self._record,
        )

    def pages(
        self,
        login: LoginServer,
        *,
        access: Access,
        catalogs: Catalogs,
        pools: SourcePools,
        outcome: Callable[[Context, Request], Awaitable[Any]],
        notify: Callable[[str, bytes], Awaitable[None]],
    ) -> ConnectionPages:
        services = ServicesOfPeople(self._settings, catalogs, pools)
        return ConnectionPages(
            self.connector,
            settings=self._settings,
            accounts=login.parts.accounts,
            facts=services.facts,
            check=partial(_check, outcome),
            identify=access.identify,
            record=self._record,
            route=login.page_route,
            oauth=self._oauth,
            notify=notify,
        )

    def _pool(self) -> Pool:
        """Raises Unavailable."""
        pool = self._opened()
        if pool is None:
            raise Unavailable("The database does not answer yet")
        return pool


class ServicesOfPeople:
    """Services at which people have accounts, as settings and catalogs know them."""

    def __init__(
        self,
        settings: Callable[[], Settings],
        catalogs: Catalogs,
        pools: SourcePools,
    ) -> None:
        self._settings = settings
        self._catalogs = catalogs
        self._pools = pools

    def facts(self, tenant: str, place: str) -> ServiceFacts | None:
        """Facts of a source by settings and catalog; None for one that either does not have."""
        catalog = self._catalogs.of(tenant)
        source = next((each for each in catalog.sources.values() if each.place == place), None)
        adjusted = self._settings().sources.get(place)
        if source is None or adjusted is None:
            return None
        tools = [tool for tool in catalog.tools if tool.source == source.name]
        needed = most_needed(source, tools, adjusted.connect, adjusted.credentials)
        address = self._pools.of(source).base_url or ""
        return ServiceFacts(
            source,
            urlsplit(address).hostname or "",
            len(tools),
            sum(tool.annotations.read_only_hint is not True for tool in tools),
            needed,
        )


async def _check(
    outcome: Callable[[Context, Request], Awaitable[Any]], identity: Identity, tool: str
) -> str:
    """Call a tool without arguments for a person: "" or what went wrong."""
    context = Context(identity, V2025_11_25, new_request_id())
    params = {"name": tool, "arguments": {}}
    answer = await outcome(context, Request("2.0", "tools/call", params, id=1))
    if isinstance(answer, Fault):
        return answer.message[:WRONG]
    result = msgspec.json.decode(encode(answer), type=_Checked)
    if not result.is_error:
        return ""
    texts = (each.text for each in result.content if each.text)
    return next(texts, "the service refused it")[:WRONG]


async def disconnect(
    settings: Settings, pool: Callable[[], Pool | None], tenant: str, id_: str
) -> StoredConnection | None:
    """End a connection, from a process that serves nothing."""
    return await PersonalConnections(lambda: settings, pool).connector.disconnect(tenant, id_)
