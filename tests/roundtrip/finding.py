"""What became of one value."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Finding:
    """`feature` is what it stands for in a report: the place, the style, the shape."""

    feature: str
    arrived: bool
    inexpressible: str | None = None
    detail: str = ""
