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


def case_of(body: Any, front: str = "rpc", gateway: str = "strict") -> Case:
    text = body if isinstance(body, bytes) else json.dumps(body).encode()
    return Case(0, 0, gateway, front, b"POST", b"/", (), text, text)


def reply(body: Any, status: int = 200, media_type: str = "application/json") -> Answer:
    text = body if isinstance(body, bytes) else json.dumps(body).encode()
    return Answer(status, {"content-type": media_type}, text)


SILENCE = Answer(204, {}, b"")


@pytest.mark.parametrize(
    ("case", "answer", "complaint"),
    [
        (case_of(REQUEST), reply(ERROR, 500), "HTTP 500"),
        (case_of(REQUEST), reply(ERROR, 502), "HTTP 502"),
        (case_of(REQUEST), Answer(400, {}, b""), "without a word"),
        (case_of(REQUEST), SILENCE, "no answer to a request"),
        (case_of(REQUEST), reply(RESULT, 204), "204 with a body"),
        (case_of(REQUEST), reply(RESULT, media_type=""), "a body of type ''"),
        (case_of(REQUEST), reply(b"{"), "no JSON"),
        (case_of(REQUEST), reply(b'{"jsonrpc":"2.0","id":7,"result":NaN}'), "NaN is no JSON"),
        (case_of(REQUEST), reply(b'{"id":7,"id":7}'), "twice"),
        (case_of(REQUEST), reply({"id": 7, "result": 1}), "no object with"),
        (case_of(REQUEST), reply({**RESULT, **ERROR}), "exactly one"),
        (case_of(REQUEST), reply({"jsonrpc": "2.0", "result": 1}), "no id"),
        (case_of(REQUEST), reply({**ERROR, "error": "no"}), "without a code"),
        (case_of(REQUEST), reply({**RESULT, "id": 8}), "the id 8"),
        (case_of({**REQUEST, "id": 1}), reply({**RESULT, "id": True}), "the id True"),
        (case_of(REQUEST), reply({**RESULT, "result": "Traceback (most"}), "inside"),
        (case_of(REQUEST), reply({**RESULT, "result": "127.0.0.1:5432"}), "inside"),
        (case_of(REQUEST), reply({**ERROR, "error": {"code": -32603, "message": ""}}), "internal"),
        (case_of(NOTIFICATION), reply(RESULT), "an answer to a notification"),
        (case_of(NOTIFICATION), reply(REFUSED), "an answer to a notification"),
        (case_of({**REQUEST, "id": None}, "query"), reply(REFUSED), "a notification"),
        (case_of(b"{"), reply(RESULT), "cannot be read"),
        (case_of(b"{"), SILENCE, "an empty success"),
        (case_of(b'{"a":1,"a":1}', "query"), reply(b"OK", 200, "text/plain"), "cannot be read"),
        (case_of({**REQUEST, "method": 5}), reply(RESULT), "no request"),
        (case_of({**REQUEST, "host": "h"}), reply(RESULT), "no request"),
        (case_of({**REQUEST, "params": "x"}, "query"), reply(RESULT), "no request"),
        (case_of({"host": "h"}, "query"), reply({"done": True}), "names no action"),
        (case_of(CALL, "query"), reply({"statusCode": 500}), "internal"),
        (case_of([REQUEST]), reply(RESULT), "single request"),
        (case_of([]), reply([]), "empty batch"),
        (case_of([REQUEST]), reply([]), "filled array"),
        (case_of([REQUEST, REQUEST]), reply([RESULT]), "in their order"),
        (case_of([NOTIFICATION]), reply([RESULT]), "in their order"),
        (case_of([NOTIFICATION, REQUEST]), SILENCE, "no answer"),
        (case_of([REQUEST, {**REQUEST, "id": 8}]), reply([{**RESULT, "id": 8}, RESULT]), "order"),
        (case_of([1, REQUEST]), reply([REFUSED]), "in their order"),
        (case_of(REQUEST, "session"), reply(b"OK", 200, "text/plain"), "plain text"),
        (case_of(REQUEST, "message"), reply(b": x", 200, "text/event-stream"), "a stream"),
    ],
)  # fmt: skip
def test_a_wrong_answer_is_noticed(case: Case, answer: Answer, complaint: str) -> None:
    assert any(complaint in said for said in complaints(case, answer)), complaints(case, answer)


@pytest.mark.parametrize(
    ("case", "answer"),
    [
        (case_of(REQUEST), reply(RESULT)),
        (case_of(REQUEST), reply(ERROR)),
        (case_of(REQUEST), reply(REFUSED, 415)),
        (case_of({**REQUEST, "id": 1e2}), reply({**RESULT, "id": 100})),
        (case_of(NOTIFICATION), SILENCE),
        (case_of(NOTIFICATION, "session"), reply(REFUSED, 404)),
        (case_of({**REQUEST, "id": None}, "query"), SILENCE),
        (case_of({**REQUEST, "id": [1]}, "query"), reply({**RESULT, "id": [1]})),
        (case_of({**REQUEST, "host": "h"}, "session"), reply(RESULT)),
        (case_of(b"{"), reply(REFUSED)),
        (case_of(b"{", "query"), reply(STATUS, 400)),
        (case_of(5, "query"), reply(STATUS, 400)),
        (case_of(CALL, "query"), reply(b"OK", 200, "text/plain")),
        (case_of(CALL, "query"), Answer(200, {}, b"")),
        (case_of({"host": "h"}, "query"), reply(STATUS, 400)),
        (case_of([]), reply(REFUSED)),
        (case_of([NOTIFICATION]), SILENCE),
        (case_of([1, REQUEST, NOTIFICATION]), reply([REFUSED, RESULT])),
        (case_of([RESULT, REQUEST]), reply([RESULT])),  # nobody answers a response
        (case_of([{**REQUEST, "id": True}]), reply([REFUSED])),
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
