"""A chat model without intelligence, in OpenAI's dialect, that writes the code of research."""

import asyncio
from collections import Counter
from typing import Any

from aiohttp import web

FIRST = """I look for what ends a cell, and have each passage read.
```repl
hits = lib.search("end a cell that takes too much CPU time", k=3)
notes = llm_query_batched([f"What does {hit['path']}:{hit['lines'][0]} say?" for hit in hits])
print(len(notes), "notes")
```"""
SECOND = """Now I know the place.
```repl
line = lib.grep("left = self._limits.cell_s", "**session.py")[0]
FINAL(f'The host compares the CPU time of the process with its limit '
      f'[{line["path"]}:{line["lines"][0]} "{line["text"].strip()}"].')
```"""


class ScriptedModel:
    """Its first answer to a question of code does not come before the gateway is killed."""

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()  # requests, by what they say
        self.held = asyncio.Event()  # a request waits for its answer

    async def complete(self, request: web.Request) -> web.Response:
        """`POST /v1/chat/completions`, not streamed."""
        messages: list[dict[str, Any]] = (await request.json())["messages"]
        said = str(messages)
        self.asked[said] += 1
        if len(messages) == 1 and not self.held.is_set():
            self.held.set()
            await asyncio.Event().wait()
        text = "It says what it says." if len(messages) == 1 else self._code(messages)
        message = {"role": "assistant", "content": text}
        usage = {"prompt_tokens": len(said) // 4, "completion_tokens": len(text) // 4 + 1}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        return web.json_response({"model": "scripted", "choices": [choice], "usage": usage})

    def _code(self, messages: list[dict[str, Any]]) -> str:
        return FIRST if len(messages) == 2 else SECOND
