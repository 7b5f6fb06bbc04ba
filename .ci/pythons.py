"""Run the suite on each supported Python: `make pythons`, or `python .ci/pythons.py [ARG ...]`.

The versions are the classifiers of pyproject.toml. Each gets an environment of its own from the
lock files, `.venv-3.12`, and its arguments are those of pytest (the whole suite without). A version
whose interpreter is not on the path (nor in pyenv) is named, and is an error: `--installed` passes
over it.
"""

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CLASSIFIER = re.compile(r"Programming Language :: Python :: (3\.\d+)")
LOCKS = ("build", "run", "test")
SUITE = ("-p", "tests.packing", "--numprocesses", "auto", "--dist", "worksteal")
PIP = ("-m", "pip", "install", "--quiet", "--no-deps", "--disable-pip-version-check")


def supported_versions() -> list[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    matches = (CLASSIFIER.fullmatch(classifier) for classifier in project["classifiers"])
    return [match[1] for match in matches if match]


def find_interpreter(version: str) -> str | None:
    """The path of an interpreter that runs: a shim of pyenv may be there for one that does not."""
    pyenv = sorted((Path.home() / ".pyenv" / "versions").glob(f"{version}.*/bin/python"))
    candidates = [shutil.which(f"python{version}"), *map(str, pyenv)]
    return next((path for path in candidates if path and _version(path) == version), None)


def _version(path: str) -> str:
    code = "import sys; print('%d.%d' % sys.version_info[:2])"
    return subprocess.run([path, "-c", code], capture_output=True, text=True).stdout.strip()


def test_on(version: str, interpreter: str, arguments: list[str]) -> bool:
    """Whether the suite passes."""
    environment = ROOT / f".venv-{version}"
    python = str(environment / "bin" / "python")
    locks = [word for name in LOCKS for word in ("-r", f"deploy/locks/{name}.txt")]
    commands = (
        [interpreter, "-m", "venv", str(environment)],
        [python, *PIP, "--require-hashes", *locks],
        [python, *PIP, "--no-build-isolation", "--editable", "."],
        [python, "-m", "pytest", *SUITE, *arguments],
    )
    return all(subprocess.run(command, cwd=ROOT).returncode == 0 for command in commands)


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def main(arguments: list[str]) -> int:
    installed_only = "--installed" in arguments
    arguments = [argument for argument in arguments if argument != "--installed"]
    failures = []
    for version in supported_versions():
        interpreter = find_interpreter(version)
        if interpreter is None:
            say(f"Python {version}: expected python{version} on the path, found none")
            failures += [] if installed_only else [version]
        elif test_on(version, interpreter, arguments):
            say(f"Python {version}: passed ({interpreter})")
        else:
            failures.append(version)
    if failures:
        say(f"Not passed: Python {', '.join(failures)}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
