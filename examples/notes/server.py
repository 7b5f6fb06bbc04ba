"""An MCP server of 2025-11-25 over standard input and output, in nothing but the standard library.

It keeps notes: as tools, as resources, with a prompt, and it asks before it throws notes away.
"""

import json
import os
import sys
from typing import Any

OWNER = os.environ.get("NOTES_OWNER", "nobody")
notes: dict[str, str] = {"1": f"{OWNER} likes tea."}

TEXT = {"type": "object", "required": ["text"], "properties": {"text": {"type": "string"}}}
TOOLS = [
    {"name": "add_note", "description": f"Add a note for {OWNER}.", "inputSchema": TEXT},
    {
        "name": "clear_notes",
        "description": f"Throw away all notes of {OWNER}, once the user agrees.",
        "inputSchema": {"type": "object"},
    },
]
TEMPLATE = {"name": "note", "uriTemplate": f"notes://{OWNER}/{{id}}", "mimeType": "text/plain"}
PROMPT = {"name": "summarise", "description": f"Sum up the notes of {OWNER}."}


def say(**message: Any) -> None:
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


def heard() -> Any:
    return json.loads(sys.stdin.readline() or "null")


def text(said: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": said}]}


def agrees() -> bool:
    """Ask the user, wherever the client of the gateway is. What comes meanwhile is not expected."""
    schema = {"type": "object", "properties": {"sure": {"type": "boolean"}}, "required": ["sure"]}
    question = {"message": f"Throw away {len(notes)} notes?", "requestedSchema": schema}
    say(id="sure", method="elicitation/create", params=question)
    answer = heard().get("result", {})
    return answer.get("action") == "accept" and answer["content"]["sure"] is True


def call(params: dict[str, Any]) -> dict[str, Any]:
    if params["name"] == "add_note":
        notes[str(len(notes) + 1)] = params["arguments"]["text"]
        say(method="notifications/resources/list_changed")
        return text(f"{OWNER} has {len(notes)} notes.")
    if not agrees():
        return text("Nothing was thrown away.")
    notes.clear()
    say(method="notifications/resources/list_changed")
    return text("All notes are gone.")


def read(params: dict[str, Any]) -> dict[str, Any]:
    uri = params["uri"]
    note = notes[uri.removeprefix(f"notes://{OWNER}/")]
    return {"contents": [{"uri": uri, "mimeType": "text/plain", "text": note}]}


METHODS = {
    "initialize": lambda _params: {
        "protocolVersion": "2025-11-25",
        "capabilities": {"tools": {}, "prompts": {}, "resources": {"listChanged": True}},
        "serverInfo": {"name": "notes", "version": "1"},
    },
    "ping": lambda _params: {},
    "tools/list": lambda _params: {"tools": TOOLS},
    "tools/call": call,
    "resources/list": lambda _params: {
        "resources": [
            {"uri": f"notes://{OWNER}/{id_}", "name": note} for id_, note in notes.items()
        ]
    },
    "resources/templates/list": lambda _params: {"resourceTemplates": [TEMPLATE]},
    "resources/read": read,
    "prompts/list": lambda _params: {"prompts": [PROMPT]},
    "prompts/get": lambda _params: {
        "messages": [
            {
                "role": "user",
                "content": {"type": "text", "text": "Sum up: " + "; ".join(notes.values())},
            }
        ]
    },
}


def serve() -> None:
    while (message := heard()) is not None:
        if "id" not in message or "method" not in message:
            continue
        try:
            say(id=message["id"], result=METHODS[message["method"]](message.get("params", {})))
        except KeyError as missing:
            known = message["method"] in METHODS
            error = {"code": -32602 if known else -32601, "message": f"There is no {missing}"}
            say(id=message["id"], error=error)


if __name__ == "__main__":
    serve()
