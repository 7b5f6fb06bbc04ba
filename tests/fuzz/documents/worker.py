"""Mutants one after the other, in a process that may use so much memory and no more. One line of
JSON for each on standard output: `{"begin": number}` before it, how many tools it gave after it,
and what was wrong."""

import json
import resource
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

from tests.fuzz.documents.check import TIME, Verdict, check
from tests.fuzz.documents.mutants import mutant

MEMORY_LIMIT_BYTES = 500 * 10**6  # more than what the process has when it begins
TRIES = 400  # to make a finding smaller


def main(directory: Path, seed: int, first: int, last: int, step: int) -> None:
    excerpts = sorted((path.name, path.read_bytes()) for path in (directory / "excerpts").iterdir())
    own = directory / f"worker-{first}"
    own.mkdir(exist_ok=True)
    for number in range(first, last, step):
        _say({"begin": number})
        name, data = make_mutant(excerpts, seed, number)
        verdict = _check_mutant(own, name, data, number)
        _say({"tools": verdict.tools})
        if verdict.wrong:
            smaller = _smaller(own, name, data, number, verdict)
            kept = directory / f"mutant-{seed}-{number}{Path(name).suffix}"
            kept.write_bytes(smaller)
            _say({"number": number, "wrong": verdict.wrong, "where": verdict.where,
                  "kept": str(kept), "bytes": len(smaller)})  # fmt: skip


def make_mutant(excerpts: list[tuple[str, bytes]], seed: int, number: int) -> tuple[str, bytes]:
    r = Random(f"{seed} {number}")
    return mutant(*r.choice(excerpts), r)


def _check_mutant(own: Path, name: str, data: bytes, number: int) -> Verdict:
    stem = "introspection" if name.startswith("introspection") else "mutant"
    path = own / f"{stem}{Path(name).suffix}"
    path.write_bytes(data)
    with _little_memory():
        verdict = check(path, Random(number))
    if verdict.where != TIME:
        return verdict
    with _little_memory():  # once more: neighbours on the machine cost processor time as well
        return check(path, Random(number))


@contextmanager
def _little_memory() -> Iterator[None]:
    """MEMORY_LIMIT_BYTES of address space beyond what is in use. Only Linux holds itself to it."""
    if sys.platform != "linux":
        yield
        return
    _, most = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + MEMORY_LIMIT_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (limit, most))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (most, most))


def _smaller(own: Path, name: str, data: bytes, number: int, verdict: Verdict) -> bytes:
    """The same failure from less, where it is a tree and quick to try."""
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        return data
    tries = TRIES if verdict.cpu_s < 0.2 else 20

    def fails(candidate: Any) -> bool:
        text = json.dumps(candidate).encode("utf-8", "surrogatepass")
        return _check_mutant(own, name, text, number).where == verdict.where

    if not fails(document):
        return data
    shrink(document, fails, tries)
    return json.dumps(document).encode("utf-8", "surrogatepass")


def shrink(document: Any, fails: Callable[[Any], bool], tries: int) -> None:
    """Members are taken out, the outermost first, and put back where that mends it."""
    for holder, key in list(_holders(document)):
        if tries <= 0:
            return
        if isinstance(holder, dict) and key in holder:
            tries -= 1
            before = dict(holder)
            del holder[key]
            if not fails(document):
                holder.clear()
                holder.update(before)


def _holders(document: Any) -> Iterator[tuple[Any, Any]]:
    waiting = [document]
    while waiting:
        one = waiting.pop(0)
        if isinstance(one, dict):
            yield from ((one, key) for key in list(one))
            waiting += one.values()
        elif isinstance(one, list):
            waiting += one


def _say(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(Path(sys.argv[1]), *map(int, sys.argv[2:6]))
