"""`toolgate tools edit | reset-description | disable | enable | remove`."""

import getpass
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar, get_args

import click

from config.settings import Settings
from gateway.cli.common.acts import Act
from gateway.cli.common.database import open_registry, run, settings_option
from gateway.cli.common.failure import USAGE, fail, no_such
from gateway.cli.common.options import ask, check_tier, finding_options, yes_option
from gateway.cli.common.output import say
from gateway.cli.tools.add import schema_of
from registry.importers.drafts import truncate
from registry.tools.edits import COST_TIERS, Details, Lifecycle, ManualEdit, NoSuchTool
from registry.tools.store import ManualTools
from schemas.errors import Fault
from schemas.jsonrpc import decode_strict

T = TypeVar("T")


@click.command()
@click.argument("name")
@click.option("--description", metavar="TEXT", help="Description for the model.")
@click.option("--title", metavar="TEXT", help="Name for people.")
@click.option("--input-schema", metavar="FILE|JSON", help="JSON Schema of the arguments.")
@click.option(
    "--example",
    "examples",
    metavar="JSON",
    multiple=True,
    help="Arguments of an example call; repeatable.",
)
@click.option(
    "--tag",
    "tags",
    metavar="TAG",
    multiple=True,
    help="Tag, which replaces the present tags; repeatable.",
)
@finding_options
@click.option(
    "--lifecycle",
    type=click.Choice(get_args(Lifecycle)),
    help="Lifecycle; retired tools are not found.",
)
@click.option("--personas", metavar="TEXT", help="Target personas.")
@click.option("--cost", type=click.Choice(["", *COST_TIERS]), help="Cost of a call.")
@settings_option
def edit(settings: Settings, name: str, **said: Any) -> None:
    """Change the description and metadata of the tool NAME.

    An empty value "" removes a text, except the description, which models need to choose a tool.

    Imported tools take --description, --domain, --namespace, --tier, --weight, --lifecycle,
    --personas, --cost and --keyword. Later imports keep a changed description until `toolgate
    tools reset-description`. Manual tools take all options.

    \b
    Examples:
      toolgate tools edit listPets --description "Pets that can be bought"
      toolgate tools edit deletePet --tier confidential --lifecycle deprecated
    """
    given = {key: value for key, value in said.items() if value not in (None, ())}
    if not given:
        fail("expected an option that changes the tool; see `toolgate tools edit --help`", USAGE)
    description = given.get("description")
    if description is not None and not description.strip():
        fail("expected a description that is not empty: models choose a tool by it", USAGE)
    check_tier(given.get("tier"), settings.policy.tiers)
    change, user = _change(given), getpass.getuser()
    run(_with(settings, Act("editTool", name), lambda tools: tools.edit(name, change, user)))
    say(f"Changed {name}.")


@click.command(name="reset-description")
@click.argument("name")
@settings_option
def reset(settings: Settings, name: str) -> None:
    """Restore the description of the tool NAME from its source.

    Later imports update it again.
    """
    text = run(
        _with(settings, Act("resetDescription", name), lambda tools: tools.reset_description(name))
    )
    say(f"{name} has the description of its source:\n{text}")


@click.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@settings_option
def disable(settings: Settings, names: tuple[str, ...]) -> None:
    """Disable tools.

    Clients neither see nor call them, also after imports, until `toolgate tools enable`.
    `toolgate tools list --disabled` lists them.
    """
    done = run(
        _with(settings, Act("disableTool", ", ".join(names)), lambda tools: tools.disable(names))
    )
    for name in names:
        say(f"Disabled {name}." if name in done else f"{name} is disabled already.")


@click.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@settings_option
def enable(settings: Settings, names: tuple[str, ...]) -> None:
    """Enable disabled tools."""
    done = run(
        _with(settings, Act("enableTool", ", ".join(names)), lambda tools: tools.enable(names))
    )
    for name in names:
        say(f"Enabled {name}." if name in done else f"{name} is not disabled.")


@click.command()
@click.argument("name")
@yes_option
@settings_option
def remove(settings: Settings, name: str, yes: bool) -> None:
    """Remove the manual tool NAME.

    A source that was made for this tool only is removed, too. To hide an imported tool, use
    `toolgate tools disable`.
    """
    if not yes:
        ask("remove", name)
    run(_with(settings, Act("deleteTool", name), lambda tools: tools.remove(name)))
    say(f"Removed {name}.")


async def _with(settings: Settings, act: Act, work: Callable[[ManualTools], Awaitable[T]]) -> T:
    async with open_registry(settings, act) as registry:
        tools = ManualTools(registry.database.pool, registry.host_id)
        try:
            return await work(tools)
        except NoSuchTool as error:
            there = [tool.name for tool in await registry.store.tools(registry.host_id)]
            disabled = [tool.name for tool in await tools.list_disabled()]
            no_such("tool", error.name, [*there, *disabled])


def _change(given: dict[str, Any]) -> ManualEdit:
    schema = given.get("input_schema")
    description = given.get("description")
    return ManualEdit(
        description=None if description is None else truncate(description),
        title=given.get("title"),
        input_schema=None if schema is None else schema_of(schema),
        examples=tuple(map(_example, given["examples"])) if "examples" in given else None,
        tags=_split_values(given.get("tags")),
        details=Details(
            routing_domain=given.get("domain"),
            semantic_namespace=given.get("namespace"),
            sensitivity_tier=given.get("tier"),
            semantic_weight=given.get("weight"),
            lifecycle_status=given.get("lifecycle"),
            target_personas=given.get("personas"),
            keywords=_split_values(given.get("keywords")),
            cost_tier=given.get("cost"),
        ),
    )


def _split_values(given: Sequence[str] | None) -> tuple[str, ...] | None:
    """The values; one empty text means an empty list."""
    return None if given is None else tuple(value for value in given if value)


def _example(text: str) -> Any:
    try:
        return decode_strict(text.encode())
    except (Fault, UnicodeEncodeError) as error:
        fail(f"--example: {error}", USAGE)
