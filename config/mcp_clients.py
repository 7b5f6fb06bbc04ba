"""Configurations of MCP clients for an endpoint of the gateway: rows of mcp_clients.yaml."""

import base64
import json
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote

import msgspec
import yaml
from msgspec import Struct

from config.settings import Settings

TABLE = Path(__file__).with_name("mcp_clients.yaml")
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}")
Json = dict[str, Any]


class McpClient(Struct, frozen=True, forbid_unknown_fields=True):
    """One client; the head of mcp_clients.yaml describes the members."""

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
        filled: Json = fill({**self.entry, **(self.key if with_key else {})}, values)
        return filled

    def document(self, values: Mapping[str, str], with_key: bool) -> Json:
        """The file of the client with this server alone."""
        at = (*self.at, values["name"]) if self.at else ()
        document: Json = self.entry_of(values, with_key)
        for name in reversed(at):
            document = {name: document}
        return {**fill(self.top, values), **document} if with_key else document

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
        client_entry = {"name": values["name"], **entry}
        packed = base64.b64encode(json.dumps(entry).encode()).decode()
        parts = {"name": values["name"], "json": json.dumps(client_entry), "base64": packed}
        return self.link.format(**{name: quote(text, safe="") for name, text in parts.items()})


@cache
def read_clients() -> Mapping[str, McpClient]:
    rows = yaml.safe_load(TABLE.read_text(encoding="utf-8"))
    return msgspec.convert(rows, dict[str, McpClient])


def client_values(settings: Settings, name: str, toolset: str | None) -> Mapping[str, str]:
    """The texts of a configuration: of the endpoint of a toolset, or of all tools."""
    server = settings.server
    base = server.public_url.rstrip("/") or f"http://{server.host}:{server.port}"
    path = settings.mcp.path + (f"/{toolset}" if toolset else "")
    # not TOOLGATE_..., which are settings
    variable = f"MCP_KEY_{name.upper().replace('-', '_')}"
    return {
        "url": base + path,
        "name": name,
        "env": variable,
        "command": "toolgate",
        "key_file": str(Path.home() / f"{name}.key"),
    }


def fill(value: Any, values: Mapping[str, str]) -> Any:
    """`value` with the names in braces replaced in all of its texts."""
    if isinstance(value, str):
        for name, text in values.items():
            value = value.replace(f"{{{name}}}", text)
        return value
    if isinstance(value, dict):
        return {name: fill(inner, values) for name, inner in value.items()}
    return [fill(inner, values) for inner in value] if isinstance(value, list) else value
