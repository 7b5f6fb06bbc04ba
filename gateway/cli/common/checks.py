"""One finding of `toolgate doctor`, and of the commands that check a part alone."""

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Literal

from rich.text import Text

from gateway.cli.common.output import out

CheckStatus = Literal["ok", "warning", "failed"]
MARKS: Mapping[CheckStatus, str] = {"ok": "✓", "warning": "!", "failed": "✗"}
STYLES: Mapping[CheckStatus, str] = {"ok": "green", "warning": "yellow", "failed": "red"}


@dataclass(frozen=True, slots=True)
class Check:
    name: str
    status: CheckStatus
    detail: str


async def collect(checks: AsyncIterator[Check]) -> list[Check]:
    return [check async for check in checks]


def print_check(check: Check) -> None:
    """Print one step of a walk, as it ends."""
    if out.is_terminal:
        mark = Text(f"{MARKS[check.status]} ", STYLES[check.status])
        out.print(mark, f"{check.name}: {check.detail}", sep="")
    else:
        out.print(f"{check.status}  {check.name}: {check.detail}")
