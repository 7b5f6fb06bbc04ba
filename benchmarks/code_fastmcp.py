"""The programs of `code_shapes` through FastMCP's code mode, over the same services.

Never run by default; it needs an environment of its own:

    python -m venv ENV && ENV/bin/pip install "fastmcp[code-mode]" msgspec
    ENV/bin/python -m benchmarks.code_fastmcp

Programs are rewritten for it: `call_tool("name", {...})`, a `return` at the end, and plain
dictionaries instead of `Counter`, as its interpreter has few modules. It has no pages, so that the
program counts them itself. Prints a line for each shape: tokens of both programs, whether the
answer is right, milliseconds, and the error of the first attempt.
"""

import ast
import asyncio
import json
import time
from typing import Any

import httpx2 as httpx
import uvicorn
from fastmcp import Client, FastMCP
from fastmcp.experimental.transforms.code_mode import CodeMode

from benchmarks.code_services import ENDPOINTS, Services, describe, first_facts
from benchmarks.code_shapes import SHAPES, Shape

CALLS = 100  # as a program of ours may make
ROUNDS = 5
LISTS = ("issues_list_for_repo",)
OWN = {
    "page through 20": """\
counts = {}
page = 1
while True:
    given = {"owner": "octo", "repo": "shop", "per_page": 30, "page": page}
    commits = (await call_tool("repos_list_commits", given))["result"]
    for c in commits:
        name = c["commit"]["author"]["name"]
        counts[name] = counts.get(name, 0) + 1
    if len(commits) < 30:
        return counts
    page += 1""",
    "aggregate of 100": """\
sums = {}
for charge in (await call_tool("GetCharges", {"limit": 100}))["data"]:
    if charge["status"] == "succeeded":
        sums[charge["currency"]] = sums.get(charge["currency"], 0) + charge["amount"]
return sums""",
}


class Calls(ast.NodeTransformer):
    """`tools.NAME(a=1)` as `await call_tool("NAME", {"a": 1})`."""

    def __init__(self, names: dict[str, str]) -> None:
        self._names = names

    def visit_Call(self, node: ast.Call) -> Any:
        self.generic_visit(node)
        match node:
            case ast.Call(ast.Attribute(ast.Name("tools"), "all"), [calls]):
                return calls
            case ast.Call(ast.Attribute(ast.Name("tools"), name)):
                keys: list[ast.expr | None] = [
                    ast.Constant(k.arg) if k.arg else None for k in node.keywords
                ]
                arguments = ast.Dict(keys, [k.value for k in node.keywords])
                called = ast.Constant(self._names[name])
                answer = ast.Await(ast.Call(ast.Name("call_tool"), [called, arguments], []))
                if name in LISTS:  # their answers are members of an object there
                    return ast.Subscript(answer, ast.Constant("result"))
                return answer
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> Any:
        self.generic_visit(node)
        if not any(isinstance(part, ast.Await) for part in ast.walk(node)):
            return node
        members: dict[str, Any] = {name: getattr(node, name, None) for name in node._fields}
        return ast.AsyncFunctionDef(**members)

    def visit_Attribute(self, node: ast.Attribute) -> Any:
        if node.attr == "message":
            return ast.Call(ast.Name("str"), [node.value], [])
        return self.generic_visit(node)

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> Any:
        node.type = ast.Name("Exception")
        return self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> Any:
        self.generic_visit(node)
        match node.value:
            case ast.Call(ast.Name("scale")):
                node.value = ast.Await(node.value)
        return node


def rewrite(code: str, names: dict[str, str]) -> str:
    tree = ast.parse(code)
    if isinstance(last := tree.body[-1], ast.Expr):
        tree.body[-1] = ast.Return(last.value)
    return ast.unparse(ast.fix_missing_locations(Calls(names).visit(tree)))


def tokens(text: str) -> int:
    return len(text) // 4


def plain(facts: Any) -> Any:
    """As JSON has them."""
    return json.loads(json.dumps(facts))


async def run_shape(client: Client[Any], services: Services, shape: Shape, code: str) -> str:
    error = await attempt(client, mistaken(shape, code))
    spent, right = [], True
    for _ in range(ROUNDS):
        services.facts, before = first_facts(), plain(first_facts())
        begun = time.perf_counter()
        answer = await attempt(client, code)
        spent.append(time.perf_counter() - begun)
        right &= shape.check(before, plain(services.facts), answer)
    sizes = f"{tokens(shape.program)} | {tokens(code)}"
    ms = f"{1000 * sorted(spent)[ROUNDS // 2]:.0f}"
    said = "right" if right else f"wrong: {str(answer)[:200]!r}"
    return f"| {shape.name} | {sizes} | {said} | {ms} | {str(error)[:160]!r} |"


def mistaken(shape: Shape, code: str) -> str:
    """The first attempt, with the name that it gets wrong."""
    wrong = code
    for quote in ("'", '"'):
        old, new = (part.replace('"', quote) for part in shape.slip)
        wrong = wrong if wrong != code else code.replace(old, new, 1)
    return wrong


async def attempt(client: Client[Any], code: str) -> Any:
    result = await client.call_tool("execute", {"code": code}, raise_on_error=False)
    if result.is_error:
        return "\n".join(getattr(part, "text", "") for part in result.content)
    text = "\n".join(getattr(part, "text", "") for part in result.content)
    try:
        return json.loads(text)
    except ValueError:
        return text


async def main() -> None:
    services = Services()
    server = uvicorn.Server(uvicorn.Config(services.app, port=0, log_level="error"))
    serving = asyncio.create_task(server.serve())
    while not server.started:  # noqa: ASYNC110 - uvicorn has no event for it
        await asyncio.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    gateway: FastMCP[Any] = FastMCP("services", transforms=[CodeMode(max_tool_calls=CALLS)])
    names: dict[str, str] = {}
    for service in ENDPOINTS:
        url = f"http://127.0.0.1:{port}/{service}"
        spec = describe(service, url)
        child = FastMCP.from_openapi(
            spec, client=httpx.AsyncClient(base_url=url), validate_output=False
        )
        names |= {tool.name.replace("-", "_"): tool.name for tool in await child.list_tools()}
        gateway.mount(child)
    async with Client(gateway) as client:
        listed = await client.list_tools()
        size = tokens("".join(tool.model_dump_json(exclude_none=True) for tool in listed))
        print(f"definitions: {size} tokens; {', '.join(sorted(tool.name for tool in listed))}")
        for shape in SHAPES:
            code = OWN.get(shape.name) or rewrite(shape.program, names)
            print(await run_shape(client, services, shape, code))
    server.should_exit = True
    await serving


if __name__ == "__main__":
    asyncio.run(main())
