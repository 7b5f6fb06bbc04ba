"""Import of descriptions, real ones where a directory is given: share of operations imported, share
of requests that arrive intact, size of the tool lists for a model, compared with FastMCP."""

import asyncio
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from benchmarks import calls, peer
from benchmarks.description import describe
from benchmarks.request import HttpRequest, Unavailable
from benchmarks.rig import Rig
from benchmarks.table import Row, Target
from benchmarks.toolgate import Installation, import_openapi, installation, serving
from tests.roundtrip.described import Description
from tests.roundtrip.ours import write_all
from tests.roundtrip.report import Report
from tests.roundtrip.run import round_trip

SUFFIXES = (".json", ".yaml", ".yml")
OPERATIONS = 300  # of the description that stands in for a large one
VARIANTS, QUICK_VARIANTS = 5, 2
QUICK_FILES = 2
REASONS = 3  # named in a note
READ_TIMEOUT_S = 600.0
CHARACTERS_OF_TOKEN = 4
UNFOLDS = "describe_tool"  # what a folded tool names in its schema
PAGES = 200

LOST = (Target("value", 0.5),)  # % of the operations of a file, or of all
WRONG = (Target("value", 1.0),)  # % of the values that can be said at all
READ = (Target("value", 5.0),)  # s
MEMORY = (Target("value", 300.0),)  # MB
LISTED = (Target("value", 1.2),)  # MB, whatever the file


@dataclass(frozen=True, slots=True)
class Listed:
    """What `tools/list` gives to a client."""

    tools: int
    bytes: int
    largest: int  # bytes of one tool
    largest_name: str
    folded: int  # tools of which `describe_tool` shows more


def measure_descriptions(rig: Rig, directory: Path | None, quick: bool) -> list[Row]:
    files = chosen(rig.directory, directory, quick)
    whose = "" if directory else "OUR OWN: no directory of real descriptions was given"
    rows: list[Row] = []
    readings = {path: _read(rig, path) for path in files}
    for path in files:
        rows += coverage(path, readings[path], whose)
    rows.append(covered(list(readings.values()), whose))
    rows += _round_trips(rig, files, QUICK_VARIANTS if quick else VARIANTS, whose)
    usable = [path for path in files if "rejected" not in readings[path]]
    return [*rows, *(_budget(rig, path, whose) for path in usable)]


def chosen(workspace: Path, directory: Path | None, quick: bool) -> list[Path]:
    """The files to measure: those in `directory`, else generated ones in `workspace`."""
    if directory is None:
        large = workspace / f"items-{OPERATIONS}.json"
        large.write_bytes(describe(OPERATIONS, "http://127.0.0.1:9"))
        paths = [*write_all(workspace), large]
    else:
        paths = [path for path in sorted(directory.iterdir()) if path.suffix in SUFFIXES]
    if not paths:
        raise Unavailable(f"{directory} holds no description")
    return sorted(paths, key=lambda path: path.stat().st_size)[:QUICK_FILES] if quick else paths


def _read(rig: Rig, path: Path) -> dict[str, Any]:
    """In a process of its own, so that its memory is its own."""
    rig.say(f"reading {path.name}")
    return _told([sys.executable, "-m", "benchmarks.reading", str(path)])


def _told(command: Sequence[str]) -> dict[str, Any]:
    """The JSON that a child prints; `{"crashed": ...}` when it prints none."""
    try:
        done = subprocess.run(command, capture_output=True, check=False, timeout=READ_TIMEOUT_S)
        told: dict[str, Any] = msgspec.json.decode(done.stdout)
    except subprocess.TimeoutExpired:
        return {"crashed": f"not done after {READ_TIMEOUT_S:.0f} s"}
    except msgspec.DecodeError:
        return {"crashed": done.stderr.decode(errors="replace").strip()[-200:]}
    return told


def coverage(path: Path, data: Mapping[str, Any], whose: str) -> Iterator[Row]:
    name = path.name
    if "crashed" in data:
        yield Row(
            f"{name}: operations lost", 100.0, "%", targets=LOST, errors=1, note=data["crashed"]
        )
        return
    if "rejected" in data:
        yield Row(f"{name}: rejected", None, "%", note=f"{data['rejected'][:160]} {whose}".strip())
        return
    statuses = data["statuses"]
    counted = ", ".join(f"{count:,} {status}" for status, count in statuses.items())
    reasons = "; ".join(f"{count} x {reason}" for reason, count in data["reasons"][:REASONS])
    note = f"{_operations(data):,} operations: {counted}{f' ({reasons})' if reasons else ''}"
    yield Row(f"{name}: operations lost", _lost(data), "%", targets=LOST, note=note + _also(whose))
    worked = f"{data['cpu_s']:.1f} s of processor time"
    yield Row(f"{name}: read in", data["seconds"], "s", targets=READ, note=worked)
    idle = f"{data['idle_mb']:.0f} MB before it"
    yield Row(f"{name}: peak memory", data["peak_mb"], "MB", targets=MEMORY, note=idle)


def covered(all_told: Sequence[Mapping[str, Any]], whose: str) -> Row:
    told = [data for data in all_told if "statuses" in data]
    crashes = sum("crashed" in data for data in all_told)
    total = sum(map(_operations, told))
    gone = sum(data["statuses"].get("skipped", 0) for data in told)
    note = f"{total:,} operations, {gone} skipped, {crashes} crashes{_also(whose)}"
    share = 100 * gone / total if total else 100.0
    return Row("all files: operations lost", share, "%", targets=LOST, errors=crashes, note=note)


def _operations(data: Mapping[str, Any]) -> int:
    return int(sum(data["statuses"].values())) - int(data["statuses"].get("excluded", 0))


def _lost(data: Mapping[str, Any]) -> float:
    total = _operations(data)
    return 100 * int(data["statuses"].get("skipped", 0)) / total if total else 100.0


def _round_trips(rig: Rig, files: Sequence[Path], variants: int, whose: str) -> Iterator[Row]:
    total = Report()
    for path in files:
        rig.say(f"sending the operations of {path.name}")
        try:
            trip = asyncio.run(round_trip(path, variants=variants))
        except Exception as crash:
            note = f"{type(crash).__name__}: {str(crash)[:160]}"
            yield Row(f"{path.name}: values wrong", None, "%", note=note)
            continue
        yield _arrived(f"{path.name}: values wrong", trip, None, f"{_sent(trip)}{_also(whose)}")
        total.merge(trip)
    yield from round_trip_rows(total, whose)


def round_trip_rows(total: Report, whose: str) -> Iterator[Row]:
    for feature in total.features:
        yield _arrived(f"  {feature}", total, feature, _values(total, feature))
    yield _arrived("all files: values wrong", total, None, f"{_sent(total)}{_also(whose)}")


def _arrived(scenario: str, report: Report, feature: str | None, note: str) -> Row:
    judged = feature is None or report.arrived[feature] + report.wrong[feature]
    if not judged:
        return Row(scenario, None, "%", note=note)
    return Row(scenario, 100 * (1 - report.rate(feature)), "%", targets=WRONG, note=note)


def _sent(report: Report) -> str:
    apart = f"{report.inexpressible.total():,} not expressible"
    unmade = f", {len(report.unmade)} without arguments" if report.unmade else ""
    return f"{report.good:,} of {report.operations:,} operations whole{unmade}; {apart}"


def _values(report: Report, feature: str) -> str:
    counts = (report.arrived[feature], report.wrong[feature], report.inexpressible[feature])
    return "{:,} arrived, {:,} wrong, {:,} not expressible".format(*counts)


def _budget(rig: Rig, path: Path, whose: str) -> Row:
    rig.say(f"listing the tools of {path.name}")
    with installation(rig, f"list-{path.stem}", {}) as site:
        listed = _listed(rig, site, path)
    theirs = _theirs(path)
    tokens = listed.bytes // CHARACTERS_OF_TOKEN
    largest = f"largest {listed.largest:,} B ({listed.largest_name[:40]})"
    ours = f"{listed.tools:,} tools, ~{tokens:,} tokens, {largest}, {listed.folded} folded"
    return Row(
        f"{path.name}: tools/list",
        listed.bytes / 1e6,
        "MB",
        x_peer=theirs["bytes"] / listed.bytes if "bytes" in theirs and listed.bytes else None,
        targets=LISTED,
        note=f"{ours}; FastMCP: {_said(theirs)}{_also(whose)}",
    )


def _listed(rig: Rig, site: Installation, path: Path) -> Listed:
    import_openapi(rig, site, path)
    with serving(rig, site) as child:
        tools, size = [], 0
        headers = calls.session_headers(child.port)
        cursor: dict[str, str] = {}
        for _ in range(PAGES):
            bodies = calls.messages("tools/list", cursor)
            answer = HttpRequest(child.port, "/mcp", bodies=bodies, headers=headers).send()
            result = msgspec.json.decode(_message(answer.body))["result"]
            size += len(answer.body)
            tools += result["tools"]
            if "nextCursor" not in result:
                break
            cursor = {"cursor": result["nextCursor"]}
    sizes = [(len(msgspec.json.encode(tool)), tool) for tool in tools]
    largest, which = max(sizes, key=lambda pair: pair[0], default=(0, {"name": "none"}))
    folded = sum(
        UNFOLDS.encode() in msgspec.json.encode(tool)
        for tool in tools
        if not tool["name"].endswith(UNFOLDS)
    )
    return Listed(len(tools), size, largest, which["name"], folded)


def _message(body: bytes) -> bytes:
    """JSON, or the data of the one event that holds it."""
    lines = [line for line in body.split(b"\n") if line.startswith(b"data:")]
    return lines[-1].removeprefix(b"data:") if lines else body


def _theirs(path: Path) -> dict[str, Any]:
    """FastMCP's list of the same description, where FastMCP is installed."""
    if peer.FASTMCP.installed() is None:
        return {"rejected": "not installed (`--only calls` installs it)"}
    if path.suffix != ".json":
        return {"rejected": "not tried: it is given JSON only"}
    if Description(path).old:
        return {"rejected": "rejects Swagger 2.0"}
    return _told(
        [str(peer.FASTMCP.python), str(Path(__file__).with_name("peer_list.py")), str(path)]
    )


def _said(theirs: Mapping[str, Any]) -> str:
    if "bytes" not in theirs:
        return str(theirs.get("rejected") or theirs.get("crashed"))
    times = f"{theirs['built_s']:.1f} s to build, {theirs['listed_s']:.1f} s to list"
    return f"{theirs['bytes'] / 1e6:.2f} MB, {times}, {theirs['peak_mb']:,.0f} MB of memory"


def _also(whose: str) -> str:
    return f"; {whose}" if whose else ""
