"""`toolgate agent eval`: how well the agent of a running gateway does what cases expect."""

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import click
import msgspec
from msgspec import Struct

from config.settings import Settings
from gateway.cli.common.event_loop import run
from gateway.cli.common.failure import UNWANTED, USAGE, fail
from gateway.cli.common.options import json_option
from gateway.cli.common.output import print_json, print_rows, say
from gateway.cli.common.settings import settings_option
from gateway.cli.running.client import RunningGateway, gateway_options, running_gateway
from schemas.errors import ParseError
from schemas.jsonrpc import decode_json

ROOT = "/agent/v1"
Z = 1.96  # of an interval of 95 %
ANY_CALL = "call_tool"


class EvalCase(Struct, frozen=True, forbid_unknown_fields=True):
    """One line of a file of cases."""

    message: str
    tools: tuple[str, ...] = ()  # that have to be called
    ordered: bool = False  # in this order
    forbidden: tuple[str, ...] = ()
    arguments: Mapping[str, Mapping[str, Any]] = {}  # members that a call of a tool has to have
    contains: tuple[str, ...] = ()  # texts of the answer, in any case
    max_iterations: int = 0  # 0: any
    max_tokens: int = 0


class CaseResult(Struct, frozen=True):
    message: str
    passed: bool
    problems: tuple[str, ...]
    called: tuple[str, ...]
    iterations: int
    tokens: int


@click.command()
@click.argument("cases", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--strategy", metavar="NAME", default="", help="Model to ask.")
@click.option(
    "--record",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the traffic with the model, for models.strategies.NAME.recording.",
)
@click.option(
    "--fail-under", metavar="RATE", type=click.FloatRange(0, 1), help="Fail below this share."
)
@json_option
@gateway_options(key_required=False)
@settings_option
def evaluate(
    settings: Settings,
    *,
    cases: Path,
    strategy: str,
    record: Path | None,
    fail_under: float | None,
    as_json: bool,
    key_file: IO[str] | None,
    url: str | None,
) -> None:
    """Ask the agent what CASES say, and compare what it did with what they expect.

    With --record the gateway has to keep transcripts (agent.transcripts), and the key needs the
    scope agent:reasoning. A strategy whose `recording` is that file answers equal requests from it,
    without a provider.

    CASES has a JSON object on each line: message, and any of tools, ordered, forbidden,
    arguments, contains, max_iterations, max_tokens.

    \b
    Example line:
      {"message": "List the cats", "tools": ["listPets"], "contains": ["Mia"]}
    """
    gateway = running_gateway(settings, ROOT, url=url, key_file=key_file)
    results, traffic = run(_results(gateway, _read(cases), strategy, recorded=record is not None))
    if record is not None:
        record.write_bytes(b"".join(msgspec.json.encode(result) + b"\n" for result in traffic))
    passed = sum(result.passed for result in results)
    low, high = wilson(passed, len(results))
    if as_json:
        print_json({"passed": passed, "cases": len(results), "low": low, "high": high,
                    "results": [msgspec.to_builtins(result) for result in results]})  # fmt: skip
    else:
        rows = [
            ("ok" if result.passed else "FAILED",
             str(result.iterations), str(result.tokens), result.message,
             "; ".join(result.problems))
            for result in results
        ]  # fmt: skip
        print_rows(("result", "iterations", "tokens", "message", "problems"), rows)
        say(f"{passed} of {len(results)} passed; 95 % interval {low:.2f} to {high:.2f}")
    if fail_under is not None and passed < fail_under * len(results):
        fail(f"expected at least {fail_under:.0%} of the cases", UNWANTED)


def wilson(passed: int, count: int) -> tuple[float, float]:
    """The interval of 95 % of a rate (Wilson's score)."""
    if not count:
        return 0.0, 1.0
    rate, square = passed / count, Z * Z / count
    middle = rate + square / 2
    spread = Z * math.sqrt(rate * (1 - rate) / count + square / (4 * count))
    low, high = (middle - spread) / (1 + square), (middle + spread) / (1 + square)
    return round(max(low, 0.0), 4), round(min(high, 1.0), 4)


def judge(case: EvalCase, run: Mapping[str, Any]) -> CaseResult:
    """Compare a run, as the API shows it, with what a case expects."""
    calls = [_reached_tool(call) for call in run.get("calls", ())]
    names = tuple(name for name, _ in calls)
    return CaseResult(
        case.message,
        not (problems := tuple(_problems(case, run, calls))),
        problems,
        names,
        run.get("iterations", 0),
        run.get("tokens", 0),
    )


def _problems(
    case: EvalCase, run: Mapping[str, Any], calls: Sequence[tuple[str, Any]]
) -> Iterator[str]:
    names = [name for name, _ in calls]
    if run["state"] != "completed":
        yield f"the run is {run['state']} {run.get('error', '')}".rstrip()
    yield from (f"{name} was not called" for name in case.tools if name not in names)
    if case.ordered and [name for name in names if name in case.tools] != list(case.tools):
        yield f"expected the order {', '.join(case.tools)}"
    yield from (f"{name} was called" for name in case.forbidden if name in names)
    for tool, expected in case.arguments.items():
        if not any(
            name == tool and _has(call_arguments, expected) for name, call_arguments in calls
        ):
            yield f"no call of {tool} has these arguments"
    answer = run.get("answer", "").casefold()
    yield from (
        f"the answer lacks {text!r}" for text in case.contains if text.casefold() not in answer
    )
    for limit, key in ((case.max_iterations, "iterations"), (case.max_tokens, "tokens")):
        if limit and run.get(key, 0) > limit:
            yield f"{run[key]} {key}, at most {limit} expected"


def _reached_tool(call: Mapping[str, Any]) -> tuple[str, Any]:
    """The tool that a call reaches, through `call_tool`, too, and its arguments."""
    try:
        arguments = decode_json(call["arguments"].encode())
    except ParseError:
        return call["tool"], None
    if call["tool"] == ANY_CALL and isinstance(arguments, dict):
        return str(arguments.get("name", "")), arguments.get("arguments")
    return call["tool"], arguments


def _has(arguments: Any, values: Mapping[str, Any]) -> bool:
    return isinstance(arguments, dict) and all(arguments.get(k) == v for k, v in values.items())


def _read(path: Path) -> list[EvalCase]:
    cases = []
    for number, line in enumerate(path.read_bytes().splitlines(), 1):
        if line.strip():
            try:
                cases.append(msgspec.json.decode(line, type=EvalCase))
            except msgspec.DecodeError as error:
                fail(f"{path}:{number}: {error}", USAGE)
    if not cases:
        fail(f"{path}: expected a case on each line", USAGE)
    return cases


async def _results(
    gateway: RunningGateway, cases: Sequence[EvalCase], strategy: str, *, recorded: bool
) -> tuple[list[CaseResult], list[Any]]:
    """The results, and the traffic with the model if it is recorded."""
    results, traffic = [], list[Any]()
    for case in cases:
        body = {"message": case.message, **({"strategy": strategy} if strategy else {})}
        answer = (await gateway.call("agent_ask", body)).value
        results.append(judge(case, answer))
        if recorded:
            traffic += await _traffic(gateway, answer["run"])
    return results, traffic


async def _traffic(gateway: RunningGateway, run_id: str) -> list[Any]:
    """The exchanges of a run, oldest first."""
    traffic, after = list[Any](), 0
    while True:
        query = {"after": after} if after else {}
        page = (await gateway.call("agent_get_transcript", query, {"run": run_id})).value
        traffic += page["exchanges"]
        if not (after := page.get("after", 0)):
            return traffic
