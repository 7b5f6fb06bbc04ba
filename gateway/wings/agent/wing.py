"""The agent as a wing."""

import importlib.resources
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, nullcontext
from datetime import UTC, datetime
from functools import partial

from msgspec.structs import asdict, astuple
from starlette.routing import Route

from config.agent import AgentBudget, AgentSettings
from gateway.operations.resource_view import ResourceView
from gateway.wings.agent.agui import PATH, AgUi
from gateway.wings.agent.conversation_and_run_store import Conversations
from gateway.wings.agent.http_streams import ROOT, StreamApi
from gateway.wings.agent.openai_chat import COMPLETIONS, MODELS, Facade
from gateway.wings.agent.operations import ConversationOperations
from gateway.wings.agent.runner import Runner
from gateway.wings.interface import Concern, Sentence, Wing, WingContributions, WingParts
from registry.database.migrate import Component
from registry.database.person_rows import HeldRows
from registry.database.postgres import Pool

OWNERS = 500  # whose budgets are looked at
TABLES = Component("agent", importlib.resources.files("gateway.wings.agent").joinpath("sql"))


@asynccontextmanager
async def open_agent(parts: WingParts) -> AsyncIterator[WingContributions]:
    settings: AgentSettings = parts.settings
    in_memory = settings.storage == "memory"
    async with parts.database.temporary(TABLES) if in_memory else nullcontext(parts.pool) as pool:
        runner = Runner(parts, pool)
        yield _offer(parts, runner, pool)


def _offer(parts: WingParts, runner: Runner, pool: Pool) -> WingContributions:
    operations = ConversationOperations(runner, parts.settings, parts.models.configured_strategies)
    streams = StreamApi(parts, runner)
    agui = AgUi(streams, runner)
    facade = Facade(streams, runner, parts.models.configured_strategies)
    agui_app = streams.app(Route(PATH, agui.run, methods=["POST"]))
    return WingContributions(
        operations=operations.operations,
        tasks=[runner.run],
        pages=PAGES,
        apps={ROOT: agui_app, COMPLETIONS: facade.app, MODELS: facade.app},
        follow=streams.events_of_run,
        concerns=partial(used_budgets, runner.conversations, parts.settings.budgets.day),
        erasers=[
            HeldRows(place="conversations", table="agent_conversation_t", pool=lambda: pool),
            HeldRows(
                place="usage of the agent",
                table="agent_usage_t",
                pool=lambda: pool,
                blanks="owner = %(pseudonym)s",
                remains="tokens and costs by day, under the pseudonym, until agent.usage_days",
                is_copy=False,
            ),
        ],
    )


async def used_budgets(
    conversations: Conversations, day: AgentBudget, tenant: str
) -> Sequence[Concern]:
    """The fullest budget of each owner on this day."""
    if not any(astuple(day)):
        return ()
    concerns: list[Concern] = []
    for owner, used in await conversations.used_today(tenant, OWNERS):
        shares = {name: getattr(used, name) / limit for name, limit in asdict(day).items() if limit}
        name = max(shares, key=lambda kind: shares[kind])
        amount, limit = f"{getattr(used, name):,.6g}", f"{getattr(day, name):,}"
        detail = Sentence(
            "{used} of {limit} {unit} of this day.", {"used": amount, "limit": limit, "unit": name}
        )
        title = Sentence(
            "{caller} has used {share} of the agent's budget",
            {"caller": owner, "share": f"{shares[name]:.0%}"},
        )
        key = f"agent {owner} {datetime.now(UTC):%Y-%m-%d}"
        concerns.append(Concern("budgets", key, title, detail, "agent", shares[name]))
    return concerns


PAGES = (
    ResourceView(
        title="Agent runs",
        icon="agent",
        path="agent",
        lists="agent_list_runs",
        columns=(
            ("run", "Run", "code"),
            ("state", "State", "badge"),
            ("answer", "Answer", "text"),
            ("tokens", "Tokens", "number"),
            ("money", "Money", "number"),
        ),
        shows="agent_get_run",
        key="run",
        acts=("agent_cancel_run",),
        also=(("Transcript", "agent_get_transcript"),),
        empty="What the agent did: its answer, its calls of tools, its tokens.",
    ),
)

WING = Wing(
    name="agent",
    title="Agent",
    open=open_agent,
    mounts=(ROOT, COMPLETIONS, MODELS),
    migrations=TABLES,
    commands={
        "chat": ("gateway.cli.agent:chat", "Chat with the agent."),
        "eval": ("gateway.cli.agent_eval:evaluate", "Measure how well it does."),
    },
)
