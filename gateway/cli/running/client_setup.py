"""`toolgate clients setup`: configurations of MCP clients, printed, and written where their file is
known. The clients are rows of config/mcp_clients.yaml."""

import json
import os
import re
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
from msgspec.structs import replace

from config.mcp_clients import NAME, McpClient, client_values, fill, read_clients
from config.settings import Settings
from gateway.cli.common.failure import fail, no_such
from gateway.cli.common.output import note, say
from gateway.cli.common.settings import settings_option

_GATEWAY = re.compile(r"https?://[^\s/?#@]+(/[^\s?#]*)?")


def merge(client: McpClient, file: Path, values: Mapping[str, str], with_key: bool) -> str:
    """The text of a file with the server. All else in it stays. Fails for a file that
    cannot be merged, or has the server already."""
    before = file.read_text(encoding="utf-8") if file.exists() else ""
    text = client.text(values, with_key)
    if not before.strip():
        return text
    conflict = f"{file} has a server {values['name']} already: choose another --name, or edit it"
    if client.format == "yaml":
        fail(conflict)
    try:
        document = tomllib.loads(before) if client.format == "toml" else json.loads(before)
    except ValueError:
        kind = client.format.upper()
        fail(f"{file} is no plain {kind} (comments?): add what is printed without --write by hand")
    holder: Any = document
    for name in client.at:
        holder = holder.setdefault(name, {})
    if values["name"] in holder:
        fail(conflict)
    if client.format == "toml":
        return f"{before.rstrip()}\n\n{text}"
    holder[values["name"]] = client.entry_of(values, with_key)
    if with_key:
        for name, added in fill(client.top, values).items():
            present = document.setdefault(name, [])
            present += [item for item in added if item not in present]
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def write(file: Path, text: str) -> None:
    """Replace a file, whose former text stays beside it, as `.bak`; a new one is its owner's."""
    file.parent.mkdir(parents=True, exist_ok=True)
    mode = 0o600
    if file.exists():
        mode = file.stat().st_mode & 0o777
        backup = file.with_name(f"{file.name}.bak")
        backup.write_bytes(file.read_bytes())
        backup.chmod(mode)
    draft = file.with_name(f".{file.name}.new")
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "w") as opened:
        opened.write(text)
    draft.replace(file)


@click.command(name="setup")
@click.argument("client", required=False)
@click.option(
    "--url", metavar="URL", help="URL of a gateway elsewhere [default: server.public_url]."
)
@click.option("--toolset", metavar="NAME", help="Endpoint of a toolset instead of all tools.")
@click.option("--name", default="toolgate", show_default=True, help="Of the server, in the client.")
@click.option("--key", "with_key", is_flag=True, help="Callers need an API key; else they log in.")
@click.option("--write", "writes", is_flag=True, help="Add it to the file of the client.")
@settings_option
def setup(
    settings: Settings,
    client: str | None,
    *,
    url: str | None,
    toolset: str | None,
    name: str,
    with_key: bool,
    writes: bool,
) -> None:
    """Print the configuration of the MCP client CLIENT for this gateway.

    Without CLIENT, the clients are listed. A key is never printed or written: the configuration
    names a variable of the environment or a file with the key, or asks for it.

    \b
    Examples:
      toolgate clients setup vscode
      toolgate clients setup codex --key --write
      toolgate clients setup claude-code --url https://tools.example.com
    """
    clients = read_clients()
    if client is None:
        for client_name, row in clients.items():
            say(f"{client_name:15} {row.title}")
        return
    if client not in clients:
        no_such("client", client, clients, "toolgate clients setup")
    values = setup_values(settings, name, toolset, url) | {"command": program()}
    row = clients[client]
    if writes:
        if not row.file or (with_key and row.literal):
            reason = "reads no variables, and this writes no keys" if row.file else "has no file"
            fail(f"{row.title} {reason}: leave --write out, and add it by hand")
        file = Path(fill(row.file, values)).expanduser()
        write(file, merge(row, file, values, with_key))
        say(f"Added {name} to {file}.")
    else:
        say(row.text(values, with_key).rstrip())
        note(f"In {fill(row.file, values) or row.where}")
    if link := row.deep_link(values, with_key):
        note(f"Or open {link}")
    if with_key and not row.top:
        note(place_of_key(row, values))


def place_of_key(client: McpClient, values: Mapping[str, str]) -> str:
    """Where the client finds its key, which the configuration only refers to."""
    if values["key_file"] in client.text(values, with_key=True):
        return f"Store a key there: toolgate keys create {values['name']} > {values['key_file']}"
    variable = values["env"]
    if client.literal:
        return f"Replace {variable} by a key of `toolgate keys create`"
    return f"The environment variable {variable} has the key, of `toolgate keys create`"


def program() -> str:
    """The path of this command: programs of a desktop do not know the PATH of a shell."""
    path = Path(sys.executable).with_name("toolgate")
    return str(path) if path.exists() else "toolgate"


def setup_values(
    settings: Settings, name: str, toolset: str | None, url: str | None = None
) -> dict[str, str]:
    """The texts of a configuration. `url`: of a gateway elsewhere, whose toolsets these settings do
    not know; with or without the path of its endpoint. Fails for an unknown toolset, and for an
    invalid name or URL."""
    if not NAME.fullmatch(name):
        fail(f"--name {name!r}: expected letters, digits, - and _")
    if url is not None:
        base = url.rstrip("/").removesuffix(settings.mcp.path)
        if not _GATEWAY.fullmatch(base):
            fail(f"--url {url!r}: expected the URL of a gateway, such as https://tools.example.com")
        elsewhere = replace(settings, server=replace(settings.server, public_url=base))
        return dict(client_values(elsewhere, name, toolset))
    if toolset is not None and toolset not in settings.toolsets:
        toolset_names = ", ".join(settings.toolsets) or "none"
        stored = f"`toolgate toolsets clients {toolset}` prints the configurations of a stored one"
        fail(f"The settings have no toolset {toolset!r} (they have: {toolset_names}); {stored}")
    return dict(client_values(settings, name, toolset))
