"""The official suite: run it, and read what it found."""

import asyncio
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import yaml

from tests.conformance.node import FOLDER, ROOT, SUITE, Node

Role = Literal["server", "client"]
TIMEOUT_S = 600
SCENARIO_TIMEOUT_MS = 60_000  # of the suite; a loaded machine is slow, not wrong
INTERACTIVE = "auth/"  # scenarios of a person who logs in by a browser
EXTENSIONS = ("auth/enterprise-managed-authorization",)  # that the gateway has; never scored
LEGACY = {  # scenarios of a revision without a requirement set
    "2025-03-26": (
        "auth/2025-03-26-oauth-metadata-backcompat",
        "auth/2025-03-26-oauth-endpoint-fallback",
    )
}


@dataclass(frozen=True)
class Check:
    id: str
    status: str  # SUCCESS, FAILURE, WARNING, SKIPPED or INFO
    message: str


@dataclass(frozen=True)
class Scenario:
    name: str
    scored: bool
    checks: tuple[Check, ...]

    def of(self, status: str) -> list[Check]:
        return [check for check in self.checks if check.status == status]

    @property
    def has_passed(self) -> bool:
        return bool(self.checks) and not self.of("FAILURE")


def scenarios(revision: str, role: Role) -> dict[str, bool]:
    """The scenarios of a requirement set, and whether they are scored."""
    text = (FOLDER / SUITE / "requirements" / f"{revision}.yaml").read_text()
    sets = yaml.safe_load(text)
    more = [one["scenario"] for one in sets["not_scored"] if one["leg"] == role]
    return dict.fromkeys(sets[role], True) | dict.fromkeys(more, False)


async def run_server(node: Node, url: str, revision: str, folder: Path) -> list[Scenario]:
    """Run a whole requirement set against the server at `url`; `folder` takes the records."""
    timeout = ("--timeout", str(SCENARIO_TIMEOUT_MS))
    arguments = ("server", "--url", url, "--requirements", revision, "-o", str(folder), *timeout)
    await _run(node.suite(*arguments), folder, "suite")
    return [
        Scenario(name, scored, tuple(records(folder, f"server-{name}")))
        for name, scored in scenarios(revision, "server").items()
    ]


async def run_client(
    node: Node, command: str, revision: str, folder: Path, environment: Mapping[str, str]
) -> list[Scenario]:
    """Run every scenario that needs no login: `command` is started with the URL of a server."""
    names = scenarios(revision, "client")
    plain = {name: names[name] for name in names if not name.startswith(INTERACTIVE)}
    return await _run_client(node, command, revision, folder, scenarios=plain, env=environment)


async def run_logins(node: Node, command: str, revision: str, folder: Path) -> list[Scenario]:
    """Run every scored scenario of a login, and those of EXTENSIONS: `command` is started with the
    URL of a server."""
    if revision in LEGACY:
        names = LEGACY[revision]
    else:
        names = tuple(
            name
            for name, scored in scenarios(revision, "client").items()
            if (scored and name.startswith(INTERACTIVE)) or name in EXTENSIONS
        )
    every = dict.fromkeys(names, True)
    return await _run_client(node, command, revision, folder, scenarios=every, env={})


async def _run_client(
    node: Node,
    command: str,
    revision: str,
    folder: Path,
    *,
    scenarios: Mapping[str, bool],
    env: Mapping[str, str],
) -> list[Scenario]:
    done = []
    for name, scored in scenarios.items():
        arguments = ("client", "--command", command, "--scenario", name, "-o", str(folder))
        version = ("--spec-version", revision, "--timeout", str(SCENARIO_TIMEOUT_MS))
        force = ("--force",) if name in EXTENSIONS else ()  # it is of no revision
        said = await _run(node.suite(*arguments, *version, *force), folder, name, env)
        done.append(Scenario(name, scored, (*records(folder, name), *_check_client_end(said))))
    return done


async def _run(
    command: Sequence[str], folder: Path, name: str, environment: Mapping[str, str] | None = None
) -> str:
    """What the suite said, kept in `folder`. Its exit status says no more than its records."""
    folder.mkdir(parents=True, exist_ok=True)
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=ROOT,
        env=os.environ | (environment or {}),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        async with asyncio.timeout(TIMEOUT_S):
            output, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    said = output.decode(errors="replace")
    (folder / f"{name}.log").write_text(said)
    return said


def records(folder: Path, name: str) -> Iterator[Check]:
    """The checks of one scenario, from the newest record of it."""
    place = folder / name
    pattern = re.compile(re.escape(place.name) + r"-\d{4}-\d\d-\d\dT[\d-]+Z")
    records = [
        one for one in place.parent.glob("*/checks.json") if pattern.fullmatch(one.parent.name)
    ]
    if not records:
        yield Check("no-record", "FAILURE", "the suite left no record of this scenario")
        return
    for found in json.loads(max(records).read_text()):
        yield _check(found)


def _check(entry: Mapping[str, Any]) -> Check:
    message = entry.get("errorMessage") or entry.get("description") or ""
    return Check(entry["id"], entry["status"], " ".join(str(message).split()))


def _check_client_end(output: str) -> Iterator[Check]:
    """A check that fails when our client did not end as it should."""
    if "Client timed out" in output or "Client exited with code" in output:
        yield Check("client-ended", "FAILURE", "our client failed; the record has its log")
