"""What is wrong with an answer. Pure; everything here holds for any request at all.

Never a 500, nor an internal error in a smaller place; never an answer that does not parse; never an
answer to a notification; never a result for what cannot be read in one way only; nothing about the
inside.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.fuzz import oracle
from tests.fuzz.cases import MCP, PORTAL, Case
from tests.fuzz.oracle import Said, Unreadable

INSIDE = re.compile(
    rb'Traceback|File \\?"|/site-packages|/tests/|/gateway/|\.py\b|127\.0\.0\.1:\d|postgres(ql)?:'
    rb"|psycopg|msgspec|toolgate-fuzz"
)
REFUSED = {401, 403, 404, 405, 406, 413, 415, 503}  # of the HTTP request, whatever it holds
STATUS_MEMBERS = {"statusCode", "code", "message", "description", "severity"}


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: Mapping[str, str]  # lower-case names
    body: bytes

    @property
    def media_type(self) -> str:
        return self.headers.get("content-type", "").partition(";")[0].strip()


def complaints(case: Case, answer: Answer) -> list[str]:
    """What is wrong with it, in words; empty when nothing is."""
    return list(dict.fromkeys(_complaints(case, answer)))


def _complaints(case: Case, answer: Answer) -> Iterator[str]:
    if not (200 <= answer.status < 500 or answer.status == 503):
        yield f"HTTP {answer.status}"
    if answer.status in {202, 204} and answer.body:
        yield f"{answer.status} with a body"
    if found := INSIDE.search(answer.body):
        yield f"tells of the inside: {found[0]!r}"
    if not answer.body:
        yield from _silence(case, answer)
        return
    if answer.media_type == "text/plain":
        if case.front in MCP:
            yield "plain text"
        yield from _judge_answer(case, answer, None)
        return
    if answer.media_type == "text/event-stream":
        if case.front in {"session", "stateless"}:
            return  # listened to elsewhere
        yield "a stream"
    if answer.media_type != "application/json":
        yield f"a body of type {answer.media_type!r}"
    try:
        value = oracle.strictly(answer.body)
    except (ValueError, RecursionError) as error:
        yield f"no JSON: {error}"
        return
    yield from _judge_answer(case, answer, value)


def _silence(case: Case, answer: Answer) -> Iterator[str]:
    """An empty body is right for notifications and responses, and for an action without result."""
    said = _message_of(case)
    if not isinstance(said, Said) or answer.status >= 400:
        if answer.status < 300 and isinstance(said, Unreadable):
            yield "an empty success for what cannot be read"
        if answer.status >= 400:
            yield f"HTTP {answer.status} without a word"
        return
    value = said.value
    if oracle.is_legacy(value) and case.front not in MCP:
        return  # void
    for one in value if isinstance(value, list) else [value]:
        cancellable = case.front in {"session", "message"}
        if _expects_answer(case, one) and not cancellable:
            yield "no answer to a request"
            return


def _judge_answer(case: Case, answer: Answer, value: Any) -> Iterator[str]:
    yield from _internal(value)
    said, ok = _message_of(case), answer.status < 400
    if isinstance(said, Unreadable):
        if ok and not _is_error(value):
            yield "a success for what cannot be read"
        if not _is_error(value) and not (_is_status(value) and case.front not in MCP):
            yield "neither an error nor a Status"
        return
    if not isinstance(said, Said) or answer.status in REFUSED:
        if isinstance(value, dict) and "result" in value and not ok:
            yield "a result in a refusal"
        return
    request = said.value
    if isinstance(request, list):
        yield from _batch(case, request, value)
    elif oracle.is_legacy(request) and case.front not in MCP:
        yield from _legacy(case, answer, request, value)
    else:
        yield from _single(case, answer, request, value)


def _legacy(case: Case, answer: Answer, request: Any, value: Any) -> Iterator[str]:
    """Neither the result of an action nor that of a failure has a shape; a refusal has one."""
    called = all(isinstance(request.get(name), str) for name in oracle.TUPLE)
    if called and "jsonrpc" not in request:
        return
    if not _is_error(value) and not _is_status(value):
        yield "a success for a payload that names no action"


def _single(case: Case, answer: Answer, request: Any, value: Any) -> Iterator[str]:
    if _is_status(value) and not isinstance(request, dict) and _strict(case):
        return
    yield from envelope(value)
    if not isinstance(value, dict):
        return
    if oracle.is_notification(request, _strict(case)) and (
        answer.status < 400 or "result" in value
    ):
        yield "an answer to a notification"
    if "result" in value and not oracle.is_request(request, _strict(case)):
        yield "a result for what is no request"
    id_ = _members(request).get("id")
    if not oracle.same(value.get("id"), id_) and ("result" in value or value.get("id") is not None):
        yield f"the id {value.get('id')!r} is not the request's"


def _batch(case: Case, batch: Sequence[Any], value: Any) -> Iterator[str]:
    if isinstance(value, dict):  # refused as a whole
        yield from envelope(value)
        if "result" in value or value.get("id") is not None:
            yield "a batch answered as a single request"
        return
    if not batch:
        yield "an array for an empty batch"
    if not isinstance(value, list) or not value:
        yield "a batch answered with neither an object nor a filled array"
        return
    for one in value:
        yield from envelope(one)
    if not _in_order(batch, value, lambda member: _expects_answer(case, member)):
        yield "the answers are not those to the members, in their order"


def _in_order(
    batch: Sequence[Any], answers: Sequence[Any], expected: Callable[[Any], bool | None]
) -> bool:
    """Whether the answers match the members one by one, where some members need not have one."""
    wanted = [expected(member) for member in batch]
    places = {0}  # how many members may be dealt with by now
    for answer in answers:
        places = set(_after(batch, wanted, places, answer))
    return any(True not in wanted[place:] for place in places)


def _after(
    batch: Sequence[Any], expected: Sequence[bool | None], places: set[int], answer: Any
) -> Iterator[int]:
    """The places behind each member that `answer` may belong to."""
    within_reach = False
    for at in range(min(places, default=len(batch)), len(batch)):
        within_reach = within_reach or at in places
        if within_reach and expected[at] is not False and _matches(batch[at], answer):
            yield at + 1
        within_reach = within_reach and not expected[at]


def _matches(member: Any, answer: Any) -> bool:
    id_ = _members(answer).get("id")
    right = oracle.same(_members(member).get("id"), id_)
    return right or (id_ is None and "error" in _members(answer))


def _expects_answer(case: Case, member: Any) -> bool | None:
    """Whether a message must have an answer (True), must not (False), or may."""
    if oracle.is_notification(member, _strict(case)):
        return False
    if oracle.is_request(member, strict=True):
        return None if _may_be_cancelled(case, member) else True
    return None if "id" in _members(member) else True


def _may_be_cancelled(case: Case, member: Any) -> bool:
    """Whether another message of the same session, perhaps of the same batch, may name its id in
    notifications/cancelled: then it needs no answer. Most ids are drawn from far more numbers."""
    id_ = _members(member).get("id")
    return case.front == "session" and not (isinstance(id_, int) and id_ > 10_000)


def envelope(value: Any) -> Iterator[str]:
    """What is wrong with a JSON-RPC answer by itself."""
    if not isinstance(value, dict) or value.get("jsonrpc") != "2.0":
        yield 'no object with "jsonrpc": "2.0"'
        return
    if ("result" in value) == ("error" in value):
        yield "not exactly one of result and error"
    if "id" not in value:
        yield "no id"
    if "error" in value and not _is_error(value):
        yield "an error without a code and a message"
    yield from _internal(value)


def _internal(value: Any) -> Iterator[str]:
    error = _members(_members(value).get("error"))
    if error.get("code") in {-32603, 500} or _members(value).get("statusCode") == 500:
        yield "an internal error"


def _is_error(value: Any) -> bool:
    error = _members(value).get("error")
    if not isinstance(error, dict) or value.get("jsonrpc") != "2.0":
        return False
    return type(error.get("code")) is int and isinstance(error.get("message"), str)


def _is_status(value: Any) -> bool:
    return isinstance(value, dict) and value.keys() >= STATUS_MEMBERS


def _message_of(case: Case) -> Any:
    said = None if case.text is None else oracle.understand(case.text)
    if case.front not in MCP or not isinstance(said, Said):
        return said
    value = said.value
    return Said([_plain(one) for one in value] if isinstance(value, list) else _plain(value))


def _plain(message: Any) -> Any:
    """Without the members of the other dialect, which mean nothing to MCP."""
    if not isinstance(message, dict):
        return message
    return {name: of for name, of in message.items() if name not in oracle.TUPLE}


def _strict(case: Case) -> bool:
    return case.front in PORTAL and case.gateway != "spec"


def _members(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
