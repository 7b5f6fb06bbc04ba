"""MCP bundles (.mcpb): zip archives with a manifest, compared with `fileSha256` before they are
opened, unpacked into a folder of their own, and run by the programs of the settings."""

import hashlib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec
from anyio import to_thread
from msgspec import Struct, field

from config.networks import is_unencrypted
from gateway.upstreams.mcp.registries.installed_packages import Workshop, check_no_runtime
from gateway.upstreams.mcp.registries.program_arguments import Arguments
from gateway.upstreams.mcp.registries.server_inputs import Inputs, Value, fill
from gateway.upstreams.mcp.registries.server_plans import Program, check_digest
from registry.documents.containers import Archive, Unreadable
from schemas.errors import ImportRejected
from schemas.mcp.registry_entries import InputWithVariables, Package

FILES = 20_000  # of a bundle: its dependencies are in it
MANIFEST = "manifest.json"
MANIFEST_BYTES = 2**20
_HERE = "${__dirname}"
_USER = re.compile(r"\$\{user_config\.([^{}]+)\}")
_PLATFORM = re.compile(r"\$\{[^{}]*\}")


class _Command(Struct, frozen=True):
    command: str
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = {}


class _Server(Struct, frozen=True):
    type: Literal["node", "python", "binary"]
    command: _Command = field(name="mcp_config")


class _Option(Struct, frozen=True):
    type: str = "string"
    title: str = ""
    description: str = ""
    required: bool = False
    sensitive: bool = False
    default: Any = None


class _Manifest(Struct, frozen=True):
    server: _Server
    user_config: Mapping[str, _Option] = {}


async def program(
    workshop: Workshop, package: Package, _arguments: Arguments, inputs: Inputs
) -> Program:
    """Raises ImportRejected."""
    url, expected = package.identifier, package.file_sha256
    if not re.match(r"https?://", url) or is_unencrypted(url):
        raise ImportRejected(f"Expected a bundle at an https:// URL, found {url[:200]!r}.")
    if not expected:
        raise ImportRejected("The bundle has no fileSha256 in server.json: it cannot be pinned.")
    check_no_runtime(package)
    data = await workshop.get(url, by_operator=False)
    actual = await to_thread.run_sync(lambda: hashlib.sha256(data).hexdigest())
    check_digest("The bundle", actual, expected)
    archive = await to_thread.run_sync(Archive, data, url, FILES)
    manifest = _read_manifest(archive)
    folder = workshop.folder("mcpb", url.rpartition("/")[2], expected[:16])

    async def unpack(folder: Path) -> str:
        await to_thread.run_sync(_unpack, archive, folder, workshop.settings.limit_bytes)
        return f"sha256:{expected}"

    texts = _Texts(manifest, inputs, folder)
    return Program(
        (_executable(workshop, manifest.server, folder),),
        f"sha256:{expected}",
        lambda: workshop.install(folder, unpack),
        hosts=(url.split("/")[2],),
        arguments=tuple(texts.argument(text) for text in manifest.server.command.args),
        environment={name: texts.value(text) for name, text in manifest.server.command.env.items()},
    )


class _Texts:
    """Templates of a manifest, with the folder and what a person configures."""

    def __init__(self, manifest: _Manifest, inputs: Inputs, folder: Path) -> None:
        self._options = manifest.user_config
        self._inputs = inputs
        self._folder = folder

    def argument(self, template: str) -> str:
        value = self.value(template)
        if value.is_secret:
            raise ImportRejected("An argument of the bundle has a secret in it: not supported.")
        return value.text

    def value(self, template: str) -> Value:
        names = dict.fromkeys(_USER.findall(template))
        values = {name: self._read(name) for name in names}
        text = template.replace(_HERE, str(self._folder))
        text = _USER.sub(lambda match: f"{{{match[1]}}}", text)
        if rest := _PLATFORM.search(text):
            raise ImportRejected(f"The bundle has a variable that is not known: {rest[0][:100]!r}.")
        if "\0" in text:
            raise ImportRejected("The bundle has a text with control characters.")
        filled = fill(text, {name: value.text for name, value in values.items()})
        return Value(filled, any(value.is_secret for value in values.values()))

    def _read(self, name: str) -> Value:
        option = self._options.get(name)
        if option is None:
            raise ImportRejected(f"The bundle asks for {name[:100]!r}, which it does not describe.")
        formats: Mapping[str, Literal["number", "boolean"]] = {
            "number": "number",
            "boolean": "boolean",
        }
        default = option.default
        if isinstance(default, bool):
            default = str(default).lower()
        described = InputWithVariables(
            description=option.description or option.title,
            is_required=option.required,
            is_secret=option.sensitive,
            format=formats.get(option.type, "string"),
            default=str(default) if isinstance(default, (str, int, float)) else None,
        )
        return self._inputs.read(name, described, "the bundle") or Value("")


def _executable(workshop: Workshop, server: _Server, folder: Path) -> str:
    """The program that runs: node or python of the settings, or a file of the bundle."""
    command = server.command.command
    if command.startswith(f"{_HERE}/") and ".." not in command.split("/"):
        return command.replace(_HERE, str(folder), 1)
    runtimes = {"node": workshop.settings.node, "python": workshop.settings.python,
                "python3": workshop.settings.python}  # fmt: skip
    if command not in runtimes:
        raise ImportRejected(f"The bundle wants to run {command[:100]!r}: refused.")
    return runtimes[command]


def _read_manifest(archive: Archive) -> _Manifest:
    try:
        return msgspec.json.decode(archive.read(MANIFEST, MANIFEST_BYTES), type=_Manifest)
    except (Unreadable, msgspec.MsgspecError, RecursionError) as error:
        raise ImportRejected(f"The manifest of the bundle cannot be read: {error}.") from error


def _unpack(archive: Archive, folder: Path, limit_bytes: int) -> None:
    """Write the files, none outside the folder. Raises ImportRejected."""
    budget_bytes = limit_bytes
    for name in archive.members:
        try:
            data = archive.read(name, budget_bytes)
        except Unreadable as error:
            raise ImportRejected(f"{name[:200]!r} in the bundle: {error}.") from error
        budget_bytes -= len(data)
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        path.chmod(0o700 if archive.is_executable(name) else 0o600)
