"""Presets of `sources.NAME.connect` for well-known services: presets.yaml, read where one is
named."""

import datetime
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Literal

import msgspec
import yaml
from msgspec import Struct

PRESETS = Path(__file__).with_name("presets.yaml")
ENDPOINTS = ("issuer", "authorization_url", "token_url", "revocation_url")


class Checked(Struct, frozen=True, forbid_unknown_fields=True):
    how: Literal["metadata", "documentation"]
    date: datetime.date


class Preset(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One service; the head of presets.yaml describes the members."""

    title: str
    register: str
    checked: Checked
    connect: Mapping[str, Any]
    tasks: Mapping[str, tuple[str, ...]]
    mcp: str = ""
    own_login: bool = False


@cache
def read_presets() -> Mapping[str, Preset]:
    plain = yaml.safe_load(PRESETS.read_bytes())
    return msgspec.convert(plain, dict[str, Preset])


def complete_connect(connect: Mapping[str, Any], *, is_mcp: bool) -> dict[str, Any]:
    """The members of `connect` with those of the preset that it names. `is_mcp`: the source is an
    MCP server. Raises ValueError for a task that the preset does not have, and without the client
    that the service has to know."""
    preset = read_presets()[connect["preset"]]
    tasks = connect.get("tasks") or [*preset.tasks][:1]
    for task in tasks:
        if task not in preset.tasks:
            raise ValueError(f"expected tasks among {', '.join(preset.tasks)}, found {task[:80]!r}")
    usual: dict[str, Any] = {"mode": "user", "title": preset.title}
    is_own_server = any(connect.get(key) for key in ENDPOINTS)
    if not (is_mcp and preset.own_login):
        if not (connect.get("client") or is_own_server or connect.get("oauth") is False):
            beside = f", or mcp: {preset.mcp} beside connect" if preset.own_login else ""
            text = f"expected client, with the id and secret that you get at {preset.register}"
            raise ValueError(text + beside)
        scopes = dict.fromkeys(scope for task in tasks for scope in preset.tasks[task])
        usual |= {**preset.connect, "scopes": tuple(scopes)}
    if is_own_server:  # and nothing of the service's own
        usual = {key: value for key, value in usual.items() if key not in ENDPOINTS}
    authorize = {**usual.get("authorize", {}), **connect.get("authorize", {})}
    client = connect.get("client") and {**usual.get("client", {}), **connect["client"]}
    return {**usual, **connect, "authorize": authorize, "client": client}
