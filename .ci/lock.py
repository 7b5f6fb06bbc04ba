"""Lock files: every package with its version and the hashes of its files, for each Python from
3.11 and each platform, in a form that any pip installs with `--require-hashes --no-deps`.

`python .ci/lock.py` writes them anew with uv; versions that still fit stay, and options go on to
uv (`--upgrade`, `--upgrade-package NAME`, `--exclude-newer "7 days"`). `python .ci/lock.py --check`
needs neither uv nor a network: it compares what pyproject.toml asks for with what each lock file
says it was made from.

A file holds what the files of `LEVELS` before it do not: whoever wants the tests installs `build`,
`run` and `test`. All are resolved at once, so that the tests run with the versions of a run. `test`
has the extras that are tested. Not locked are the group `training` and the extra
`sentence-transformers` (both pull torch).
"""

import os
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

ROOT = Path(__file__).resolve().parents[1]
LOCKS = Path("deploy") / "locks"
LEVELS = ("build", "run", "test", "browser", "check", "audit", "docs", "lock")
TESTED_EXTRAS = ("javascript", "knowledge", "wasm")
INDEX = "https://pypi.org/simple"
HEAD = "# Made by `make lock`; do not edit. Asked for by pyproject.toml:"
ASKED = "#   "  # before each requirement under the head
END = "#\n"  # of the head
MARKER = re.compile(r" ;[^\\]*(?= \\)")


def main(arguments: Sequence[str]) -> None:
    asked = requirements(tomllib.loads((ROOT / "pyproject.toml").read_text()))
    if "--check" in arguments:
        if found := list(differences(asked)):
            fail("\n".join([*found, "Run `make lock` and commit deploy/locks."]))
        return
    for level, text in locked(asked, arguments):
        (ROOT / LOCKS / f"{level}.txt").write_text(text)


def requirements(project: Mapping[str, Any]) -> dict[str, list[str]]:
    """What pyproject.toml asks for at each level."""
    groups: dict[str, list[str]] = project["dependency-groups"]
    extras: dict[str, list[str]] = project["project"]["optional-dependencies"]
    own = {
        "build": [*project["build-system"]["requires"], *groups["build"]],
        "run": project["project"]["dependencies"],
        "test": [*groups["test"], *(one for name in TESTED_EXTRAS for one in extras[name])],
    }
    return {level: sorted(own.get(level) or groups[level]) for level in LEVELS}


def differences(asked: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """One line for each requirement that a lock file lacks or was made from without need."""
    for level, wanted in asked.items():
        file = LOCKS / f"{level}.txt"
        made_from = head(ROOT / file)
        for one in sorted(set(wanted) - made_from):
            yield f"{file}: pyproject.toml asks for {one!r}, the lock file was made without it"
        for one in sorted(made_from - set(wanted)):
            yield f"{file}: made from {one!r}, which pyproject.toml does not ask for"


def head(file: Path) -> set[str]:
    """The requirements that a lock file was made from."""
    text = file.read_text() if file.exists() else ""
    lines = text.partition(END)[0].splitlines()
    return {line.removeprefix(ASKED) for line in lines if line.startswith(ASKED)}


def locked(asked: Mapping[str, Sequence[str]], options: Sequence[str]) -> Iterator[tuple[str, str]]:
    """The text of each lock file."""
    everything = [one for wanted in asked.values() for one in wanted]
    with tempfile.TemporaryDirectory() as folder:
        whole = Path(folder) / "whole.txt"
        whole.write_text("".join(known()))  # uv prefers the versions in its output file
        compile_with_uv(everything, whole, options)
        before: set[str] = set()
        for level, wanted in asked.items():
            part = Path(folder) / f"{level}.txt"
            compile_with_uv(wanted, part, ["--constraint", str(whole)])
            entries = [
                one
                for one in packages(part.read_text())
                if one not in before and MARKER.sub("", one) not in before
            ]
            before.update(entries)
            yield level, "\n".join([HEAD, *(ASKED + one for one in wanted), END]) + "".join(entries)


def known() -> Iterator[str]:
    """The lock files as they are."""
    for file in sorted((ROOT / LOCKS).glob("*.txt")):
        yield file.read_text()


def compile_with_uv(wanted: Iterable[str], output: Path, options: Sequence[str]) -> None:
    """Resolve for all platforms from PyPI alone, whatever index this machine is set up for."""
    done = subprocess.run(
        [
            *(sys.executable, "-m", "uv", "pip", "compile", "-", "--quiet", "--no-config"),
            *("--universal", "--python-version", "3.11", "--generate-hashes"),
            *("--default-index", INDEX, "--no-header", "--no-annotate"),
            *("--output-file", str(output), *options),
        ],
        input="\n".join(wanted),
        text=True,
        check=False,
        env={name: value for name, value in os.environ.items() if not name.startswith("UV_")},
    )
    if done.returncode != 0:
        fail("uv could not resolve the dependencies; see above")


def packages(text: str) -> Iterator[str]:
    """Each entry of a lock file: the line of the requirement with those of its hashes."""
    entry = ""
    for line in text.splitlines(keepends=True):
        if entry and not line.startswith(" "):
            yield entry
            entry = ""
        entry += line
    if entry:
        yield entry


def fail(reason: str) -> NoReturn:
    sys.exit(f"lock: {reason}")


if __name__ == "__main__":
    main(sys.argv[1:])
