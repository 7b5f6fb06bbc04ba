"""A small agent that speaks Agent2Agent as its specification writes it: 1.0 over JSON-RPC at /rpc
and over HTTP+JSON at /rest, 0.3 at /old. What it does is the first word of a message.

Its JSON is written by hand, so that it judges the translators of the gateway.
"""

import asyncio
import json
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

Json = dict[str, Any]
FORM = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
SECRET_FORM = {"type": "object", "properties": {"api_key": {"type": "string"}}}
LOGIN = "https://login.example.com/start"
INTERFACES = {
    "rpc": ("JSONRPC", "1.0"),
    "rest": ("HTTP+JSON", "1.0"),
    "old": ("JSONRPC", "0.3"),
}

_METHODS = {
    "SendMessage": "send",
    "SendStreamingMessage": "stream",
    "GetTask": "get",
    "ListTasks": "list",
    "CancelTask": "cancel",
    "message/send": "send",
    "message/stream": "stream",
    "tasks/get": "get",
    "tasks/cancel": "cancel",
}


@dataclass
class ScriptedAgent:
    """`base` is its URL; `interfaces` those that its card has, in order."""

    base: str = ""
    interfaces: tuple[str, ...] = ("rpc",)
    streams: bool = True
    tenant: str = ""
    card_changes: Json = field(default_factory=dict)
    card_reads: list[str] = field(default_factory=list)  # the tags that readers had
    heard: list[Json] = field(default_factory=list)  # operation, params and headers
    tasks: dict[str, Json] = field(default_factory=dict)
    polls_left: dict[str, int] = field(default_factory=dict)  # until a task is completed
    cancelled: list[str] = field(default_factory=list)
    losses: int = 0  # of answers, from now on
    forgets: bool = False  # what it began before an answer was lost
    shows_past: bool = False  # begins an answer in a task with the task as it was before
    release: asyncio.Event = field(default_factory=asyncio.Event)
    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    polled: asyncio.Event = field(default_factory=asyncio.Event)
    stopped: asyncio.Event = field(default_factory=asyncio.Event)  # a task was cancelled

    @property
    def app(self) -> Starlette:
        get, post = ["GET"], ["POST"]
        return Starlette(
            routes=[
                Route("/.well-known/agent-card.json", self._serve_card, methods=get),
                Route("/rpc", self._serve_rpc, methods=post),
                Route("/old", self._serve_rpc, methods=post),
                Route("/rest/message:send", self._serve_rest, methods=post),
                Route("/rest/message:stream", self._serve_rest, methods=post),
                Route("/rest/tasks", self._serve_rest, methods=get),
                Route("/rest/tasks/{id}:cancel", self._serve_rest, methods=post),
                Route("/rest/tasks/{id}", self._serve_rest, methods=get),
            ]
        )

    @property
    def card(self) -> Json:
        offered = [
            {
                "url": f"{self.base}/{name}",
                "protocolBinding": INTERFACES[name][0],
                "protocolVersion": INTERFACES[name][1],
                **({"tenant": self.tenant} if self.tenant else {}),
            }
            for name in self.interfaces
        ]
        skill = {"id": "t", "name": "Trips", "description": "Plans trips", "tags": ["travel"]}
        return {
            "name": "Traveller",
            "description": "Plans and books journeys",
            "version": "1.2.0",
            "supportedInterfaces": offered,
            "capabilities": {"streaming": self.streams},
            "defaultInputModes": ["text/plain"],
            "defaultOutputModes": ["text/plain"],
            "skills": [skill],
            **self.card_changes,
        }

    async def _serve_card(self, request: Request) -> Response:
        tag = f'"{hash(json.dumps(self.card))}"'
        self.card_reads.append(request.headers.get("If-None-Match", ""))
        if self.card_reads[-1] == tag:
            return Response(status_code=304)
        return JSONResponse(self.card, headers={"ETag": tag})

    async def _serve_rpc(self, request: Request) -> Response:
        body = await request.json()
        old = request.url.path == "/old"
        operation = _METHODS[body["method"]]

        def wrap(value: Json) -> Json:
            return {"jsonrpc": "2.0", "id": body["id"], "result": value}

        return await self._answer(operation, body["params"], request, wrap=wrap, old=old)

    async def _serve_rest(self, request: Request) -> Response:
        params: Json = dict(request.path_params) | dict(request.query_params)
        if request.method == "POST" and (body := await request.body()):
            params |= json.loads(body)
        path = request.url.path
        operation = path.rpartition(":")[2] if ":" in path else "get" if "id" in params else "list"
        return await self._answer(operation, params, request, wrap=lambda value: value, old=False)

    async def _answer(
        self, operation: str, params: Json, request: Request, *, wrap: Any, old: bool
    ) -> Response:
        self.heard.append(
            {"operation": operation, "params": params, "headers": dict(request.headers)}
        )
        if operation in ("send", "stream"):
            events = self._events(params["message"], old=old)
            if self.losses:
                self.losses -= 1
                await anext(events)
                if self.forgets:
                    self.tasks.clear()
                return _Cut()
            if operation == "stream":
                return StreamingResponse(_sse(events, wrap), media_type="text/event-stream")
            first = await anext(events)
            return JSONResponse(wrap(first if not old else _lower(next(iter(first.values())))))
        if operation == "list":
            context = params.get("contextId")
            found = [t for t in self.tasks.values() if not context or t["contextId"] == context]
            listed = {"tasks": found, "nextPageToken": "", "pageSize": 50, "totalSize": len(found)}
            return JSONResponse(wrap(listed))
        task = self.tasks.get(params["id"])
        if task is None:
            error = {"code": -32001, "message": "No such task"}
            return JSONResponse({"jsonrpc": "2.0", "id": 1, "error": error}, 200)
        if operation == "cancel":
            self.cancelled.append(task["id"])
            self.stopped.set()
            task["status"] = {"state": "TASK_STATE_CANCELED"}
        else:
            self.polled.set()
            self._advance(task)
        shown = {key: value for key, value in task.items() if key != "history"}
        return JSONResponse(wrap(_lower(shown) if old else shown))

    def _advance(self, task: Json) -> None:
        """Complete a task whose polls are used up."""
        left = self.polls_left.get(task["id"], 1)
        self.polls_left[task["id"]] = left - 1
        if left <= 0:
            task["status"] = {"state": "TASK_STATE_COMPLETED"}
            task["artifacts"] = [{"artifactId": "a", "parts": [{"text": "one two"}]}]

    async def _events(self, message: Json, *, old: bool) -> AsyncIterator[Json]:
        """Events of 1.0; those of 0.3 are made of them."""
        parts = message["parts"]
        text = next((part["text"] for part in parts if "text" in part), "")
        word, _, rest = text.partition(" ")
        known = self.tasks.get(message.get("taskId", ""))
        if known is not None:
            if self.shows_past:
                yield {"task": {**known}}
            known["history"].append(message)
            data = next((part["data"] for part in parts if "data" in part), {})
            known["status"] = {"state": "TASK_STATE_COMPLETED"}
            hello = f"hello {data.get('name', text)}"
            known["artifacts"] = [{"artifactId": "a", "parts": [{"text": hello}]}]
            yield {"task": known}
            return
        if word == "say":
            yield {"message": _message(rest, message.get("contextId") or "c-new")}
            return
        context = message.get("contextId") or f"c-{uuid.uuid4().hex}"
        task: Json = {
            "id": f"t-{uuid.uuid4().hex}",
            "contextId": context,
            "status": {"state": "TASK_STATE_WORKING"},
            "history": [message],
        }
        self.tasks[task["id"]] = task
        named = {"taskId": task["id"], "contextId": context}
        if word == "slow":
            self.polls_left[task["id"]] = 1_000_000
            yield {"task": task}
            self.arrived.set()
            await self.release.wait()
            return
        end = _ENDS.get(word)
        if end is not None:
            state, end_parts = end
            task["status"] = {"state": state, "message": _message("", context, end_parts)}
            yield {"task": task}
            return
        yield {"task": task}
        status = {"state": "TASK_STATE_WORKING", "message": _message("reading maps", context)}
        yield {"statusUpdate": {**named, "status": status}}
        for index, chunk in enumerate(_CHUNKS.get(word, [[{"text": "one "}], [{"text": "two"}]])):
            artifact = {"artifactId": "a", "parts": chunk}
            yield {"artifactUpdate": {**named, "artifact": artifact, "append": index > 0}}
        if word == "break":
            return
        task["status"] = {"state": "TASK_STATE_COMPLETED"}
        yield {"statusUpdate": {**named, "status": task["status"]}}


_ENDS = {
    "fail": ("TASK_STATE_FAILED", [{"text": "no trains today"}]),
    "ask": ("TASK_STATE_INPUT_REQUIRED", [{"text": "Who travels?"}, {"data": {"schema": FORM}}]),
    "secret": (
        "TASK_STATE_INPUT_REQUIRED",
        [{"text": "Your key?"}, {"data": {"schema": SECRET_FORM}}],
    ),
    "login": ("TASK_STATE_AUTH_REQUIRED", [{"text": f"Log in at {LOGIN} first"}]),
}
_CHUNKS = {
    "data": [
        [{"text": "see"}, {"data": {"price": 7}}],
        [{"url": "https://files.example.com/t.pdf", "mediaType": "application/pdf"}],
        [{"raw": "aGk=", "mediaType": "image/png", "filename": "p.png"}],
        [{"url": "file:///etc/passwd"}],
    ],
}


class _Cut(Response):
    """An answer that breaks off."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        headers = [(b"content-type", b"application/json"), (b"content-length", b"1000")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"{", "more_body": True})
        raise ConnectionError("cut")


async def _sse(events: AsyncIterator[Json], wrap: Any) -> AsyncIterator[bytes]:
    async for event in events:
        yield b"data: " + json.dumps(wrap(event)).encode() + b"\n\n"


def _message(text: str, context: str, parts: list[Json] | None = None) -> Json:
    return {
        "messageId": uuid.uuid4().hex,
        "role": "ROLE_AGENT",
        "contextId": context,
        "parts": parts or [{"text": text}],
    }


def _lower(value: Json) -> Json:
    """An object of 1.0 as 0.3 has it, for what this agent says in it."""
    text = json.dumps(value)
    for state in ("WORKING", "COMPLETED", "FAILED", "CANCELED"):
        text = text.replace(f"TASK_STATE_{state}", state.lower())
    text = text.replace("ROLE_AGENT", "agent").replace("ROLE_USER", "user")
    lowered: Json = json.loads(text)
    lowered["kind"] = "task" if "status" in lowered else "message"
    for artifact in lowered.get("artifacts", []):
        artifact["parts"] = [{"kind": "text", **part} for part in artifact["parts"]]
    lowered["parts"] = [{"kind": "text", **part} for part in lowered.get("parts", [])]
    lowered.pop("history", None)
    return lowered
