"""The example of two gateways that are agents of each other, as its README says."""

import re
import shlex
from pathlib import Path

from examples.agents.run import DATA_DIR
from tests.documentation.walk import blocks
from tests.examples.conftest import ROOT, errors, program


def test_two_gateways_call_each_other_until_three_have_handed_on(scratch: Path) -> None:
    command, output = blocks(ROOT / "examples/agents/README.md")
    _, *arguments = shlex.split(command.text)
    expected = sorted(re.escape(line).replace(r"\.\.\.", ".*") for line in output.text.splitlines())
    with program(*arguments, env={DATA_DIR: str(scratch / "agents")}) as run:
        assert run.stdout is not None
        lines = sorted(run.stdout.read().splitlines())  # the imports run side by side
        assert run.wait() == 0, errors(run)
    assert len(lines) == len(expected)
    for line, pattern in zip(lines, expected, strict=True):
        assert re.fullmatch(pattern, line), line
