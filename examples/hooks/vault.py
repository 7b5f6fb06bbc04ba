"""A header for the service of each call, from a vault: here a file, which is read each time."""

from pathlib import Path
from typing import Any

PASSWORD = Path("vault.txt")


def header(event: dict[str, Any]) -> dict[str, Any]:
    if "desk" not in event["roles"]:  # a vault decides by the facts of the call
        return {"refuse": "no password for this caller"}
    return {"headers": {"X-Password": PASSWORD.read_text().strip()}}
