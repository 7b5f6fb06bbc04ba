"""`toolgate registry update`: another version of a server that was added from a registry."""

import click

from config.settings import Settings
from gateway.cli.common.event_loop import run
from gateway.cli.common.options import ask, yes_option
from gateway.cli.common.output import say
from gateway.cli.common.settings import settings_option
from gateway.cli.common.tables import print_entries
from gateway.cli.imports.published import CATALOG, Values, confirm, print_plan
from gateway.cli.imports.report import Json, ReportOptions
from gateway.cli.imports.shared import report_import, whole_report
from gateway.cli.operations import open_client
from gateway.cli.sources.versions import print_difference

CHANGES = [
    ("path", "server.json", "code"),
    ("before", "Before", "text"),
    ("after", "After", "text"),
]


@click.command()
@click.argument("name")
@click.option("--version", default="latest", show_default=True, help="Version to update to.")
@click.option("--set", "pairs", multiple=True, metavar="NAME=VALUE", help="Value of an input.")
@click.option("--allow", multiple=True, metavar="SUBJECT", help="Allow what the plan asks for.")
@yes_option
@settings_option
def update(
    settings: Settings,
    name: str,
    version: str,
    pairs: tuple[str, ...],
    allow: tuple[str, ...],
    yes: bool,
) -> None:
    """Update the source NAME to another version of its server.

    The difference of server.json is shown and confirmed, then that of the tools. A program is
    installed beside the one in use before it is asked for its tools. New and changed tools are
    held back until they are accepted (toolgate tools accept).

    \b
    Example:
      toolgate registry update weather
    """
    run(_update(settings, name, version, values=Values.of(pairs), allow=list(allow), yes=yes))


async def _update(
    settings: Settings, name: str, version: str, *, values: Values, allow: list[str], yes: bool
) -> None:
    async with open_client(settings, url=None, key_file=None, resources=CATALOG) as client:

        async def plan(*, tools: bool) -> Json:
            body = {"version": version, "inputs": values.pairs, "allow": allow, "tools": tools}
            planned: Json = (await client.call("planUpdate", {"source": name, "body": body})).value
            values.sort(planned["plan"].get("questions", ()))
            return planned

        planned = await plan(tools=False)
        if values.ask(planned["plan"]):
            planned = await plan(tools=False)
        print_plan(planned["plan"])
        print_entries(CHANGES, planned["changes"])
        if not planned["changes"]:
            say("server.json is the same.")
        allow += confirm(planned["plan"], name, yes=yes)
        difference = (await plan(tools=not values.secrets))["difference"]
        if difference is not None:
            print_difference(difference)
            if not yes:
                ask("update", name)
        body = {
            "version": planned["plan"]["version"], "allow": allow, "inputs": values.inputs,
            "secrets": values.secrets, "sha256": planned["plan"]["sha256"],
        }  # fmt: skip
        answer = await client.call("updateServer", {"source": name, "body": body, "report": True})
    report_import(whole_report(answer.value), ReportOptions(None, "never"))
