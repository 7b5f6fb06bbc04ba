"""`toolgate agents`: agents, and the skills granted to them."""

from decimal import Decimal, InvalidOperation

import click
import msgspec

from config.settings import Settings
from gateway.cli.common.acts import Act
from gateway.cli.common.database import open_registry, run, settings_option
from gateway.cli.common.failure import USAGE, fail, no_such
from gateway.cli.common.lazy import LazyGroup
from gateway.cli.common.options import ask, json_option, yes_option
from gateway.cli.common.output import first_line, print_json, print_rows, remark, say
from registry.skills.agents import AgentDraft, AgentStore, GrantedSkills

COMMANDS = {
    "list": ("gateway.cli.skills.agents:list_", "List the agents."),
    "show": ("gateway.cli.skills.agents:show", "Show an agent and its skills."),
    "add": ("gateway.cli.skills.agents:add", "Add or update an agent."),
    "grant": ("gateway.cli.skills.agents:grant", "Grant skills to an agent."),
    "revoke": ("gateway.cli.skills.agents:revoke", "Revoke skills of an agent."),
    "remove": ("gateway.cli.skills.agents:remove", "Remove an agent."),
}

Described = tuple[AgentDraft, list[GrantedSkills]]


@click.group(cls=LazyGroup, lazy=COMMANDS)
def agents() -> None:
    """List, show, add and remove agents, and grant skills to them.

    The token's claim skills.agent_claim names the agent of a client; else ?agent=NAME in its URL
    does. An agent sees the skills granted to it, most important first; other clients see all
    skills.
    """


@click.command(name="list")
@json_option
@settings_option
def list_(settings: Settings, as_json: bool) -> None:
    """List the agents.

    A pipe gets one line for each: name, number of skills, description.
    """
    agents = run(_agents(settings))
    if as_json:
        print_json([_builtins(*pair) for pair in agents])
        return
    print_rows(
        ("name", "skills", "description"),
        [(agent.name, str(len(has)), first_line(agent.description)) for agent, has in agents],
    )
    if not agents:
        remark("No agents yet. Try: toolgate agents add NAME --description TEXT")


@click.command()
@click.argument("name")
@json_option
@settings_option
def show(settings: Settings, name: str, as_json: bool) -> None:
    """Show the agent NAME and its skills, most important first."""
    by_name = {agent.name: (agent, has) for agent, has in run(_agents(settings))}
    if name not in by_name:
        no_such("agent", name, by_name)
    agent, has = by_name[name]
    if as_json:
        print_json(_builtins(agent, has))
        return
    say(agent.name, "bold")
    for line in _lines(agent):
        say(f"  {line}")
    print_rows(
        ("skill", "priority", "sequence"),
        [(f"  {skill.skill}", str(skill.priority), str(skill.sequence)) for skill in has],
    )
    if not has:
        remark(f"It has no skills. Grant some: toolgate agents grant {name} SKILL")


@click.command()
@click.argument("name")
@click.option("--description", default="", metavar="TEXT", help="Description of the agent.")
@click.option("--model", metavar="NAME", help="Model of the agent, for information.")
@click.option("--provider", metavar="NAME", help="Provider of the model.")
@click.option("--temperature", metavar="NUMBER", help="Temperature of the model, from 0 to 2.")
@click.option(
    "--max-tokens",
    type=click.IntRange(1),
    metavar="N",
    help="Most tokens of a response of the model.",
)
@settings_option
def add(
    settings: Settings,
    name: str,
    description: str,
    model: str | None,
    provider: str | None,
    temperature: str | None,
    max_tokens: int | None,
) -> None:
    """Add or update the agent NAME. Its skills stay."""
    draft = AgentDraft(name, description, provider, model, _temperature(temperature), max_tokens)

    async def work() -> bool:
        async with open_registry(settings, Act("putAgent", name)) as registry:
            return await AgentStore(registry.database.pool).add(registry.host_id, draft)

    say(f"{'Added' if run(work()) else 'Changed'} {name}.")
    remark(f"Grant it skills: toolgate agents grant {name} SKILL")


@click.command()
@click.argument("name")
@click.argument("skills", nargs=-1, required=True, metavar="SKILL...")
@click.option(
    "--priority",
    type=int,
    default=0,
    show_default=True,
    help="Priority; the highest is listed first.",
)
@click.option(
    "--sequence", type=int, metavar="N", help="Order among equal priorities [default: last]."
)
@settings_option
def grant(
    settings: Settings, name: str, skills: tuple[str, ...], priority: int, sequence: int | None
) -> None:
    """Grant one or more skills to the agent NAME.

    A grant includes all skills below the skill.
    """

    async def work() -> None:
        async with open_registry(settings, Act("grantSkills", name)) as registry:
            store = AgentStore(registry.database.pool)
            await store.grant(
                registry.host_id, name, skills=list(skills), priority=priority, sequence=sequence
            )

    run(work())
    say(f"{name} has {', '.join(skills)}.")


@click.command()
@click.argument("name")
@click.argument("skills", nargs=-1, required=True, metavar="SKILL...")
@settings_option
def revoke(settings: Settings, name: str, skills: tuple[str, ...]) -> None:
    """Revoke one or more skills of the agent NAME."""

    async def work() -> None:
        async with open_registry(settings, Act("revokeSkills", name)) as registry:
            store = AgentStore(registry.database.pool)
            await store.revoke(registry.host_id, name, list(skills))

    run(work())
    say(f"Revoked from {name}: {', '.join(skills)}")


@click.command()
@click.argument("name")
@yes_option
@settings_option
def remove(settings: Settings, name: str, yes: bool) -> None:
    """Remove the agent NAME. Its clients are then refused; its skills stay."""
    if not yes:
        ask("remove", name)

    async def work() -> None:
        async with open_registry(settings, Act("deleteAgent", name)) as registry:
            await AgentStore(registry.database.pool).remove(registry.host_id, name)

    run(work())
    say(f"Removed {name}.")


def _temperature(text: str | None) -> Decimal | None:
    if text is None:
        return None
    try:
        number = Decimal(text)
    except InvalidOperation:
        number = Decimal(-1)
    if not 0 <= number <= 2:
        fail(f"--temperature: {text!r} is not a number from 0 to 2", USAGE)
    return number


def _builtins(agent: AgentDraft, has: list[GrantedSkills]) -> dict[str, object]:
    return {**msgspec.to_builtins(agent, builtin_types=(Decimal,)), "skills": has}


def _lines(agent: AgentDraft) -> list[str]:
    facts = {
        "for": agent.description,
        "model": " ".join(filter(None, (agent.model_provider, agent.model_name))),
        "temperature": agent.temperature,
        "max tokens": agent.max_tokens,
    }
    return [f"{label}: {fact}" for label, fact in facts.items() if fact not in (None, "")]


async def _agents(settings: Settings) -> list[Described]:
    async with open_registry(settings) as registry:
        return await AgentStore(registry.database.pool).agents(registry.host_id)
