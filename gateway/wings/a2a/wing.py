"""Agents for other agents as a wing."""

import dataclasses
import importlib.resources
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

from msgspec.structs import replace

from config.a2a import A2ASettings
from gateway.http_client.webhooks import WebhookSender
from gateway.operations.resource_view import ResourceView
from gateway.wings.a2a.cards import CARD, ROOT
from gateway.wings.a2a.http_api import A2AApi
from gateway.wings.a2a.operations import A2AOperations
from gateway.wings.a2a.task_agents import make_agents
from gateway.wings.a2a.task_runner import TaskRunner
from gateway.wings.a2a.task_webhooks import Webhooks
from gateway.wings.interface import Finding, Wing, WingContributions, WingParts
from registry.database.migrate import Component
from registry.database.person_rows import HeldRows
from registry.database.postgres import Pool
from registry.skills.rows import load_skills

TABLES = Component("a2a", importlib.resources.files("gateway.wings.a2a").joinpath("sql"))
DEFAULT = f"/{CARD}"


@asynccontextmanager
async def open_a2a(parts: WingParts) -> AsyncIterator[WingContributions]:
    wing_settings: A2ASettings = parts.settings
    settings = replace(wing_settings, url=wing_settings.url or parts.public_url)
    parts = dataclasses.replace(parts, settings=settings)
    runner = TaskRunner(parts, make_agents(settings.agents))
    async with WebhookSender() as sender:
        webhooks = Webhooks(
            parts.pool, settings, keys=parts.keys, tasks=runner.tasks, sender=sender
        )
        operations = A2AOperations(parts, runner, webhooks)
        api = A2AApi(parts, runner, operations)
        yield WingContributions(
            operations=operations.operations,
            tasks=[runner.run, webhooks.run],
            pages=PAGES,
            apps={ROOT: api, DEFAULT: api.default_card},
            erasers=[HeldRows(place="A2A tasks", table="a2a_task_t", pool=lambda: parts.pool)],
        )


def find_mistakes(settings: A2ASettings) -> Iterator[str]:
    if settings.default and settings.default not in settings.agents:
        yield f"a2a.default: {settings.default} is none of a2a.agents"


async def check_skills(
    settings: A2ASettings, host_id: str, pool: Pool | None
) -> AsyncIterator[Finding]:
    """Skills of the settings that are not stored."""
    unknown = False
    stored_skills = None if pool is None else await load_skills(pool, host_id)
    for name, agent in settings.agents.items() if stored_skills is not None else ():
        for skill in agent.skills:
            if stored_skills is not None and stored_skills.get(skill) is None:
                unknown = True
                text = f"a2a.agents.{name}.skills: there is no skill {skill}"
                yield Finding("failed", f"{text}; expected one of `toolgate skills list`")
    if not unknown:
        yield Finding("ok", "can be opened")


PAGES = (
    ResourceView(
        title="Agents for agents",
        icon="agent",
        path="a2a",
        lists="a2a_list_agents",
        columns=(
            ("agent", "Agent", "code"),
            ("kind", "Kind", "badge"),
            ("description", "Description", "text"),
            ("path", "Path", "code"),
        ),
        shows="a2a_get_card",
        key="agent",
        empty="Agents of the settings (a2a.agents) that other agents reach by A2A.",
    ),
    ResourceView(
        title="Tasks of agents",
        icon="agent",
        path="a2a-tasks",
        lists="a2a_list_tasks",
        columns=(
            ("task", "Task", "code"),
            ("agent", "Agent", "code"),
            ("state", "State", "badge"),
            ("updated", "Updated", "time"),
        ),
        shows="a2a_get_task",
        key="task",
        acts=("a2a_cancel_task",),
        also=(("Webhooks", "a2a_list_webhooks"),),
        empty="What agents of A2A did for you: each message is a task.",
    ),
)

WING = Wing(
    name="a2a",
    title="A2A",
    open=open_a2a,
    path="/a2a-api/v1",
    mounts=(ROOT, DEFAULT),
    body_limits={ROOT: "message_bytes"},
    migrations=TABLES,
    mistakes=find_mistakes,
    checks=check_skills,
    commands={"card": ("gateway.cli.a2a:print_card", "Print your card of an agent.")},
)
