"""Workers of the suite, beside interpreters of their own."""

import os
import sys
from pathlib import Path

import pytest

from tests import workers


@pytest.mark.skipif(sys.platform != "linux", reason="workers are forked on Linux only")
def test_worker_is_a_fork_of_its_controller() -> None:
    if "PYTEST_XDIST_WORKER" not in os.environ:
        pytest.skip("the tests run in one process")
    controller, worker = (
        Path(f"/proc/{pid}/cmdline").read_bytes() for pid in (os.getppid(), "self")
    )
    assert worker == controller, "a module of tests starts a thread when it is imported"
    assert sys.argv == ["-c"]
    assert workers.waiting == [], "it would wait at its end for workers that are no children of it"
