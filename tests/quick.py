"""The tests near a change, in less than a minute: `make test-quick`, with PATHS="..." or without.

    python -m tests.quick [--seconds N] [PATH ...]

Without paths, the change is every file that differs from `main`, committed or not. Tests of a file
are, in this order: test modules that stand where the file does and have its name, modules that
import it (those of its folder first), and, for a file without either, all of its folder. A few
tests of the whole gateway follow. Tests that have not begun when the time is over are skipped, and
counted at the end.

As a plugin of pytest (`-p tests.quick`), this module skips them.
"""

import argparse
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path, PurePath

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("config", "gateway", "registry", "schemas")
SECONDS = 35  # to begin tests in: collection before and the last tests after make it a minute
VARIABLE = "TOOLGATE_QUICK_SECONDS"  # counted from the first test of a process
MODULES = 60  # at most: to collect more takes the time of the tests
SMOKE = (  # tools come in, are stored, found and called
    "tests/config/test_load.py",
    "tests/registry/sources/test_sources.py",
    "tests/gateway/methods/test_tools.py",
    "tests/gateway/transports/test_rpc.py",
)
PAGES = ("links", "names", "prose", "reference")  # of tests/documentation, those without processes
KINDS = (  # of files outside the packages: the beginning of a path, and its tests
    ("docs/", tuple(f"tests/documentation/test_{name}.py" for name in PAGES)),
    ("schemas/json/", ("tests/config/test_published_schema.py",)),
    ("deploy/", ("tests/deploy", "tests/test_locks.py")),
    ("pyproject.toml", ("tests/test_locks.py",)),
    ("examples/", ("tests/examples",)),
    ("benchmarks/", ("tests/benchmarks",)),
)
IMPORT = re.compile(r"^(?:from ([\w.]+) import (?:\(([^)]*)\)|(.*))|import ([\w.]+))", re.MULTILINE)


def changed_files(base: str = "main") -> list[str]:
    """Files that differ from where this branch left `base`, and those that Git does not know."""
    known = _git("rev-parse", "--verify", "--quiet", base)
    fork = _git("merge-base", "HEAD", base) if known else ["HEAD"]
    differing = _git("diff", "--name-only", *fork)
    return [*differing, *_git("ls-files", "--others", "--exclude-standard")]


def _git(*words: str) -> list[str]:
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True)
    return done.stdout.split("\n")[:-1]


def nearby_tests(paths: Iterable[str]) -> list[str]:
    """Test modules, and folders of them, for these files and folders; the nearest first."""
    importers = _importers()
    files = [file for path in paths for file in _files(path)]
    ranked = [(rank, test) for file in files for rank, test in _tests_of(file, importers)]
    return list(dict.fromkeys(test for _, test in sorted(ranked)))


def _files(path: str) -> list[str]:
    if not (ROOT / path).is_dir():
        return [path]
    return sorted(str(file.relative_to(ROOT)) for file in (ROOT / path).rglob("*.py"))


def _tests_of(path: str, importers: dict[str, list[str]]) -> Iterator[tuple[int, str]]:
    pure = PurePath(path)
    for beginning, tests in KINDS:
        if path.startswith(beginning):
            yield from ((1, test) for test in tests)
    if pure.suffix == ".md":
        yield from ((1, test) for test in KINDS[0][1])
    if pure.suffix != ".py" or pure.parts[0] not in (*PACKAGES, "tests"):
        return
    if pure.parts[0] == "tests" and pure.name.startswith("test_"):
        yield from ((0, path) for _ in [path] if (ROOT / path).exists())
        return
    near = list(_namesakes(pure))
    importing = importers.get(_module(pure), [])
    yield from ((0, test) for test in near)
    kin = str(pure.parent if pure.parts[0] == "tests" else PurePath("tests") / pure.parent)
    yield from ((2 if test.startswith(kin) else 3, test) for test in importing)
    if not near and not importing:
        yield 4, _folder(pure)


def _namesakes(path: PurePath) -> Iterator[str]:
    """`test_NAME.py` and `test_NAME_*.py` in `tests/registry/access` of its module `NAME.py`."""
    if path.parts[0] == "tests" or path.stem == "__init__":
        return
    for folder in (ROOT / "tests" / path.parent, ROOT / "tests" / path.parent.parent):
        for pattern in (f"test_{path.stem}.py", f"test_{path.stem}_*.py"):
            yield from sorted(str(file.relative_to(ROOT)) for file in folder.glob(pattern))


def _folder(path: PurePath) -> str:
    """The folder of tests that mirrors the folder of a file, or one above it."""
    tests = path.parent if path.parts[0] == "tests" else PurePath("tests") / path.parent
    while not list((ROOT / tests).glob("test_*.py")) and len(tests.parts) > 2:
        tests = tests.parent
    return str(tests)


def _module(path: PurePath) -> str:
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _importers() -> dict[str, list[str]]:
    """Test modules by the modules that they import."""
    found: dict[str, list[str]] = {}
    for file in sorted((ROOT / "tests").rglob("test_*.py")):
        if "browser" in file.parts:  # has a target of its own, and needs Chromium
            continue
        for module in set(_imports(file.read_text(encoding="utf-8"))):
            found.setdefault(module, []).append(str(file.relative_to(ROOT)))
    return found


def _imports(text: str) -> Iterator[str]:
    for package, several, names, alone in IMPORT.findall(text):
        yield package or alone
        for name in re.findall(r"\w+", several or names):
            yield f"{package}.{name}"


@cache
def _first_test() -> float:
    return time.monotonic()


def pytest_runtest_setup() -> None:
    start = _first_test()
    if time.monotonic() - start >= float(os.environ[VARIABLE]):
        pytest.skip("no time left: `make test` runs all")


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="make test-quick", description="The tests near a change.")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="time to begin tests in")
    parser.add_argument("paths", nargs="*", help="files and folders that are taken for changed")
    given = parser.parse_args(words)
    missing = [path for path in given.paths if not (ROOT / path).exists()]
    if missing:
        parser.error(f"expected files or folders of this repository, found {missing[0]!r}")
    near = nearby_tests(given.paths or changed_files())
    chosen = list(dict.fromkeys([*near[:MODULES], *SMOKE]))
    left_out = f", the {MODULES} nearest of which run" if len(near) > MODULES else ""
    print(f"{len(near)} test modules or folders are near the change{left_out}", flush=True)
    plugins = ["-p", "tests.quick", "-p", "tests.packing"]
    command = [sys.executable, "-m", "pytest", *plugins, "-q", "-n", "auto"]
    env = os.environ | {VARIABLE: str(given.seconds)}
    return subprocess.run([*command, *chosen], cwd=ROOT, env=env).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
