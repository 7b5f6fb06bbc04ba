"""Hostile agents: what they answer is bounded, and reaches nothing beyond the call."""

import gzip
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from msgspec.structs import replace
from starlette.types import Receive, Scope, Send

from config.settings import DatabaseSettings
from tests.fixtures_gateway import Client, running
from tests.fixtures_servers import serving
from tests.gateway.upstreams.a2a.test_agents_as_tools import (
    ask,
    call_with_answer,
    facts_of,
    text_of,
    with_agent,
)
from tests.servers.agent import FORM, ScriptedAgent

pytestmark = pytest.mark.anyio

Json = dict[str, Any]
SSE = [(b"content-type", b"text/event-stream")]
JSON = [(b"content-type", b"application/json")]
WORKING = {"id": "t", "contextId": "c", "status": {"state": "TASK_STATE_WORKING"}}


class Hostile:
    """An agent whose card is good, and whose answers are `chunks`, whatever is asked."""

    def __init__(self) -> None:
        self.agent = ScriptedAgent()
        self.status = 200
        self.headers = SSE
        self.chunks: Callable[[], AsyncIterator[bytes]] = nothing
        self.sent = 0  # bytes
        self.paths: list[str] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"].endswith("agent-card.json"):
            await self.agent.app(scope, receive, send)
            return
        self.paths.append(scope["path"])
        start = {"type": "http.response.start", "status": self.status, "headers": self.headers}
        await send(start)
        async for chunk in self.chunks():
            self.sent += len(chunk)
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    def say(self, *bodies: bytes) -> None:
        self.chunks = lambda: each(*bodies)

    def interrupt(self, state: str, *parts: Json) -> None:
        """Stop at a task that waits for something."""
        message = {"messageId": "m", "role": "ROLE_AGENT", "parts": parts}
        status = {"state": f"TASK_STATE_{state}", "message": message}
        self.say(event({"task": {**WORKING, "status": status}}))

    def answer(self, result: Any) -> None:
        """Answer with one JSON."""
        self.headers = JSON
        self.say(json.dumps({"jsonrpc": "2.0", "id": 1, "result": result}).encode())


async def nothing() -> AsyncIterator[bytes]:
    return
    yield


async def each(*bodies: bytes) -> AsyncIterator[bytes]:
    for body in bodies:
        yield body


def event(value: Json) -> bytes:
    return b"data: " + json.dumps({"jsonrpc": "2.0", "id": 1, "result": value}).encode() + b"\n\n"


@asynccontextmanager
async def open_gateway(
    database: DatabaseSettings, hostile: Hostile, **limits: Any
) -> AsyncIterator[Client]:
    async with serving(hostile) as hostile.agent.base:
        settings = with_agent(database, hostile.agent, timeout_s=2)
        upstream = replace(settings.upstream, **limits)
        async with running(replace(settings, upstream=upstream)) as client:
            yield client


@pytest.fixture
def hostile() -> Hostile:
    return Hostile()


async def test_a_stream_without_end_is_cut_by_events(
    database_settings: DatabaseSettings, hostile: Hostile
) -> None:
    async def endless() -> AsyncIterator[bytes]:
        for _ in range(500):  # a server of tests does not hear that its client has left
            yield event({"task": WORKING})

    hostile.chunks = endless
    async with open_gateway(database_settings, hostile, a2a_events=30) as client:
        result = await ask(client, message="x")
        assert "more than 30 events (upstream.a2a_events)" in text_of(result)


@pytest.mark.parametrize("shape", ["line", "event", "body", "bomb"])
async def test_a_giant_answer_is_cut_by_bytes(
    database_settings: DatabaseSettings, hostile: Hostile, shape: str
) -> None:
    async def giant() -> AsyncIterator[bytes]:
        for _ in range(100):
            yield b"data: x\n" * 1000 if shape == "event" else b"x" * 8000

    hostile.chunks = giant
    if shape == "body":
        hostile.headers = JSON
    if shape == "bomb":
        hostile.headers = [*JSON, (b"content-encoding", b"gzip")]
        hostile.say(gzip.compress(b" " * 50_000_000))
    async with open_gateway(database_settings, hostile, response_limit_bytes=100_000) as client:
        result = await ask(client, message="x")
        assert "100000 bytes (upstream.response_limit_bytes)" in text_of(result)


async def test_a_slow_stream_ends_with_the_time_of_the_call(
    database_settings: DatabaseSettings, hostile: Hostile
) -> None:
    async def drip() -> AsyncIterator[bytes]:
        yield event({"task": WORKING})
        yield b": wait\n\n"
        await hostile.agent.release.wait()

    hostile.chunks = drip
    async with open_gateway(database_settings, hostile) as client:
        result = await ask(client, message="x")
        hostile.agent.release.set()
    assert facts_of(result)["state"] == "working"


MALFORMED: list[Any] = [
    None,
    [],
    "x",
    {},
    {"task": None},
    {"task": {"id": "t"}},
    {"task": {**WORKING, "id": ""}},
    {"task": {**WORKING, "id": "t" * 5000}},
    {"task": {**WORKING, "contextId": "c" * 5000}},
    {"task": {**WORKING, "status": {"state": "TASK_STATE_ROOT"}}},
    {"task": WORKING, "message": {"messageId": "m", "role": "ROLE_AGENT", "parts": []}},
    {"message": {"messageId": "m", "role": "ROLE_AGENT", "parts": []}},
    {"message": {"messageId": "m", "role": "ROLE_AGENT", "parts": [{"text": "a", "url": "b"}]}},
    {"message": {"messageId": "m", "role": "ROLE_AGENT", "parts": [{"raw": "%%%"}]}},
    {"message": {"messageId": "m" * 300, "role": "ROLE_AGENT", "parts": [{"text": "a"}]}},
]


async def test_malformed_answers_are_errors_of_the_call(
    database_settings: DatabaseSettings, hostile: Hostile
) -> None:
    async with open_gateway(database_settings, hostile) as client:
        for value in MALFORMED:
            hostile.answer(value)
            result = await ask(client, message="x")
            assert result["isError"], value
        for body in (b"", b"<html>", b"\xff", b"[" * 100_000, b'{"result":' * 5000, b"{}", b"7"):
            hostile.say(body)
            result = await ask(client, message="x")
            assert result["isError"], body[:20]


async def test_events_about_another_task_end_the_call(
    database_settings: DatabaseSettings, hostile: Hostile
) -> None:
    other = {"task": {**WORKING, "id": "other"}}
    hostile.say(event({"task": WORKING}), event(other))
    async with open_gateway(database_settings, hostile) as client:
        result = await ask(client, message="x")
    assert "answered about another task" in text_of(result)


@pytest.mark.parametrize("id_", [".", "..", "%2e%2E", "%252e."])
async def test_ids_that_are_steps_in_a_path_are_refused(
    database_settings: DatabaseSettings, hostile: Hostile, id_: str
) -> None:
    hostile.say(event({"task": {**WORKING, "id": id_}}))
    async with open_gateway(database_settings, hostile) as client:
        result = await ask(client, message="x")
    assert "no id of a task" in text_of(result)
    assert set(hostile.paths) == {"/rpc"}


async def test_redirects_are_not_followed(
    database_settings: DatabaseSettings, hostile: Hostile
) -> None:
    async with open_gateway(database_settings, hostile) as client:
        hostile.headers = [(b"location", f"{hostile.agent.base}/stolen".encode())]
        for hostile.status in (301, 302, 307, 308):
            result = await ask(client, message="x")
            assert "redirects are not followed" in text_of(result)
    assert set(hostile.paths) == {"/rpc"}


async def test_refusals_are_short_and_without_pages(
    database_settings: DatabaseSettings, hostile: Hostile
) -> None:
    hostile.headers = [(b"content-type", b"text/html")]
    hostile.say(b"<h1>internal 10.0.0.7</h1>" * 1000)
    async with open_gateway(database_settings, hostile) as client:
        for hostile.status in (400, 401, 403, 404, 429, 500, 503):
            result = await ask(client, message="x")
            assert result["isError"]
            assert f"HTTP {hostile.status}" in text_of(result)
            assert "10.0.0.7" not in text_of(result)
        hostile.headers = JSON
        error = {"code": -32000, "message": "y" * 100_000}
        hostile.say(json.dumps({"jsonrpc": "2.0", "id": 1, "error": error}).encode())
        assert len(text_of(await ask(client, message="x"))) < 1000


async def test_questions_without_end_are_limited(
    database_settings: DatabaseSettings, hostile: Hostile
) -> None:
    def question(number: int) -> Json:
        parts = [{"text": "More?"}, {"data": {"schema": FORM}}]
        message = {"messageId": f"m{number}", "role": "ROLE_AGENT", "parts": parts}
        status = {"state": "TASK_STATE_INPUT_REQUIRED", "message": message}
        return {"task": {**WORKING, "status": status}}

    async def ask_on() -> AsyncIterator[bytes]:
        yield event(question(len(hostile.paths)))

    hostile.chunks = ask_on
    async with open_gateway(database_settings, hostile, mcp_client_requests=3) as client:
        accepted = {"action": "accept", "content": {"name": "x"}}
        _, result = await call_with_answer(client, "x", {"elicitation": {}}, accepted)
    assert facts_of(result)["state"] == "input_required"
    assert len(hostile.paths) == 4


FORMS: list[Any] = [
    {"type": "object", "properties": {"a": {"type": "object"}}},
    {"type": "object", "properties": {"a": {"$ref": "https://evil.example/s"}}},
    {"type": "object", "properties": {f"a{n}": {"type": "string"} for n in range(100)}},
    {"type": "object", "properties": {"a": {"type": "string", "title": "x" * 100_000}}},
    {"type": "object", "properties": {"a": {"type": "string", "title": "API key"}}},
    {"type": "object", "properties": {"a": {"type": "string", "format": "password"}}},
    {"type": "object", "properties": {"a": {"type": "string", "description": "Your password"}}},
    {"type": "array"},
    7,
]


async def test_forms_of_other_shapes_are_not_shown(
    database_settings: DatabaseSettings, hostile: Hostile
) -> None:
    async with open_gateway(database_settings, hostile) as client:
        for schema in FORMS:
            hostile.interrupt("INPUT_REQUIRED", {"text": "Well?"}, {"data": {"schema": schema}})
            accepted = {"action": "accept", "content": {}}
            asked, result = await call_with_answer(client, "x", {"elicitation": {}}, accepted)
            assert asked == {}, schema
            assert facts_of(result)["state"] == "input_required"


ADDRESSES = [
    "javascript:alert(1)",
    "file:///etc/passwd",
    "https://bank.example@evil.example/",
    "http://evil.example/login",  # not encrypted
    "https://evil.example/\u202egro.knab",
    "https://" + "a" * 5000,
    "https://evil.example\\.bank.example/",  # browsers end the host at the backslash
    "https://evil.example;bank.example/",
    "https://bank.example%2eevil.example/",
    "https://b\u0430nk.example/",  # a Cyrillic letter
    "https://",
]


async def test_disguised_addresses_are_not_opened(
    database_settings: DatabaseSettings, hostile: Hostile
) -> None:
    capabilities, accepted = {"elicitation": {"url": {}}}, {"action": "accept"}
    async with open_gateway(database_settings, hostile) as client:
        for url in ADDRESSES:
            hostile.interrupt("AUTH_REQUIRED", {"url": url})
            asked, result = await call_with_answer(client, "x", capabilities, accepted)
            assert asked == {}, url
            assert facts_of(result)["state"] == "auth_required"
            links = [item["uri"] for item in result["content"] if item["type"] == "resource_link"]
            assert links in ([], ["http://evil.example/login"])


def completed_task(*parts: Json, id_: str = "a") -> Json:
    """A completed task with one artifact."""
    artifact = {"artifactId": id_, "parts": parts}
    return {
        "task": {**WORKING, "status": {"state": "TASK_STATE_COMPLETED"}, "artifacts": [artifact]}
    }


async def test_a_result_of_countless_parts_is_cut(
    database_settings: DatabaseSettings, hostile: Hostile
) -> None:
    async with open_gateway(database_settings, hostile) as client:
        parts: list[Json] = [{"text": "x"}, {"data": 1}]
        hostile.answer(completed_task(*parts * 5000))
        result = await ask(client, message="x")
    assert len(result["content"]) == 201
    assert "left out" in result["content"][-1]["text"]


async def test_names_and_types_of_files_are_plain(
    database_settings: DatabaseSettings, hostile: Hostile
) -> None:
    name = {"filename": "../a\u202egpj.exe\t", "mediaType": "image/png\r\nX: y"}
    async with open_gateway(database_settings, hostile) as client:
        hostile.answer(
            completed_task({"raw": "aGk=", **name}, {"url": "https://e.example/", **name})
        )
        file, link = (await ask(client, message="x"))["content"]
    resource = file["resource"]
    assert resource["mimeType"] == "application/octet-stream"
    assert "mimeType" not in link
    for text in (resource["uri"], link["name"]):
        assert text.isprintable()


async def test_artifacts_of_polls_do_not_pile_up(
    database_settings: DatabaseSettings, hostile: Hostile
) -> None:
    async def poll() -> AsyncIterator[bytes]:
        number = len(hostile.paths)
        task = completed_task({"text": f"part {number}"}, id_=f"a{number}")["task"]
        working = {**task, "status": WORKING["status"]}
        result = {"task": working} if number == 1 else working if number < 5 else task
        yield json.dumps({"jsonrpc": "2.0", "id": 1, "result": result}).encode()

    hostile.headers, hostile.chunks = JSON, poll
    async with open_gateway(database_settings, hostile) as client:
        result = await ask(client, message="x")
    assert text_of(result) == "part 5"
