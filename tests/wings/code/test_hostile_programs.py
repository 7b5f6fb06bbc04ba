"""Programs that attack the gateway by what they send, and by what they ask for."""

from pathlib import Path

import anyio
import pytest
from msgspec.structs import replace

from config.access import Rule
from config.settings import Settings
from tests.wings.code.shop import CodeShop, code_shop

pytestmark = pytest.mark.anyio

SEND = """
import gc, os, json
host = [o for o in gc.get_objects() if type(o).__name__ == "Host"][0]
def send(data):
    data = len(data).to_bytes(4, "big") + data
    while data:
        data = data[os.write(host._target, data):]
"""
FORGED = {
    "no json": SEND + "send(b'x')\nhost.read()",
    "no text": SEND + "send(bytes([123, 34, 255, 34, 58, 49, 125]))\nhost.read()",
    "no object": SEND + "send(b'[1]')\nhost.read()",
    "no number": SEND + "host.write({'ask': 'x', 'do': 'call'})\nhost.read()",
    "unknown end": SEND + "host.write({'end': 'paused', 'output': ''})\nhost.read()",
    "a number again": SEND + "for _ in '12': host.write({'ask': 1, 'do': 'call'}), host.read()",
    "a large number": SEND + "host.write({'ask': 2**63, 'do': 'call'})\nhost.read()",
    "deep": SEND + "send(b'[' * 100000)\nhost.read()",
}
REFUSED = {
    "unknown request": "{'ask': 1, 'do': 'execute', 'name': 'send_mail'}",
    "no name": "{'ask': 1, 'do': 'call', 'arguments': {}}",
    "no arguments": "{'ask': 1, 'do': 'call', 'name': 'get-item', 'arguments': [1]}",
    "a writing tool": "{'ask': 1, 'do': 'call', 'name': 'send_mail', 'arguments': {'text': 'x'}}",
    "a page of a writing tool": "{'ask': 1, 'do': 'page', 'name': 'send_mail', "
    "'arguments': {'text': 'x'}}",
    "an own tool": "{'ask': 1, 'do': 'call', 'name': 'search_tools', 'exact': True, "
    "'arguments': {'query': 'x'}}",
}


async def test_forged_frames_reach_nothing_beyond_the_tools(shop: CodeShop) -> None:
    for name, code in FORGED.items():
        end = await shop.run(code)
        assert (end["state"], end["error"][:22]) == ("failed", "the program was ended:"), name
    for name, frame in REFUSED.items():
        end = await shop.run(f"{SEND}host.write({frame})\n'error' in host.read()")
        assert (end.get("result"), end.get("made")) == (True, None), name
    assert not shop.shop.mails
    false_end = f"{SEND}host.write({{'end': 'completed', 'output': 'x' * 10**6, 'result': 1}})"
    end = await shop.run(false_end + "\nhost.read()")
    assert len(end["output"]) < 20_000


async def test_frames_are_bounded(shop: CodeShop) -> None:
    end = await shop.run("'x' * (9 * 2**20)")
    assert "the result has 9437186 bytes of JSON, expected at most 2097152" in end["error"]
    end = await shop.run("tools.get_item(id='x' * (9 * 2**20))")
    assert "the call has 9437245 bytes of JSON, expected at most" in end["error"]
    end = await shop.run("'ä' * (2**21 - 2)")
    assert "the result has 4194302 bytes of JSON, expected at most 2097152" in end["error"]
    end = await shop.run("tools.get_item(id='ä' * (2**21 - 99))")
    assert "the call has 4194" in end["error"]
    many = (
        "async def ask(i): return await tools.get_item(id='x' * 1_000_000)\n"
        "await asyncio.gather(*map(ask, range(40)), return_exceptions=True)"
    )
    assert "asked for more than" in (await shop.run(many))["error"]
    declared = f"{SEND}os.write(host._target, b'\\xff' * 4)\nhost.read()"
    assert "is too long" in (await shop.run(declared))["error"]


async def test_a_result_that_takes_all_memory_names_its_limit(shop: CodeShop) -> None:
    end = await shop.run("'x' * 50_000_000")
    assert "the result has 50000002 bytes of JSON, expected at most" in end["error"]
    end = await shop.run("['x' * 10_000_000] * 30")
    assert "MemoryError: more memory than a run has (code.memory_bytes)" in end["error"]


async def test_a_denied_tool_is_named_by_nothing(settings: Settings, tmp_path: Path) -> None:
    rules = {"mail": Rule(effect="deny", tools=("send_mail",))}
    policy = replace(settings.policy, rules=rules)
    async with code_shop(settings, tmp_path, policy=policy) as shop:
        codes = (
            *(
                "tools.send_mail(text='x')",
                "tools.send_mial(text='x')",
                "tools.describe('send_mail')",
            ),
            "tools.search('send a mail')",
            "tools['shop.send_mail'](text='x')",
        )
        for code in codes:
            end = await shop.run(code, "run_code_writing")
            text = (
                str(end).replace(code, "").replace("'send_mail'. ", "").replace("[send_mail]", "")
            )
            assert "Did you mean send_mail" not in text, code
            assert "may change something" not in text, code
        assert not shop.shop.mails


async def test_a_program_writes_to_no_pipe_but_its_own(settings: Settings, tmp_path: Path) -> None:
    """The gateway would have to read what it is flooded with."""
    code = "import os\n[os.fstat(n).st_rdev == os.stat('/dev/null').st_rdev for n in (0, 1, 2)]"
    async with code_shop(settings, tmp_path) as shop:
        end = await shop.run(f"import os\nos.write(2, b'x'), os.write(1, b'x')\n{code}")
        assert end["result"] == [True, True, True], end


# With five calls in flight: a number of one of them again, an end, an answer, no frame at all.
IN_FLIGHT = {
    "a number in flight": "host.write({'ask': 3, 'do': 'call', 'name': 'get-item'})",
    "an answer": "host.write({'id': 2, 'value': {}})",
    "half a frame": "os.write(host._target, bytes([0, 0, 1, 0, 123]))\n    os._exit(0)",
    "threads": "import threading\n    threads = [threading.Thread(target=send, args=(b'{}',)) "
    "for _ in range(20)]\n    [thread.start() for thread in threads]",
}
FLYING = """
async def main():
    calls = [asyncio.create_task(tools.get_item(id=1)) for _ in range(5)]
    await asyncio.sleep(0)
    {}
    await asyncio.gather(*calls)
await main()
"""
SHADOWING = """
len = print = isinstance = json = Exception = dict = list = None
ToolError = asyncio = result = None
first = tools.get_item(id=1)["count"]
\uff34ools = tools
first + \uff34ools.get_item(id=2)["count"]
"""


async def test_forged_frames_end_the_calls_in_flight(shop: CodeShop) -> None:
    for name, forged in IN_FLIGHT.items():
        shop.shop.hangs = True
        shop.shop.gone = anyio.Event()
        end = await shop.run(SEND + FLYING.format(forged))
        assert (end["state"], end["error"][:22]) == ("failed", "the program was ended:"), name
        with anyio.fail_after(5):
            await shop.shop.gone.wait()
        shop.shop.hangs = False
        assert (await shop.run("tools.get_item(id=1)['count']"))["result"] == 10, name


async def test_shadowed_names_change_nothing_but_the_program(shop: CodeShop) -> None:
    end = await shop.run(SHADOWING)
    assert end.get("result") == 20, end
