"""A vector's request, as HTTP."""

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from gateway.parity.vector_requests import NoAnswer, body, headers, open_sender, query_string
from gateway.parity.vectors import VectorRequest
from schemas.errors import ToolgateError

TOKENS = {"valid": "abc", "app": "xyz"}


def request_of(**members: Any) -> VectorRequest:
    return msgspec.convert({"target": "command", **members}, VectorRequest)


@pytest.mark.parametrize(
    ("query", "sent"),
    [
        ("cmd=%ff", "cmd=%ff"),
        ({"cmd": {"a": "b+c 100%", "ü": [1, None]}},
         "cmd=%7B%22a%22%3A%22b%2Bc%20100%25%22%2C%22%C3%BC%22%3A%5B1%2Cnull%5D%7D"),
        ({"host": "a.b-c_d~e", "n": 5}, "host=a.b-c_d~e&n=5"),
        ({"cmd": ""}, "cmd="),
    ],
)  # fmt: skip
def test_a_query_is_encoded_once(query: Any, sent: str) -> None:
    assert query_string(query) == sent


@pytest.mark.parametrize(
    ("members", "sent"),
    [
        ({}, None),
        ({"body": None}, b"null"),
        ({"body": {"a": "ü", "n": 9007199254740993}}, '{"a":"ü","n":9007199254740993}'.encode()),
        ({"text": ""}, b""),
        ({"parts": [["[", 3], ["ab", 1], ["]", 2]]}, b"[[[ab]]"),
        ({"base64": "//4="}, b"\xff\xfe"),
    ],
)
def test_bodies(members: dict[str, Any], sent: bytes | None) -> None:
    assert body(request_of(**members)) == sent


def test_base64_that_is_none_is_a_mistake_in_the_vector() -> None:
    with pytest.raises(ToolgateError, match="base64 of a vector"):
        body(request_of(base64="not base64!"))


def test_a_body_is_json_and_the_token_goes_along() -> None:
    assert headers(request_of(text="{}"), TOKENS) == {
        "Content-Type": "application/json",
        "Authorization": "Bearer abc",
    }
    assert headers(request_of(token=None, scope_token="app"), TOKENS) == {
        "X-Scope-Token": "Bearer xyz"
    }


def test_a_vector_can_say_otherwise() -> None:
    sent = headers(
        request_of(text="{}", headers={"Content-Type": None, "Authorization": "Basic x"}), TOKENS
    )
    assert sent == {"Authorization": "Basic x"}


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("scheme", "reply", "said"),
    [
        ("http", b"", "the connection broke off before the answer was complete"),
        (
            "http",
            b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nOK",
            "the connection broke off before the answer was complete",
        ),
        ("http", b"220 mail.example ready\r\n", "the answer is no HTTP"),
        (
            "https",
            b"220 no TLS\r\n",
            "TLS failed: the server does not support it, or its certificate is not trusted",
        ),
    ],
)
async def test_why_there_is_no_answer_is_said_in_words(
    scheme: str, reply: bytes, said: str
) -> None:
    async with await asyncio.start_server(_answering(reply), "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        async with open_sender(f"{scheme}://127.0.0.1:{port}", {"command": "/"}, 5) as sender:
            with pytest.raises(NoAnswer) as raised:
                await sender.send(request_of(token=None), {})
    assert str(raised.value) == said


def _answering(reply: bytes) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], Any]:
    """A server that hears something, says `reply` and hangs up."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(reply)
        writer.close()

    return answer
