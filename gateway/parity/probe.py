"""Checks that a server is reachable, and has the services that the vectors call."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from gateway.parity.judge import fits, parse
from gateway.parity.send import Sender, Unanswered
from gateway.parity.vectors import Suite, Target, VectorRequest, VectorRun
from schemas.errors import ToolgateError
from schemas.hybrid import HANDLER_NOT_FOUND, split

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


async def reach(sender: Sender, runs: Iterable[VectorRun]) -> None:
    """Raises ToolgateError where the server, or a path that `runs` need, is missing."""
    for target in _targets(runs):
        url = sender.url(target)
        try:
            answer = await sender.send(VectorRequest(target, "GET", token=None), {})
        except Unanswered as error:
            raise ToolgateError(f"{url} cannot be reached: {error}") from error
        if answer.status == NOT_FOUND:
            hint = f"{FLAGS[target]} says where the target has it"
            raise ToolgateError(f"The target has nothing at {url} (404). {hint}")


async def equipped(
    sender: Sender, suite: Suite, runs: Sequence[VectorRun], tokens: Mapping[str, str]
) -> None:
    """Raises ToolgateError where the server lacks services that files of `suite` need; checked
    before other calls, because a real service of the same name would take the vectors for
    commands."""
    for needed in sorted({file.needs for file in suite.files if file.needs is not None}):
        for target in _targets(run for run in runs if _calls(run, needed)):
            if await _lacking(sender, _call(needed, target, tokens), tokens):
                raise ToolgateError(
                    f"The target lacks the services of the vectors ({needed} at "
                    f"{sender.url(target)}): {SETUP}"
                )


def _targets(runs: Iterable[VectorRun]) -> list[Target]:
    found = {step.given.target for run in runs for step in run.steps}
    return sorted(one for one in found if isinstance(one, str))


def _calls(run: VectorRun, needed: str) -> bool:
    """Whether a request of `run` names the host of an action, however the request is encoded."""
    host = needed.partition("/")[0]
    return any(host.encode() in msgspec.json.encode(step.given) for step in run.steps)


def _call(needed: str, target: Target, tokens: Mapping[str, str]) -> VectorRequest:
    body: dict[str, Any] = {**(split(needed) or {}), "data": {}}
    if target == "rpc":
        body = {"jsonrpc": "2.0", "method": needed, "params": {}, "id": 1}
    return VectorRequest(target, body=body, token=TOKEN if TOKEN in tokens else None)


async def _lacking(sender: Sender, given: VectorRequest, tokens: Mapping[str, str]) -> bool:
    """Whether the server reports an unknown action. Other refusals, and timeouts, are judged by the
    vectors."""
    try:
        answer = await sender.send(given, tokens)
        said = parse(answer.body)
    except Unanswered:
        return False
    except ValueError:
        said = None
    return answer.status in NOT_SERVED or fits(_NO_ACTION, said)
