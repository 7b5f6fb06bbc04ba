"""The admin API's operations as tools: visibility and rate limits."""

from gateway.admin.http_api import RequestRates
from gateway.context import Context
from gateway.interfaces import Handler, Middleware, Route
from gateway.methods.lists import Lists
from gateway.operations.tool_definitions import OperationCatalogs
from gateway.policy.visibility import PolicyView
from registry.catalog.catalog import Catalog
from registry.catalog.catalogs import Catalogs
from registry.display.profiles import SelectedProfile
from schemas.jsonrpc import Request


class OperationLists(Lists):
    """Lists of operations that the caller's scopes permit and no rule denies."""

    def __init__(
        self,
        operations: OperationCatalogs,
        *,
        catalogs: Catalogs,
        policy_view: PolicyView,
        page_size: int,
        ttl_ms: int,
    ) -> None:
        super().__init__(
            catalogs, page_size=page_size, ttl_ms=ttl_ms, down=_none_down, fail_closed=False
        )
        self._operations = operations
        self._rules = policy_view

    def catalog(self, context: Context) -> Catalog:
        part = self._operations.of(context.principal.scopes)
        return self._rules.view(context, part, part)

    def whole(self, context: Context) -> Catalog:
        return self.catalog(context)

    async def is_short(
        self, _context: Context, _catalog: Catalog, _chosen: SelectedProfile
    ) -> bool:
        return False  # no search here


def count_calls(rates: RequestRates) -> Middleware:
    """Rate-limit middleware: each message counts as a request to the admin API. Raises
    TooManyRequests."""

    def count_calls(handler: Handler, _route: Route) -> Handler:
        async def count(context: Context, request: Request) -> object:
            rates.count(context.identity, context.headers.client)
            return await handler(context, request)

        return count

    return count_calls


def _none_down(_tenant: str, _catalog: Catalog) -> list[str]:
    return []
