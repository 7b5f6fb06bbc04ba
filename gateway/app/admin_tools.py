"""Wiring of the admin API's operations as tools: a toolset with a dispatcher of its own.

Imported only where `admin.tools` is on. No other part of the gateway lists, finds or calls them.
"""

from collections.abc import Sequence
from dataclasses import replace

from starlette.types import ASGIApp

from config.access import ADMIN_TOOLSET
from config.settings import Settings
from gateway.admin.http_api import AdminApi
from gateway.admin.operation_tools import OperationLists, count_calls
from gateway.app.access import Access
from gateway.app.method_tables import session_methods, tool_methods
from gateway.app.middleware_order import call_guards, message_middleware
from gateway.app.routes import batches_of, mcp_front, rpc_front, rpc_rules
from gateway.app.shared_state import SharedState
from gateway.context import Principal
from gateway.interfaces import Middleware, Upstream
from gateway.methods.call_plans import CallPlans
from gateway.methods.describe_tools import Describe
from gateway.methods.result_processing import AnswerProcessing
from gateway.methods.tools import BuiltInTools, ToolMethods
from gateway.operations.tool_calls import OperationUpstream
from gateway.operations.tool_definitions import OperationCatalogs
from gateway.protocol.dispatcher import Dispatcher
from gateway.transports.jsonrpc_http import JsonRpcHTTP
from gateway.transports.mcp_endpoint import NO_TOOLSET
from gateway.transports.streamable_http import toolset_fronts
from registry.catalog.catalogs import Catalogs
from schemas.binding import GatewayBinding, OperationBinding
from schemas.errors import UnknownToolset

INSTRUCTIONS = (
    "The tools here administer this gateway: its sources, tools, keys, rules, approvals, sessions "
    "and audit log. They do what the token of the caller may do, in the tenant of the caller."
)


def admin_fronts(
    settings: Settings,
    api: AdminApi,
    *,
    state: SharedState,
    catalogs: Catalogs,
    access: Access,
    costs: Sequence[Middleware],
    counting: Sequence[Middleware],
    answering: AnswerProcessing,
) -> dict[str, ASGIApp]:
    """Fronts by path. `costs` and `counting` as in `message_middleware`."""
    operations = OperationCatalogs(api.operations.by_id.values(), catalogs.shaper)
    catalogs.fix(ADMIN_TOOLSET, operations.whole)
    lists = OperationLists(
        operations,
        catalogs=catalogs,
        policy_view=access.policy_view,
        page_size=settings.mcp.page_size,
        ttl_ms=settings.mcp.list_ttl_ms,
    )
    upstreams: dict[type, Upstream] = {
        OperationBinding: OperationUpstream(api.operations),
        GatewayBinding: BuiltInTools({"describe": Describe(lists)}),
    }
    plans = CallPlans(upstreams, call_guards(access), access.policy_view)
    tools = ToolMethods(lists, plans, verify_scope=settings.auth.verify_scope, answering=answering)
    methods = {**session_methods(lists, state, INSTRUCTIONS), **tool_methods(lists, tools)}
    around = message_middleware(
        access, costs=costs, counting=counting, before_audit=[count_calls(api.rates)]
    )
    dispatcher = Dispatcher(methods, tools.call_by_name, around, tools.rate_limit_result)
    return _fronts(settings, state, access, dispatcher)


def _admit_to_admin(_principal: Principal, toolset: str) -> None:
    """Let everybody to its own toolset, whose lists have what the scopes of the caller permit."""
    if toolset != ADMIN_TOOLSET:
        raise UnknownToolset(NO_TOOLSET)


def _fronts(
    settings: Settings, state: SharedState, access: Access, dispatcher: Dispatcher
) -> dict[str, ASGIApp]:
    batches, identify = batches_of(settings), access.identify_admin
    mcp = mcp_front(
        settings,
        state,
        dispatcher=dispatcher,
        identify=identify,
        batches=batches,
        admit=_admit_to_admin,
    )
    rpc = replace(rpc_front(settings, dispatcher, identify, batches), toolset=ADMIN_TOOLSET)
    path = f"{settings.rpc.path}/{ADMIN_TOOLSET}"
    return {
        **toolset_fronts(mcp, ADMIN_TOOLSET),
        path: JsonRpcHTTP(rpc, rpc_rules(settings)),
    }
