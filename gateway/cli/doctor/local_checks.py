"""Checks of `toolgate doctor` without a database: settings, files, functions, credentials."""

import http.client
import importlib.machinery
import json
import platform
import resource
import socket
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import get_args
from urllib.parse import urlsplit

from msgspec.structs import replace

import gateway
from config.settings import Scripts, ServerSettings, Settings, StateSettings
from gateway.app.access_for_commands import Stores
from gateway.cli.common.checks import Check
from gateway.cli.common.tls import trusting
from gateway.hybrid.functions import load_function
from gateway.sandbox.script_runner import Sandbox
from gateway.upstreams.auth.required_credentials import hint, standing
from gateway.upstreams.http.source_pools import NO_ENTRIES
from schemas.binding import Binding, Language
from schemas.errors import ToolgateError
from schemas.tool import Tool

PACKAGES = ("gateway", "registry", "schemas", "config")
FILES_WANTED = 4096  # two for each of a thousand concurrent calls, and as many streams
TIMEOUT_S = 3.0


def python() -> Check:
    return Check("python", "ok", f"{platform.python_version()} at {sys.executable}")


def files() -> Check:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard == resource.RLIM_INFINITY or hard >= FILES_WANTED:
        return Check("files", "ok", f"up to {hard} open at a time")
    hint = f"raise the limit (ulimit -Hn) to {FILES_WANTED} or more for many clients"
    return Check("files", "warning", f"only {hard} open at a time (now {soft}); {hint}")


def sealing(state: StateSettings) -> Iterator[Check]:
    """Whether others may read the key that encrypts client-held state."""
    if state.backend != "memory" and not state.secret:
        text = (
            f"state that clients hold is encrypted with a key in the {state.backend} backend; "
            "set state.secret, as ${NAME} or ${file:PATH}"
        )
        yield Check("sealing", "warning", text)


def workers(settings: Settings) -> Iterator[Check]:
    """Where several workers share their state."""
    count, backend = settings.server.processes, settings.state.backend
    if count > 1:
        where = "the registry's PostgreSQL" if backend == "postgres" else "Redis"
        yield Check("workers", "ok", f"{count}, which share sessions and streams in {where}")


def shadows() -> Iterator[Check]:
    """Foreign modules that shadow our packages: the command is safe from them, `import` is not."""
    home = Path(gateway.__file__).resolve().parents[1]
    origins = sorted(set(_namesakes(home)))
    for origin in origins:
        yield Check(
            "shadowing",
            "warning",
            f"{origin} has the name of a package of Toolgate. This command is not affected; "
            "a program that imports both may get the wrong one",
        )
    if not origins:
        yield Check("shadowing", "ok", f"packages at {home}; no other module has their names")


def _namesakes(home: Path) -> Iterator[str]:
    for place in [Path.cwd(), *(Path(entry or ".").absolute() for entry in sys.path)]:
        if place.resolve() == home:
            continue
        for name in PACKAGES:
            spec = importlib.machinery.PathFinder.find_spec(name, [str(place)])
            if spec is not None and spec.origin:  # ours precedes a folder without __init__.py
                yield str(Path(spec.origin).resolve())


def port(server: ServerSettings) -> Check:
    host, number = server.host, server.port
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, number))
        except OSError as error:
            if is_toolgate(server):
                return Check("port", "ok", f"a gateway serves at {host}:{number}")
            hint = "choose another one with server.port, or serve --port"
            return Check("port", "warning", f"{host}:{number}: {_reason(error)}; {hint}")
    return Check("port", "ok", f"{host}:{number} is free")


def is_toolgate(server: ServerSettings) -> bool:
    """Whether the server on that port identifies itself as Toolgate."""
    connection = http.client.HTTPConnection(server.host, server.port, timeout=TIMEOUT_S)
    try:
        if server.tls.cert:
            connection = http.client.HTTPSConnection(
                server.host, server.port, timeout=TIMEOUT_S, context=trusting(server.tls)
            )
        connection.request("GET", "/")
        answer = json.loads(connection.getresponse().read(10_000))
        return isinstance(answer, dict) and answer.get("name") == "toolgate"
    except (OSError, http.client.HTTPException, ValueError):
        return False
    finally:
        connection.close()


def reachable(name: str, tools: int, url: str | None) -> Check:
    """Whether the service of a source accepts connections."""
    subject = f"{name}: {tools} tools"
    if url is None:
        return Check("source", "warning", f"{subject}; no address: set sources.{name}.base_url")
    if (why := reaches(url)) is not None:
        return Check("source", "warning", f"{subject}; {url} cannot be reached: {why}")
    return Check("source", "ok", f"{subject}; {url} can be reached")


def reaches(url: str) -> str | None:
    """Why the host of a URL refuses connections; None: it accepts them."""
    parts = urlsplit(url)
    try:
        number = parts.port or (443 if parts.scheme == "https" else 80)
        socket.create_connection((parts.hostname, number), TIMEOUT_S).close()
    except (OSError, ValueError) as error:
        return _reason(error)
    return None


def _reason(error: Exception) -> str:
    return (getattr(error, "strerror", None) or str(error)).lower()


def functions(targets: Mapping[str, str]) -> Iterator[Check]:
    """Whether each function of the settings can be loaded."""
    for name, target in targets.items():
        try:
            function = load_function(target)
        except ToolgateError as error:
            yield Check("function", "failed", f"{name}: {error}")
            continue
        takes = "" if function.schema else "; it has no annotations for an input schema"
        yield Check("function", "ok", f"{name}: {target}{takes}")


def hooks(settings: Settings) -> Iterator[Check]:
    """Whether each hook of the settings can be loaded."""
    if not settings.hooks:
        return
    from gateway.middleware.hooks.configured_hook import Hooks

    for name, hook_settings in settings.hooks.items():
        try:
            [hook] = Hooks(replace(settings, hooks={name: hook_settings})).all
        except ToolgateError as error:
            yield Check("hook", "failed", f"{name}: {error}")
            continue
        version = hook.code.version and f" {hook.code.version}"
        passes = "; its failures pass" if hook_settings.failure == "pass" else ""
        yield Check(
            "hook", "ok", f"{name}: {hook_settings.use or hook_settings.url}{version}{passes}"
        )


def unused_scripts(settings: Scripts, tools: Sequence[Tool]) -> Iterator[Check]:
    """Tools that are hidden because scripts are switched off."""
    count = sum(tool.binding.language is not None for tool in tools)
    if count and not settings.enabled:
        tools_text = "1 script tool" if count == 1 else f"{count} script tools"
        yield Check("scripts", "warning", f"{tools_text}, but scripts are off (scripts.enabled)")


async def scripts(settings: Scripts) -> list[Check]:
    """Whether scripts run here, and are sandboxed; empty where they are switched off."""
    if not settings.enabled:
        return []
    sandbox = Sandbox(lambda: settings)
    checks = []
    for language in get_args(Language):
        missing = await sandbox.missing(language)
        text = f"{language} {missing or 'runs in a sandbox'}"
        checks.append(Check("scripts", "warning" if missing else "ok", text))
    return checks


def credentials(settings: Settings, tools: Sequence[Tool], stores: Stores) -> Iterator[Check]:
    """A check of each source that requires credentials."""
    sources: dict[str, list[Binding]] = {}
    for tool in tools:
        sources.setdefault(tool.source, []).append(tool.binding)
    for name, bindings in sources.items():
        credentials = standing(bindings, settings.sources.get(name), stores.get(name, NO_ENTRIES))
        if credentials.is_wrong:
            yield Check("credentials", "warning", f"{name}: {hint(name, credentials)}")
        elif credentials.guarded:
            scheme_names = ", ".join(
                scheme for scheme, (_, is_met) in credentials.schemes.items() if is_met
            )
            yield Check("credentials", "ok", f"{name}: {scheme_names or 'none, which is allowed'}")
