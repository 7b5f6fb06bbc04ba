"""What is served at which path."""

from dataclasses import replace

from starlette.types import ASGIApp

from config.endpoints import Portal
from config.settings import Settings
from gateway.app.shared import Shared
from gateway.context import Identify
from gateway.protocol.dialects import Rules
from gateway.protocol.dispatcher import Dispatcher
from gateway.protocol.running import Batches, BatchLimits
from gateway.transports.jsonrpc_http import Front, JsonRpcHTTP
from gateway.transports.mcp import McpFront
from gateway.transports.streamable_http import mcp_fronts
from registry.display.profiles import BUILT_IN
from schemas.hybrid import Side
from schemas.mcp.revisions import JSON_RPC, PORTAL


def fronts(
    settings: Settings,
    shared: Shared,
    dispatchers: tuple[Dispatcher, Dispatcher],
    identify: Identify,
) -> dict[str, ASGIApp]:
    """`dispatchers`: that of MCP and `/rpc`, and that of the portal paths."""
    profiles = frozenset({*BUILT_IN, *settings.profiles.own})
    mcp, rpc, server = settings.mcp, settings.rpc, settings.server
    main, on_portal = dispatchers
    batches = Batches(
        BatchLimits(
            rpc.batch_limit,
            rpc.batch_concurrency,
            rpc.batch_timeout_s,
            rpc.batch_answer_limit_bytes,
            settings.upstream.connections,
            settings.limits.json_depth,
        )
    )
    mcp_front = McpFront(
        main,
        shared.sessions,
        shared.hub,
        shared.streams,
        shared.asks,
        identify,
        batches,
        server.body_limit_bytes,
        mcp.keep_alive_s,
        server.drain_s,
        mcp.retry_ms,
        mcp.sessionless,
        mcp.get_opens_sse,
        mcp.path,
        frozenset(settings.toolsets),
        profiles,
    )
    largest = server.body_limit_bytes, settings.limits.stranger_body_bytes
    front = Front(main, identify, batches, *largest, profiles, mcp.path)
    portal = replace(front, dispatcher=on_portal)
    paths = _portal(settings.portal)
    return {
        **mcp_fronts(mcp_front),
        rpc.path: JsonRpcHTTP(front, Rules(JSON_RPC, spec=True, legacy=rpc.legacy)),
        **{path: JsonRpcHTTP(portal, rules) for path, rules in paths.items()},
    }


def _portal(portal: Portal) -> dict[str, Rules]:
    if not portal.enabled:
        return {}

    def rules(side: Side, legacy: bool) -> Rules:
        return Rules(
            PORTAL,
            spec=portal.compat == "spec",
            legacy=legacy,
            wrapped=portal.pre_handler_errors == "wrapped",
            side=side,
            auth_first=portal.auth_first,
            void_body=b"{}" if portal.void_body == "object" else b"",
        )

    return {
        portal.query_path: rules("query", portal.query_legacy),
        portal.command_path: rules("command", portal.command_legacy),
    }
