"""What became of the values of one description: counted by feature, failures with examples."""

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from tests.roundtrip.finding import Finding

EXAMPLES = 3  # of each feature


@dataclass
class Report:
    operations: int = 0  # that were sent
    good: int = 0  # of which every value arrived
    calls: int = 0
    arrived: Counter[str] = field(default_factory=Counter)
    wrong: Counter[str] = field(default_factory=Counter)
    inexpressible: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)  # why something cannot be expressed
    unmade: list[str] = field(default_factory=list)  # operations no arguments were found for
    examples: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))

    def add(self, operation: str, findings: Iterable[Finding]) -> bool:
        """Whether none of them is wrong."""
        well = True
        for one in findings:
            if one.inexpressible is not None:
                self.inexpressible[one.feature] += 1
                self.reasons[one.inexpressible] += 1
            elif one.arrived:
                self.arrived[one.feature] += 1
            else:
                well = False
                self.wrong[one.feature] += 1
                if len(self.examples[one.feature]) < EXAMPLES:
                    self.examples[one.feature].append(f"{operation}: {one.detail}")
        return well

    def merge(self, report: "Report") -> None:
        self.operations += report.operations
        self.good += report.good
        self.calls += report.calls
        for mine, theirs in (
            (self.arrived, report.arrived),
            (self.wrong, report.wrong),
            (self.inexpressible, report.inexpressible),
            (self.reasons, report.reasons),
        ):
            mine.update(theirs)
        self.unmade += report.unmade
        for feature, examples in report.examples.items():
            kept = self.examples[feature]
            kept += examples[: EXAMPLES - len(kept)]

    @property
    def features(self) -> list[str]:
        return sorted(self.arrived.keys() | self.wrong.keys() | self.inexpressible.keys())

    def rate(self, feature: str | None = None) -> float:
        """Share of values that arrived among those that can be expressed at all."""
        arrived = self.arrived.total() if feature is None else self.arrived[feature]
        wrong = self.wrong.total() if feature is None else self.wrong[feature]
        return arrived / (arrived + wrong) if arrived + wrong else 1.0
