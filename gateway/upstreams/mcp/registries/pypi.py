"""Packages of PyPI: wheels alone, all of them pinned by hashes, in an environment of their own.

`pip` resolves without installing or building (sdists would run code), and installs what was
resolved by its hashes. `--only-binary` does not hold for a dependency with a URL of its own, so
pip may start no process while it resolves: neither a build nor git.
"""

import re
from pathlib import Path

import msgspec
from anyio import to_thread
from msgspec import Struct

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

LOCK = "requirements.txt"
_RESOLVE = """
import sys
def refuse(event, _):
    if event in ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.fork"):
        raise PermissionError("a dependency is no wheel of the index, and is not built")
from pip._internal.cli.main import main
sys.addaudithook(refuse)
sys.exit(main())
"""
_SHA256 = re.compile(r"sha256=([0-9a-f]{64})")


class _Archive(Struct, frozen=True):
    hashes: dict[str, str] = {}
    hash: str = ""


class _Download(Struct, frozen=True):
    url: str
    archive_info: _Archive | None = None


class _Metadata(Struct, frozen=True):
    name: str
    version: str


class _Resolved(Struct, frozen=True):
    download_info: _Download
    metadata: _Metadata

    @property
    def sha256(self) -> str:
        """Raises ImportRejected without one."""
        archive = self.download_info.archive_info or _Archive()
        match = _SHA256.fullmatch(archive.hash)
        digest = archive.hashes.get("sha256") or (match[1] if match else "")
        if not re.fullmatch(r"[0-9a-f]{64}", digest):
            raise ImportRejected(f"{self.metadata.name} has no SHA-256: it cannot be pinned.")
        return digest


class _Report(Struct, frozen=True):
    """Answer of pip (pip.pypa.io/en/stable/reference/installation-report)."""

    install: tuple[_Resolved, ...]


async def program(
    workshop: Workshop, package: Package, _arguments: Arguments, _inputs: Inputs
) -> Program:
    """Raises ImportRejected."""
    check_identifier(package)
    check_no_runtime(package)
    name, version = package.identifier, package.version or ""
    folder = workshop.folder("pypi", name, version)
    expected = package.file_sha256 or ""

    async def fill(folder: Path) -> str:
        return await _install(workshop, folder, f"{name}=={version}", expected)

    async def install() -> str:
        digest = await workshop.install(folder, fill)
        if expected:
            check_digest(name, digest, f"sha256:{expected}")
        return digest

    note = "Its hash, and those of its dependencies, are taken when it is installed."
    return Program(
        (str(folder / "bin" / name),),
        f"sha256:{expected}" if expected else "",
        install,
        hosts=(workshop.settings.pypi_url,),
        notes=() if expected else (note,),
    )


async def _install(workshop: Workshop, folder: Path, requirement: str, expected: str) -> str:
    settings = workshop.settings
    await workshop.run((settings.python, "-I", "-m", "venv", "--without-pip", str(folder)), folder)
    quiet = ("--isolated", "--no-input", "--disable-pip-version-check")
    index = ("--index-url", settings.pypi_url, "--only-binary", ":all:")
    report = folder / "report.json"
    resolve = ("install", "--dry-run", "--ignore-installed", "--quiet", "--report", str(report))
    resolver = (settings.python, "-I", "-c", _RESOLVE, *quiet)
    await workshop.run((*resolver, *resolve, *index, requirement), folder)
    resolved = _read(await to_thread.run_sync(report.read_bytes))
    name = _normal(requirement.partition("==")[0])
    package = next((each for each in resolved if _normal(each.metadata.name) == name), None)
    if package is None:
        raise ImportRejected(f"pip resolved {requirement} without it.")
    if expected:
        check_digest(requirement, package.sha256, expected)
    lock = "".join(
        f"{each.metadata.name}=={each.metadata.version} --hash=sha256:{each.sha256}\n"
        for each in resolved
    )
    await to_thread.run_sync((folder / LOCK).write_text, lock)
    install = ("install", "--require-hashes", "--no-deps", "--quiet", "-r", str(folder / LOCK))
    installer = (settings.python, "-I", "-m", "pip", *quiet,
                 "--python", str(folder / "bin" / "python"))  # fmt: skip
    await workshop.run((*installer, *install, *index), folder)
    await to_thread.run_sync(_check_command, folder, requirement.partition("==")[0])
    return f"sha256:{package.sha256}"


def _read(data: bytes) -> tuple[_Resolved, ...]:
    try:
        return msgspec.json.decode(data, type=_Report).install
    except msgspec.MsgspecError as error:
        raise ImportRejected(f"The report of pip cannot be read: {error}.") from error


def _check_command(folder: Path, name: str) -> None:
    """Raises ImportRejected where the package has no command of its name, which is run."""
    if not (folder / "bin" / name).is_file():
        raise ImportRejected(f"{name} has no command of its own name.")


def _normal(name: str) -> str:
    """The name of a project (PyPA, "Names and normalization")."""
    return re.sub(r"[-_.]+", "-", name).lower()
