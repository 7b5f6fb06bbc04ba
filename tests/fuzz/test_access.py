"""The share of `python -m tests.fuzz.access` that every run of the tests does, with a seed of its
own."""

import json
import logging
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from config.settings import DatabaseSettings
from tests.fixtures_gateway import wordless
from tests.fuzz.access import Rig, rig, run
from tests.fuzz.callers import SECRET, Case, make
from tests.fuzz.run import Crashes

pytestmark = pytest.mark.anyio

SEED, CASES = 20260728, 300


async def test_callers_neither_see_nor_change_foreign_objects(
    database_settings: DatabaseSettings, tmp_path: Path
) -> None:
    crashes, ours = Crashes(), logging.getLogger("toolgate")
    ours.addHandler(crashes)
    try:
        async with rig(replace(wordless(), database=database_settings), tmp_path) as ready:
            found = await run(ready, SEED, range(CASES))
            assert not found, "\n\n".join(found)
            check_that_the_judge_notices(ready)
            methods = {make(SEED, one, ready.callers).front for one in range(CASES)}
            assert len(methods) == 6
    finally:
        ours.removeHandler(crashes)
    assert crashes.records == []


def check_that_the_judge_notices(ready: Rig) -> None:
    """Each of these answers is wrong."""
    ada, stranger = ready.callers[0], ready.callers[-1]
    call = Case(0, ada, "rpc", "tools/call", SECRET, {"id": 5})
    listing = Case(0, ada, "rpc", "tools/list", "x", {})
    told: dict[str, Any] = {"result": {"tools": [{"name": SECRET}]}}
    unknown = {"error": {"code": -32601, "message": "Method not found"}}
    assert ready.complaints(call, 200, {"result": {}}, 1)
    assert ready.complaints(call, 200, unknown, 1)
    assert ready.complaints(call, 500, unknown, 0)
    assert not ready.complaints(call, 200, unknown, 0)
    assert f"named ['{SECRET}']" in json.dumps(ready.complaints(listing, 200, told, 0))
    assert ready.complaints(Case(0, stranger, "rpc", "tools/list", "x", {}), 200, told, 0)
