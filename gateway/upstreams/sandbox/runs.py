"""Runs scripts: one process for each, killed at its time limit.

Isolation: no network, no other process visible, no new ones; of files only the interpreter's own,
and none writable (namespaces, seccomp); limits on memory, open files and CPU time (rlimits); wall
clock time and the length of the answer (here).
"""

import json
import math
import os
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import msgspec
from anyio import CapacityLimiter
from msgspec import UNSET, Raw, Struct, UnsetType

from config.settings import Scripts
from gateway.upstreams.http.deadline import Deadline
from gateway.upstreams.sandbox.filter import MACHINES, program
from gateway.upstreams.sandbox.languages import Runtime, runtime
from gateway.upstreams.sandbox.process import Ended, Process
from schemas.binding import Language
from schemas.errors import Fault, ToolgateError
from schemas.jsonrpc import decode_strict

REFUSED = 97  # as in jail.py, which can be loaded on Linux only
MESSAGE_CHARACTERS = 500
OPEN_FILES = 64
# Includes all processes of the same user; seccomp allows threads only.
THREADS = 4096

_PROBES: dict[Language, str] = {
    "python": "def main(arguments): return 1",
    "javascript": "function main() { return 1 }",
}
_MEMORY_SIGNS = ("MemoryError", "heap out of memory", "Array buffer allocation failed")


class ScriptFailed(ToolgateError):
    """Reason why there is no answer; follows the tool's name and reveals no gateway internals."""


class _Said(Struct):
    """Output of `run_python.py` and `run_javascript.js`."""

    answer: Raw | UnsetType = UNSET
    error: str | UnsetType = UNSET


@dataclass(frozen=True, slots=True)
class _Plan:
    """Input of `jail.py`."""

    parent: int  # the process id of the gateway
    command: tuple[str, ...]
    environment: dict[str, str]
    paths: tuple[str, ...]
    links: dict[str, str]
    hidden: tuple[str, ...]
    limits: dict[str, int]
    filter: str  # hexadecimal


_said = msgspec.json.Decoder(_Said)


class Sandbox:
    """Runs scripts, a bounded number at a time."""

    def __init__(self, settings: Callable[[], Scripts]) -> None:
        self._settings = settings
        self._slots = CapacityLimiter(settings().concurrency)

    async def run(self, language: Language, source: str, arguments: Any) -> Raw:
        """Return value of the script's `main`. Raises ScriptFailed."""
        settings = self._settings()
        self._slots.total_tokens = settings.concurrency
        plan = _plan(language, settings)
        given = json.dumps({"source": source, "arguments": arguments}).encode()
        try:
            with Deadline(settings.time_s):
                await self._slots.acquire()
        except TimeoutError:
            raise ScriptFailed("had to wait too long for others (scripts.concurrency)") from None
        try:
            ended = await _ended(plan, given, settings)
        finally:
            self._slots.release()
        return _answer(ended, settings)

    async def missing(self, language: Language) -> str | None:
        """Reason why scripts in this language cannot be run here; None when they can."""
        try:
            await self.run(language, _PROBES[language], {})
        except ScriptFailed as error:
            return str(error)
        return None


def _plan(language: Language, settings: Scripts) -> str:
    """Raises ScriptFailed on an unsupported machine."""
    machine = MACHINES.get(os.uname().machine)
    if sys.platform != "linux" or machine is None:
        raise ScriptFailed(
            "cannot be run: scripts need Linux on x86-64 or arm64, with namespaces and seccomp"
        )
    found = runtime(language, settings.memory_bytes)
    if found is None:
        raise ScriptFailed("cannot be run: there is no node (Node.js) on this machine's PATH")
    plan = _Plan(
        os.getpid(),
        found.command,
        found.environment,
        found.paths,
        found.links,
        found.hidden,
        _limits(found, settings),
        program(machine).hex(),
    )
    return json.dumps(asdict(plan))


def _limits(found: Runtime, settings: Scripts) -> dict[str, int]:
    return {
        found.memory: settings.memory_bytes,
        "RLIMIT_CPU": math.ceil(settings.time_s) + 1,  # of all threads
        "RLIMIT_FSIZE": 0,
        "RLIMIT_NOFILE": OPEN_FILES,
        "RLIMIT_NPROC": THREADS,
        "RLIMIT_CORE": 0,
        "RLIMIT_MEMLOCK": 0,
    }


async def _ended(plan: str, given: bytes, settings: Scripts) -> Ended:
    process = await Process.start(plan, given, settings.output_bytes)
    try:
        with Deadline(settings.time_s):
            return await process.wait()
    except TimeoutError:
        raise ScriptFailed(
            f"did not answer within {settings.time_s:g} s (scripts.time_s)"
        ) from None
    finally:
        await process.close()


def _answer(ended: Ended, settings: Scripts) -> Raw:
    if ended.too_long:
        raise ScriptFailed(
            f"answered more than {settings.output_bytes} bytes (scripts.output_bytes)"
        )
    if ended.code == REFUSED:
        what = ended.errors.strip() or "the sandbox did not start"
        raise ScriptFailed(f"cannot be run: this machine does not let scripts be confined: {what}")
    if ended.code != 0:
        raise ScriptFailed(_death(ended))
    if not ended.output.strip():
        raise ScriptFailed("ended without an answer")
    try:
        decode_strict(ended.output)
        said = _said.decode(ended.output)
    except (Fault, msgspec.DecodeError):
        said = _Said()
    if said.answer is not UNSET:
        return said.answer
    if said.error is UNSET:
        raise ScriptFailed("wrote something to its standard output that is not an answer")
    full = any(sign in said.error for sign in _MEMORY_SIGNS)
    more = ": it ran out of memory (scripts.memory_bytes)" if full else ""
    raise ScriptFailed(f"failed: {said.error[:MESSAGE_CHARACTERS]}{more}")


def _death(ended: Ended) -> str:
    if any(sign in ended.errors for sign in _MEMORY_SIGNS):
        return "ran out of memory (scripts.memory_bytes)"
    if ended.code > 128:
        return (
            f"was ended by signal {ended.code - 128}: it crashed, or needed more memory or time "
            "than it may (scripts.memory_bytes, scripts.time_s)"
        )
    return f"ended with exit code {ended.code} before it answered"
