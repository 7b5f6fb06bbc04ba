"""`toolgate agent eval`: cases against a model, and against a recording of it."""

from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from gateway.cli.agent_eval import ROOT, EvalCase, _results, judge, wilson
from gateway.cli.running.client import RunningGateway
from gateway.wings.models.configured_models import ConfiguredModels
from tests.servers.provider import chat_whole
from tests.wings.agent.rig import Rig
from tests.wings.agent.test_loop import call

pytestmark = pytest.mark.anyio

CASES = [
    EvalCase(
        "Is pet 7 there?", ("getPet",), arguments={"getPet": {"id": 7}}, contains=("it is",),
        max_iterations=2,
    ),
    EvalCase("Remove it.", ("deletePet",), forbidden=("getPet",)),
]  # fmt: skip


async def test_cases_are_judged_and_a_recording_gives_the_same_results(
    rig: Rig, tmp_path: Path
) -> None:
    rig.script(
        chat_whole("", [call("a1", "call_tool", name="getPet", arguments={"id": 7})]),
        chat_whole("It is."),
        chat_whole("", [call("b1", "getPet", id=7)]),
        chat_whole("Done."),
    )
    gateway = RunningGateway(rig.client.url, ROOT, None)
    results, traffic = await _results(gateway, CASES, "", recorded=True)
    assert [(one.passed, one.problems) for one in results] == [
        (True, ()),
        (False, ("deletePet was not called", "getPet was called")),
    ]
    path = tmp_path / "recording.jsonl"
    path.write_bytes(b"\n".join(map(msgspec.json.encode, traffic)))
    parts = await rig.parts()
    models = parts.models
    assert isinstance(models, ConfiguredModels)
    known = models._settings
    recorded = replace(known.strategies["scripted"], url="", recording=str(path))
    models._settings = replace(known, strategies={**known.strategies, "recorded": recorded})
    rig.script()  # the provider has nothing to say
    again, _ = await _results(gateway, CASES, "recorded", recorded=False)
    assert again == results
    assert rig.provider.requests == []


def test_a_run_that_fails_is_a_problem() -> None:
    found = judge(EvalCase("Hi"), {"state": "failed", "error": "provider_busy"})
    assert found.problems == ("the run is failed provider_busy",)


def test_the_interval_of_a_rate_is_wilsons() -> None:
    assert wilson(0, 0) == (0.0, 1.0)
    assert wilson(8, 10) == (0.4902, 0.9433)
