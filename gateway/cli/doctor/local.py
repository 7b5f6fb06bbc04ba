"""The checks of `toolgate doctor` that need no database."""

import http.client
import importlib.machinery
import json
import platform
import resource
import socket
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from config.endpoints import ServerSettings
from config.settings import StateSettings
from config.sources import SourceSettings
from gateway import hybrid
from registry.importers.hybrid import described, select
from schemas.errors import ToolgateError

PACKAGES = ("gateway", "registry", "schemas", "config")
FILES_WANTED = 4096  # two for each of a thousand calls at a time, and as many streams
TIMEOUT_S = 3.0


CheckStatus = Literal["ok", "warning", "failed"]


@dataclass(frozen=True, slots=True)
class Check:
    name: str
    status: CheckStatus
    detail: str


async def gathered(checks: AsyncIterator[Check]) -> list[Check]:
    return [check async for check in checks]


def python() -> Check:
    return Check("python", "ok", f"{platform.python_version()} at {sys.executable}")


def files() -> Check:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard == resource.RLIM_INFINITY or hard >= FILES_WANTED:
        return Check("files", "ok", f"up to {hard} open at a time")
    hint = f"raise the limit (ulimit -Hn) to {FILES_WANTED} or more for many clients"
    return Check("files", "warning", f"only {hard} open at a time (now {soft}); {hint}")


def sealing(state: StateSettings) -> Iterator[Check]:
    """Whether the key of what clients carry lies where others may read it."""
    if state.backend != "memory" and not state.secret:
        text = (
            f"what clients carry is sealed with a key that lies in the {state.backend} backend; "
            "set state.secret, as ${NAME} or ${file:PATH}"
        )
        yield Check("sealing", "warning", text)


def shadows() -> Iterator[Check]:
    """Others' modules with our packages' names: the command is safe from them, `import` is not."""
    home = Path(__file__).resolve().parents[2]
    found = sorted(set(_namesakes(home)))
    for origin in found:
        yield Check(
            "shadowing",
            "warning",
            f"{origin} has the name of a package of ours. This command uses its own; "
            "a program of yours that imports both may get the wrong one",
        )
    if not found:
        yield Check("shadowing", "ok", f"packages at {home}; nothing else has their names")


def _namesakes(home: Path) -> Iterator[str]:
    for place in [Path.cwd(), *(Path(entry or ".").absolute() for entry in sys.path)]:
        if place.resolve() == home:
            continue
        for name in PACKAGES:
            spec = importlib.machinery.PathFinder.find_spec(name, [str(place)])
            if spec is not None and spec.origin:  # a folder without __init__.py yields to ours
                yield str(Path(spec.origin).resolve())


def port(server: ServerSettings) -> Check:
    host, number = server.host, server.port
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, number))
        except OSError as error:
            if _is_ours(host, number):
                return Check("port", "ok", f"a gateway serves at {host}:{number}")
            hint = "choose another one with server.port, or serve --port"
            return Check("port", "warning", f"{host}:{number}: {_reason(error)}; {hint}")
    return Check("port", "ok", f"{host}:{number} is free")


def _is_ours(host: str, number: int) -> bool:
    """Whether what listens there says that it is a Toolgate."""
    connection = http.client.HTTPConnection(host, number, timeout=TIMEOUT_S)
    try:
        connection.request("GET", "/")
        said = json.loads(connection.getresponse().read(10_000))
        return isinstance(said, dict) and said.get("name") == "toolgate"
    except (OSError, http.client.HTTPException, ValueError):
        return False
    finally:
        connection.close()


def python_services(sources: Mapping[str, SourceSettings]) -> Iterator[Check]:
    """Whether each service in Python can be loaded, and its actions imported."""
    for name, source in sources.items():
        if source.python is None:
            continue
        try:
            actions = described(hybrid.load(source.python).actions)
            found = select(actions, "python", source.side, source.include, source.exclude)
        except ToolgateError as error:
            yield Check("source", "failed", f"{name}: {error}")
            continue
        for note in found.notes:
            yield Check("source", "warning", f"{name}: {note}")
        yield Check("source", "ok", f"{name}: {len(found.drafts)} actions in Python")


def reachable(name: str, tools: int, url: str | None) -> Check:
    """Whether the service of a source accepts connections."""
    subject = f"{name}: {tools} tools"
    if url is None:
        return Check("source", "warning", f"{subject}; no address: set sources.{name}.base_url")
    if (why := reaches(url)) is not None:
        return Check("source", "warning", f"{subject}; {url} cannot be reached: {why}")
    return Check("source", "ok", f"{subject}; {url} can be reached")


def reaches(url: str) -> str | None:
    """Why the host of a URL takes no connection; None: it does."""
    parts = urlsplit(url)
    try:
        number = parts.port or (443 if parts.scheme == "https" else 80)
        socket.create_connection((parts.hostname, number), TIMEOUT_S).close()
    except (OSError, ValueError) as error:
        return _reason(error)
    return None


def _reason(error: Exception) -> str:
    return (getattr(error, "strerror", None) or str(error)).lower()
