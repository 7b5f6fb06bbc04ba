"""`toolgate agents`: agents, and the skills granted to them."""

from decimal import Decimal, InvalidOperation

import click
import msgspec

from config.settings import Settings
from gateway.cli.access.acts import Act
from gateway.cli.common.database import open_registry, run, settings_option
from gateway.cli.common.failure import USAGE, fail, no_such
from gateway.cli.common.lazy import LazyGroup
from gateway.cli.common.options import ask, json_option, yes_option
from gateway.cli.common.output import first_line, print_json, print_rows, remark, say
from registry.skills.agents import AgentDraft, AgentStore, Granted

COMMANDS = {
    "list": ("gateway.cli.skills.agents:list_", "List the agents."),
    "show": ("gateway.cli.skills.agents:show", "Show an agent and its skills."),
    "add": ("gateway.cli.skills.agents:add", "Add an agent, or describe it anew."),
    "grant": ("gateway.cli.skills.agents:grant", "Give an agent skills."),
    "revoke": ("gateway.cli.skills.agents:revoke", "Take skills from an agent."),
    "remove": ("gateway.cli.skills.agents:remove", "Remove an agent."),
}

Described = tuple[AgentDraft, list[Granted]]


@click.group(cls=LazyGroup, lazy=COMMANDS)
def agents() -> None:
    """List, show, add and remove agents, and say which skills they have.

    A client is an agent by the claim of its token that skills.agent_claim names, else by
    ?agent=NAME in the address. It sees the skills that it has, the most important first; who is no
    agent sees all skills.
    """


@click.command(name="list")
@json_option
@settings_option
def list_(settings: Settings, as_json: bool) -> None:
    """List the agents.

    In a pipe one line each: name, number of skills, what it is for.
    """
    found = run(_agents(settings))
    if as_json:
        print_json([_builtins(*one) for one in found])
        return
    print_rows(
        ("name", "skills", "what it is for"),
        [(agent.name, str(len(has)), first_line(agent.description)) for agent, has in found],
    )
    if not found:
        remark("No agents yet. Try: toolgate agents add NAME --description TEXT")


@click.command()
@click.argument("name")
@json_option
@settings_option
def show(settings: Settings, name: str, as_json: bool) -> None:
    """Show the agent NAME and its skills, the most important first."""
    found = {agent.name: (agent, has) for agent, has in run(_agents(settings))}
    if name not in found:
        no_such("agent", name, found)
    agent, has = found[name]
    if as_json:
        print_json(_builtins(agent, has))
        return
    say(agent.name, "bold")
    for line in _lines(agent):
        say(f"  {line}")
    print_rows(
        ("skill", "priority", "sequence"),
        [(f"  {one.skill}", str(one.priority), str(one.sequence)) for one in has],
    )
    if not has:
        remark(f"It has no skills. Give it some: toolgate agents grant {name} SKILL")


@click.command()
@click.argument("name")
@click.option("--description", default="", metavar="TEXT", help="What the agent is for.")
@click.option("--model", metavar="NAME", help="The model that it runs on, for people to know.")
@click.option("--provider", metavar="NAME", help="Whose model that is.")
@click.option("--temperature", metavar="NUMBER", help="Of the model, from 0 to 2.")
@click.option(
    "--max-tokens", type=click.IntRange(1), metavar="N", help="Of an answer of the model."
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
    """Add the agent NAME.

    If it is there already, describe it anew; its skills stay.
    """
    draft = AgentDraft(name, description, provider, model, _temperature(temperature), max_tokens)

    async def work() -> bool:
        async with open_registry(settings, Act("putAgent", name)) as registry:
            return await AgentStore(registry.database.pool).add(registry.host_id, draft)

    say(f"{'Added' if run(work()) else 'Changed'} {name}.")
    remark(f"Give it skills: toolgate agents grant {name} SKILL")


@click.command()
@click.argument("name")
@click.argument("skills", nargs=-1, required=True, metavar="SKILL...")
@click.option("--priority", type=int, default=0, show_default=True, help="Greater is listed first.")
@click.option(
    "--sequence", type=int, metavar="N", help="Place among equal ones [default: behind the others]."
)
@settings_option
def grant(
    settings: Settings, name: str, skills: tuple[str, ...], priority: int, sequence: int | None
) -> None:
    """Give the agent NAME one or more skills.

    With each it has all that stand below it.
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
    """Take one or more skills from the agent NAME."""

    async def work() -> None:
        async with open_registry(settings, Act("revokeSkills", name)) as registry:
            store = AgentStore(registry.database.pool)
            await store.revoke(registry.host_id, name, list(skills))

    run(work())
    say(f"{name} has no longer: {', '.join(skills)}")


@click.command()
@click.argument("name")
@yes_option
@settings_option
def remove(settings: Settings, name: str, yes: bool) -> None:
    """Remove the agent NAME. Clients that are it are then refused; its skills stay."""
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
        fail(f"--temperature: {text!r} is no number from 0 to 2", USAGE)
    return number


def _builtins(agent: AgentDraft, has: list[Granted]) -> dict[str, object]:
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
