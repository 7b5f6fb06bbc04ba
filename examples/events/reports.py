"""A heavy skill: a report of many pages, each of which takes its time.

It is a query: generating a report again does no harm, so a call whose worker died is repeated.
"""

import asyncio
import os
from pathlib import Path
from typing import Any

from gateway import hybrid

HYBRID_SPEC = Path(__file__).with_name("spec.yaml")
PAGE_S = float(os.environ.get("REPORT_PAGE_S", "0.3"))


@hybrid.action("example.com/reports/generateReport/0.1.0", side="query")
async def generate_report(data: dict[str, Any]) -> dict[str, Any]:
    """Generate a report of so many pages."""
    for page in range(1, data["pages"] + 1):
        await asyncio.sleep(PAGE_S)
        note(f"{os.getpid()} page {page} of {data['title']}")
    return {"title": data["title"], "pages": data["pages"], "worker": os.getpid()}


def note(line: str) -> None:
    """Tell who watches how far it is."""
    if file := os.environ.get("REPORT_LOG"):
        with Path(file).open("a") as log:
            log.write(f"{line}\n")
