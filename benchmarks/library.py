"""The librarian: questions to repositories, definitions by name, and what one changed file costs.

The questions and the repositories are not part of this one: they are read from a folder
(`--recall`) with `swe-qa/NAME.jsonl` and `code/NAME.tar.gz`. As in the figures that they are
compared with, the code and the documents of a repository are stored, and a question counts by those
of them whose paths its answer names.
"""

import io
import statistics
import tarfile
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.memories import await_vectors
from benchmarks.processes import pin
from benchmarks.request import Unavailable
from benchmarks.rig import Rig
from benchmarks.table import Row, Target, missing
from benchmarks.toolgate import installation, serving

GOALS, GOAL = {"flask": 88.0}, 85.0  # R@10 of files, in per cent
BM25 = {"flask": 85.9, "pylint": 65.4, "pytest": 74.4, "requests": 95.0, "sqlfluff": 65.7}
DEPTHS = (5, 10)
KINDS = (".py", ".rst", ".md")
FILES, FUNCTIONS = 1000, 50
LOOKUPS = 500
LOOKUP_MS, CHANGED_S = 20.0, 2.0
TIMEOUT_S = 600.0
SETTINGS = {"knowledge": {"enabled": True}, "librarian": {"enabled": True}}
WORDS = {"embedding": {"provider": "disabled"}, "disclosure": {"when_down": "lexical"}}


def measure_library(rig: Rig, directory: Path | None) -> list[Row]:
    cores = rig.cores.tested | rig.cores.load
    pin(0, cores)
    everywhere = replace(rig, cores=replace(rig.cores, tested=cores))
    try:
        return [*_question_rows(everywhere, directory), *_large_rows(everywhere)]
    finally:
        pin(0, rig.cores.load)


def _question_rows(rig: Rig, directory: Path | None) -> Iterator[Row]:
    names = [path.stem for path in sorted(directory.glob("swe-qa/*.jsonl"))] if directory else []
    names = [name for name in names if directory and (directory / f"code/{name}.tar.gz").exists()]
    if directory is None or not names:
        yield missing("files of answers", "%", "no directory of questions (--recall)")
    else:
        for name in names:
            yield from _repository_rows(rig, directory, name)


def _repository_rows(rig: Rig, directory: Path, name: str) -> Iterator[Row]:
    paths, packed = _texts(directory / f"code/{name}.tar.gz")
    questions = list(asked(directory / f"swe-qa/{name}.jsonl", paths))
    shares: dict[int, list[float]] = {depth: [] for depth in DEPTHS}
    with (
        installation(rig, f"library-{name}", {}, SETTINGS) as site,
        serving(rig, site) as child,
        closing(HTTPConnection("127.0.0.1", child.port, timeout=TIMEOUT_S)) as connection,
    ):
        rig.say(f"library: storing {len(paths)} files of {name}")
        sent(connection, "PUT", f"/knowledge/files/{name}/f.tar.gz", packed)
        await_vectors(site)
        for question, relevant in questions:
            body = {"query": question, "collections": [name], "by": "file"}
            passages = _posted(connection, "/search", body)["passages"]
            ranked = [passage["path"] for passage in passages]
            for depth in DEPTHS:
                top = {path.removeprefix("f.tar.gz/") for path in ranked[:depth]}
                shares[depth].append(100 * len(relevant & top) / len(relevant))
    for depth in DEPTHS:
        goal = (Target("least", GOALS.get(name, GOAL)),) if depth == DEPTHS[-1] else ()
        note = f"{len(questions)} questions"
        if name in BM25:
            note += f"; BM25 has {BM25[name]} at {DEPTHS[-1]}"
        yield Row(f"{name}: files of answers, R@{depth}", statistics.mean(shares[depth]), "%",
                  targets=goal, note=note)  # fmt: skip


def _texts(archive: Path) -> tuple[list[str], bytes]:
    """The paths of code and documents in an archive, and an archive of these alone."""
    paths, buffer = [], io.BytesIO()
    with tarfile.open(archive) as tar, tarfile.open(fileobj=buffer, mode="w:gz") as packed:
        for member in tar:
            if member.isreg() and member.name.endswith(KINDS):
                member.name = member.name.removeprefix("./")
                paths.append(member.name)
                packed.addfile(member, tar.extractfile(member))
    return paths, buffer.getvalue()


def asked(file: Path, paths: Sequence[str]) -> Iterator[tuple[str, frozenset[str]]]:
    """Questions, and the files of the repository that their answers name."""
    for line in file.read_text().splitlines():
        record = msgspec.json.decode(line)
        if answer_paths := {path for path in paths if path in record["answer"]}:
            yield record["question"], frozenset(answer_paths)


def _large_rows(rig: Rig) -> Iterator[Row]:
    with (
        installation(rig, "library-large", {}, SETTINGS | WORDS) as site,
        serving(rig, site) as child,
        closing(HTTPConnection("127.0.0.1", child.port, timeout=TIMEOUT_S)) as connection,
    ):
        rig.say(f"library: storing {FILES * FUNCTIONS:,} definitions")
        stored = sent(connection, "PUT", "/knowledge/files/large/r.tar.gz", repository(-1))
        started = time.perf_counter()
        again = sent(connection, "PUT", "/knowledge/files/large/r.tar.gz", repository(FILES // 2))
        changed_s = time.perf_counter() - started
        if (stored["added"], again["changed"]) != (FILES, 1):
            raise Unavailable(f"files were not stored as expected: {stored}, {again}")
        times = [_looked_up(connection, at) for at in range(LOOKUPS)]
    p95 = statistics.quantiles(times, n=20)[-1]
    yield Row("definition by name", p95, "ms", targets=(Target("value", LOOKUP_MS),),
              note=f"p95 over REST of {LOOKUPS}, in {FILES * FUNCTIONS:,} definitions")  # fmt: skip
    yield Row("one changed file", changed_s, "s", targets=(Target("value", CHANGED_S),),
              note=f"of {FILES:,}, sent as an archive")  # fmt: skip


def repository(changed: int) -> bytes:
    """A repository as an archive; the file of the number `changed` has another text."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for at in range(FILES):
            body = "".join(
                f"def handle_{at}_{number}(request):\n    return serve(request, {number})\n\n\n"
                for number in range(FUNCTIONS)
            )
            data = (body + ("# changed\n" if at == changed else "")).encode()
            info = tarfile.TarInfo(f"src/part{at % 20}/file{at}.py")
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


def _looked_up(connection: HTTPConnection, at: int) -> float:
    """Milliseconds of the lookup of one definition."""
    name = f"handle_{at * 7 % FILES}_{at % FUNCTIONS}"
    started = time.perf_counter()
    symbols = _posted(connection, "/symbols", {"name": name, "collections": ["large"]})["symbols"]
    if [symbol["symbol"] for symbol in symbols] != [name]:
        raise Unavailable(f"{name} was found as {symbols}")
    return 1000 * (time.perf_counter() - started)


def _posted(connection: HTTPConnection, path: str, body: Any) -> Any:
    return sent(connection, "POST", f"/librarian/v1{path}", msgspec.json.encode(body))


def sent(connection: HTTPConnection, method: str, path: str, body: bytes) -> Any:
    connection.request(method, path, body, {"Content-Type": "application/json"})
    with connection.getresponse() as response:
        text = response.read()
    if response.status >= 400:
        raise Unavailable(f"{path}: {response.status} {text[:300].decode()}")
    return msgspec.json.decode(text)
