"""The benchmark of code mode: both ways end in the same, right answer, and how costs are summed."""

from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
from msgspec.structs import replace

from benchmarks.code_javascript import JAVASCRIPT
from benchmarks.code_mode import (
    SETTINGS,
    Endpoint,
    Pair,
    Transcript,
    Turn,
    Uneven,
    compare,
    write_descriptions,
)  # fmt: skip
from benchmarks.code_services import Services
from benchmarks.code_shapes import READ, SHAPES, Shape
from config.settings import Settings
from config.sources import SourceSettings
from registry.names.tool_names import CODE_TOOLS
from tests.fixtures_gateway import running
from tests.fixtures_servers import serving
from tests.properties import sample

pytestmark = pytest.mark.anyio


@pytest.fixture
async def endpoint(settings: Settings, tmp_path: Path) -> AsyncIterator[Endpoint]:
    async with serving(Services().app) as url:
        sources = {
            name: SourceSettings(openapi=str(path), base_url=f"{url}/{name}")
            for name, path in write_descriptions(tmp_path, url).items()
        }
        groups = {name: replace(getattr(settings, name), **members)
                  for name, members in SETTINGS.items()}  # fmt: skip
        async with running(replace(settings, sources=sources, **groups)) as client:
            await client.gateway.wait_for_wings()
            async with aiohttp.ClientSession() as http:
                endpoint = Endpoint(http, client.url, url)
                await endpoint.prepare()
                yield endpoint


async def test_both_ways_of_each_shape_end_in_the_same_right_answer(endpoint: Endpoint) -> None:
    """`compare` raises for any other end."""
    assert len({shape.name for shape in SHAPES}) == 10
    pairs = [await compare(endpoint, shape) for shape in sample(SHAPES, least=4)]
    for pair in pairs:
        assert pair.direct.calls == pair.serial.calls == pair.code.calls
        assert (len(pair.code.turns), len(pair.failing.turns)) == (3, 4)


async def test_programs_of_both_languages_give_the_same_answer(endpoint: Endpoint) -> None:
    pytest.importorskip("quickjs", reason="quickjs-ng, the extra javascript, is not installed")
    for shape in sample(SHAPES, least=4):
        given: dict[str, str] = {"code": JAVASCRIPT[shape.name], "language": "javascript"}
        ends = []
        for arguments in ({"code": shape.program}, given):
            await endpoint.reset()
            before = await endpoint.facts()
            end = (await endpoint.call(CODE_TOOLS[shape.writes], arguments)).value
            assert end["state"] == "completed", (shape.name, end)
            assert shape.check(before, await endpoint.facts(), end["result"]), shape.name
            failed = [call["tool"] for call in end.get("calls", ()) if not call["ok"]]
            ends.append((end["result"], end["made"], failed))
        assert ends[0] == ends[1], shape.name


async def test_a_wrong_answer_does_not_count(endpoint: Endpoint) -> None:
    wrong = replace(READ, program="'Basket'")
    with pytest.raises(Uneven, match="Basket is wrong"):
        await compare(endpoint, wrong)
    lost: Shape = replace(READ, tools=("issues_get", "GetCharges"), query="Get an issue.")
    with pytest.raises(Uneven, match="not found GetCharges"):
        await compare(endpoint, lost)


def test_sent_tokens_repeat_earlier_turns() -> None:
    turns = [Turn(["a" * 40], ["b" * 8]), Turn(["c" * 20], ["d" * 12])]  # 12 and 8 tokens
    transcript = Transcript(turns)
    assert (transcript.once(), transcript.sent()) == (20, 12 + 12 + 8)
    assert transcript.cached() == pytest.approx(12 + 1.2 + 8)


def test_a_program_is_charged_with_one_failed_attempt_in_five() -> None:
    short, long = Transcript([Turn(["a" * 400], [])]), Transcript([Turn(["a" * 800], [])])
    pair = Pair("", direct=short, serial=short, code=short, failing=long)
    assert pair.charged(Transcript.once) == pytest.approx(120)
    assert pair.ratio(Transcript.once) == pytest.approx(100 / 120)
