"""The librarian's example of research: a gateway that is killed while a model is asked."""

import re

from config.settings import DatabaseSettings
from tests.examples.conftest import errors, program


def test_research_survives_its_gateway_and_pays_nothing_twice(
    database_settings: DatabaseSettings,
) -> None:
    """Research survives its gateway and pays nothing twice (L21)."""
    env = {"TOOLGATE_DATABASE__URL": database_settings.url}
    with program("examples/librarian/research.py", env=env) as demo:
        out, _ = demo.communicate(timeout=240)
        assert demo.returncode == 0, errors(demo)
    lines = out.splitlines()
    assert lines[:2] == ["killed the gateway while a model was asked", "the run is: running"]
    assert "was lost when the gateway stopped" in out
    assert re.search(r"^answer: .+ \[gateway/sandbox/jailed_process\.py:\d+\]$", out, re.M)
    assert lines[-1].endswith(" requests, 0 twice")
