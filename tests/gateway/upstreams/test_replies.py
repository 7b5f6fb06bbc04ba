"""What a hybrid service answered, read."""

import codecs
import json

import pytest
from msgspec import UNSET
from msgspec.json import encode

from gateway.upstreams.http.client import HttpResponse
from gateway.upstreams.hybrid.upstream import read_batch, read_legacy, read_single
from schemas.tool import ToolResult
from tests.gateway.upstreams.hybrid_calls import STATUS, failure, text, value

OURS = "HTTP 502 ERR18502 UPSTREAM_FAILED: "
NO_RESPONSE = OURS + "rules did not answer with a JSON-RPC response"
OTHER_CALL = OURS + "rules answered with the id of another call"
NO_ARRAY = OURS + "rules did not answer a batch with an array of JSON-RPC responses"
DOUBLED = OURS + "rules answered this call more than once"
MISSING = OURS + "rules answered every call of a batch but this one"


def response(body, status=200, media_type=None, reason="Reason"):
    headers = {} if media_type is None else {"Content-Type": media_type}
    return HttpResponse(status, reason, headers, body)


def envelope(id_=7, **members):
    return json.dumps({"jsonrpc": "2.0", "id": id_, **members}).encode()


def single(body, status=200, media_type=None):
    result = read_single(response(body, status, media_type), 7, "rules")
    assert encode(result)  # whatever came, it can be sent on
    return result


def legacy(body, status=200, media_type=None):
    result = read_legacy(response(body, status, media_type), "rules", "r-1")
    assert encode(result)
    return result


@pytest.mark.parametrize("status", [200, 201, 204])
@pytest.mark.parametrize("body", [b"", b" \r\n"])
def test_an_answer_that_says_nothing_is_nothing(status, body):
    assert single(body, status) == ToolResult(())
    assert legacy(b"", status) == ToolResult(())


@pytest.mark.parametrize(
    ("raw", "gives"),
    [
        ('"OK"', "OK"),
        ('""', ""),
        ('"\\u00e9\\n"', "é\n"),
        ("null", None),
        ('{"a": 1.50}', {"a": 1.5}),
        ("[]", []),
        ("0", 0),
        ("false", False),
        ("9007199254740993", 9007199254740993),
        (' { "a" : 1 } ', {"a": 1}),
    ],
)
def test_a_result_is_structure_but_for_text_and_nothing(raw, gives):
    whole = b'{"jsonrpc":"2.0","result":%b,"id":7}' % raw.encode()
    for result in (single(whole), legacy(raw.encode())):
        assert value(result) == gives
        assert (result.structured_content is UNSET) == (gives is None or isinstance(gives, str))


def test_a_result_is_carried_and_not_rebuilt():
    assert bytes(single(envelope().replace(b"}", b', "result": {"n": 1.00}}')).structured_content) \
        == b'{"n": 1.00}'  # fmt: skip


@pytest.mark.parametrize(
    ("body", "media_type", "shown"),
    [
        (b"OK", None, "OK"),
        (b"<p>Hi</p>", "text/plain", "<p>Hi</p>"),
        ("é".encode("latin-1"), "text/plain; charset=iso-8859-1", "é"),
        (b"\xff", None, "\ufffd"),
    ],
)
def test_a_legacy_answer_that_is_no_json_is_text(body, media_type, shown):
    assert value(legacy(body, 200, media_type)) == shown


@pytest.mark.parametrize(
    ("body", "media_type"),
    [
        (b"{not json", "application/json"),
        (b"{not json", "application/problem+json"),
        (b"<p>Hi</p>", "text/html"),
        (b"<p/>", "application/xhtml+xml"),
    ],
)
def test_a_page_or_half_an_answer_is_no_result(body, media_type):
    shown = f"{OURS}rules answered with {media_type}, and no result can be read in it"
    assert ours(legacy(body, 200, media_type)) == shown


def test_json_is_parsed_despite_its_content_type():
    assert value(legacy(b'{"a":1}', 200, "text/html")) == {"a": 1}
    assert value(legacy(b"", 200, "text/html")) is None


@pytest.mark.parametrize(
    ("body", "shown"),
    [
        (b"OK", NO_RESPONSE),
        (b"5", NO_RESPONSE),
        (b"[]", NO_RESPONSE),
        (b"<html>", NO_RESPONSE),
        (b'{"ruleId": 1}', NO_RESPONSE),
        (b'{"result": 1, "id": 7}', NO_RESPONSE),
        (b'{"jsonrpc": "1.0", "result": 1, "id": 7}', NO_RESPONSE),
        (envelope(), NO_RESPONSE),
        (envelope(result=1, error={"code": 1, "message": "m"}), NO_RESPONSE),
        (b'{"jsonrpc": "2.0", "id": 7, "result": "\xff"}', NO_RESPONSE),
        (b'{"jsonrpc": "2.0", "id": 7, "result": "\\ud800"}', NO_RESPONSE),
        (b'{"jsonrpc": "2.0", "id": 7, "result": ' + b"[" * 100_000, NO_RESPONSE),
        (b"[" + envelope(result=1) + b"]", NO_RESPONSE),
        (envelope(8, result=1), OTHER_CALL),
        (envelope("7", result=1), OTHER_CALL),
        (envelope(None, result=1), OTHER_CALL),
        (envelope(True, result=1), OTHER_CALL),
        (b'{"jsonrpc": "2.0", "result": 1}', OTHER_CALL),
        (envelope(8, error={"code": 1, "message": "m"}), OTHER_CALL),
        (
            envelope(error="no"),
            OURS + "rules answered with an error that is no JSON-RPC error object",
        ),
    ],
)
def test_an_answer_that_cannot_be_believed_fails(body, shown):
    assert ours(single(body)) == shown


def test_true_is_not_the_first_call():
    result = read_single(response(envelope(True, result=1)), 1, "rules")
    assert ours(result) == OTHER_CALL


@pytest.mark.parametrize(
    "body",
    [
        codecs.BOM_UTF8 + envelope(result=1),
        envelope(7.0, result=1),
        envelope(result=1, error=None),
        envelope(result=1, more=[]),
    ],
)
def test_an_answer_with_oddities_that_change_nothing_is_read(body):
    assert value(single(body)) == 1


@pytest.mark.parametrize("media_type", [None, "application/json", "text/plain"])
@pytest.mark.parametrize("read", [single, legacy])
def test_a_raw_status_is_the_body_of_the_failure(read, media_type):
    body = b'{"statusCode":400,"code":"ERR11004","message":"VALIDATOR_SCHEMA","description":"$: x"}'
    result = read(body, 400, media_type)
    assert text(result) == "HTTP 400 ERR11004 VALIDATOR_SCHEMA: $: x"
    assert bytes(result.structured_content) == b'{"status":400,"body":%b}' % body


@pytest.mark.parametrize(
    ("http", "error", "status", "shown"),
    [
        (400, {"code": 401, "message": "m", "data": STATUS}, 400, "HTTP 400 ERR10001"),
        (200, {"code": -32603, "message": "m", "data": STATUS}, 401, "HTTP 401 ERR10001"),
        (200, {"code": 404, "message": "m", "data": {"code": "E"}}, 404, "HTTP 404 E"),
        (200, {"code": 1, "message": "m", "data": {"code": "E"}}, 500, "HTTP 500 E"),
        (200, {"code": 1, "message": "m", "data": {"statusCode": 200}}, 500, "HTTP 500"),
        (503, {"data": {"statusCode": 404, "description": "d"}}, 503, "HTTP 503: d"),
    ],
)
def test_the_status_in_an_error_is_the_body_of_the_failure(http, error, status, shown):
    told, structure = failure(single(envelope(error=error), http))
    assert told.startswith(shown)
    assert structure == {"status": status, "body": error["data"]}


@pytest.mark.parametrize(
    ("http", "error", "status", "code", "message", "description", "metadata"),
    [
        (503, {"code": 503, "message": "down"}, 503, "503", "down", "down", None),
        (200, {"code": -32601, "message": "m"}, 500, "-32601", "m", "m", None),
        (200, {"code": 429, "message": "m"}, 429, "429", "m", "m", None),
        (404, {"code": -32601, "message": "m", "data": "why"}, 404, "-32601", "m", "why", None),
        (200, {"code": 1, "message": "m", "data": {"a": 1}}, 500, "1", "m", "m", {"a": 1}),
        (200, {"code": 1, "message": "m", "data": [1]}, 500, "1", "m", "m", {"data": [1]}),
        (200, {"code": "E", "message": None}, 500, "E", "The call failed", "The call failed", None),
    ],
)
def test_an_error_without_a_status_gets_a_status(
    http, error, status, code, message, description, metadata
):
    told, structure = failure(single(envelope(error=error), http))
    assert told == f"HTTP {status} {code} {message}: {description}"
    body = {"statusCode": status, "code": code, "message": message, "description": description}
    body |= {"severity": "ERROR"} | ({} if metadata is None else {"metadata": metadata})
    assert structure == {"status": status, "body": body}


def test_an_error_without_id_belongs_to_the_only_call():
    body = envelope(None, error={"code": -32700, "message": "Parse error"})
    assert failure(single(body, 400))[0].startswith("HTTP 400 -32700 Parse error")


@pytest.mark.parametrize("read", [single, legacy])
@pytest.mark.parametrize(
    ("body", "status", "media_type", "shown", "structured"),
    [
        (b"Not now", 503, "text/plain", "HTTP 503 Reason\nNot now", "Not now"),
        (b"Not now", 503, None, "HTTP 503 Reason\nNot now", "Not now"),
        (b'{"a":1}', 404, "application/json", 'HTTP 404 Reason\n{"a":1}', {"a": 1}),
        (b"[1]", 404, None, "HTTP 404 Reason\n[1]", "[1]"),
        (b"x" * 500, 404, None, "HTTP 404 Reason\n" + "x" * 500, "x" * 500),
    ],
)
def test_unknown_errors_are_shown_verbatim(read, body, status, media_type, shown, structured):
    assert failure(read(body, status, media_type)) == (
        shown, {"status": status, "body": structured},
    )  # fmt: skip


@pytest.mark.parametrize("read", [single, legacy])
@pytest.mark.parametrize(
    ("body", "media_type", "kind"),
    [
        (b"", None, "nothing"),
        (b"<h1>db.inside:5432</h1>", "text/html", "text/html"),
        (b"at com.x.Y(Y.java:1)\n" * 50, "text/plain", "text/plain"),
        (b"\0" * 501, None, "text of no type"),
    ],
)
@pytest.mark.parametrize("status", [404, 502])
def test_a_page_of_a_proxy_is_not_for_the_caller(read, body, media_type, kind, status):
    shown, structure = failure(read(body, status, media_type))
    told = f"rules answered HTTP {status} with {kind}"
    assert shown == f"HTTP {status} ERR18502 UPSTREAM_FAILED: {told}"
    assert structure["status"] == structure["body"]["statusCode"] == status


@pytest.mark.parametrize("read", [single, legacy])
@pytest.mark.parametrize(
    "body", [b"", b'{"code":"E"}', envelope(error={"code": 1, "message": "secret"})]
)
def test_a_redirect_is_told_and_nothing_of_its_body(read, body):
    assert ours(read(body, 302)) == f"{OURS}rules answered HTTP 302: redirects are not followed"


def test_a_result_with_an_error_status_is_an_error():
    shown, structure = failure(single(envelope(result=1), 500))
    assert shown.startswith("HTTP 500 Reason")
    assert structure["status"] == 500


def ours(result):
    """The text of a failure that is a Status of the gateway's own."""
    shown, structure = failure(result)
    assert structure["status"] == structure["body"]["statusCode"] == 502
    assert structure["body"]["code"] == "ERR18502"
    return shown


IDS = (3, 4, 5)


def batch(body, status=200):
    results = read_batch(response(body, status), IDS, "rules")
    assert len(results) == len(IDS)
    return results


def test_answers_of_a_batch_are_matched_by_their_ids():
    members = [envelope(5, result="five"), envelope(3, result=None), envelope(4, result=[4])]
    assert [value(one) for one in batch(b"[" + b",".join(members) + b"]")] == [None, [4], "five"]


@pytest.mark.parametrize(
    ("member", "shown"),
    [
        (envelope(4, error={"code": 404, "message": "m"}), "HTTP 404 404 m: m"),
        (envelope(4), MISSING),
        (envelope(9, result=1), MISSING),
        (envelope("4", result=1), MISSING),
        (envelope([4], result=1), MISSING),
        (envelope(None, error={"code": -32600, "message": "m"}), MISSING),
        (b"4", MISSING),
        (b"[" + envelope(4, result=1) + b"]", MISSING),
        (b"[]", MISSING),
        (envelope(4, result=1) + b"," + envelope(4, result=2), DOUBLED),
    ],
)
def test_a_call_of_a_batch_fails_alone(member, shown):
    body = b"[" + b",".join([envelope(3, result="a"), member, envelope(5, result="b")]) + b"]"
    first, second, third = batch(body)
    assert (value(first), value(third)) == ("a", "b")
    assert failure(second)[0] == shown


@pytest.mark.parametrize(
    ("body", "status", "shown"),
    [
        (b"", 200, MISSING),
        (b"", 204, MISSING),
        (b"[]", 200, MISSING),
        (b"{}", 200, NO_ARRAY),
        (b"OK", 200, NO_ARRAY),
        (b'["\xff"]', 200, NO_ARRAY),
        (envelope(3, result=1), 200, NO_ARRAY),
        (b"", 500, "HTTP 500 ERR18502 UPSTREAM_FAILED: rules answered HTTP 500 with nothing"),
        (b"[]", 500, "HTTP 500 Reason\n[]"),
        (envelope(None, error={"code": -32600, "message": "m"}), 200, "HTTP 500 -32600 m: m"),
        (envelope(None, error={"code": -32600, "message": "m"}), 400, "HTTP 400 -32600 m: m"),
        (b'{"code":"ERR10002","message":"M"}', 401, "HTTP 401 ERR10002 M"),
        (envelope(None, error={"code": 1, "message": "m"}), 307,
         OURS + "rules answered HTTP 307: redirects are not followed"),
    ],
)  # fmt: skip
def test_a_batch_that_is_answered_as_a_whole_fails_each_call(body, status, shown):
    assert [failure(one)[0] for one in batch(body, status)] == [shown] * 3
