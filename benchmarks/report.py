"""Result of one measurement."""

from msgspec import Struct


class Report(Struct, frozen=True):
    requests: int  # answered with 200
    seconds: float
    errors: int  # other statuses, lost connections, timeouts, answers that are no results
    bytes: float  # of one answer, headers included
    p50_ms: float
    p99_ms: float
    max_ms: float
    busy: float = 0.0  # share of one core that the tested process used
    load_busy: float = 0.0  # that our own generator used

    @property
    def per_s(self) -> float:
        return self.requests / self.seconds

    @property
    def per_cpu_s(self) -> float:
        return self.per_s / self.busy if self.busy else 0.0
