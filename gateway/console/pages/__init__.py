"""Pages of the console."""

from gateway.console.pages import (
    access,
    acts,
    catalog,
    chat,
    choices,
    connect,
    knowledge,
    live,
    notifications,
    overview,
    playground,
    programs,
    searches,
    skills,
    sources,
    tasks,
    tools,
    toolsets,
)
from gateway.console.routes import PageRoute

ROUTES: tuple[PageRoute, ...] = (
    *overview.ROUTES,
    *tools.ROUTES,
    *sources.ROUTES,
    *access.ROUTES,
    *catalog.ROUTES,
    *chat.ROUTES,
    *choices.ROUTES,
    *connect.ROUTES,
    *knowledge.ROUTES,
    *live.ROUTES,
    *notifications.ROUTES,
    *playground.ROUTES,
    *programs.ROUTES,
    *searches.ROUTES,
    *skills.ROUTES,
    *tasks.ROUTES,
    *toolsets.ROUTES,
    *acts.ROUTES,
)
