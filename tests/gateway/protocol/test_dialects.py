"""Bodies in two dialects, and the answers in each."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET, Raw

from gateway.protocol.dialects import (
    JSON,
    TEXT,
    Answer,
    Legacy,
    Payload,
    Rules,
    _plain_legacy,
    _single,
    legacy_answer,
    read,
    refusal,
    reply,
    rpc_answer,
)
from schemas.errors import (
    DuplicateKeys,
    Fault,
    Forbidden,
    InternalError,
    InvalidParams,
    InvalidRequest,
    MethodNotAllowed,
    MethodNotFound,
    ParseError,
    PayloadTooLarge,
    ToolFailed,
    Unavailable,
)
from schemas.hybrid import (
    HANDLER_NOT_FOUND,
    MISSING_AUTH_TOKEN,
    VALIDATOR_SCHEMA,
    ServiceFailed,
    StatusFault,
    status_fault,
    status_members,
)
from schemas.jsonrpc import Invalid, Request, Response, decode_strict
from schemas.mcp.revisions import JSON_RPC, PORTAL

STRICT = Rules(PORTAL, spec=False)
RAW = Rules(PORTAL, spec=False, wrapped=False)
SPEC = Rules(PORTAL, spec=True)
SPEC_RAW = Rules(PORTAL, spec=True, wrapped=False)
RPC = Rules(JSON_RPC, spec=True)
ALL = [STRICT, RAW, SPEC, RPC]
ID = "lightapi.net/rule/deleteRule/0.1.0"
LEGACY = {"host": "lightapi.net", "service": "rule", "action": "deleteRule", "version": "0.1.0"}
STATUS = {"statusCode": 401, "code": "ERR10001", "message": "AUTH_TOKEN_EXPIRED"}

both = pytest.mark.parametrize("rules", [STRICT, SPEC], ids=["strict", "spec"])
every = pytest.mark.parametrize("rules", ALL, ids=["strict", "raw", "spec", "rpc"])


def body(value):
    return value if isinstance(value, bytes) else json.dumps(value).encode()


def read_value(value, rules, limit=100):
    return read(body(value), rules, limit)


def message(**members):
    return {"jsonrpc": "2.0", **members}


@every
def test_a_request_of_json_rpc(rules):
    assert read_value(message(method=ID, params={"a": 1}, id=7), rules) == Request(
        "2.0", ID, {"a": 1}, 7
    )
    extra = read_value(message(method=ID, id=7, title="ignored"), rules)
    assert extra == Request("2.0", ID, UNSET, 7)


@every
@pytest.mark.parametrize("data", [{}, {"a": [1, None]}, None, "text", 5, [1]])
def test_a_legacy_payload_becomes_a_request_of_its_action(rules, data):
    sent = {**LEGACY, "data": data, "title": "x", "success": "/app", "rest": True}
    assert read_value(sent, rules) == Legacy(Request("2.0", ID, data, 0))
    assert read_value(LEGACY, rules) == Legacy(Request("2.0", ID, UNSET, 0))


@both
@pytest.mark.parametrize("version", [2.0, 2, "1.0", "2", None, ["2.0"], True])
def test_only_the_text_2_0_marks_json_rpc(rules, version):
    """For light-hybrid-4j anything else is a legacy payload, here one that names no action."""
    sent = {"jsonrpc": version, "method": ID, "id": 3}
    if rules.spec:
        refused = read_value(sent, rules)
        assert (refused.id, refused.fault.code) == (3, -32600)
    else:
        assert read_value(sent, rules) == Legacy(Request("2.0", "", UNSET, 0))


@both
def test_an_object_of_neither_dialect(rules):
    if rules.spec:
        assert isinstance(read_value({}, rules), Invalid)
    else:
        assert read_value({}, rules) == Legacy(Request("2.0", "", UNSET, 0))


@every
@pytest.mark.parametrize("part", LEGACY)
@pytest.mark.parametrize("version", ["2.0", "1.0", 2])
def test_a_body_in_both_dialects_is_refused(rules, part, version):
    mixed = {"jsonrpc": version, "method": ID, "id": "x", part: None}
    refused = read_value(mixed, rules)
    assert (refused.id, refused.fault.code) == ("x", -32600)
    assert "host, service, action, version" in refused.fault.message
    [in_batch] = read_value([mixed], rules)
    assert in_batch.id == "x"


@every
@pytest.mark.parametrize("id_", [{}, [1], None])
def test_a_refused_body_gives_back_an_id_that_anybody_can_read(rules, id_):
    assert read_value({"jsonrpc": "2.0", "method": ID, "id": id_, **LEGACY}, rules).id is None


@every
@pytest.mark.parametrize(
    "text",
    [
        b'{"host":"a","service":"b","action":"c","version":"1","data":{"x":1,"x":2}}',
        b'{"jsonrpc":"2.0","method":"a","method":"b","id":1}',
        b'[{"jsonrpc":"2.0","method":"a","id":1,"\\u0069d":2}]',
    ],
)
def test_a_member_named_twice_is_refused(rules, text):
    with pytest.raises(DuplicateKeys):
        read_value(text, rules)


@every
@pytest.mark.parametrize("value", [5, "text", None, True, 1.5])
def test_a_scalar_is_no_request(rules, value):
    with pytest.raises(InvalidRequest, match="A request is an object, not"):
        read_value(value, rules)


@every
@pytest.mark.parametrize("text", [b"{not json", b'{"a":1e400}', b'{"a":"\xff"}', b"[" * 10_000])
def test_text_that_is_no_json_is_a_parse_error(rules, text):
    with pytest.raises(ParseError):
        read_value(text, rules)


@every
def test_the_members_of_a_batch_are_json_rpc_only(rules):
    request, legacy, number, array = read_value([message(method=ID, id=1), LEGACY, 5, []], rules)
    assert request == Request("2.0", ID, UNSET, 1)
    assert all(one.fault.code == -32600 for one in (legacy, number, array))


@every
@pytest.mark.parametrize("length", [0, 1, 3])
def test_a_batch_has_at_most_so_many_members(rules, length):
    batch = [message(method=ID, id=number) for number in range(length)]
    assert len(read_value(batch, rules, limit=3)) == length
    for too_many in ([*batch, 1, 2, 3, 4], [*batch, *[message(method=ID)] * 4]):
        with pytest.raises(InvalidRequest) as caught:
            read_value(too_many, rules, limit=3)
        assert caught.value.data == {"limit": 3}


@pytest.mark.parametrize("id_", [0, -1, 1.5, "", "b0f3", 2**70])
def test_an_id_is_echoed(id_):
    for rules in ALL:
        assert read_value(message(method=ID, id=id_), rules).id == id_


@pytest.mark.parametrize("id_", [{"a": 1}, [1], True, False])
def test_an_odd_id_is_echoed_strictly_and_refused_by_the_specification(id_):
    assert read_value(message(method=ID, id=id_), STRICT) == Request("2.0", ID, UNSET, id_)
    refused = read_value(message(method=ID, id=id_), SPEC)
    assert (refused.id, refused.fault.code) == (None, -32600)


def test_an_id_of_null_makes_a_notification_strictly_and_a_request_by_the_specification():
    for extra in ({}, {"more": 1}):
        sent = message(method=ID, id=None, **extra)
        for alone, expected in ((STRICT, UNSET), (SPEC, None)):
            assert read_value(sent, alone).id is expected
            assert read_value([sent], alone)[0].id is expected


@both
@pytest.mark.parametrize("params", ["x", 5, True])
def test_params_are_no_scalar(rules, params):
    """Where light-hybrid-4j takes them for null."""
    refused = read_value(message(method=ID, params=params, id=1), rules)
    assert isinstance(refused, Invalid)
    assert refused.fault.code == (-32600 if rules.spec else -32602)


def test_params_of_null_are_left_to_the_schema_strictly():
    assert read_value(message(method=ID, params=None, id=1), STRICT).params is None
    assert read_value(message(method=ID, params=None, id=1), SPEC).params is UNSET


@both
@pytest.mark.parametrize("method", [5, None, {}, ["a"]])
def test_a_method_is_text(rules, method):
    refused = read_value(message(method=method, id=3), rules)
    assert (refused.id, refused.fault.code) == (3, -32600)
    assert '"method"' in refused.fault.message


def test_a_request_without_a_method_gets_the_light_hybrid_4j_error():
    refused = read_value(message(id=42), STRICT)
    assert (refused.id, refused.fault.code) == (42, -32600)
    assert refused.fault.data["code"] == "ERR11200"
    assert isinstance(read_value(message(id=42, result=1), SPEC), Response)
    assert isinstance(read_value(message(id=42, result=1), STRICT), Invalid)


@both
def test_a_path_without_the_legacy_dialect_asks_for_json_rpc(rules):
    off = Rules(PORTAL, rules.spec, legacy=False)
    with pytest.raises(StatusFault, match="send JSON-RPC") as caught:
        read_value(LEGACY, off)
    assert caught.value.data["code"] == "ERR18410"
    assert '{"jsonrpc":"2.0","method":' in caught.value.message
    assert isinstance(read_value(message(method=ID, id=1), off), Request)


@pytest.mark.parametrize(
    ("outcome", "answer"),
    [
        (Payload(b"OK", is_text=True), Answer(200, b"OK", TEXT)),
        (Payload(b'{"a": 1.0}'), Answer(200, b'{"a": 1.0}', JSON)),
        (Payload(b"", is_text=True), Answer(200, b"", TEXT)),
        (Payload(None), Answer(200, b"", JSON)),
        (ServiceFailed(400, STATUS), Answer(400, body(STATUS).replace(b" ", b""), JSON)),
        (ServiceFailed(503, "Try later"), Answer(503, b"Try later", TEXT)),
    ],
)
def test_a_legacy_client_gets_the_outcome_of_the_action(outcome, answer):
    for rules in ALL:
        assert legacy_answer(outcome, rules) == answer


def test_a_legacy_client_may_get_an_object_for_nothing():
    rules = Rules(PORTAL, spec=False, void_body=b"{}")
    assert legacy_answer(Payload(None), rules) == Answer(200, b"{}", JSON)


FAULTS = [
    (ParseError("p"), "ERR10010", 400, "The request cannot be read: p"),
    (InvalidRequest("i"), "ERR10010", 400, "The request cannot be read: i"),
    (DuplicateKeys("d"), "ERR10010", 400, "The request cannot be read: d"),
    (PayloadTooLarge("too much {}"), "ERR18413", 413, "too much {}"),
    (Forbidden("no"), "ERR18403", 403, "no"),
    (MethodNotAllowed("Request method PUT", "GET"), "ERR10008", 405, "Request method PUT"),
    (MethodNotFound("none"), "ERR11200", 400, "none"),
    (InvalidParams("q"), "ERR11004", 400, "Schema Validation Error - q"),
    (Unavailable("later"), "ERR18503", 503, "later"),
    (InternalError("Internal error"), "ERR10010", 500, "Unexpected runtime exception"),
    (ToolFailed("t"), "ERR10010", 500, "Unexpected runtime exception"),
    (Fault("f"), "ERR10010", 500, "Unexpected runtime exception"),
]


@pytest.mark.parametrize(("fault", "code", "status", "text"), FAULTS, ids=lambda x: str(x)[:12])
def test_every_fault_has_a_status(fault, code, status, text):
    answer = legacy_answer(fault, STRICT)
    told = json.loads(answer.body)
    assert (answer.status, answer.media_type, told["statusCode"]) == (status, JSON, status)
    assert (told["code"], told["description"], told["severity"]) == (code, text, "ERROR")
    assert refusal(b"{}", fault, STRICT, "r-1") == answer


MISSING = StatusFault(MISSING_AUTH_TOKEN)
UNKNOWN = StatusFault(HANDLER_NOT_FOUND, ID)
VIOLATION = StatusFault(VALIDATOR_SCHEMA, "$: required property 'a' not found")


@pytest.mark.parametrize(
    ("fault", "strict", "spec", "code"),
    [
        (MISSING, 401, 401, 401),
        (UNKNOWN, 400, 200, -32601),
        (VIOLATION, 400, 200, -32602),
        (InvalidRequest("i"), 400, 200, -32600),
        (InvalidParams("p"), 400, 200, -32602),
        (Unavailable("later"), 503, 200, 1503),
        (InternalError("Internal error"), 500, 200, -32603),
    ],
    ids=lambda x: str(x)[:12],
)
def test_a_json_rpc_client_gets_the_status_in_the_envelope(fault, strict, spec, code):
    for rules, status in ((STRICT, strict), (SPEC, spec)):
        answer = rpc_answer(7, fault, rules, "r-1")
        told = json.loads(answer.body)
        assert (answer.status, told["id"], told["error"]["code"]) == (status, 7, code)
        assert told["error"]["data"] == status_members(status_fault(fault).as_status)
        assert told["error"]["message"] == fault.message


@pytest.mark.parametrize("fault", [MISSING, UNKNOWN, VIOLATION], ids=str)
def test_unwrapped_errors_are_the_status_itself(fault):
    for rules in (RAW, SPEC_RAW):
        assert rpc_answer(7, fault, rules, "r-1") == legacy_answer(fault, rules)


@pytest.mark.parametrize("rules", [RAW, SPEC_RAW], ids=["strict", "spec"])
def test_failures_wrapped_by_light_hybrid_4j_are_always_wrapped(rules):
    """The failure of a handler, and params by position."""
    failed = rpc_answer(7, ServiceFailed(400, STATUS), rules, "r-1")
    assert failed.status == (200 if rules.spec else 400)
    assert json.loads(failed.body) == {
        "jsonrpc": "2.0",
        "id": 7,
        "error": {"code": 401, "message": "AUTH_TOKEN_EXPIRED", "data": STATUS},
    }
    assert b'"code":-32602' in rpc_answer(7, InvalidParams("by name"), rules, "r-1").body


def test_rpc_errors_name_the_request():
    told = json.loads(rpc_answer(7, UNKNOWN, RPC, "r-1").body)["error"]["data"]
    assert (told["code"], told["requestId"]) == ("ERR11200", "r-1")
    told = json.loads(rpc_answer(7, ServiceFailed(503, "text"), RPC, "r-1").body)["error"]
    assert told == {"code": 503, "message": "text", "data": {"requestId": "r-1"}}


@pytest.mark.parametrize("rules", [STRICT, RAW, SPEC], ids=["strict", "raw", "spec"])
def test_the_text_of_a_failed_handler_comes_without_data(rules):
    told = json.loads(rpc_answer(7, ServiceFailed(503, "Try later"), rules, "r-1").body)
    assert told["error"] == {"code": 503, "message": "Try later"}


@every
def test_a_member_of_a_batch_is_always_in_an_envelope(rules):
    for fault in (UNKNOWN, ServiceFailed(400, STATUS), InvalidParams("p")):
        assert reply(7, fault, rules, "r-1").id == 7


@every
def test_a_result_is_carried_verbatim(rules):
    answer = rpc_answer("x", Raw(b'{"n": 9007199254740993}'), rules, "r-1")
    text = b"".join(answer.body) if isinstance(answer.body, list) else answer.body
    assert text == b'{"jsonrpc":"2.0","id":"x","result":{"n": 9007199254740993}}'
    assert (answer.status, answer.media_type) == (200, JSON)


@pytest.mark.parametrize(
    ("text", "fault", "code"),
    [
        (b"{", ParseError("p"), None),
        (b'{"jsonrpc":"2.0"', ParseError("p"), None),
        (b"[1", ParseError("p"), -32700),
        (b'{"host":"a","host":"b"}', DuplicateKeys("d"), None),
        (b"5", InvalidRequest("i"), None),
        (b'{"jsonrpc":"2.0","id":1,"id":2}', DuplicateKeys("d"), -32600),
        (b' [{"a":1,"a":2}]', DuplicateKeys("d"), -32600),
        (b"\n[1,2]", InvalidRequest("too many", {"limit": 1}), -32600),
    ],
)
def test_a_refused_body_is_answered_in_its_apparent_dialect(text, fault, code):
    strict = json.loads(refusal(text, fault, STRICT, "r-1").body)
    assert strict.get("error", {}).get("code") == code
    assert (strict.get("code") is None) is (code is not None)
    for rules in (SPEC, RPC):
        told = json.loads(refusal(text, fault, rules, "r-1").body)
        assert (told["id"], told["error"]["code"]) == (None, fault.code)
    assert json.loads(refusal(text, fault, RAW, "r-1").body)["code"] == "ERR10010"


PARTS = st.sampled_from(["a", "a/b", "", 1, None, "é", 'q"'])
DATA = st.sampled_from(['{"a":1}', "null", '"jsonrpc"', "1e400", '{"a":1,"a":2}', "[]", "x"])
MEMBERS = st.sampled_from(
    ['"jsonrpc":"2.0"', '"\\u006asonrpc":"2.0"', '"extra":1', '"host":"b"', '"method":"m"', ""]
)


@given(st.lists(PARTS, min_size=4, max_size=4), DATA, MEMBERS, st.sampled_from([STRICT, SPEC, RPC]))
def test_a_legacy_payload_is_read_the_same_in_either_way(
    parts: list[object], data: str, member: str, rules: Rules
) -> None:
    named = dict(zip(("host", "service", "action", "version"), parts, strict=True))
    whole = [json.dumps(named)[1:-1], f'"data":{data}', *([member] if member else [])]
    body = f"{{{', '.join(whole)}}}".encode()

    quick = _plain_legacy(body)
    assert quick is None or quick == _single(decode_strict(body), rules) == read(body, rules, 10)
