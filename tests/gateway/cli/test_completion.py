"""`toolgate completion`."""

import shutil
import subprocess

import pytest
from click.shell_completion import BashComplete

from gateway.cli.main import cli
from tests.gateway.cli.conftest import Toolgate


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_is_readable_by_its_shell(bare: Toolgate, shell: str) -> None:
    if not shutil.which("bash"):
        pytest.skip("click asks bash for its version")
    ran = bare("completion", shell)
    assert ran.code == 0
    assert f"_TOOLGATE_COMPLETE={shell}_complete" in ran.out
    if shutil.which(shell):
        subprocess.run([shell, "-n"], input=ran.out, text=True, check=True)


def test_an_unsupported_shell_is_refused_with_the_supported_shells(bare: Toolgate) -> None:
    ran = bare("completion", "ksh")
    assert ran.code == 2
    assert "'ksh' is not one of 'bash', 'fish', 'zsh'" in ran.err


@pytest.mark.parametrize(
    ("words", "incomplete", "expected"),
    [
        ([], "so", ["sources"]),
        (["tools"], "re", ["reset-description", "remove"]),
        (["sources", "remove"], "--y", ["--yes"]),
        (["serve"], "--wor", ["--workers"]),
        (["import", "openapi"], "--ex", ["--exclude"]),
    ],
)
def test_commands_and_options_are_completed(
    words: list[str], incomplete: str, expected: list[str]
) -> None:
    complete = BashComplete(cli, {}, "toolgate", "_TOOLGATE_COMPLETE")
    assert [item.value for item in complete.get_completions(words, incomplete)] == expected
