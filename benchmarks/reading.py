"""Import of one description in this process, as JSON on standard output: outcomes of its
operations, time, memory. `python -m benchmarks.reading FILE`"""

import asyncio
import json
import resource
import sys
import time
from collections import Counter
from pathlib import Path

from config.load import load
from registry.importers.drafts import ImportedDescription
from registry.sources.import_specs import ImportSpec
from registry.sources.source_reader import Origins, find
from schemas.errors import ImportRejected


def main(location: str) -> None:
    settings = load(None, {"TOOLGATE_CONFIG": ""})
    spec = ImportSpec("description", location)
    begin, worked, before = time.perf_counter(), time.process_time(), _peak_mb()
    try:
        imported = asyncio.run(_read(spec, settings.imports))
    except ImportRejected as refusal:
        sys.stdout.write(json.dumps({"rejected": str(refusal)}))
        return
    told = {
        **_counted(imported),
        "seconds": time.perf_counter() - begin,
        "cpu_s": time.process_time() - worked,
        "peak_mb": _peak_mb(),
        "idle_mb": before,
    }
    sys.stdout.write(json.dumps(told))


async def _read(spec: ImportSpec, limits: object) -> ImportedDescription:
    source = await find(spec, limits, Origins())  # type: ignore[arg-type]
    return source.read()


def _counted(imported: ImportedDescription) -> dict[str, object]:
    statuses = Counter(outcome.status for outcome in imported.outcomes)
    reasons = Counter(
        f"{outcome.status}: {_plain(reason)}"
        for outcome in imported.outcomes
        if outcome.status in ("degraded", "skipped")
        for reason in (outcome.reason or "").split("; ")
    )
    return {"statuses": statuses, "reasons": reasons.most_common()}


def _plain(reason: str) -> str:
    """Without what differs from operation to operation: the words before a colon, and names."""
    words = reason.split(" ")
    masked_words = [word if word.islower() and word.isalpha() else "…" for word in words]
    merged = [
        word
        for n, word in enumerate(masked_words)
        if word != "…" or n == 0 or masked_words[n - 1] != "…"
    ]
    return " ".join(merged)[:90]


def _peak_mb() -> float:
    """Linux hands the peak of a parent down in `ru_maxrss`; what /proc says is this program's."""
    status = Path("/proc/self/status")
    if status.exists():
        line = next(line for line in status.read_text().split("\n") if line.startswith("VmHWM"))
        return int(line.split()[1]) * 1024 / 1e6
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6  # macOS: bytes


if __name__ == "__main__":
    main(str(Path(sys.argv[1])))
