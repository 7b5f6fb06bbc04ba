"""Wiring of the console. Imported only where it is switched on."""

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

from config.settings import Settings
from gateway.admin.resources.status import Examine
from gateway.admin.service import AdminApi
from gateway.admin.siblings import STATUS_S, Siblings
from gateway.app.access import Access
from gateway.app.methods import calling
from gateway.app.shared import Shared
from gateway.console.app import Console
from gateway.console.desk import ConsoleParts
from gateway.console.figures import Figures
from gateway.context import Context
from gateway.middleware.telemetry import Metrics
from gateway.wings.abc import Offer
from registry.catalog.catalogs import Catalogs
from registry.database.postgres import Pool
from schemas.jsonrpc import Request


def console_of(
    settings: Callable[[], Settings],
    api: AdminApi,
    *,
    access: Access,
    shared: Shared,
    catalogs: Catalogs,
    metrics: Metrics,
    pool: Callable[[], Pool | None],
    outcome: Callable[[Context, Request], Awaitable[Any]],
    offers: Mapping[str, Offer],
    states: Callable[[], Mapping[str, Any]],
    siblings: Siblings | None,
    examine: Examine | None,
) -> Console:
    """The console of a gateway. `settings`: those of now; `offers`: of open wings; `states`: of the
    parts of the gateway; `siblings`: the other workers; `examine`: the checks of `toolgate doctor`,
    if the process can make them."""
    sessions, hub, console = shared.sessions, shared.hub, settings().console
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
        id_token=access.authenticator.id_token,
        call=calling(outcome),
        catalogs=catalogs,
        offers=offers,
        figures=figures,
        metrics=metrics.registry,
        states=states,
        examine=examine,
    )
    return Console(parts, console.path)
