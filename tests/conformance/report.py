"""What the runs found, as a table and as lists."""

from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.table import Table

from tests.conformance.legs import Outcome
from tests.conformance.suite import Scenario

HEADINGS = ("run", "scenarios", "checks", "warnings", "not scored")


def table(outcomes: Sequence[Outcome]) -> Table:
    """One line for each run: what passed, out of what there was."""
    made = Table(*HEADINGS, box=None, pad_edge=False)
    for outcome in outcomes:
        scored = outcome.select_scenarios()
        warnings = sum(len(one.of("WARNING")) for one in scored)
        cells = (_scenarios(scored), _checks(scored), str(warnings))
        made.add_row(outcome.title, *cells, _scenarios(outcome.select_scenarios(scored=False)))
    return made


def _scenarios(scenarios: Sequence[Scenario]) -> str:
    return (
        f"{sum(scenario.has_passed for scenario in scenarios)}/{len(scenarios)}"
        if scenarios
        else "-"
    )


def _checks(scenarios: Sequence[Scenario]) -> str:
    good = sum(len(scenario.of("SUCCESS")) for scenario in scenarios)
    return f"{good}/{good + sum(len(scenario.of('FAILURE')) for scenario in scenarios)}"


def details(outcome: Outcome) -> Iterator[str]:
    """Every check that failed or warned, and why it may."""
    for status, word in (("FAILURE", "failed"), ("WARNING", "warned")):
        for scenario, check, reason in outcome.checks_with_status(status):
            said = f"{scenario.name}: {check.id}: {check.message}"
            if reason is None:
                yield f"{word.upper()}  {said}"
            else:
                yield f"{word}  {said}\n        expected: {reason}"
    for name, check in outcome.stale():
        yield f"stale   {name}: {check} stands in expected.py, but is as it should be"
    for scenario in outcome.select_scenarios(scored=False):
        failed = scenario.of("FAILURE")
        if failed:
            yield f"not scored  {scenario.name}: {len(failed)} failed, as {failed[0].message}"


def show(console: Console, outcomes: Sequence[Outcome]) -> None:
    for outcome in outcomes:
        lines = list(details(outcome))
        if lines:
            console.print(f"\n{outcome.title}", style="bold")
            console.print("\n".join(lines), markup=False, highlight=False, soft_wrap=True)
    console.print()
    console.print(table(outcomes))
