"""Hot reload: which settings apply while a gateway runs, and which need a restart. Pure."""

from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from config.access import Admin
from config.code import CodeSettings
from config.settings import Imports, Settings

# Reloadable sections, and of each the members that need a restart.
RELOADABLE_MEMBERS: Mapping[str, frozenset[str]] = {
    "sources": frozenset(),
    "upstream": frozenset({"python_threads", "python_calls"}),
    "logging": frozenset({"access"}),
    "functions": frozenset(),
    "scripts": frozenset(),
    "policy": frozenset(),
    "guardrails": frozenset(),
    "hooks": frozenset(),
    "profiles": frozenset(),
    "toolsets": frozenset(),
    "limits": frozenset(
        {
            *("when_down", "connections", "headers", "header_bytes", "pipelined"),
            *("header_timeout_s", "body_timeout_s", "send_timeout_s"),
        }
    ),
    "imports": frozenset(Imports.__struct_fields__) - {"prune"},
    "code": frozenset(CodeSettings.__struct_fields__) - {"callers"},
    "events": frozenset({"enabled", "schedules", "hook", "redis_url", "redis_prefix", "kafka"}),
    "admin": frozenset(Admin.__struct_fields__) - {"operator_role"},
}

REQUEST_PATH = (
    "code",
    "policy",
    "guardrails",
    "hooks",
    "profiles",
    "toolsets",
    "limits",
    "admin",
)  # settings that rebuild the request path


def reload_settings(running: Settings, new: Settings) -> Settings:
    """`running` with the reloadable settings of `new`."""
    return replace(
        running,
        **{
            name: _merge_section(getattr(running, name), getattr(new, name), fixed)
            for name, fixed in RELOADABLE_MEMBERS.items()
        },
    )


def needing_restart(running: Settings, new: Settings) -> list[str]:
    """Names of the settings that differ and need a restart, such as `server.port`."""
    return [
        name for section in Settings.__struct_fields__ for name in _differing(section, running, new)
    ]


def _merge_section(running: Any, new: Any, fixed: frozenset[str]) -> Any:
    return replace(new, **{name: getattr(running, name) for name in fixed}) if fixed else new


def _differing(section: str, running: Settings, new: Settings) -> Iterator[str]:
    before, after = getattr(running, section), getattr(new, section)
    if before == after or RELOADABLE_MEMBERS.get(section) == frozenset():
        return
    if not isinstance(before, Struct):
        yield section
        return
    for name in sorted(RELOADABLE_MEMBERS.get(section, before.__struct_fields__)):
        if getattr(before, name) != getattr(after, name):
            yield f"{section}.{name}"
