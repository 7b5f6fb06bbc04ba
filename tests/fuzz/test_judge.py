"""The judge of the fuzz: it must complain about each thing that it is there for, and only then."""

import json
from typing import Any

import pytest

from tests.fuzz.cases import Case
from tests.fuzz.judge import Answer, complaints
from tests.fuzz.oracle import Doubtful, Said, Unreadable, understand

REQUEST = {"jsonrpc": "2.0", "method": "m", "id": 7}
NOTIFICATION = {"jsonrpc": "2.0", "method": "m"}
RESULT = {"jsonrpc": "2.0", "id": 7, "result": 1}
ERROR = {"jsonrpc": "2.0", "id": 7, "error": {"code": -32601, "message": "no"}}
REFUSED = {"jsonrpc": "2.0", "id": None, "error": {"code": -32700, "message": "no"}}
STATUS = {
    "statusCode": 400,
    "code": "ERR10010",
    "message": "RUNTIME_EXCEPTION",
    "description": "no",
    "severity": "ERROR",
}
CALL = {"host": "h", "service": "s", "action": "a", "version": "v", "data": {}}


def asked(body: Any, front: str = "rpc", gateway: str = "strict") -> Case:
    text = body if isinstance(body, bytes) else json.dumps(body).encode()
    return Case(0, 0, gateway, front, b"POST", b"/", (), text, text)


def answered(body: Any, status: int = 200, media_type: str = "application/json") -> Answer:
    text = body if isinstance(body, bytes) else json.dumps(body).encode()
    return Answer(status, {"content-type": media_type}, text)


SILENCE = Answer(204, {}, b"")


@pytest.mark.parametrize(
    ("case", "answer", "complaint"),
    [
        (asked(REQUEST), answered(ERROR, 500), "HTTP 500"),
        (asked(REQUEST), answered(ERROR, 502), "HTTP 502"),
        (asked(REQUEST), Answer(400, {}, b""), "without a word"),
        (asked(REQUEST), SILENCE, "no answer to a request"),
        (asked(REQUEST), answered(RESULT, 204), "204 with a body"),
        (asked(REQUEST), answered(RESULT, media_type=""), "a body of type ''"),
        (asked(REQUEST), answered(b"{"), "no JSON"),
        (asked(REQUEST), answered(b'{"jsonrpc":"2.0","id":7,"result":NaN}'), "NaN is no JSON"),
        (asked(REQUEST), answered(b'{"id":7,"id":7}'), "twice"),
        (asked(REQUEST), answered({"id": 7, "result": 1}), "no object with"),
        (asked(REQUEST), answered({**RESULT, **ERROR}), "exactly one"),
        (asked(REQUEST), answered({"jsonrpc": "2.0", "result": 1}), "no id"),
        (asked(REQUEST), answered({**ERROR, "error": "no"}), "without a code"),
        (asked(REQUEST), answered({**RESULT, "id": 8}), "the id 8"),
        (asked({**REQUEST, "id": 1}), answered({**RESULT, "id": True}), "the id True"),
        (asked(REQUEST), answered({**RESULT, "result": "Traceback (most"}), "inside"),
        (asked(REQUEST), answered({**RESULT, "result": "127.0.0.1:5432"}), "inside"),
        (asked(REQUEST), answered({**ERROR, "error": {"code": -32603, "message": ""}}), "internal"),
        (asked(NOTIFICATION), answered(RESULT), "an answer to a notification"),
        (asked(NOTIFICATION), answered(REFUSED), "an answer to a notification"),
        (asked({**REQUEST, "id": None}, "query"), answered(REFUSED), "a notification"),
        (asked(b"{"), answered(RESULT), "cannot be read"),
        (asked(b"{"), SILENCE, "an empty success"),
        (asked(b'{"a":1,"a":1}', "query"), answered(b"OK", 200, "text/plain"), "cannot be read"),
        (asked({**REQUEST, "method": 5}), answered(RESULT), "no request"),
        (asked({**REQUEST, "host": "h"}), answered(RESULT), "no request"),
        (asked({**REQUEST, "params": "x"}, "query"), answered(RESULT), "no request"),
        (asked({"host": "h"}, "query"), answered({"done": True}), "names no action"),
        (asked(CALL, "query"), answered({"statusCode": 500}), "internal"),
        (asked([REQUEST]), answered(RESULT), "single request"),
        (asked([]), answered([]), "empty batch"),
        (asked([REQUEST]), answered([]), "filled array"),
        (asked([REQUEST, REQUEST]), answered([RESULT]), "in their order"),
        (asked([NOTIFICATION]), answered([RESULT]), "in their order"),
        (asked([NOTIFICATION, REQUEST]), SILENCE, "no answer"),
        (asked([REQUEST, {**REQUEST, "id": 8}]), answered([{**RESULT, "id": 8}, RESULT]), "order"),
        (asked([1, REQUEST]), answered([REFUSED]), "in their order"),
        (asked(REQUEST, "session"), answered(b"OK", 200, "text/plain"), "plain text"),
        (asked(REQUEST, "message"), answered(b": x", 200, "text/event-stream"), "a stream"),
    ],
)  # fmt: skip
def test_a_wrong_answer_is_noticed(case: Case, answer: Answer, complaint: str) -> None:
    assert any(complaint in said for said in complaints(case, answer)), complaints(case, answer)


@pytest.mark.parametrize(
    ("case", "answer"),
    [
        (asked(REQUEST), answered(RESULT)),
        (asked(REQUEST), answered(ERROR)),
        (asked(REQUEST), answered(REFUSED, 415)),
        (asked({**REQUEST, "id": 1e2}), answered({**RESULT, "id": 100})),
        (asked(NOTIFICATION), SILENCE),
        (asked(NOTIFICATION, "session"), answered(REFUSED, 404)),
        (asked({**REQUEST, "id": None}, "query"), SILENCE),
        (asked({**REQUEST, "id": [1]}, "query"), answered({**RESULT, "id": [1]})),
        (asked({**REQUEST, "host": "h"}, "session"), answered(RESULT)),
        (asked(b"{"), answered(REFUSED)),
        (asked(b"{", "query"), answered(STATUS, 400)),
        (asked(5, "query"), answered(STATUS, 400)),
        (asked(CALL, "query"), answered(b"OK", 200, "text/plain")),
        (asked(CALL, "query"), Answer(200, {}, b"")),
        (asked({"host": "h"}, "query"), answered(STATUS, 400)),
        (asked([]), answered(REFUSED)),
        (asked([NOTIFICATION]), SILENCE),
        (asked([1, REQUEST, NOTIFICATION]), answered([REFUSED, RESULT])),
        (asked([RESULT, REQUEST]), answered([RESULT])),  # nobody answers a response
        (asked([{**REQUEST, "id": True}]), answered([REFUSED])),
    ],
)
def test_a_right_answer_is_let_be(case: Case, answer: Answer) -> None:
    assert complaints(case, answer) == []


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (b'{"a": [1, null]}', Said),
        (b"", Unreadable),
        (b"\xef\xbb\xbf1", Unreadable),
        (b'"\xed\xa0\x80"', Unreadable),
        (b"NaN", Unreadable),
        (b'{"a":1,"\\u0061":2}', Unreadable),
        (b"1e400", Doubtful),
        (b"9" * 5000, Doubtful),
        (b'"\\ud800"', Doubtful),
        (b"[" * 100 + b"]" * 100, Doubtful),
        (b"[" * 100_000 + b"]" * 100_000, Doubtful),
        (b"[" * 100_000, Doubtful),
    ],
)
def test_a_text_is_understood_without_the_code_under_test(text: bytes, kind: type) -> None:
    assert isinstance(understand(text), kind)
