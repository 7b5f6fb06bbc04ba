"""Programs over tools: what they may write, what they get, and what they may not do."""

from pathlib import Path
from typing import Any

import anyio
import pytest
from msgspec.structs import replace

from config.access import Rule
from config.settings import Settings
from tests.properties import sample
from tests.wings.code.shop import CodeShop, code_shop

pytestmark = pytest.mark.anyio

SUM = "sum(item['count'] for item in {})"


TASKS = """
async def read(i):
    return (await tools.get_item(id=i))["count"]

async def main():
    tasks = [asyncio.create_task(read(i)) for i in range(3)]
    return [await task for task in tasks]

asyncio.run(main())
"""
GROUP = """
async with asyncio.TaskGroup() as group:
    one, two = (group.create_task(tools.get_item(id=i)) for i in (1, 2))
one.result()["id"] + two.result()["id"]
"""
ERRORS = """
calls = tools.all([tools.get_item(id=99), tools.get_item(id=1)], errors=True)
[type(call).__name__ for call in calls]
"""
UNUSED = "async def main():\n    return tools.get_item(id=1)['id']\nawait main()"
RETURN = "for i in range(10):\n    if tools.get_item(id=i)['id'] == 4:\n        return i"
COROUTINES = """
async def read(i):
    return (await tools.get_item(id=i))["id"]

await tools.all([read(1), read(2), 7])
"""
WITHIN_GROUP = "async with asyncio.TaskGroup() as group:\n    return 5"
UNENCODABLE = (
    "try:\n    tools.get_item(id={})\nexcept Exception as error:\n    type(error).__name__"
)
BOTH_FAIL = """
try:
    await asyncio.gather(tools.get_item(id=98), tools.get_item(id=99))
except ToolError:
    pass
5
"""
THREADS = """
from concurrent.futures import ThreadPoolExecutor
with ThreadPoolExecutor(4) as pool:
    ids = [item["id"] for item in pool.map(lambda i: tools.get_item(id=i), range(3))]
ids
"""
CAUGHT = "try:\n    tools.get_item(id=99)\nexcept ToolError as error:\n    result(error.tool)"
PROGRAMS: dict[str, tuple[str, Any]] = {
    "expression": ("tools.get_item(id=3)['count'] + 1", 11),
    "return": (RETURN, 4),
    "result": ("result({'a': (1, 2)})\nprint('x')", {"a": [1, 2]}),
    "byte order mark": ("\ufefftools.get_item(id=3)['id']", 3),
    "exact name": ("tools.call('get-item', {'id': 1})['id'] + tools['get-item'](id=2)['id']", 3),
    "array": ("sum(tools.list_counts()) + tools.list_counts()[3]", 110),
    "pages of arrays": ("[len(page) for page in tools.pages(tools.list_counts)]", [10]),
    "together": (SUM.format("tools.all([tools.get_item(id=i) for i in range(5)])"), 50),
    "gather": (SUM.format("await asyncio.gather(*(tools.get_item(id=i) for i in range(5)))"), 50),
    "tasks": (TASKS, [10, 10, 10]),
    "task group": (GROUP, 3),
    "not awaited": (UNUSED, 1),
    "json": ("async def no(): ...\njson.dumps(tools.get_item(id=1))", '{"id": 1, "count": 10}'),
    "pages": ("[len(page['items']) for page in tools.pages(tools.list_items, limit=2)]", [3, 3]),
    "caught": (CAUGHT, "get_item"),
    "not awaited, caught": (f"async def f(): ...\n{CAUGHT}", "get_item"),
    "coroutines together": (COROUTINES, [1, 2, 7]),
    "assigned together": ("tools.all([tools.get_item(id=(n := i)) for i in (1, 2)])\nn", 2),
    "return before except": ("try:\n    return 1\nexcept:\n    return 2", 1),
    "return in a group": (WITHIN_GROUP, 5),
    "arguments that JSON has not": (UNENCODABLE.format("float('nan')"), None),
    "keys that JSON has not": (UNENCODABLE.format("{(1, 2): 3}"), None),
    "failures that are caught": (BOTH_FAIL, 5),
    "threads": (THREADS, [0, 1, 2]),
    "a thread": ("await asyncio.to_thread(lambda: tools.get_item(id=7)['id'])", 7),
    "wait for": ("(await asyncio.wait_for(tools.get_item(id=1), 1))['id']", 1),
    "view": ("[{'a': 1}.keys(), map(int, '12'), b'b']", [["a"], [1, 2], "b"]),
    "output": ("import sys\nsys.stdout.writelines(['a'])\nsys.stdout.isatty()", False),
    "errors as values": (ERRORS, ["ToolError", "dict"]),
    "sleep": ("import time\ntime.sleep(9999)\nawait asyncio.sleep(9999)\n1", 1),
    "imports": ("import hashlib, ssl, urllib.request\nssl.HAS_TLSv1_3", True),
    "global": ("n = 0\ndef more():\n    global n\n    n += 1\nmore(); more()\nn", 2),
}


async def test_programs_may_call_with_and_without_await(shop: CodeShop) -> None:
    drawn = {name: PROGRAMS[name] for name in ("expression", "imports", *sample(PROGRAMS))}
    ends = {name: await shop.run(code) for name, (code, _) in drawn.items()}
    results = {name: end.get("result", end["error"]) for name, end in ends.items()}
    assert results == {name: value for name, (_, value) in drawn.items()}
    assert {end["state"] for end in ends.values()} == {"completed"}
    assert ends["expression"]["made"] == {"get-item": 1}


async def test_calls_are_counted_unless_one_failed(shop: CodeShop) -> None:
    end = await shop.run("for i in range(3): tools.get_item(id=i)\ntools.list_counts()")
    assert end["made"] == {"get-item": 3, "list_counts": 1}
    assert "calls" not in end
    caught = "try:\n    tools.get_item(id=99)\nexcept ToolError: pass\ntools.list_counts()"
    end = await shop.run(caught)
    assert end["made"] == {"get-item": 1, "list_counts": 1}
    assert [(call["tool"], call["ok"]) for call in end["calls"]] == [
        ("get-item", False),
        ("list_counts", True),
    ]


FAILURES = {
    "tools.get_item(id='x')": "Invalid [get_item]: Invalid arguments for get-item: id",
    "tools.get_item(3)": "Invalid [get_item]: get_item: expected arguments by name",
    "tools.get_itm(id=1)": "NotFound [get_itm]: There is no tool 'get_itm'. Did you mean get_item?",
    "tools.send_mail(text='x')": "Denied [send_mail]: send_mail may change something, and run_code "
    "only reads; run_code_writing may call it.",
    "tools.run_code(code='1')": "Denied [run_code]: A program cannot run a program.",
    "x = 1\n1 / 0": "line 2: 1 / 0\nZeroDivisionError: division by zero",
    "def f(:": "line 1: def f(:\nSyntaxError: invalid syntax",
    "await asyncio.Event().wait()": "RuntimeError: the program waits for something that nothing "
    "will do",
    "while True: pass": "the program was ended: the cell took more than 0.5 s of CPU time",
    "'a' * 10**10": "MemoryError",
    "import os\nos._exit(0)": "the program was ended: the process of the session has ended",
    "import socket\nsocket.socket()": "PermissionError",
    "open('/etc/passwd')": "FileNotFoundError",
    "async def f():\n    tools.get_item(id=99)\nawait f()": "ToolError [get_item]: ",
    "async with asyncio.TaskGroup() as g:\n    g.create_task(tools.get_item(id=99))": "ToolError "
    "[get_item]: HTTP 404",
    "class E(Exception):\n    def __str__(self): 1 / 0\nraise E": "line 3: raise E\nE: ",
    "a = '\x0c'\n1 / 0": "line 2: 1 / 0\n",
    "1\n[1 / 0 for _ in '12']": "line 2: [1 / 0 for _ in '12']\nZeroDivisionError",
}


async def test_failures_name_the_line_and_the_reason(settings: Settings, tmp_path: Path) -> None:
    async with code_shop(settings, tmp_path, code={"cpu_s": 0.5}) as shop:
        for code, text in FAILURES.items():
            end = await shop.run(code)
            assert (end["state"], text in end["error"]) == ("failed", True), (code, end)
        assert not shop.shop.mails
        wrong = await shop.ask("tools.get_item(id=1)", language="cobol")
        assert "'python'" in wrong["error"]["message"] or "language" in str(wrong["error"])


async def test_a_failed_program_lists_its_changes(shop: CodeShop) -> None:
    code = "tools.change_item(id=1, count=5)\ntools.get_item(id=2)\n1 / 0"
    end = await shop.run(code, "run_code_writing")
    assert end["state"] == "failed"
    assert [(call["tool"], call["writes"]) for call in end["calls"]] == [
        ("change_item", True),
        ("get-item", False),
    ]
    assert shop.shop.stock[1] == 5


async def test_calls_run_together_within_the_limit(settings: Settings, tmp_path: Path) -> None:
    async with code_shop(settings, tmp_path, code={"parallel": 4, "calls": 12}) as shop:
        shop.shop.slow_s = 0.02
        code = "len(tools.all([tools.get_item(id=i % 10) for i in range(12)]))"
        assert (await shop.run(code))["result"] == 12
        assert 1 < shop.shop.most_at_once <= 4
        end = await shop.run("for i in range(20):\n    tools.get_item(id=1)")
        assert "LimitReached [get_item]: The run may make 12 calls." in end["error"]
        assert len(end["calls"]) == 12
        end = await shop.run("for i in range(5):\n    tools.get_item(id=1)", calls=2)
        assert "The run may make 2 calls." in end["error"]
        catching = "while True:\n    try:\n        tools.get_item(id=1)\n    except ToolError: pass"
        assert "beyond its limit" in (await shop.run(catching))["error"]


async def test_a_run_that_takes_too_long_is_ended(settings: Settings, tmp_path: Path) -> None:
    async with code_shop(settings, tmp_path, code={"wall_s": 1}) as shop:
        shop.shop.hangs = True
        end = await shop.run("tools.get_item(id=1)")
        assert "took more than 1 s" in end["error"]
        assert [call["ok"] for call in end["calls"]] == [False]
        with anyio.fail_after(5):
            await shop.shop.gone.wait()


async def test_a_process_that_does_not_start_leaves_the_wing_open(
    settings: Settings, tmp_path: Path
) -> None:
    async with code_shop(settings, tmp_path, code={"memory_bytes": 2**20}) as shop:
        wings = shop.client.gateway.wings
        assert wings is not None
        for _ in range(2):
            assert "1" not in str((await shop.ask("1")).get("result", {}).get("result"))
            assert wings.states == {"wing code": "ok"}


@pytest.mark.parametrize("setting", ["runs_per_principal", "runs_per_tenant", "runs"])
async def test_a_run_waits_for_its_turn_up_to_a_limit(
    settings: Settings, tmp_path: Path, setting: str
) -> None:
    async with code_shop(settings, tmp_path, code={setting: 1, "turn_s": 0.2}) as shop:
        shop.shop.hangs = True
        async with anyio.create_task_group() as group:
            group.start_soon(shop.ask, "tools.get_item(id=1)")
            with anyio.fail_after(10):
                await shop.shop.arrived.wait()
            refused = str(await shop.ask("1"))
            assert "code.turn_s" in refused
            assert f"of which 1 run at a time (code.{setting})" in refused
            group.cancel_scope.cancel()


async def test_runs_of_a_principal_take_turns(settings: Settings, tmp_path: Path) -> None:
    results = []

    async def run(shop: CodeShop, number: int) -> None:
        results.append((await shop.run(f"tools.get_item(id={number})['id']"))["result"])

    async with code_shop(settings, tmp_path, code={"runs_per_principal": 1}) as shop:
        shop.shop.slow_s = 0.01
        async with anyio.create_task_group() as group:
            for number in range(4):
                group.start_soon(run, shop, number)
        assert sorted(results) == [0, 1, 2, 3]
        assert shop.shop.most_at_once == 1


async def test_rules_decide_by_the_sources_of_a_program(settings: Settings, tmp_path: Path) -> None:
    """Mail only if nothing of the shop was read; no call of a tool by programs, where a rule says
    so; and a denied tool is one that there is not."""
    rules = {
        "mail": Rule(effect="deny", tools=("send_mail",), when="'shop' in context.sources"),
        "direct": Rule(effect="deny", tools=("change_item",), when="context.code"),
        "hidden": Rule(effect="deny", tools=("list_items",)),
        "twice": Rule(effect="deny", tools=("get-item",), when="context.calls > 1"),
    }
    policy = replace(settings.policy, rules=rules)
    async with code_shop(settings, tmp_path, policy=policy) as shop:
        writing = "run_code_writing"
        sent = await shop.run("tools.send_mail(text='a')", writing)
        assert (sent["state"], shop.shop.mails) == ("completed", ["a"])
        end = await shop.run("tools.get_item(id=1)\ntools.send_mail(text='b')", writing)
        assert "Denied" in end["error"] or "NotFound" in end["error"]
        end = await shop.run("tools.change_item(id=1, count=0)", writing)
        assert end["state"] == "failed"
        end = await shop.run("tools.list_items()")
        assert "NotFound [list_items]" in end["error"]
        end = await shop.run("for i in range(3):\n    tools.get_item(id=i)\n    print(i)")
        assert (end["state"], end["output"]) == ("failed", "0\n1\n")
        assert (shop.shop.mails, shop.shop.stock[1]) == (["a"], 10)


async def test_the_same_program_gives_the_same_output(shop: CodeShop) -> None:
    code = (
        "import random, secrets, time, uuid, datetime\n"
        "print(random.random(), time.time(), uuid.uuid4(), datetime.datetime.now(), hash('x'))\n"
        "print(secrets.token_hex(), datetime.date.today(), time.ctime(), time.strftime('%X'))\n"
        "print(isinstance(datetime.datetime.now(), datetime.datetime), time.gmtime())\n"
        "[sorted({'a', 'b', 'c'}), list({'a', 'b', 'c'})]"
    )
    first, second = [await shop.run(code) for _ in range(2)]
    assert first == second
    assert first["output"].count("2000") == 4, first


async def test_long_output_is_shortened(settings: Settings, tmp_path: Path) -> None:
    async with code_shop(settings, tmp_path, code={"output_characters": 100}) as shop:
        end = await shop.run("print('a' * 1000)\nprint('end')")
        assert end["output"].endswith("end\n")
        assert "characters left out" in end["output"]
        assert len(end["output"]) < 200


async def test_answers_are_limited(settings: Settings, tmp_path: Path) -> None:
    async with code_shop(settings, tmp_path, code={"call_bytes": 10, "total_bytes": 10}) as shop:
        end = await shop.run("tools.get_item(id=1)")
        assert "LimitReached" in end["error"]
        assert "code.call_bytes" in end["error"]
        large = await shop.ask("#" * (shop.client.gateway.settings.code.source_bytes + 1))
        assert "code.source_bytes" in str(large["error"])


async def test_writing_programs_need_the_setting(settings: Settings, tmp_path: Path) -> None:
    async with code_shop(settings, tmp_path, code={"writes": "never"}) as shop:
        answer = await shop.ask("1", "run_code_writing")
        assert answer["error"]["code"] == -32601
        end = await shop.run("tools.send_mail(text='x')")
        assert "only reads." in end["error"]


STUBS = "[tool for tool in tools.search('item by id') if tool['name'] == 'get-item']"


async def test_stubs_have_the_names_that_programs_call(shop: CodeShop) -> None:
    asked = {"names": ["get-item"], "as": "python"}
    answer = await shop.client.rpc(
        {"jsonrpc": "2.0", "id": 1, "method": "describe_tools", "params": asked}
    )
    stubs = [{"name": "get-item", "stub": 'def get_item(*, id: int) -> Any: """Get an item."""'}]
    assert answer["result"]["tools"] == stubs
    assert (await shop.run(STUBS))["result"] == stubs
