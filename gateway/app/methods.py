"""Which methods there are, who serves them, and which revisions have them."""

from collections.abc import Mapping, Sequence

from config.settings import Settings
from gateway.abc import Middleware, Upstream
from gateway.app.federation import Federation
from gateway.app.shared import Shared
from gateway.methods.answering import Answering
from gateway.methods.completion import Completion
from gateway.methods.describe import Describe
from gateway.methods.discovery import Discovery
from gateway.methods.lifecycle import Lifecycle
from gateway.methods.lists import Lists
from gateway.methods.logging import Logging
from gateway.methods.prompts import Prompts
from gateway.methods.resources import Resources
from gateway.methods.services import Services
from gateway.methods.subscriptions import Subscriptions
from gateway.methods.tasks import Tasks
from gateway.methods.tools import Tools
from gateway.protocol.dispatcher import Dispatcher, Method
from registry.catalogs import Catalogs
from schemas.binding import GatewayBinding
from schemas.mcp.revisions import PORTAL, Revision

Table = Mapping[str, Method]


def dispatchers(
    settings: Settings,
    catalogs: Catalogs,
    upstreams: Mapping[type, Upstream],
    federation: Federation,
    shared: Shared,
    middleware: Sequence[Middleware],
    answering: Answering,
) -> tuple[Dispatcher, Dispatcher]:
    """Of MCP and `/rpc`, and of the portal paths, whose tools/list is another one. `upstreams` is
    keyed by the class of the bindings that it executes."""
    mcp, verify_scope = settings.mcp, settings.auth.verify_scope
    fail_closed = mcp.when_down == "fail_closed"
    lists = Lists(
        catalogs, mcp.page_size, mcp.list_ttl_ms, federation.down, fail_closed, verify_scope
    )
    executed: dict[type, Upstream] = {**upstreams, GatewayBinding: Describe(lists)}
    tools = Tools(lists, executed, verify_scope, answering)
    services = Services(catalogs, upstreams, verify_scope, tools.call_by_name)
    methods = {
        **_session(settings, lists, catalogs, shared),
        **_served(lists, federation, shared),
        "tools/list": Method(tools.list, _tools),
        "tools/call": Method(tools.call, _tools),
        "rpc.discover": Method(Discovery(catalogs).discover, lambda r: r.tools_are_methods),
    }
    on_portal = {
        "tools/list": Method(services.list, lambda r: r is PORTAL, settings.portal.anonymous_list),
        "tools/call": Method(services.call, lambda r: r is PORTAL, open_to_all=True),
    }
    return (
        Dispatcher(methods, services.call_by_id, middleware),
        Dispatcher(on_portal, services.call_by_id, middleware),
    )


def _session(settings: Settings, lists: Lists, catalogs: Catalogs, shared: Shared) -> Table:
    of_toolsets = {name: one.instructions for name, one in settings.toolsets.items()}
    lifecycle = Lifecycle(lists, settings.mcp.instructions, of_toolsets)
    logging = Logging(lists, shared.sessions.changed)
    subscriptions = Subscriptions(shared.hub, shared.sessions, catalogs)
    return {
        "initialize": Method(lifecycle.initialize, _handshake),
        "ping": Method(lifecycle.ping, _handshake),
        "notifications/cancelled": Method(subscriptions.cancelled, _handshake),
        "logging/setLevel": Method(logging.set_level, _handshake),
        "server/discover": Method(lifecycle.discover, _stateless),
        "subscriptions/listen": Method(subscriptions.listen, _stateless),
    }


def _served(lists: Lists, federation: Federation, shared: Shared) -> Table:
    """What other servers have, beside tools."""
    relay = federation.relay
    prompts, completion = Prompts(lists, relay), Completion(lists, relay)
    resources = Resources(lists, relay, shared.hub, shared.kept)
    tasks = Tasks(lists, relay, federation.task_ids)
    return {
        "prompts/list": Method(prompts.list, _mcp),
        "prompts/get": Method(prompts.get, _mcp),
        "resources/list": Method(resources.list, _mcp),
        "resources/templates/list": Method(resources.templates, _mcp),
        "resources/read": Method(resources.read, _tools),
        "resources/subscribe": Method(resources.subscribe, _handshake),
        "resources/unsubscribe": Method(resources.unsubscribe, _handshake),
        "completion/complete": Method(completion.complete, _mcp),
        "tasks/get": Method(tasks.relay, lambda r: r.tasks or _stateless(r)),
        "tasks/cancel": Method(tasks.relay, lambda r: r.tasks or _stateless(r)),
        "tasks/result": Method(tasks.relay, lambda r: r.tasks),
        "tasks/update": Method(tasks.relay, _stateless),
    }


def _mcp(revision: Revision) -> bool:
    return revision.mcp


def _tools(revision: Revision) -> bool:
    return revision.mcp or revision.tools_are_methods


def _handshake(revision: Revision) -> bool:
    return revision.handshake


def _stateless(revision: Revision) -> bool:
    return revision.mcp and not revision.handshake
