"""A chat model without intelligence, in OpenAI's dialect: what it says is written down here.

It looks at the last message. With a question it calls a tool, with a result it answers.
"""

import json
from typing import Any

from aiohttp import web

KIKI = {"name": "Kiki", "species": "cat", "priceCents": 4900}
Say = tuple[str, str, dict[str, Any]]  # text, and a tool with its arguments


def decide(messages: list[dict[str, Any]]) -> Say:
    """What the model says next; a tool "" is an answer."""
    last, asked = messages[-1], _question(messages)
    if last["role"] == "user" and "cats" in asked:
        return "I look for a tool.", "search_tools", {"query": "list the pets of the shop"}
    if last["role"] == "user":
        return "I add Kiki.", "createPet", KIKI
    if "listPets" in last["content"] and "search_tools" in last["content"]:
        return "", "listPets", {"species": "cat"}
    if "Outcome unknown" in last["content"]:
        return "I do not know whether that worked; I look.", "listPets", {"species": "cat"}
    if "cats" in asked:
        return f"There are {last['content'].count('priceCents')} cats.", "", {}
    found = '"Kiki"' in last["content"]
    return "Kiki is in the shop." if found else "Kiki is not there.", "", {}


async def complete(request: web.Request) -> web.StreamResponse:
    """`POST /v1/chat/completions`, streamed or not."""
    body = await request.json()
    text, tool, arguments = decide(body["messages"])
    calls = [_call(len(body["messages"]), tool, arguments)] if tool else []
    finish = "tool_calls" if calls else "stop"
    usage = {"prompt_tokens": len(str(body)) // 4, "completion_tokens": len(text) // 4 + 1}
    if not body.get("stream"):
        message = {"role": "assistant", "content": text, **({"tool_calls": calls} if calls else {})}
        choice = {"index": 0, "message": message, "finish_reason": finish}
        return web.json_response({"model": "scripted", "choices": [choice], "usage": usage})
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    words = [{"content": f"{word} "} for word in text.split()]
    for delta in [*words, *({"tool_calls": [{"index": 0, **one}]} for one in calls)]:
        await _send(response, {"choices": [{"index": 0, "delta": delta}]})
    ending = {"index": 0, "delta": {}, "finish_reason": finish}
    await _send(response, {"model": "scripted", "choices": [ending], "usage": usage})
    await response.write(b"data: [DONE]\n\n")
    return response


def _question(messages: list[dict[str, Any]]) -> str:
    return next(one["content"] for one in reversed(messages) if one["role"] == "user")


def _call(place: int, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
    function = {"name": tool, "arguments": json.dumps(arguments)}
    return {"id": f"call_{place}", "type": "function", "function": function}


async def _send(response: web.StreamResponse, event: dict[str, Any]) -> None:
    await response.write(f"data: {json.dumps(event)}\n\n".encode())
