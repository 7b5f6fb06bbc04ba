"""The example of events: a killed worker, a stopped gateway, and the report at the other one."""

from pathlib import Path

from examples.run import DATA_DIR
from tests.examples.conftest import errors, program

SAID = """\
Accepted: the report is working.
Killed the worker that wrote it.
Stopped the gateway that accepted it.
Report 2026: 10 pages, by the other worker.
"""


def test_a_report_survives_its_worker_and_its_gateway(scratch: Path) -> None:
    own = {DATA_DIR: str(scratch / "events")}
    with program("-m", "examples.events.run", env=own) as run:
        assert run.stdout is not None
        assert run.stdout.read() == SAID, errors(run)
        assert run.wait() == 0
