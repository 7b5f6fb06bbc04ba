"""What must be reached: `ndcg@10=60`, or `dense:recall@5=50` of one mode. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from registry.evaluation.metrics import METRICS
from registry.evaluation.results import Measured


@dataclass(frozen=True, slots=True)
class Threshold:
    metric: str
    percent: float
    mode: str | None = None  # None: the first one that is evaluated

    @classmethod
    def parse(cls, text: str) -> "Threshold":
        """Raises ValueError, whose text says what was expected."""
        left, _, number = text.partition("=")
        mode, _, metric = left.strip().rpartition(":")
        if metric not in METRICS:
            raise ValueError(f"{metric!r} is no measure; there are {', '.join(METRICS)}")
        try:
            percent = float(number)
        except ValueError:
            percent = -1.0
        if not 0 <= percent <= 100:
            raise ValueError(f"{number!r} is no number from 0 to 100, as in ndcg@10=60")
        return cls(metric, percent, mode or None)


def missed(thresholds: Sequence[Threshold], quality: Measured) -> list[str]:
    """A sentence for each that is not reached."""
    found = []
    for one in thresholds:
        mode = one.mode or quality.modes[0]
        mean = quality.interval(mode, one.metric).mean
        if mean < one.percent:
            found.append(
                f"{one.metric} of {mode} on {quality.name} is {mean:.1f}, less than {one.percent:g}"
            )
    return found
