"""Packages that are installed on this machine, each in a folder of its own, and run from there.

A folder has a name of its contents, and a mark once it is complete: a version is installed once,
and an interrupted installation begins anew. Whatever is downloaded is compared with its digest.
"""

import importlib
import os
import re
import shutil
import signal
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from subprocess import DEVNULL, STDOUT
from typing import Any

import anyio
import msgspec
from anyio import to_thread

from config.registries import PackageSettings
from config.settings import Imports, Settings
from gateway.upstreams.mcp.registries.program_arguments import Arguments
from gateway.upstreams.mcp.registries.server_inputs import Inputs
from gateway.upstreams.mcp.registries.server_plans import Choice, Program
from gateway.upstreams.mcp.stdio import environment
from registry.database.embedded_server import directory_of
from registry.documents.fetch import FetchSettings, fetch
from schemas.errors import ImportRejected
from schemas.mcp.registry_entries import Package

MARK = ".installed"  # suffix of a file beside a complete folder: its digest
OUTPUT = 2000  # characters of a failed command
_DOWNLOADS = FetchSettings("packages.limit_bytes", "packages.timeout_s")
_NAME = "[A-Za-z0-9][A-Za-z0-9._-]*"
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
HINTS: Mapping[str, str] = {"npm": "npx", "pypi": "uvx", "oci": "docker"}


@dataclass(frozen=True, slots=True)
class Workshop:
    """Settings of installations, and what they share."""

    settings: PackageSettings
    limits: Imports
    root: Path

    def folder(self, kind: str, identifier: str, tag: str) -> Path:
        name = _UNSAFE.sub("_", identifier)[-80:].lstrip(".-") or "package"
        return self.root / kind / f"{name}-{_UNSAFE.sub('_', tag)[:80]}"

    async def get(
        self, url: str, accept: str = "application/json", *, by_operator: bool = True
    ) -> bytes:
        """A file. `by_operator`: at an address of the settings; else it has to be public."""
        answer = await fetch(
            url,
            limit_bytes=self.settings.limit_bytes,
            timeout_s=self.settings.timeout_s,
            private_networks=self.limits.private_networks,
            by_operator=by_operator,
            settings=replace(_DOWNLOADS, headers=(("Accept", accept),), same_origin=by_operator),
        )
        return answer.data

    async def run(self, words: Sequence[str], folder: Path) -> None:
        """Run a command without a shell. Raises ImportRejected."""
        try:
            with anyio.fail_after(self.settings.timeout_s):
                status, output = await _run(words, folder)
        except TimeoutError as error:
            text = f"{words[0]} took more than {self.settings.timeout_s:g} s (packages.timeout_s)."
            raise ImportRejected(text) from error
        except OSError as error:
            text = f"{words[0]} cannot be run: {error.strerror} (see packages in the settings)."
            raise ImportRejected(text) from error
        if status:
            raise ImportRejected(f"{' '.join(words[:3])} failed ({status}): {output}")

    async def install(self, folder: Path, fill: Callable[[Path], Awaitable[str]]) -> str:
        """The digest of what is in the folder; `fill` writes it, if nobody has. Raises
        ImportRejected."""
        mark = folder.with_name(f".{folder.name}{MARK}")  # no file of a package is there
        if not await to_thread.run_sync(lambda: mark.is_file() and folder.is_dir()):
            await to_thread.run_sync(_make_empty, folder)
            try:
                digest = await fill(folder)
            except OSError as error:  # also names of files that cannot be, or stand twice
                text = f"{folder} cannot be filled: {error.strerror or error}."
                raise ImportRejected(text) from error
            await to_thread.run_sync(mark.write_bytes, msgspec.json.encode({"digest": digest}))
        content = msgspec.json.decode(await to_thread.run_sync(mark.read_bytes))
        return str(content["digest"])


ProgramOf = Callable[[Workshop, Package, Arguments, Inputs], Awaitable[Program]]


class InstalledPackages:
    """The kinds of packages that the settings allow. Nothing is imported for the others."""

    advice = "see upstream.stdio and packages.kinds"

    def __init__(self, settings: Settings) -> None:
        self._settings = settings.packages
        self.kinds: Sequence[Choice] = settings.packages.kinds if settings.upstream.stdio else ()
        data = directory_of(settings.database)
        folder = settings.packages.folder
        root = Path(folder).expanduser() if folder else data.with_name(f"{data.name}-packages")
        self._workshop = Workshop(settings.packages, settings.imports, root.absolute())

    async def program(
        self, package: Package, arguments: Arguments, inputs: Inputs, *, pinned: bool
    ) -> Program:
        """Raises ImportRejected."""
        kind = package.registry_type
        hint = HINTS.get(kind)
        if package.runtime_hint and package.runtime_hint not in (hint, hint and "node", "python"):
            text = f"Its {kind} package wants to be run by {package.runtime_hint[:100]!r}: refused."
            raise ImportRejected(text)
        if not pinned:
            return self._newest(package, arguments)
        return await _kind(kind)(self._workshop, package, arguments, inputs)

    def _newest(self, package: Package, arguments: Arguments) -> Program:
        runtimes = {"npm": (self._settings.npx, "-y"), "pypi": (self._settings.uvx,)}
        if package.registry_type not in runtimes:
            raise ImportRejected(f"--unpinned is for npm and pypi, not {package.registry_type}.")
        joint = "==" if package.registry_type == "pypi" else "@"
        named = package.identifier + (f"{joint}{package.version}" if package.version else "")
        check_identifier(package)
        runtime = arguments.of_runtime(package.runtime_arguments, in_container=False)
        note = "Not pinned: at each start the package is fetched anew, with its dependencies."
        return Program((*runtimes[package.registry_type], *runtime, named), notes=(note,))


def check_identifier(package: Package) -> None:
    """Raises ImportRejected for a name that a command would take for an option, a path or a URL."""
    scope = rf"(@{_NAME}/)?" if package.registry_type == "npm" else ""
    if not re.fullmatch(scope + _NAME, package.identifier):
        raise ImportRejected(f"{package.identifier[:200]!r} is no name of a package.")
    if package.version is None or not re.fullmatch(
        r"[A-Za-z0-9][A-Za-z0-9.+!_-]*", package.version
    ):
        raise ImportRejected(f"Expected the version of a package, found {package.version!r}.")


def check_no_runtime(package: Package) -> None:
    """Raises ImportRejected for arguments of a runtime that an installed tree does not have."""
    values = [str(getattr(each, "name", each.value)) for each in package.runtime_arguments]
    if unknown := [value for value in values if value not in ("-y", "--yes")]:
        raise ImportRejected(
            f"It has arguments for {HINTS.get(package.registry_type, 'a runtime')}, such as "
            f"{unknown[0][:100]!r}, which installs nothing here: they need --unpinned."
        )


def _kind(kind: str) -> ProgramOf:
    """The module of a kind, imported where it is used."""
    module: Any = importlib.import_module(_MODULES[kind])
    program: ProgramOf = module.program
    return program


_MODULES = {
    "npm": "gateway.upstreams.mcp.registries.npm",
    "pypi": "gateway.upstreams.mcp.registries.pypi",
    "oci": "gateway.upstreams.mcp.registries.container_images",
    "mcpb": "gateway.upstreams.mcp.registries.mcpb_bundles",
}


async def _run(words: Sequence[str], folder: Path) -> tuple[int, str]:
    """The exit status, and the end of the output. Processes that it started end with it."""
    process = await anyio.open_process(
        list(words), cwd=folder, env=environment({}), stdin=DEVNULL, stderr=STDOUT,
        start_new_session=True,
    )  # fmt: skip
    output = b""
    async with process:
        try:
            if process.stdout is not None:
                async for chunk in process.stdout:
                    output = (output + chunk)[-OUTPUT * 4 :]
            status = await process.wait()
        except BaseException:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            raise
    return status, output.decode(errors="replace").strip()[-OUTPUT:]


def _make_empty(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True, mode=0o700)
