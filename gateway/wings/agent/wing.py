"""The agent as a wing."""

import importlib.resources
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.routing import Route

from gateway.wings.abc import Offer, Wing, WingParts
from gateway.wings.agent.agui import PATH, AgUi
from gateway.wings.agent.api import ROOT, StreamApi
from gateway.wings.agent.facade import COMPLETIONS, MODELS, Facade
from gateway.wings.agent.operations import ConversationOperations
from gateway.wings.agent.runner import Runner
from registry.database.migrate import Component

FILES = importlib.resources.files("gateway.wings.agent")


@asynccontextmanager
async def opened(parts: WingParts) -> AsyncIterator[Offer]:
    runner = Runner(parts)
    operations = ConversationOperations(runner, parts.settings, parts.models.configured)
    streams = StreamApi(parts, runner)
    agui = AgUi(streams, runner)
    facade = Facade(streams, runner, parts.models.configured)
    own = streams.app(Route(PATH, agui.run, methods=["POST"]))
    yield Offer(
        operations=operations.operations,
        tasks=[runner.run],
        apps={ROOT: own, COMPLETIONS: facade.app, MODELS: facade.app},
    )


WING = Wing(
    name="agent",
    title="Agent",
    open=opened,
    mounts=(ROOT, COMPLETIONS, MODELS),
    migrations=Component("agent", FILES.joinpath("sql")),
    commands={
        "chat": ("gateway.cli.agent:chat", "Chat with the agent."),
        "eval": ("gateway.cli.agent_eval:evaluate", "Measure how well it does."),
    },
)
