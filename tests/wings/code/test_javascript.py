"""Programs of JavaScript: what they may write, what they get, and what they may not do."""

import sys
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from config.access import Rule
from config.settings import Settings
from gateway.sandbox import program_process
from gateway.wings.code.operations import JAVASCRIPT
from tests.fixtures_servers import serving
from tests.properties import sample
from tests.wings.code.shop import CodeShop, code_shop
from tests.wings.code.test_calls import crm_server
from tests.wings.code.test_pauses import decide, go_on

pytest.importorskip("quickjs", reason="quickjs-ng, the extra javascript, is not installed")
pytestmark = pytest.mark.anyio

JS = {"language": "javascript"}


COUNTS = "const items = await tools.all([0, 1, 2].map(id => tools.get_item({id})));\n"
PAGES = (
    "const sizes = []\n"
    "for await (const page of tools.pages(tools.list_items)) sizes.push(page.items.length)\n"
    "return sizes"
)
CAUGHT = (
    "try { await tools.get_item({id: 99}) }\n"
    "catch (error) { result([error.name, error.tool, error instanceof ToolError]) }"
)
TASKS = (
    "async function read(id) { return (await tools.get_item({id})).count }\n"
    "async () => {\n  const read3 = [0, 1, 2].map(read)\n  return await Promise.all(read3)\n}"
)
ERRORS = (
    "const calls = await tools.all([tools.get_item({id: 99}), tools.get_item({id: 1})], "
    "{errors: true});\ncalls.map(call => call.constructor.name)"
)
VIEW = "({a: new Map([['b', 1]]), c: new Set([2]), d: new Uint8Array(1), e: undefined, f: null})"
SLEEP = "await new Promise(done => setTimeout(done, 1e9)); 1"
ORDER = (
    "const order = [];\nsetTimeout(() => order.push('b'), 20);\n"
    "const every = setInterval(() => order.push('a'), 8);\n"
    "await new Promise(done => setTimeout(done, 30));\nclearInterval(every);\norder.join('')"
)
PROGRAMS: dict[str, tuple[str, Any]] = {
    "expression": ("(await tools.get_item({id: 3})).count + 1", 11),
    "return": ("for (let id = 0;; id++) if ((await tools.get_item({id})).id === 4) return id", 4),
    "result": ("result({a: [1, 2]}); console.log('x')", {"a": [1, 2]}),
    "byte order mark": ("\ufeff(await tools.get_item({id: 3})).id", 3),
    "exact name": ("(await tools.call('get-item', {id: 1})).id + 1", 2),
    "exact name as a member": ("(await tools['get-item']({id: 1})).id", 1),
    "without arguments": ("(await tools.call('list_counts')).length", 10),
    "pages": (PAGES, [3, 3, 3, 1]),
    "some pages": ("(await tools.pages(tools.list_items, {}, {limit: 2})).length", 2),
    "pages by name": ("(await tools.pages('list_items')).length", 4),
    "together": (f"{COUNTS}items.reduce((sum, item) => sum + item.count, 0)", 30),
    "a function": (TASKS, [10, 10, 10]),
    "caught": (CAUGHT, ["ToolError", "get_item", True]),
    "errors as values": (ERRORS, ["ToolError", "Object"]),
    "values that JSON has not": (VIEW, {"a": {"b": 1}, "c": [2], "d": [0], "f": None}),
    "large numbers": ("JSON.stringify({id: 12345678901234567890n})", '{"id":12345678901234567890}'),
    "half a character": ("['\\ud800', '\\0é😀', String.raw`\\ud800`]", ["?", "\0é😀", "\\ud800"]),
    "sleep": (SLEEP, 1),
    "timers": (ORDER, "aabaa"[:4]),
    "a comment at the end": ("const a = 1; a; // then; 5", 1),
    "only a comment": ("// 5; 6", None),
    "text with semicolons": ("const a = 'b; c'; [a, /;/.test(a), `;\n${a}`]",
                             ["b; c", True, ";\nb; c"]),
    "an object": ("const a = 1\n{ a, b: 2 }", {"a": 1, "b": 2}),
    "operator on a new line": ("const a = 3\na\n  + 4", 7),
    "brackets on a new line": ("const a = [1, 2]\nconst b = a\n[1]\nb", 2),
    "a chain": ("[3, 1, 2]\n  .filter(n => n > 1)\n  .sort()", [2, 3]),
    "a function at the end": ("result(f())\nfunction f() { return 1 }", 1),
    "a loop at the end": ("const a = []; for (const n of [1]) { a.push(n) }", None),
    "a template": ("`a\n${1 + 1}; ${[3]}`", "a\n2; 3"),
    "shadowed": ("const result = 1, console = 2; let name = result + console; name", 3),
    "not awaited": ("tools.get_item({id: 3})", {"id": 3, "count": 10}),
}  # fmt: skip


async def test_programs_have_the_functions_of_python_with_promises(shop: CodeShop) -> None:
    drawn = {name: PROGRAMS[name] for name in ("result", *sample(PROGRAMS))}
    ends = {name: await shop.run(code, **JS) for name, (code, _) in drawn.items()}
    results = {name: end.get("result", end["error"]) for name, end in ends.items()}
    assert results == {name: value for name, (_, value) in drawn.items()}
    assert {end["state"] for end in ends.values()} == {"completed"}
    assert ends["result"]["output"] == "x\n"


FAILURES = {
    "tools.get_item({id: 'x'})": "Invalid [get_item]: Invalid arguments for get-item: id",
    "tools.get_item(3)": "Invalid [get_item]: get_item: expected one object, as in",
    "await tools.get_itm({id: 1})": "line 1: await tools.get_itm({id: 1})\nNotFound [get_itm]: "
    "There is no tool 'get_itm'. Did you mean get_item?",
    "tools.send_mail({text: 'x'})": "Denied [send_mail]: send_mail may change something",
    "tools.run_code({code: '1'})": "Denied [run_code]: A program cannot run a program.",
    "tools.get_item({id: 1}).count": "get_item(...) is a promise: await it before using count",
    "[tools.get_item({id: 1}) + 1]": "get_item(...) is a promise: await it before using",
    "tools.get_item({id: NaN})": "RangeError: JSON has no NaN",
    "const a = {}; a.a = a; a": "TypeError: circular reference",
    "const x = {};\nx.y.z": "line 2: x.y.z\nTypeError: cannot read property 'z' of undefined",
    "let a = ;": "line 1: let a = ;\nSyntaxError: unexpected token",
    "import fs from 'fs'": "SyntaxError",
    "await import('fs')": "Error",
    "require('fs')": "ReferenceError: require is not defined",
    "fetch('http://127.0.0.1')": "ReferenceError: fetch is not defined",
    "await new Promise(() => {})": "the program waits for something that nothing will do",
    "const a = [];\nwhile (true) a.push(new Array(1e6).fill('x'))": "memory",
    "'a'.repeat(2 ** 29).padEnd(2 ** 29 + 1)": "out of memory",
    "new Uint8Array(2 ** 31 - 1)": "out of memory",
    "function f() { return f() + 1 }\nf()": "RangeError: Maximum call stack size exceeded",
    "let a = []; for (let i = 0; i < 1e6; i++) a = [a]; a": "Maximum call stack size exceeded",
    "setTimeout(() => { null.x }); await new Promise(() => {})": "TypeError: cannot read property",
    "tools.get_item({id: 99}); 5": "line 1: tools.get_item({id: 99}); 5\nToolError [get_item]: "
    "HTTP 404",
    "throw null": "Error: null",
    "throw new Proxy({}, {get() { throw 1 }, getPrototypeOf() { throw 2 }})": "Error: ",
    "throw Object.defineProperty(new Error('a'), 'stack', {get() { throw 1 }})": "Error: a",
}


async def test_failures_name_the_line_and_the_reason(settings: Settings, tmp_path: Path) -> None:
    async with code_shop(settings, tmp_path, code={"cpu_s": 1}) as shop:
        for code, text in sample(FAILURES.items()):
            end = await shop.run(code, **JS)
            assert (end["state"], text in end["error"]) == ("failed", True), (code, end)
        assert not shop.shop.mails


ENDLESS = (
    "while (true) {}",
    "/^(a+)+$/.test('a'.repeat(50) + 'b')",
    "setInterval(() => {}, 1); await new Promise(() => {})",
)


async def test_endless_programs_are_ended(settings: Settings, tmp_path: Path) -> None:
    async with code_shop(settings, tmp_path, code={"cpu_s": 0.2}) as shop:
        for code in ENDLESS:
            end = await shop.run(code, **JS)
            text = "the program was ended: the cell took more than 0.2 s of CPU time"
            assert (end["state"], text in end["error"]) == ("failed", True), (code, end)


async def test_the_same_program_gives_the_same_output(shop: CodeShop) -> None:
    code = (
        "console.log(Math.random(), Date.now(), new Date(), Date(), performance.now())\n"
        "console.log(new (new Date(0)).constructor().getTime(), new Date(5).getTime());\n"
        "[new Date() instanceof Date, new Date(2020, 1).getFullYear()]"
    )
    first, second = [await shop.run(code, **JS) for _ in range(2)]
    assert first == second
    assert "2000-01-01T00:00:00.000Z" in first["output"]
    assert "\n946684800000 5\n" in first["output"]
    assert first["result"] == [True, 2020]


async def test_answers_of_servers_keep_large_numbers(settings: Settings, tmp_path: Path) -> None:
    async with (
        serving(crm_server()) as url,
        code_shop(settings, tmp_path, crm=f"{url}/mcp", code={"call_bytes": 50_000}) as shop,
    ):
        end = await shop.run(
            "const {a} = await tools.digits(); [typeof a, a % 10n, String(a).length]", **JS
        )
        assert end["result"] == ["bigint", 1, 10_000], end
        end = await shop.run("try { await tools.deep() } catch (e) { result(e.name) }", **JS)
        # Python 3.12 and later decode as deep as their stack allows, and hand the answer on.
        assert end["result"] == ("ToolError" if sys.version_info < (3, 12) else None), end


PAUSING = """
const order = [];
const note = (name) => () => order.push(name);
setTimeout(note("timer"), 10);
const reads = [0, 1, 2].map((id) => tools.get_item({id}).then(note(id)));
const first = Promise.race([tools.get_item({id: 3}), tools.get_item({id: 4})]);
const texts = [Math.random(), Date.now(), (await first).id];
console.log("writing");
await tools.change_item({id: 5, count: 7});
const sending = texts.map((text) => tools.send_mail({text: `${text}`}));
const mails = await tools.all(sending, {errors: true});
await Promise.all(reads);
const {count} = await tools.get_item({id: 5});
[order.filter((name) => name !== "timer").length, texts, count, mails.map((mail) => mail.name)]
"""


@pytest.mark.parametrize("approve", [True, False])
async def test_a_paused_program_goes_on_in_its_language(
    settings: Settings, tmp_path: Path, approve: bool
) -> None:
    """With the same promises, chance and time: else it would not ask the same."""
    rules = {"mail": Rule(effect="approve", tools=("send_mail",))}
    policy = replace(settings.policy, rules=rules)
    async with code_shop(settings, tmp_path, policy=policy) as shop:
        paused = await shop.run(PAUSING, "run_code_writing", **JS)
        texts = [call["arguments"]["text"] for call in paused["pending"]]
        assert (paused["state"], len(texts)) == ("paused", 3), paused
        reads, shop.shop.stock[5] = shop.shop.reads, 9  # it does not change it again
        await decide(shop, paused, approve=approve)
        end = await go_on(shop, paused)
        names = [None] * 3 if approve else ["Denied"] * 3
        assert (end["state"], end["output"]) == ("completed", "writing\n"), end
        assert [end["result"][0], *end["result"][2:]] == [3, 9, names]
        assert [f"{text}" for text in end["result"][1]] == texts
        assert sorted(shop.shop.mails) == (sorted(texts) if approve else [])
        assert shop.shop.reads == reads + 1


async def test_programs_of_javascript_get_stubs_of_typescript(shop: CodeShop) -> None:
    end = await shop.run("await tools.describe(tools.get_item)", **JS)
    [stub] = end["result"]
    assert stub["stub"].startswith("function get_item("), stub


async def test_the_description_is_whole_in_lists(shop: CodeShop) -> None:
    listed = await shop.client.rpc({"jsonrpc": "2.0", "id": 1, "method": "tools/list"})
    [tool] = [tool for tool in listed["result"]["tools"] if tool["name"] == "run_code"]
    assert JAVASCRIPT in tool["description"]
    assert len(tool["description"]) < 4 * 300


async def test_an_engine_that_is_missing_is_named(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def ask(code: dict[str, Any]) -> tuple[str, str]:
        async with code_shop(settings, tmp_path, code=code) as shop:
            answer = await shop.ask("1", **JS)
            listed = await shop.client.rpc({"jsonrpc": "2.0", "id": 1, "method": "tools/list"})
            tools = {tool["name"]: tool for tool in listed["result"]["tools"]}
            return answer["error"]["message"], tools["run_code"]["description"]

    error, description = await ask({"languages": ("python",)})
    assert "language: expected python" in error
    assert "JavaScript" not in description
    program_process.javascript_engine.cache_clear()
    monkeypatch.setattr(program_process, "distribution", _missing)
    try:
        error, description = await ask({})
    finally:
        program_process.javascript_engine.cache_clear()
    assert "toolgate[javascript]" in error
    assert "JavaScript" not in description


def _missing(name: str) -> Any:
    raise program_process.PackageNotFoundError(name)
