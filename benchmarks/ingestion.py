"""Documents as knowledge: how long it takes until files are found by words, and how long a client
waits that stores a text in the dialect of LightRAG.

The repository is not part of this one. It is read from a folder (`--recall`) with
`code/flask.tar.gz`, of which all files are stored.
"""

import statistics
import tarfile
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.processes import pin
from benchmarks.request import Unavailable
from benchmarks.rig import Rig
from benchmarks.table import Row, Target, missing
from benchmarks.toolgate import installation, serving

TEXTS = 300  # of 10 kB
TIMEOUT_S = 300.0
WORDS = "The grey heron number {} nests in the reeds of the lake, and eats fish and frogs. "


def measure_ingestion(rig: Rig, directory: Path | None) -> list[Row]:
    archive = None if directory is None else directory / "code/flask.tar.gz"
    if archive is None or not archive.exists():
        return [missing("flask until it is found by words", "s", "no code (--recall)")]
    cores = rig.cores.tested | rig.cores.load
    pin(0, cores)
    everywhere = replace(rig, cores=replace(rig.cores, tested=cores))
    settings = {"knowledge": {"enabled": True}}
    try:
        with (
            installation(rig, "ingestion", {}, settings) as site,
            serving(everywhere, site) as child,
            closing(HTTPConnection("127.0.0.1", child.port, timeout=TIMEOUT_S)) as connection,
        ):
            return [*_texts(connection), *_archive(connection, archive)]
    finally:
        pin(0, rig.cores.load)


def _archive(connection: HTTPConnection, archive: Path) -> Iterator[Row]:
    """The whole repository: when the response is there, its words are searched."""
    with tarfile.open(archive) as tar:
        files = sum(member.isreg() for member in tar)
    began = time.perf_counter()
    report = _sent(connection, "PUT", "/knowledge/files/flask/flask.tar.gz", archive.read_bytes())
    query = {"query": "url_for endpoint", "collections": ["flask"], "mode": "naive"}
    answer = _sent(connection, "POST", "/knowledge/v1/query", msgspec.json.encode(query))
    seconds = time.perf_counter() - began
    if not answer["evidence"]:
        raise Unavailable("/query found nothing of what was stored")
    stored, left_out = report["added"], len(report["left_out"]) + len(report["failed"])
    note = f"{files} files: {stored} stored, {left_out} binary or left out"
    yield Row("flask until it is found by words", seconds, "s", targets=(Target("value", 20),),
              note=note)  # fmt: skip
    goal = (Target("least", 300),)
    yield Row("files stored in a minute", 60 * stored / seconds, "files", targets=goal)


def _texts(connection: HTTPConnection) -> Iterator[Row]:
    times = []
    for number in range(TEXTS):
        text = WORDS.format(number) * 122  # 10 kB
        body = msgspec.json.encode({"text": text, "file_source": f"{number}.txt"})
        began = time.perf_counter()
        _sent(connection, "POST", "/lightrag/bench/documents/text", body)
        times.append((time.perf_counter() - began) * 1000)
    cuts = statistics.quantiles(times, n=100)
    note = f"{TEXTS} texts of 10 kB, one after the other; median {cuts[49]:.1f} ms"
    yield Row("POST /documents/text p99", cuts[98], "ms", targets=(Target("value", 50),),
              note=note)  # fmt: skip


def _sent(connection: HTTPConnection, method: str, path: str, body: bytes) -> dict[str, Any]:
    type_ = "application/octet-stream" if method == "PUT" else "application/json"
    connection.request(method, path, body, {"Content-Type": type_})
    with connection.getresponse() as response:
        text = response.read()
    if response.status >= 400:
        raise Unavailable(f"{path}: {response.status} {text[:300].decode()}")
    return msgspec.json.decode(text)  # type: ignore[no-any-return]
