"""Programs of JavaScript that attack the gateway, and those that change what they stand on."""

from typing import Any

import pytest

from tests.wings.code.shop import CodeShop

pytest.importorskip("quickjs", reason="quickjs-ng, the extra javascript, is not installed")
pytestmark = pytest.mark.anyio

JS = {"language": "javascript"}


@pytest.fixture(scope="module")
def shop_options() -> dict[str, Any]:
    return {"code": {"cpu_s": 2}}


READ = "(await tools.get_item({id: 1})).count"
CHANGES = {
    "prototype of objects": "Object.prototype.error = {kind: 'x'}; Object.prototype.x = 1",
    "a polluted literal": "({}).__proto__.polluted = 1; JSON.parse('{\"__proto__\": 1}')",
    "functions of arrays": "Array.prototype.map = () => []; Array.prototype.join = null",
    "JSON": "JSON.stringify = JSON.parse = () => 'x'",
    "promises": "Promise.prototype.catch = () => 1; Promise.withResolvers = null",
    "maps": "Map.prototype.get = Map.prototype.set = () => undefined",
    "strings": "String.prototype.replace = String.prototype.slice = () => 'x'",
    "errors": "globalThis.ToolError = globalThis.Error = globalThis.Map = null",
    "constructor of constructors": "tools.x.constructor.constructor('return this')().y = 1",
    "globals": "delete globalThis.tools.x; globalThis.console = null",
}
ARGUMENTS = {
    "a getter": "{get id() { return 1 }}",
    "a proxy": "new Proxy({id: 1}, {})",
    "toJSON": "{toJSON: () => ({id: 1})}",
    "a prototype": "Object.create({id: 2}, {id: {value: 1, enumerable: true}})",
}
LONG_PROXY = (
    "const get = (_, key) => key === 'length' ? 2 ** 40 : 'x'.repeat(1000);\n"
    "tools.get_item({id: new Proxy([], {get})})"
)
MUCH = (
    "const read = () => tools.get_item({id: 'x'.repeat(1e6)}).catch(() => 1);\n"
    "await Promise.all(Array.from({length: 40}, read))"
)
STANDING = (
    "const now = Date.now();\n"
    "while (Date.now() === now) await tools.get_item({id: 1}).catch(() => 1)"
)
REFUSED = {
    "await tools.__proto__({id: 1})": "NotFound [__proto__]",
    "await tools.constructor({id: 1})": "NotFound [constructor]",
    "await tools.call('get-item', {['__proto__']: 1, id: 1})": "Invalid [get-item]",
    "const a = () => ({get a() { return a() }}); tools.get_item(a())": "Maximum call stack",
    "tools.get_item(new Proxy({}, {ownKeys() { throw 5 }}))": "Error: 5",
    LONG_PROXY: "",
    "tools.all({*[Symbol.iterator]() { for (;;) yield 1 }})": "",
    "await tools['\uff47et-item']({id: 1})": "NotFound",
    "await tools['x'.repeat(1e6)]({})": "There is no tool 'xxx",
    "tools.get_item({id: 'x'.repeat(9 * 2 ** 20)})": "is too long",
    "'x'.repeat(9 * 2 ** 20)": "the result has",
    MUCH: "asked for more than",
    "for (;;) try { await tools.get_itm({}) } catch {}": "beyond its limit",
    STANDING: "beyond its limit",
}


async def test_changed_builtins_change_nothing_but_the_program(shop: CodeShop) -> None:
    codes = {
        **{name: f"{change}; {READ}" for name, change in CHANGES.items()},
        **{name: f"(await tools.get_item({given})).count" for name, given in ARGUMENTS.items()},
    }
    ends = {name: await shop.run(code, **JS) for name, code in codes.items()}
    results = {name: end.get("result", end["error"]) for name, end in ends.items()}
    assert results == dict.fromkeys(codes, 10)
    assert (await shop.run("({}).polluted ?? Array.prototype.map.name", **JS))["result"] == "map"


async def test_hostile_arguments_and_names_are_refused(shop: CodeShop) -> None:
    for code, text in REFUSED.items():
        end = await shop.run(code, **JS)
        assert (end["state"], text in end["error"]) == ("failed", True), (code, end)
        assert len(end["error"]) < 5000, code
    assert not shop.shop.mails
