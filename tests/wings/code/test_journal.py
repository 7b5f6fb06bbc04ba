"""Recorded answers, and programs that ask for something else than before their pause."""

from collections.abc import Mapping
from typing import Any

import pytest

from gateway.sandbox.program_process import AskRefused
from gateway.wings.code.call_journal import Journal, NotRepeatable, Steps

pytestmark = pytest.mark.anyio

FIRST: Mapping[str, Any] = {"ask": 1, "name": "a"}


async def answer(_do: str, members: Mapping[str, Any]) -> Any:
    return members["name"]


@pytest.fixture
async def past() -> Steps:
    """An answer, and a call that was cut off."""
    journal = Journal(Steps(), 10_000, None)

    async def begin(do: str, members: Mapping[str, Any]) -> Any:
        await journal.begin(members["ask"], "b", repeatable=False)
        raise ConnectionError

    await journal.over(answer)("call", FIRST)
    with pytest.raises(ConnectionError):
        await journal.over(begin)("call", {"ask": 2, "name": "b"})
    return journal.unsaved


async def test_recorded_answers_are_of_the_same_calls_alone(past: Steps) -> None:
    ask = Journal(past, 10_000, None).over(answer)
    assert bytes(await ask("call", FIRST)) == b'"a"'
    with pytest.raises(AskRefused, match="nobody knows"):
        await ask("call", {"ask": 2, "name": "b"})
    for changed in ({**FIRST, "name": "b"}, {**FIRST, "arguments": {}}):
        with pytest.raises(NotRepeatable):
            await Journal(past, 10_000, None).over(answer)("call", changed)
    ask = Journal(past, 10_000, None).over(answer)
    await ask("call", FIRST)
    with pytest.raises(NotRepeatable):
        await ask("call", {"ask": 2, "name": "c"})
