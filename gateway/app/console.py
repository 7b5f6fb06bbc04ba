"""Wiring of the console. Imported only where it is switched on."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from config.settings import Settings
from gateway.admin.http_api import AdminApi
from gateway.admin.resources.status import Examine
from gateway.admin.worker_peers import STATUS_S, WorkerPeers
from gateway.app.access import Access
from gateway.app.method_tables import calling
from gateway.app.shared_state import SharedState
from gateway.app.upstreams import Federation
from gateway.console.asgi_app import Console
from gateway.console.figures import Figures
from gateway.console.live_views import LiveViews
from gateway.console.visitor_operations import ConsoleParts
from gateway.context import Context
from gateway.interfaces import Upstream
from gateway.middleware.message_metrics import Metrics
from gateway.protocol.dispatcher import Dispatcher
from gateway.upstreams.call_recording import CallRecording, RecordingClient, RecordingRelay
from gateway.upstreams.http.client import Client
from gateway.upstreams.mcp.relay import McpUpstream
from gateway.wings.interface import CallTool, WingContributions
from registry.catalog.catalogs import Catalogs
from registry.database.postgres import Pool
from schemas.errors import Fault
from schemas.jsonrpc import Request
from schemas.source import Source
from schemas.tool import Tool, ToolResult


@dataclass(frozen=True, slots=True, kw_only=True)
class CallChains:
    """Middleware and guards of calls of tools, made anew for a call whose requests to services are
    recorded: other calls pass nothing of it."""

    client: Client
    federation: Federation
    upstreams: Callable[[Upstream, Client], Mapping[type, Upstream]]
    dispatcher: Callable[[Mapping[type, Upstream]], Dispatcher]

    def record_calls(self, recording: CallRecording) -> CallTool:
        """Calls through all middleware and guards."""
        return calling(self.dispatcher(self._upstreams(recording)).outcome)

    async def preview(
        self, recording: CallRecording, tool: Tool, source: Source | None, context: Context
    ) -> str:
        """Record the request of a tool that is not called; why there is none, if that is so."""
        upstream = self._upstreams(recording).get(type(tool.binding))
        if upstream is None or not tool.binding.facts.remote:
            return "It runs in the gateway: nothing is sent to a service."
        try:
            result = await upstream.call(tool, source, recording.arguments, context)
        except Fault as fault:
            return "" if recording.exchanges else fault.message
        if recording.exchanges or not isinstance(result, ToolResult):
            return ""
        return " ".join(result.texts)

    def _upstreams(self, recording: CallRecording) -> Mapping[type, Upstream]:
        relay = RecordingRelay(self.federation.relay, self.client.connections, recording)
        mcp = McpUpstream(relay, self.federation.task_ids)
        return self.upstreams(mcp, RecordingClient(self.client, recording))


def _inspects(access: Access, tool: Tool, source: Source | None) -> bool:
    """Whether guardrails are about a tool, and may change what its callers see."""
    return access.guardrails.applies(tool, source)


def console_of(
    settings: Callable[[], Settings],
    api: AdminApi,
    *,
    access: Access,
    state: SharedState,
    catalogs: Catalogs,
    metrics: Metrics,
    pool: Callable[[], Pool | None],
    outcome: Callable[[Context, Request], Awaitable[Any]],
    offers: Mapping[str, WingContributions],
    states: Callable[[], Mapping[str, Any]],
    siblings: WorkerPeers | None,
    examine: Examine | None,
    chains: CallChains,
) -> Console:
    """The console of a gateway. `settings`: those of now; `offers`: of open wings; `states`: of the
    parts of the gateway; `siblings`: the other workers; `examine`: the checks of `toolgate doctor`,
    if the process can make them; `chains`: of calls whose requests are recorded."""
    sessions, hub, console = state.sessions, state.hub, settings().console
    others = None if siblings is None else partial(siblings.ask, "figures", STATUS_S)
    figures = Figures(
        metrics,
        lambda: len(sessions),
        lambda: hub.streams,
        every_s=console.sample_s,
        others=others,
    )
    parts = ConsoleParts(
        settings=settings,
        api=api,
        pool=pool,
        identify=access.identify_admin,
        call=calling(outcome),
        outcome=outcome,
        recorded=chains.record_calls,
        preview=chains.preview,
        inspects=partial(_inspects, access),
        catalogs=catalogs,
        offers=offers,
        figures=figures,
        live_views=LiveViews(),
        metrics=metrics.registry,
        states=states,
        examine=examine,
    )
    return Console(parts, console.path)
