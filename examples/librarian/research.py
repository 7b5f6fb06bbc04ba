"""Research in the code of the sandbox, by a scripted model, with a gateway that is killed.

.venv/bin/python examples/librarian/research.py
"""

import asyncio
import sys
from pathlib import Path
from typing import Any

import aiohttp

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from examples.agent.demo import serving
from examples.librarian.model import ScriptedModel
from examples.run import gateway

ROOT = Path(__file__).resolve().parents[2]
SETTINGS = "examples/librarian/research.yaml"
GATEWAY = (sys.executable, "-m", "gateway", "serve", "-c", SETTINGS, "--port", "0")
QUESTION = "What ends a cell that takes too much CPU time?"
STEP_S = 90


async def call(url: str, method: str, **params: Any) -> Any:
    """The result of a method of /rpc."""
    request = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    async with aiohttp.ClientSession() as http, http.post(f"{url}/rpc", json=request) as response:
        answer = await response.json(content_type=None)
    assert "result" in answer, answer
    return answer["result"]


async def store(url: str) -> None:
    for path in sorted((ROOT / "gateway/sandbox").glob("*.py")):
        name = str(path.relative_to(ROOT))
        await call(url, "knowledge_add", collection="sandbox", path=name, text=path.read_text())


async def main() -> None:
    model = ScriptedModel()
    async with serving("POST", "/v1/{path:.*}", model.complete) as served:
        variables = {"MODEL_URL": f"{served}/v1"}
        async with gateway(*GATEWAY, **variables) as (process, url):
            await store(url)
            asked = {"question": QUESTION, "strategy": "recursive"}
            asking = asyncio.create_task(call(url, "librarian_research", **asked))
            await asyncio.wait_for(model.held.wait(), STEP_S)
            process.kill()
            await process.wait()
            await asyncio.gather(asking, return_exceptions=True)
            print("killed the gateway while a model was asked")
        async with gateway(*GATEWAY, **variables) as (_, url):
            [run] = (await call(url, "librarian_list_runs"))["runs"]
            print("the run is:", run["state"])
            found = await call(url, "librarian_research", question=QUESTION, run=run["run"])
            shown = await call(url, "librarian_get_run", run=run["run"])
        for one in shown["steps"]:
            print(f"{one['seq']}. {one['kind']}: {one.get('tokens', 0)} tokens")
        print("told:", next(o["answer"] for o in shown["steps"] if "was lost" in o["answer"]))
        print("answer:", found["answer"])
        print("confidence:", found["confidence"])
        twice = sum(number > 1 for number in model.asked.values())
        print(f"{sum(model.asked.values())} requests, {twice} twice")


if __name__ == "__main__":
    asyncio.run(main())
