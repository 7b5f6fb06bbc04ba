"""`toolgate connections presets`, and what `toolgate import --connect` tells to do."""

from pathlib import Path
from typing import Any, get_args
from urllib.parse import quote

import click
import yaml
from msgspec import Struct

from config.presets import Preset, read_presets
from config.settings import Settings
from config.sources import PresetName
from gateway.cli.common.options import json_option
from gateway.cli.common.output import print_json, print_rows


class ConnectChoice(Struct, frozen=True):
    """The options of an import by which people get accounts of their own."""

    preset: str
    client_id: str
    secret_file: str

    @property
    def facts(self) -> Preset:
        return read_presets()[self.preset]


def connect_options(command: Any) -> Any:
    """--connect, --client-id and --client-secret-file."""
    for option in (
        click.option(
            "--client-secret-file", metavar="FILE", help="With --connect: file of its secret."
        ),
        click.option(
            "--client-id",
            metavar="ID",
            help="With --connect: id of the gateway as a client of the service.",
        ),
        click.option(
            "--connect",
            type=click.Choice(get_args(PresetName)),
            metavar="PRESET",
            help="Print the settings by which callers use their own accounts; PRESET is one of "
            "`toolgate connections presets`.",
        ),
    ):
        command = option(command)
    return command


def callback_of(settings: Settings, source: str) -> str:
    """The redirect URI to register at the service of a source."""
    public_url = settings.server.public_url.rstrip("/") or "https://GATEWAY"
    return f"{public_url}/connect/{quote(source, safe='')}/callback"


def connect_advice(settings: Settings, source: str, choice: ConnectChoice | None, mcp: str) -> str:
    """The steps that are left before people can connect their accounts; `mcp`: the URL of a source
    that is an MCP server."""
    present = settings.sources.get(source)
    callback = f"Redirect URI of {source}, for OAuth: {callback_of(settings, source)}"
    if choice is None:
        return callback if present is not None and present.connect.has_page else ""
    facts = choice.facts
    connect: dict[str, Any] = {"preset": choice.preset}
    if choice.client_id:
        connect["client"] = {"id": choice.client_id}
    if choice.secret_file:
        path = Path(choice.secret_file).absolute()
        connect["client"] = {**connect.get("client", {}), "secret": f"${{file:{path}}}"}
    entry = {**({"mcp": mcp} if mcp else {}), "connect": connect}
    text = yaml.safe_dump({"sources": {source: entry}}, sort_keys=False)
    registers = facts.own_login and mcp
    where = "The gateway registers itself" if registers else f"Register it at {facts.register}"
    more = (
        "" if settings.login.enabled else "\nPeople log in before they connect: see login.enabled."
    )
    return f"{where}\n{callback}\nAdd to the settings:\n\n{text}{more}".rstrip()


@click.command()
@json_option
def presets(as_json: bool) -> None:
    """List presets of well-known services.

    They are named in the settings, as in sources.NAME.connect: {preset: github}.

    A preset has the addresses of a service's login, the scopes of each task, and the words that
    the service wants. Its values were compared with the metadata that the service publishes, or
    are from its documentation alone.
    """
    presets_by_name = read_presets()
    if as_json:
        print_json(presets_by_name)
        return
    rows = [
        (name, task, f"{preset.checked.how} {preset.checked.date}", " ".join(scopes) or "-")
        for name, preset in presets_by_name.items()
        for task, scopes in preset.tasks.items()
    ]
    print_rows(("Preset", "Task", "Checked", "Scopes"), rows, wrap=True)
