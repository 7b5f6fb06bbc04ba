"""A provider of chat models that follows a script, in three dialects, and is as strict as vendors.

It answers requests in order. What vendors refuse with 400 it refuses with 400: orphaned results of
tools, lost reasoning, altered signatures, ids that occur twice.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Literal

from tests.servers.provider_checks import Issued, complaint

End = Literal["whole", "cut", "reset", "hang"]


@dataclass(frozen=True, kw_only=True)
class Answer:
    """One answer; its pieces are chunks on the wire."""

    pieces: Sequence[bytes] = ()
    status: int = 200
    kind: str = "text/event-stream"
    headers: dict[str, str] = field(default_factory=dict)
    end: End = "whole"  # cut: the connection closes within the body; hang: nothing more comes
    silent: bool = False  # not even a head is sent


LISTED = Answer(
    pieces=[b'{"object": "list", "data": [{"id": "listed", "object": "model"}]}'],
    kind="application/json",
)


@dataclass
class Asked:
    path: str
    headers: dict[str, str]
    body: Any
    raw: bytes


Say = Callable[[Asked], Answer]


@dataclass
class Provider:
    """The server. `answers` are given in order, the last one again and again; a function makes one
    of the request."""

    answers: list[Answer | Say]
    thinking: bool = False  # demands the reasoning of turns with calls, as DeepSeek does
    url: str = ""
    requests: list[Asked] = field(default_factory=list)
    hung_up: list[asyncio.Event] = field(default_factory=list)  # by request: the client has closed
    issued: Issued = field(default_factory=Issued)
    asked: asyncio.Event = field(default_factory=asyncio.Event)  # a request has come
    listed: Answer = LISTED  # the models

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while await self._serve(reader, writer):
                pass
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Whether the connection can take another request."""
        asked = await _request(reader)
        if asked.path.endswith("/models"):
            return await _send(writer, self.listed)
        place = len(self.requests)
        self.requests.append(asked)
        self.asked.set()
        closed = asyncio.Event()
        self.hung_up.append(closed)
        text = complaint(asked.path, asked.headers, asked.body, self.issued, self.thinking)
        if text:
            body = {"error": {"type": "invalid_request_error", "message": text}}
            refusal = Answer(
                pieces=[json.dumps(body).encode()], status=400, kind="application/json"
            )
            return await _send(writer, refusal)
        answer = self.answers[min(place, len(self.answers) - 1)]
        found = answer(asked) if callable(answer) else answer
        self.issued.note(b"".join(found.pieces))
        watching = asyncio.create_task(_watch(reader, closed))
        try:
            return await _send(writer, found) and not closed.is_set()
        finally:
            if found.end == "hang" or found.silent:
                await closed.wait()
            watching.cancel()
            with suppress(asyncio.CancelledError):
                await watching


async def _watch(reader: asyncio.StreamReader, closed: asyncio.Event) -> None:
    """Sets `closed` once the client hangs up. It sends nothing while it is answered."""
    with suppress(ConnectionError):
        while not reader.at_eof():
            await asyncio.sleep(0.001)
            if reader.exception() is not None:
                break
    closed.set()


async def _request(reader: asyncio.StreamReader) -> Asked:
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    first, *lines = head.strip().split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (o.partition(":") for o in lines)}
    raw = await reader.readexactly(int(headers.get("content-length", 0)))
    return Asked(first.split()[1], headers, json.loads(raw) if raw else None, raw)


async def _send(writer: asyncio.StreamWriter, answer: Answer) -> bool:
    if answer.silent:
        return False
    fields = {"Content-Type": answer.kind, "Transfer-Encoding": "chunked", **answer.headers}
    lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    writer.write(f"HTTP/1.1 {answer.status} X\r\n{lines}\r\n".encode())
    for piece in answer.pieces:
        if piece:
            writer.write(b"%x\r\n%b\r\n" % (len(piece), piece))
            await writer.drain()
            if len(answer.pieces) > 1:
                await asyncio.sleep(0)
    if answer.end == "whole":
        writer.write(b"0\r\n\r\n")
        await writer.drain()
        return True
    if answer.end == "reset":
        writer.transport.abort()
    return False


@asynccontextmanager
async def providing(*answers: Answer | Say, thinking: bool = False) -> AsyncIterator[Provider]:
    provider = Provider(list(answers), thinking)
    server = await asyncio.start_server(provider, "127.0.0.1", 0)
    provider.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    async with server:
        yield provider
        server.close()
        server.close_clients() if hasattr(server, "close_clients") else None


def sse(*events: Any, done: bool = False, named: bool = False) -> bytes:
    """Events of a stream; `named` also says their type beside the data."""
    lines = []
    for one in events:
        text = one if isinstance(one, str) else json.dumps(one, ensure_ascii=False)
        name = f"event: {one['type']}\n" if named and isinstance(one, dict) else ""
        lines.append(f"{name}data: {text}\n\n")
    return "".join([*lines, "data: [DONE]\n\n" if done else ""]).encode()


def delta(finish: str | None = None, **members: Any) -> dict[str, Any]:
    choice = {"index": 0, "delta": members, "finish_reason": finish}
    return {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m-1",
            "choices": [choice]}  # fmt: skip


def fragment(index: int | None = 0, id_: str = "", name: str = "", arguments: str = "") -> Any:
    function = {"name": name, "arguments": arguments} if name else {"arguments": arguments}
    members: dict[str, Any] = {"function": function}
    if index is not None:
        members["index"] = index
    if id_:
        members |= {"id": id_, "type": "function"}
    return members


USAGE = {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18}
Calls = Sequence[tuple[str, str, str]]  # id, name, arguments


def chat(text: str = "", calls: Calls = (), *, reasoning: str | None = None,
         finish: str = "", usage: Any = USAGE) -> Answer:  # fmt: skip
    """A well-formed answer in the dialect of chat completions, a word per event."""
    events = [delta(role="assistant", content="")]
    if reasoning is not None:
        events += [delta(reasoning_content=reasoning)]
    events += [delta(content=word) for word in _words(text)]
    for index, (id_, name, arguments) in enumerate(calls):
        half = len(arguments) // 2
        events.append(delta(tool_calls=[fragment(index, id_, name, arguments[:half])]))
        events.append(delta(tool_calls=[fragment(index, arguments=arguments[half:])]))
    events.append(delta(finish or ("tool_calls" if calls else "stop")))
    if usage is not None:
        events.append({**delta(), "choices": [], "usage": usage})
    return Answer(pieces=[sse(one) for one in events] + [sse(done=True)])


def chat_whole(text: str = "", calls: Calls = (), *, reasoning: str | None = None) -> Answer:
    """The same, not streamed."""
    written = [
        {"id": id_, "type": "function", "function": {"name": name, "arguments": arguments}}
        for id_, name, arguments in calls
    ]
    message: dict[str, Any] = {"role": "assistant", "content": text}
    if written:
        message["tool_calls"] = written
    if reasoning is not None:
        message["reasoning_content"] = reasoning
    finish = "tool_calls" if calls else "stop"
    body = {"id": "c", "object": "chat.completion", "created": 1, "model": "m-1", "usage": USAGE,
            "choices": [{"index": 0, "message": message, "finish_reason": finish}]}  # fmt: skip
    # empty lines before the body, as DeepSeek sends while a request waits
    return Answer(pieces=[b"\n\n\n", json.dumps(body).encode()], kind="application/json")


def claude(text: str = "", calls: Calls = (), *, thinking: str = "", redacted: str = "",
           reason: str = "") -> Answer:  # fmt: skip
    """A well-formed answer in the dialect of Anthropic."""
    usage = {"input_tokens": 11, "output_tokens": 1}
    message = {"id": "m", "type": "message", "role": "assistant", "model": "c-1", "content": [],
               "stop_reason": None, "stop_sequence": None, "usage": usage}  # fmt: skip
    events: list[Any] = [{"type": "message_start", "message": message}, {"type": "ping"}]
    blocks: list[tuple[dict[str, Any], list[dict[str, Any]]]] = []
    if thinking:
        deltas = [{"type": "thinking_delta", "thinking": word} for word in _words(thinking)]
        deltas.append({"type": "signature_delta", "signature": f"sig-{thinking}"})
        blocks.append(({"type": "thinking", "thinking": "", "signature": ""}, deltas))
    if redacted:
        blocks.append(({"type": "redacted_thinking", "data": redacted}, []))
    if text:
        deltas = [{"type": "text_delta", "text": word} for word in _words(text)]
        blocks.append(({"type": "text", "text": ""}, deltas))
    for id_, name, arguments in calls:
        halves = (arguments[: len(arguments) // 2], arguments[len(arguments) // 2 :])
        deltas = [{"type": "input_json_delta", "partial_json": half} for half in halves]
        blocks.append(({"type": "tool_use", "id": id_, "name": name, "input": {}}, deltas))
    for index, (block, deltas) in enumerate(blocks):
        begun = {"type": "content_block_start", "index": index, "content_block": block}
        ended = {"type": "content_block_stop", "index": index}
        changes = [{"type": "content_block_delta", "index": index, "delta": d} for d in deltas]
        events += [begun, *changes, ended]
    reason = reason or ("tool_use" if calls else "end_turn")
    closing = {"stop_reason": reason, "stop_sequence": None}
    events.append({"type": "message_delta", "delta": closing, "usage": {"output_tokens": 7}})
    events.append({"type": "message_stop"})
    return Answer(pieces=[sse(one, named=True) for one in events])


def claude_whole(text: str = "", calls: Calls = ()) -> Answer:
    content: list[Any] = [{"type": "text", "text": text}] if text else []
    for id_, name, arguments in calls:
        block = {"type": "tool_use", "id": id_, "name": name, "input": json.loads(arguments)}
        content.append(block)
    reason = "tool_use" if calls else "end_turn"
    body = {"id": "m", "type": "message", "role": "assistant", "model": "c-1", "content": content,
            "stop_reason": reason, "stop_sequence": None,
            "usage": {"input_tokens": 11, "output_tokens": 7}}  # fmt: skip
    return Answer(pieces=[json.dumps(body).encode()], kind="application/json")


def _response(text: str, calls: Calls, encrypted: str, status: str) -> dict[str, Any]:
    output: list[Any] = []
    if encrypted:
        output.append({"type": "reasoning", "id": "rs_1", "encrypted_content": encrypted,
                       "summary": [{"type": "summary_text", "text": "thought"}]})  # fmt: skip
    if text:
        part = {"type": "output_text", "text": text, "annotations": []}
        output.append({"type": "message", "id": "msg_1", "role": "assistant",
                       "status": "completed", "content": [part]})  # fmt: skip
    for place, (id_, name, arguments) in enumerate(calls):
        output.append({"type": "function_call", "id": f"fc_{place}", "call_id": id_, "name": name,
                       "arguments": arguments, "status": "completed"})  # fmt: skip
    usage = {"input_tokens": 11, "output_tokens": 7, "total_tokens": 18,
             "input_tokens_details": {"cached_tokens": 3, "cache_write_tokens": 0},
             "output_tokens_details": {"reasoning_tokens": 2}}  # fmt: skip
    return {"id": "r", "object": "response", "created_at": 1, "model": "r-1", "status": status,
            "output": output, "usage": usage, "error": None, "incomplete_details": None,
            "instructions": None, "metadata": {}, "parallel_tool_calls": True,
            "temperature": 1, "tool_choice": "auto", "tools": [], "top_p": 1}  # fmt: skip


def responses(text: str = "", calls: Calls = (), *, encrypted: str = "") -> Answer:
    """A well-formed answer in the dialect of responses."""
    whole = _response(text, calls, encrypted, "completed")
    begun = {**whole, "status": "in_progress", "output": [], "usage": None}
    events: list[dict[str, Any]] = [{"type": "response.created", "response": begun}]
    for index, item in enumerate(whole["output"]):
        at = {"output_index": index, "item_id": item["id"]}
        empty: dict[str, Any] = {"content": []} if item["type"] == "message" else {}
        if item["type"] == "function_call":
            empty = {"arguments": ""}
        added = {**item, **empty}
        events.append({"type": "response.output_item.added", "output_index": index, "item": added})
        if item["type"] == "message":
            part = {"type": "output_text", "text": "", "annotations": []}
            events.append({"type": "response.content_part.added", **at, "content_index": 0,
                           "part": part})  # fmt: skip
            events += [
                {"type": "response.output_text.delta", **at, "content_index": 0, "delta": word,
                 "logprobs": []}
                for word in _words(text)
            ]  # fmt: skip
        if item["type"] == "function_call":
            events.append({"type": "response.function_call_arguments.delta", **at,
                           "delta": item["arguments"]})  # fmt: skip
        events.append({"type": "response.output_item.done", "output_index": index, "item": item})
    events.append({"type": "response.completed", "response": whole})
    numbered = [{**one, "sequence_number": place} for place, one in enumerate(events)]
    return Answer(pieces=[sse(one, named=True) for one in numbered])


def responses_whole(text: str = "", calls: Calls = (), *, encrypted: str = "") -> Answer:
    body = json.dumps(_response(text, calls, encrypted, "completed")).encode()
    return Answer(pieces=[body], kind="application/json")


def failing(status: int, message: str = "no", kind: str = "", **headers: str) -> Answer:
    body = {"error": {"message": message, "type": kind}}
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Answer(pieces=[json.dumps(body).encode()], status=status, kind="application/json",
                  headers=named)  # fmt: skip


def _words(text: str) -> list[str]:
    return [word for word in text.replace(" ", " \0").split("\0") if word]
