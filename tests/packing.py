"""Packing of parametrised tests: one item runs all cases of a test that takes no fixtures.

As a plugin of pytest (`-p tests.packing`, as `make test` has it), this module collects such a test
once. Each item costs 2 to 3 ms (its collection by each worker, its phases, its reports to the
controller), which is more than most of these tests take. Every case runs, and every failure is
reported with its arguments. Without the plugin each case is an item, to be chosen by its id:

    pytest tests/schemas/test_jsonrpc.py -k "some_test and some_case"
"""

import asyncio
import contextvars
import functools
import inspect
import itertools
import operator
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import pytest

Case = dict[str, Any]
ParameterSet: Any = type(pytest.param())

FIXTURES = {"anyio_backend", "logging_as_it_was"}  # as good for all cases as for one
CASE_S = 1  # that each case may take, on average, besides the time of a test
LENGTH = 300  # of the arguments in a report


def pytest_pycollect_makeitem(
    collector: pytest.Collector, name: str, obj: Any
) -> pytest.Function | None:
    if not (isinstance(collector, pytest.Module) and collector.istestfunction(obj, name)):
        return None
    cases = packable_cases(obj)
    if len(cases) < 2:
        return None
    packed = pack(obj, cases, float(collector.config.getini("timeout")))
    item = pytest.Function.from_parent(collector, name=name, callobj=packed)
    fixed = set(item.fixturenames) <= FIXTURES
    return item if fixed and next(item.iter_markers("parametrize"), None) is None else None


def packable_cases(test: Any) -> list[Case]:
    """Arguments of each case; []: the test takes something else, or its cases differ in marks."""
    marks = getattr(test, "pytestmark", [])
    tables = [mark for mark in marks if mark.name == "parametrize"]
    others = {mark.name for mark in marks} - {"parametrize", "anyio", "usefixtures"}
    if others or not inspect.isfunction(test) or hasattr(test, "hypothesis"):
        return []
    if not all(map(is_plain, tables)):
        return []
    rows = [rows_of(*table.args) for table in tables]
    cases: list[Case] = [
        functools.reduce(operator.or_, chosen, {}) for chosen in itertools.product(*rows)
    ]
    names = set(inspect.signature(test).parameters)
    return cases if all(case.keys() == names for case in cases) else []


def is_plain(table: pytest.Mark) -> bool:
    """Whether a table has ids at most, and values that can be read twice, without marks."""
    return (
        len(table.args) == 2
        and table.kwargs.keys() <= {"ids"}
        and isinstance(table.args[1], Collection)
        and not any(isinstance(value, ParameterSet) and value.marks for value in table.args[1])
    )


def rows_of(names: str | Sequence[str], values: Collection[Any]) -> list[Case]:
    words = names.replace(",", " ").split() if isinstance(names, str) else names
    rows = (
        value.values if isinstance(value, ParameterSet) else [value] if len(words) == 1 else value
        for value in values
    )
    return [dict(zip(words, row, strict=True)) for row in rows]


def pack(test: Callable[..., Any], cases: Sequence[Case], timeout_s: float) -> Callable[..., Any]:
    """A test without arguments that runs all cases, each in a context of its own."""
    if inspect.iscoroutinefunction(test):

        @functools.wraps(test)
        async def run_cases() -> None:
            outcomes = Outcomes(len(cases))
            for case in cases:
                with outcomes.of(case):
                    await asyncio.create_task(test(**case))
            outcomes.report()

    else:

        @functools.wraps(test)
        def run_cases() -> None:
            outcomes = Outcomes(len(cases))
            for case in cases:
                with outcomes.of(case):
                    contextvars.copy_context().run(test, **case)
            outcomes.report()

    marks = [mark for mark in getattr(test, "pytestmark", []) if mark.name != "parametrize"]
    timeout = pytest.mark.timeout(timeout_s + CASE_S * len(cases)).mark
    run_cases.pytestmark = [*marks, timeout]  # type: ignore[attr-defined]
    run_cases.__signature__ = inspect.Signature()  # type: ignore[attr-defined]
    return run_cases


class Outcomes:
    """Outcomes of the cases of one test."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._failures: list[BaseException] = []
        self._skipped: list[str] = []
        self._case: Case = {}

    def of(self, case: Case) -> "Outcomes":
        self._case = case
        return self

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        if isinstance(error, pytest.skip.Exception):
            self._skipped.append(f"{error.msg} ({describe_case(self._case)})")
        elif isinstance(error, (Exception, pytest.fail.Exception)):
            error.add_note(f"The case is {describe_case(self._case)}")
            self._failures.append(error)
            if isinstance(error, pytest.fail.Exception):  # the time of the test may be over
                self.report()
        return error is None or error in self._failures or isinstance(error, pytest.skip.Exception)

    def report(self) -> None:
        """Fail with all failures; skip if any case was skipped, and none failed."""
        if self._failures:
            text = f"{len(self._failures)} of {self._count} cases failed"
            raise BaseExceptionGroup(text, self._failures)
        if self._skipped:
            pytest.skip(f"{len(self._skipped)} of {self._count} cases: {self._skipped[0]}")


def describe_case(case: Mapping[str, Any]) -> str:
    text = ", ".join(f"{name}={value!r}" for name, value in case.items())
    return text if len(text) <= LENGTH else f"{text[:LENGTH]}..."
