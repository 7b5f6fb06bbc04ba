"""`toolgate clients setup`: configurations of MCP clients, printed, and written where their file is
known. The clients are rows of clients.yaml."""

import base64
import json
import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote

import click
import msgspec
import yaml
from msgspec import Struct

from config.settings import Settings
from gateway.cli.common.database import settings_option
from gateway.cli.common.failure import fail, no_such
from gateway.cli.common.output import note, say

TABLE = Path(__file__).with_name("clients.yaml")
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}")
Json = dict[str, Any]


class McpClient(Struct, frozen=True, forbid_unknown_fields=True):
    """One client; the head of clients.yaml describes the members."""

    title: str
    format: Literal["json", "toml", "yaml"]
    at: tuple[str, ...]
    entry: Json
    key: Json
    source: str
    checked: str
    file: str = ""
    where: str = ""
    top: Json = {}
    link: str = ""
    literal: bool = False

    def entry_of(self, values: Mapping[str, str], with_key: bool) -> Json:
        """The server, with a reference to the key."""
        filled: Json = _fill({**self.entry, **(self.key if with_key else {})}, values)
        return filled

    def document(self, values: Mapping[str, str], with_key: bool) -> Json:
        """The file of the client with this server alone."""
        at = (*self.at, values["name"]) if self.at else ()
        document: Json = self.entry_of(values, with_key)
        for name in reversed(at):
            document = {name: document}
        return {**_fill(self.top, values), **document} if with_key else document

    def text(self, values: Mapping[str, str], with_key: bool) -> str:
        document = self.document(values, with_key)
        if self.format == "yaml":
            return yaml.safe_dump(document, sort_keys=False)
        if self.format == "toml":
            entry = self.entry_of(values, with_key)
            members = "".join(f"{name} = {json.dumps(value)}\n" for name, value in entry.items())
            return f"[{'.'.join((*self.at, values['name']))}]\n{members}"
        return json.dumps(document, indent=2) + "\n"

    def deep_link(self, values: Mapping[str, str], with_key: bool) -> str:
        """The link that opens the client; "" if it has none, or the key would stand in it."""
        if not self.link or (with_key and (self.literal or self.top)):
            return ""
        entry = self.entry_of(values, with_key)
        whole = {"name": values["name"], **entry}
        packed = base64.b64encode(json.dumps(entry).encode()).decode()
        parts = {"name": values["name"], "json": json.dumps(whole), "base64": packed}
        return self.link.format(**{name: quote(text, safe="") for name, text in parts.items()})


def read_clients() -> Mapping[str, McpClient]:
    rows = yaml.safe_load(TABLE.read_text(encoding="utf-8"))
    return msgspec.convert(rows, dict[str, McpClient])


def merge(client: McpClient, file: Path, values: Mapping[str, str], with_key: bool) -> str:
    """The text of a file with the server. All else in it stays. Fails for a file that
    cannot be merged, or has the server already."""
    before = file.read_text(encoding="utf-8") if file.exists() else ""
    text = client.text(values, with_key)
    if not before.strip():
        return text
    taken = f"{file} has a server {values['name']} already: choose another --name, or edit it"
    if client.format == "yaml":
        fail(taken)
    try:
        known = tomllib.loads(before) if client.format == "toml" else json.loads(before)
    except ValueError:
        kind = client.format.upper()
        fail(f"{file} is no plain {kind} (comments?): add what is printed without --write by hand")
    holder: Any = known
    for name in client.at:
        holder = holder.setdefault(name, {})
    if values["name"] in holder:
        fail(taken)
    if client.format == "toml":
        return f"{before.rstrip()}\n\n{text}"
    holder[values["name"]] = client.entry_of(values, with_key)
    if with_key:
        for name, added in _fill(client.top, values).items():
            present = known.setdefault(name, [])
            present += [item for item in added if item not in present]
    return json.dumps(known, indent=2, ensure_ascii=False) + "\n"


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


def _fill(value: Any, values: Mapping[str, str]) -> Any:
    """`value` with the names in braces replaced in all of its texts."""
    if isinstance(value, str):
        for name, text in values.items():
            value = value.replace(f"{{{name}}}", text)
        return value
    if isinstance(value, dict):
        return {name: _fill(inner, values) for name, inner in value.items()}
    return [_fill(inner, values) for inner in value] if isinstance(value, list) else value


@click.command(name="setup")
@click.argument("client", required=False)
@click.option("--toolset", metavar="NAME", help="Endpoint of a toolset instead of all tools.")
@click.option("--name", default="toolgate", show_default=True, help="Of the server, in the client.")
@click.option("--key", "with_key", is_flag=True, help="Callers need an API key; else they log in.")
@click.option("--write", "writes", is_flag=True, help="Add it to the file of the client.")
@settings_option
def setup(
    settings: Settings,
    client: str | None,
    *,
    toolset: str | None,
    name: str,
    with_key: bool,
    writes: bool,
) -> None:
    """Print the configuration of the MCP client CLIENT for this gateway.

    Without CLIENT, the clients are listed. A key is never printed or written: the configuration
    names a variable of the environment, or asks for the key.

    \b
    Examples:
      toolgate clients setup vscode
      toolgate clients setup codex --key --write
    """
    clients = read_clients()
    if client is None:
        for known, row in clients.items():
            say(f"{known:15} {row.title}")
        return
    if client not in clients:
        no_such("client", client, clients)
    row, values = clients[client], setup_values(settings, name, toolset)
    if writes:
        if not row.file or (with_key and row.literal):
            reason = "reads no variables, and this writes no keys" if row.file else "has no file"
            fail(f"{row.title} {reason}: leave --write out, and add it by hand")
        file = Path(_fill(row.file, values)).expanduser()
        write(file, merge(row, file, values, with_key))
        say(f"Added {name} to {file}.")
    else:
        say(row.text(values, with_key).rstrip())
        note(f"In {_fill(row.file, values) or row.where}")
    if link := row.deep_link(values, with_key):
        note(f"Or open {link}")
    if with_key and not row.top:
        note(f"{values['env']} is the key, of `toolgate keys create`")


def setup_values(settings: Settings, name: str, toolset: str | None) -> Mapping[str, str]:
    """The texts of a configuration. Fails for an unknown toolset, and for a name that is none."""
    if not NAME.fullmatch(name):
        fail(f"--name {name!r}: expected letters, digits, - and _")
    if toolset is not None and toolset not in settings.toolsets:
        known = ", ".join(settings.toolsets) or "none"
        fail(f"There is no toolset {toolset!r}; known: {known}")
    server = settings.server
    base = server.public_url.rstrip("/") or f"http://{server.host}:{server.port}"
    path = settings.mcp.path + (f"/{toolset}" if toolset else "")
    # not TOOLGATE_..., which are settings
    variable = f"MCP_KEY_{name.upper().replace('-', '_')}"
    return {
        "url": base + path,
        "name": name,
        "env": variable,
        "key_file": str(Path.home() / f"{name}.key"),
    }
