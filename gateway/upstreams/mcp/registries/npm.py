"""Packages of npm: pinned by `dist.integrity`, their dependencies by a lock file, and run from the
installed tree. Scripts of packages are not run unless `scripts` is allowed."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec
from anyio import to_thread

from gateway.upstreams.mcp.registries.installed_packages import (
    Workshop,
    check_identifier,
    check_no_runtime,
)
from gateway.upstreams.mcp.registries.program_arguments import Arguments
from gateway.upstreams.mcp.registries.server_inputs import Inputs
from gateway.upstreams.mcp.registries.server_plans import Program, check_digest
from schemas.errors import ImportRejected
from schemas.mcp.registry_entries import Package

SCRIPTS = "scripts"  # what `allow` says of scripts that run at an installation
_LOCK = "package-lock.json"
# Dependencies that are no packages of the registry: npm would run git, or ask any address, before
# the lock can be read. Older versions of npm know the last flag alone.
_REGISTRY_ONLY = ("--allow-git=none", "--allow-remote=none", "--allow-file=none",
                  "--allow-directory=none", "--git=no-git-is-run")  # fmt: skip
# npm would wait for minutes, also where a file is not what the lock says
_RETRIES = ("--fetch-retries=2", "--fetch-retry-mintimeout=500", "--fetch-retry-maxtimeout=2000")


async def program(
    workshop: Workshop, package: Package, arguments: Arguments, _inputs: Inputs
) -> Program:
    """Raises ImportRejected."""
    check_identifier(package)
    check_no_runtime(package)
    name, version = package.identifier, package.version or ""
    base = workshop.settings.npm_url.rstrip("/")
    url = f"{base}/{quote(name, safe='@')}/{quote(version, safe='')}"
    facts = _object(await workshop.get(url), url)
    integrity = _object(facts.get("dist") or {}, url).get("integrity")
    if not isinstance(integrity, str) or not integrity.startswith(("sha512-", "sha256-")):
        raise ImportRejected(f"{url} tells no integrity of the package: it cannot be pinned.")
    scripts = SCRIPTS in arguments.allow
    tag = f"{version}-{integrity[7:23]}{'-scripts' * scripts}"
    folder = workshop.folder("npm", name, tag)
    command = folder / "node_modules" / ".bin" / _binary(facts.get("bin"), name)
    install = _Installation(
        workshop=workshop,
        name=name,
        version=version,
        integrity=integrity,
        command=command,
        scripts=scripts,
    )
    return Program(
        (str(command),), integrity, lambda: workshop.install(folder, install.fill), hosts=(base,)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Installation:
    workshop: Workshop
    name: str
    version: str
    integrity: str
    command: Path
    scripts: bool

    async def fill(self, folder: Path) -> str:
        """Lock all dependencies, compare the package, then install what is locked."""
        manifest = {"private": True, "dependencies": {self.name: self.version}}
        await to_thread.run_sync(
            (folder / "package.json").write_bytes, msgspec.json.encode(manifest)
        )
        lock_only = ("install", "--package-lock-only", "--ignore-scripts")
        await self._npm(folder, *lock_only, *_REGISTRY_ONLY)
        lock = _object(await to_thread.run_sync((folder / _LOCK).read_bytes), _LOCK)
        self._check(lock.get("packages") or {})
        await self._npm(folder, "ci", *(() if self.scripts else ("--ignore-scripts",)))
        if not await to_thread.run_sync(self.command.exists):
            raise ImportRejected(f"{self.name} has no command {self.command.name}.")
        return self.integrity

    def _check(self, package: dict[str, Any]) -> None:
        """Raises ImportRejected for a package that is another one, or has no digest."""
        for path, entry in package.items():
            if path and not (entry.get("integrity") or entry.get("inBundle")):
                raise ImportRejected(f"{path} has no integrity in the lock: it cannot be pinned.")
        locked_package = package.get(f"node_modules/{self.name}") or {}
        check_digest(self.name, str(locked_package.get("integrity")), self.integrity)

    async def _npm(self, folder: Path, *words: str) -> None:
        quiet = ("--no-audit", "--no-fund", "--loglevel=error", *_RETRIES)
        registry = f"--registry={self.workshop.settings.npm_url}"
        await self.workshop.run((self.workshop.settings.npm, *words, *quiet, registry), folder)


def _binary(value: Any, name: str) -> str:
    """The command of a package: its only one, or that of its own name."""
    command_name = name.rpartition("/")[2]
    if isinstance(value, str):
        return command_name
    names = [word for word in value or () if isinstance(word, str)]
    chosen = names[0] if len(names) == 1 else command_name
    if chosen not in names or "/" in chosen or chosen.startswith((".", "-")):
        listed = ", ".join(names)[:200] or "none"
        raise ImportRejected(f"{name} has no command of its own name; it has {listed}.")
    return chosen


def _object(value: Any, where: str) -> dict[str, Any]:
    try:
        decoded = msgspec.json.decode(value) if isinstance(value, bytes) else value
    except msgspec.DecodeError as error:
        raise ImportRejected(f"{where} is no JSON: {error}.") from error
    if not isinstance(decoded, dict):
        raise ImportRejected(f"{where} is no JSON object.")
    return decoded
