"""Parametrised tests as one item: every case runs, and every failure is reported."""

import contextvars
import subprocess
import sys
from pathlib import Path

import pytest

from tests.packing import pack, packable_cases

pytestmark = pytest.mark.anyio

MODULE = """
import pytest

@pytest.fixture
def folder():
    return "f"

@pytest.mark.parametrize("left", [1, 2, 3])
@pytest.mark.parametrize(("right", "total"), [(1, 2), pytest.param(2, 3, id="two")])
def test_packed(left, right, total):
    assert left + right == total

@pytest.mark.parametrize("n", [1, 2])
def test_with_a_fixture(n, folder): ...

@pytest.mark.parametrize("n", [1, pytest.param(2, marks=pytest.mark.xfail(strict=True))])
def test_with_marks_of_a_case(n):
    assert n == 1

@pytest.mark.parametrize("n", [1, 2, 3])
def test_skipped(n):
    if n == 2:
        pytest.skip("no two")
"""


def test_one_item_runs_all_cases_and_reports_each_failure(tmp_path: Path) -> None:
    file = tmp_path / "test_cases.py"
    file.write_text(MODULE)
    plugins = ("-p", "tests.packing", "-p", "no:cacheprovider", "-p", "no:schemathesis")
    command = [sys.executable, "-m", "pytest", *plugins, "-rs", "--noconftest", "-c", "/dev/null"]
    done = subprocess.run(
        [*command, "-o", "timeout=9", str(file)],
        cwd=Path(__file__).parents[1],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1, done.stdout
    assert "1 failed, 3 passed, 1 skipped, 1 xfailed" in done.stdout, done.stdout
    assert "4 of 6 cases failed" in done.stdout
    for right, left in ((1, 2), (1, 3), (2, 2), (2, 3)):
        assert f"The case is right={right}, total={right + 1}, left={left}" in done.stdout
    assert "1 of 3 cases: no two (n=2)" in done.stdout


@pytest.mark.parametrize("n", [1, 2, 3])
async def each_is_odd(n: int) -> None:
    assert n % 2


async def test_cases_of_an_asynchronous_test_run_one_after_the_other() -> None:
    packed = pack(each_is_odd, packable_cases(each_is_odd), 10)
    with pytest.raises(ExceptionGroup, match="1 of 3 cases failed") as raised:
        await packed()
    assert raised.value.exceptions[0].__notes__[-1] == "The case is n=2"


def test_a_case_leaves_no_context_behind() -> None:
    variable = contextvars.ContextVar("variable", default=0)

    def is_new(n: int) -> None:
        assert variable.get() == 0
        variable.set(n)

    pack(is_new, [{"n": 1}, {"n": 2}], 10)()


def test_a_stopped_case_is_the_last() -> None:
    """A timeout is a failure like this one, and no other would stop the next case."""
    seen: list[int] = []

    def fail(n: int) -> None:
        seen.append(n)
        pytest.fail("Timeout")

    with pytest.raises(BaseExceptionGroup, match="1 of 2 cases failed"):
        pack(fail, [{"n": 1}, {"n": 2}], 10)()
    assert seen == [1]
