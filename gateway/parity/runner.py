"""Plays vectors to a server, one after the other."""

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec

from gateway.parity.answer_checks import Deviation, fits, judge, parse
from gateway.parity.vector_requests import NoAnswer, Sender, VectorAnswer
from gateway.parity.vectors import Expect, Mode, Suite, Target, VectorRequest, VectorRun
from schemas.errors import ToolgateError
from schemas.hybrid import HANDLER_NOT_FOUND, split

RUN, PATH = "%RUN%", "%PATH%"

T = TypeVar("T", VectorRequest, Expect)

NOT_FOUND = 404
NOT_SERVED = {NOT_FOUND, 405, 501}
FLAGS = {"command": "--command-path", "query": "--query-path", "rpc": "--rpc-path"}
TOKEN = "valid"  # noqa: S105 - the name of one
SETUP = (
    "see tests/vectors/hybrid/service/README.md "
    "(ours: toolgate serve -c tests/vectors/hybrid/toolgate.yaml)"
)

_NO_ACTION = {
    "$one_of": [
        {"code": HANDLER_NOT_FOUND.code},
        {"error": {"code": HANDLER_NOT_FOUND.rpc_code}},
        {"error": {"data": {"code": HANDLER_NOT_FOUND.code}}},
    ]
}


@dataclass(frozen=True, slots=True)
class PlayedStep:
    """One step that was sent."""

    answer: VectorAnswer | None
    failure: str | None  # why there is no answer
    as_legacy: bool  # whether this is light-hybrid-4j's answer, if known


@dataclass(frozen=True, slots=True)
class VectorOutcome:
    run: VectorRun
    played: tuple[PlayedStep, ...]
    findings: tuple[Deviation, ...] = ()
    mark: str = ""  # value of %RUN%

    @property
    def is_passed(self) -> bool:
        return not self.findings


@dataclass(frozen=True, slots=True)
class VectorPlan:
    """The runs to play, and the number of skipped ones by reason."""

    due: tuple[VectorRun, ...]
    left_out: Mapping[str, int] = field(default_factory=dict)


def plan(runs: Iterable[VectorRun], compat: Mode, *, legacy: bool, rpc: bool) -> VectorPlan:
    """Select the runs to play. `legacy`: light-hybrid-4j's answers are expected, and vectors
    without a known one are skipped. So are those for /rpc unless the target has it (`rpc`)."""
    due: list[VectorRun] = []
    left_out: dict[str, int] = {}
    other_mode = "spec" if compat == "strict" else "strict"
    for run in runs:
        reason = None
        if not run.due(compat):
            reason = f"of {other_mode} mode"
        elif not rpc and any(step.given.target == "rpc" for step in run.steps):
            reason = "for /rpc"
        elif legacy and run.vector.ledger is not None and run.vector.ledger.legacy is None:
            reason = "of unknown outcome"
        if reason is None:
            due.append(run)
        else:
            left_out[reason] = left_out.get(reason, 0) + 1
    return VectorPlan(tuple(due), left_out)


async def play(
    sender: Sender, run: VectorRun, tokens: Mapping[str, str], *, legacy: bool = False
) -> VectorOutcome:
    """Send the steps of `run`, and judge them. A step without an answer ends the run."""
    mark = uuid.uuid4().hex
    played: list[PlayedStep] = []
    findings: list[Deviation] = []
    for index, step in enumerate(run.steps):
        values = {RUN: mark, PATH: sender.path(str(step.given.target))}
        old = fill(legacy_expectation(run, index), values)
        try:
            answer = await sender.send(fill(step.given, values), tokens)
        except NoAnswer as error:
            played.append(PlayedStep(None, str(error), as_legacy=False))
            findings.append(Deviation("answer", "an HTTP answer", str(error)))
            break
        unlike_legacy = judge(old, answer, lenient_type=True)
        played.append(PlayedStep(answer, None, as_legacy=not unlike_legacy))
        deviations = unlike_legacy if legacy else judge(fill(step.expect, values), answer)
        findings += [_at(deviation, index, len(run.steps)) for deviation in deviations]
    return VectorOutcome(run, tuple(played), tuple(findings), mark)


def _at(finding: Deviation, index: int, steps: int) -> Deviation:
    where = f"step {index + 1}: {finding.where}" if steps > 1 else finding.where
    return Deviation(where, finding.expected, finding.actual)


def legacy_expectation(run: VectorRun, index: int) -> Expect:
    """The answer of light-hybrid-4j to a step."""
    ledger = run.vector.ledger
    if ledger is None or ledger.legacy is None:
        return run.steps[index].expect
    return ledger.legacy if isinstance(ledger.legacy, Expect) else ledger.legacy[index]


def fill(struct: T, values: Mapping[str, str]) -> T:
    """`struct` with the placeholders in its texts replaced."""
    return msgspec.structs.replace(
        struct,
        **{
            name: _fill_placeholders(getattr(struct, name), values)
            for name in struct.__struct_fields__
        },
    )


def _fill_placeholders(value: Any, values: Mapping[str, str]) -> Any:
    match value:
        case str():
            for placeholder, text in values.items():
                value = value.replace(placeholder, text)
            return value
        case dict():
            return {name: _fill_placeholders(member, values) for name, member in value.items()}
        case list() | tuple():
            return type(value)(_fill_placeholders(item, values) for item in value)
    return value


async def reach(sender: Sender, runs: Iterable[VectorRun]) -> None:
    """Check the target. Raises ToolgateError where the server, or a path that `runs` need, is
    missing."""
    for target in _targets(runs):
        url = sender.url(target)
        try:
            answer = await sender.send(VectorRequest(target, "GET", token=None), {})
        except NoAnswer as error:
            raise ToolgateError(f"{url} cannot be reached: {error}") from error
        if answer.status == NOT_FOUND:
            hint = f"{FLAGS[target]} says where the target has it"
            raise ToolgateError(f"The target has nothing at {url} (404). {hint}")


async def check_services(
    sender: Sender, suite: Suite, runs: Sequence[VectorRun], tokens: Mapping[str, str]
) -> None:
    """Check the services of the target. Raises ToolgateError where the server lacks services that
    files of `suite` need; checked before other calls, because a real service of the same name would
    take the vectors for commands."""
    for needed in sorted({file.needs for file in suite.files if file.needs is not None}):
        for target in _targets(run for run in runs if _calls(run, needed)):
            if await _lacking(sender, _call(needed, target, tokens), tokens):
                raise ToolgateError(
                    f"The target lacks the services of the vectors ({needed} at "
                    f"{sender.url(target)}): {SETUP}"
                )


def _targets(runs: Iterable[VectorRun]) -> list[Target]:
    targets = {step.given.target for run in runs for step in run.steps}
    return sorted(target for target in targets if isinstance(target, str))


def _calls(run: VectorRun, scope: str) -> bool:
    """Whether a request of `run` names the host of an action, however the request is encoded."""
    host = scope.partition("/")[0]
    return any(host.encode() in msgspec.json.encode(step.given) for step in run.steps)


def _call(scope: str, target: Target, tokens: Mapping[str, str]) -> VectorRequest:
    body: dict[str, Any] = {**(split(scope) or {}), "data": {}}
    if target == "rpc":
        body = {"jsonrpc": "2.0", "method": scope, "params": {}, "id": 1}
    return VectorRequest(target, body=body, token=TOKEN if TOKEN in tokens else None)


async def _lacking(sender: Sender, request: VectorRequest, tokens: Mapping[str, str]) -> bool:
    """Whether the server reports an unknown action. Other refusals, and timeouts, are judged by the
    vectors."""
    try:
        answer = await sender.send(request, tokens)
        body = parse(answer.body)
    except NoAnswer:
        return False
    except ValueError:
        body = None
    return answer.status in NOT_SERVED or fits(_NO_ACTION, body)
