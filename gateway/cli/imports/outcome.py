"""How an import is told, and when it counts as a failure: --json, --report and --fail-on."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from itertools import zip_longest
from typing import Any, Literal, TypeVar, cast

import click

from gateway.cli.common.failure import UNWANTED, USAGE, fail

F = TypeVar("F", bound=Callable[..., Any])

Format = Literal["table", "json", "md"]
FORMATS = ("table", "json", "md")
OPTION = "--report"


@dataclass(frozen=True, slots=True)
class ReportOptions:
    format: Format | None  # None: the exceptions one by one, the rest in numbers
    fail_on: str  # "never", or what must not be


class Reporting(click.Command):
    """A command whose --report stands alone, or has a format behind it."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, _with_format(args))


def _with_format(args: Sequence[str]) -> list[str]:
    """`--report pets.yaml` says no format: that is the next argument."""
    return [
        f"{OPTION}=table" if one == OPTION and after not in FORMATS else one
        for one, after in zip_longest(args, args[1:], fillvalue="")
    ]


def report_option(command: F) -> F:
    return click.option(
        OPTION,
        "report",
        type=click.Choice(FORMATS),
        help="All in one report; a table, if no format is given.",
    )(command)


def unwanted_option(*unwanted: str, usual: str) -> Callable[[F], F]:
    """--fail-on, for one of these."""
    return click.option(
        "--fail-on",
        type=click.Choice([*unwanted, "never"]),
        help=f"Exit with {UNWANTED} if there is any [default: {usual}].",
    )


def telling_options(command: F) -> F:
    """--json, --report and --fail-on; the command gets them as `telling`."""

    @wraps(command)
    def told(
        *args: Any, report: Format | None, as_json: bool, fail_on: str | None, **others: Any
    ) -> Any:
        if report and as_json:
            fail("--json is the same as --report json; leave one of them out", USAGE)
        usual = "skipped" if report else "never"
        telling = ReportOptions("json" if as_json else report, fail_on or usual)
        return command(*args, telling=telling, **others)

    usual_help = "skipped with --report, else never"
    found: Any = unwanted_option("skipped", "degraded", usual=usual_help)(told)
    found = report_option(found)
    json_help = "The same report as --report json; no reason to fail by itself."
    found = click.option("--json", "as_json", is_flag=True, help=json_help)(found)
    return cast("F", found)


def check(fail_on: str, unwanted: Mapping[str, int]) -> None:
    """Fail if there is any of what must not be; `unwanted`: how many, from bad to worse."""
    if fail_on == "never":
        return
    worse = list(unwanted)[list(unwanted).index(fail_on) :]
    if wrong := [f"{unwanted[status]} {status}" for status in worse if unwanted[status]]:
        fail(f"{' and '.join(wrong)}, and --fail-on is {fail_on}", UNWANTED)
