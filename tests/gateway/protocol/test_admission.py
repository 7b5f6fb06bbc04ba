"""The ladder of the reference: every rung, with its code and its HTTP status."""

import pytest
from msgspec import UNSET

from gateway.context import Principal, Session
from gateway.protocol.admission import BATCH_IDS_BYTES, INTRODUCTION_BYTES, Headers, admit
from schemas.errors import Fault, InvalidRequest, ParseError
from schemas.jsonrpc import Invalid, Request, Response
from schemas.mcp.messages import META_CAPABILITIES, META_VERSION
from schemas.mcp.revisions import HANDSHAKE, SUPPORTED, V2025_03_26, V2025_06_18, V2026_07_28

NEW = "2026-07-28"
OLD = "2025-06-18"
META = {META_VERSION: NEW, META_CAPABILITIES: {}}
HELLO = {"protocolVersion": OLD, "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}


def session_of(revision):
    return Session(revision.name, revision, Principal("p", "t"), {}, {})


SESSIONS = {revision.name: session_of(revision) for revision in HANDSHAKE.values()}


def call(method="tools/list", params=UNSET, id_=1):
    return Request("2.0", method, params, id_)


def modern(method="tools/list", params=None, id_=1, meta=META):
    return call(method, {**(params or {}), "_meta": meta}, id_)


def modern_headers(version=NEW, method="tools/list", **others):
    return Headers(version=version, method=method, **others)


def refusal_of(headers, message):
    """(JSON-RPC code, HTTP status) of the refusal."""
    with pytest.raises(Fault) as caught:
        admit(headers, message, SESSIONS.get)
    return caught.value.code, caught.value.status


@pytest.mark.parametrize(
    ("message", "code", "status"),
    [
        (Invalid(None, InvalidRequest("x")), -32600, 400),
        (Invalid(None, ParseError("x")), -32700, 400),
        (modern(id_=None), -32600, 400),
        (modern(id_=1.5), -32600, 400),
        (call(), -32602, 400),  # the header says 2026-07-28, and there is no `_meta`
        (call(params=[1]), -32602, 400),
        (modern(meta={}), -32602, 400),
        (modern(meta={META_VERSION: NEW}), -32602, 400),
        (modern(meta={META_CAPABILITIES: {}}), -32602, 400),
        (modern(meta={**META, META_VERSION: None}), -32602, 400),
        (modern(meta={**META, META_VERSION: 20260728}), -32602, 400),
        (modern(meta={**META, META_CAPABILITIES: []}), -32602, 400),
        (call(params={"_meta": "x"}), -32602, 400),
        (modern(meta={**META, META_VERSION: OLD}), -32020, 400),  # the header says otherwise
        (modern("tools/call", {"name": "t"}), -32020, 400),  # Mcp-Method says otherwise
        ([modern()], -32600, 400),
        ([], -32600, 400),
        (Response(1, {}), -32600, 400),  # a 2026-07-28 client has nothing to respond to
    ],
)
def test_invalid_stateless_requests_are_refused(message, code, status):
    assert refusal_of(modern_headers(), message) == (code, status)


@pytest.mark.parametrize(
    "headers",
    [
        Headers(),
        Headers(version=NEW),
        Headers(method="tools/list"),
        modern_headers(method="tools/call"),
        modern_headers(method="TOOLS/LIST"),  # values are case-sensitive
        modern_headers(version=OLD),
        modern_headers(version="2099-01-01"),
        modern_headers(duplicated="mcp-method"),
    ],
)
def test_headers_must_mirror_a_stateless_body(headers):
    assert refusal_of(headers, modern()) == (-32020, 400)


@pytest.mark.parametrize("version", [OLD, "2025-11-25", "2099-01-01", "", "x"])
def test_an_unserved_version_is_refused_with_the_served_versions(version):
    message = modern(meta={**META, META_VERSION: version})
    with pytest.raises(Fault) as caught:
        admit(modern_headers(version=version), message, SESSIONS.get)
    fault = caught.value
    assert (fault.code, fault.status) == (-32022, 400)
    assert fault.data == {"supported": list(SUPPORTED), "requested": version}


@pytest.mark.parametrize(
    ("name", "admitted"),
    [
        ("getPet", True),
        ("=?base64?Z2V0UGV0?=", True),
        ("getpet", False),
        (None, False),
        ("", False),
        ("=?base64?Z2V0UGV0", False),
        ("=?BASE64?Z2V0UGV0?=", False),
        ("=?base64?Z2V0UGV0=?=", False),
        ("=?base64?\xe9?=", False),
    ],
)
def test_the_name_header_mirrors_the_tool(name, admitted):
    headers = modern_headers(method="tools/call", name=name)
    message = modern("tools/call", {"name": "getPet"})
    if admitted:
        assert admit(headers, message, SESSIONS.get).revision is V2026_07_28
    else:
        assert refusal_of(headers, message) == (-32020, 400)


@pytest.mark.parametrize(
    ("method", "params"),
    [("prompts/get", {"name": "n"}), ("resources/read", {"uri": "n"}), ("tools/call", {})],
)
def test_the_name_header_is_required_wherever_a_body_names_something(method, params):
    assert refusal_of(modern_headers(method=method), modern(method, params)) == (-32020, 400)


def test_a_stateless_request_ignores_a_session():
    headers = modern_headers(session="not one of ours")
    admitted = admit(headers, modern(), SESSIONS.get)
    assert (admitted.revision, admitted.session, admitted.opens) == (V2026_07_28, None, None)


def test_a_stateless_notification_is_admitted_without_checks():
    message = call("notifications/cancelled", {"requestId": 1}, UNSET)
    assert admit(Headers(version=NEW), message, SESSIONS.get).revision is V2026_07_28


@pytest.mark.parametrize(
    ("headers", "message", "code", "status"),
    [
        (Headers(), call(), -32600, 400),
        (Headers(session="gone"), call(), -32001, 404),
        (Headers(session=OLD, version="2099-01-01"), call(), -32022, 400),
        (Headers(session=OLD, version="nonsense"), call(), -32022, 400),
        (Headers(session=OLD), call(id_=None), -32600, 400),
        (Headers(session=OLD), call(id_=1.0), -32600, 400),
        (Headers(), call("notifications/initialized", id_=UNSET), -32600, 400),
        (Headers(), call("initialize", HELLO, UNSET), -32600, 400),
        (Headers(), call("initialize"), -32602, 200),
        (Headers(), call("initialize", {**HELLO, "protocolVersion": 1}), -32602, 200),
        (Headers(version="2099-01-01"), call("initialize", HELLO), -32022, 400),
        (Headers(), Response(1, {}), -32600, 400),
        (Headers(session="gone"), Response(1, {}), -32001, 404),
        (Headers(session=OLD, version="2099-01-01"), Response(1, {}), -32022, 400),
        (Headers(session=OLD, version=NEW), Response(1, {}), -32600, 400),
    ],
)
def test_invalid_handshake_requests_are_refused(headers, message, code, status):
    assert refusal_of(headers, message) == (code, status)


@pytest.mark.parametrize("version", [None, *HANDSHAKE])
@pytest.mark.parametrize("method", ["tools/list", "notifications/initialized", "ping"])
def test_a_session_is_served_by_its_own_revision_whatever_the_header_names(version, method):
    id_ = UNSET if method.startswith("notifications/") else 7
    admitted = admit(Headers(version, OLD), call(method, {}, id_), SESSIONS.get)
    assert (admitted.revision, admitted.session) == (V2025_06_18, SESSIONS[OLD])


def test_progress_tokens_do_not_make_a_request_stateless():
    message = call(params={"_meta": {"progressToken": 1}})
    assert admit(Headers(session=OLD), message, SESSIONS.get).session is SESSIONS[OLD]


def test_a_response_belongs_to_its_session():
    assert admit(Headers(session=OLD), Response(1, {}), SESSIONS.get).session is SESSIONS[OLD]


@pytest.mark.parametrize("version", [None, "2025-11-25"])
@pytest.mark.parametrize(
    ("asked", "given"), [(OLD, OLD), (NEW, "2025-11-25"), ("1.0", "2025-11-25")]
)
def test_initialize_opens_a_session_of_the_revision_that_was_negotiated(version, asked, given):
    message = call("initialize", {**HELLO, "protocolVersion": asked})
    headers = Headers(version=version, method="initialize", session="an old one")
    admitted = admit(headers, message, SESSIONS.get)
    assert (admitted.revision.name, admitted.session) == (given, None)
    assert admitted.opens.client_info == HELLO["clientInfo"]


@pytest.mark.parametrize(
    ("headers", "batch"),
    [
        (Headers(), [call()]),
        (Headers(session="2025-03-26"), []),
        (Headers(session="2025-03-26"), [call(), call("initialize", HELLO, 2)]),
        (Headers(session="2025-03-26"), [call(), Response(1, {})]),
        (Headers(session="2025-03-26", version=NEW), [call()]),
        *((Headers(session=name), [call()]) for name in HANDSHAKE if name != "2025-03-26"),
    ],
)
def test_where_a_batch_is_no_good(headers, batch):
    assert refusal_of(headers, batch) == (-32600, 400)


def test_a_batch_for_a_session_that_is_gone_says_so():
    assert refusal_of(Headers(session="gone"), [call()]) == (-32001, 404)


@pytest.mark.parametrize(
    "batch",
    [
        [call(), call("ping", id_=2), call("notifications/initialized", id_=UNSET)],
        [Response(1, {}), Response(2, {})],
        [call(), Invalid(None, InvalidRequest("x"))],  # a bad member fails alone
    ],
)
def test_batches_belong_to_2025_03_26(batch):
    assert admit(Headers(session="2025-03-26"), batch, SESSIONS.get).revision is V2025_03_26


@pytest.mark.parametrize("version", [None, *HANDSHAKE])
@pytest.mark.parametrize("message", [call(), call("notifications/initialized", id_=UNSET)])
def test_where_sessions_may_be_left_out_the_header_says_the_revision(version, message):
    admitted = admit(Headers(version=version), message, SESSIONS.get, sessionless=True)
    assert admitted.revision.name == (version or "2025-03-26")
    assert (admitted.session, admitted.opens) == (None, None)


def test_named_sessions_count_in_sessionless_mode():
    admitted = admit(Headers(session=OLD), call(), SESSIONS.get, sessionless=True)
    assert admitted.session is SESSIONS[OLD]
    opened = admit(Headers(), call("initialize", HELLO), SESSIONS.get, sessionless=True)
    assert opened.opens is not None


@pytest.mark.parametrize("version", [None, "2025-03-26"])
def test_a_batch_without_a_session_is_of_2025_03_26(version):
    admitted = admit(Headers(version=version), [call()], SESSIONS.get, sessionless=True)
    assert (admitted.revision, admitted.session) == (V2025_03_26, None)


@pytest.mark.parametrize(
    ("headers", "message", "code", "status"),
    [
        (Headers(session="gone"), call(), -32001, 404),
        (Headers(version="2099-01-01"), call(), -32022, 400),
        (Headers(version="2099-01-01"), [call()], -32022, 400),
        (Headers(version=OLD), [call()], -32600, 400),
        (Headers(version=NEW), [call()], -32600, 400),
        (Headers(), [call("initialize", HELLO)], -32600, 400),
        (Headers(), call(id_=None), -32600, 400),
        (Headers(), Response(1, {}), -32600, 400),  # nobody was asked anything
    ],
)
def test_invalid_requests_are_refused_in_sessionless_mode(headers, message, code, status):
    with pytest.raises(Fault) as caught:
        admit(headers, message, SESSIONS.get, sessionless=True)
    assert (caught.value.code, caught.value.status) == (code, status)


@pytest.mark.parametrize("member", ["clientInfo", "capabilities"])
def test_a_client_that_says_too_much_of_itself_is_refused(member):
    large = {"x": "y" * INTRODUCTION_BYTES}
    hello = call("initialize", {**HELLO, member: {**HELLO[member], **large}})
    with pytest.raises(Fault, match=f"at most {INTRODUCTION_BYTES} are kept") as caught:
        admit(Headers(), hello, SESSIONS.get)
    assert caught.value.code == -32602
    fits = {"x": "y" * (INTRODUCTION_BYTES - 100)}
    hello = call("initialize", {**HELLO, member: {**HELLO[member], **fits}})
    assert admit(Headers(), hello, SESSIONS.get).opens is not None


def test_the_ids_of_a_batch_are_short_in_all():
    headers = Headers(session="2025-03-26")
    batch = [call("ping", id_=f"{number:0>1000}") for number in range(BATCH_IDS_BYTES // 1000)]
    with pytest.raises(InvalidRequest, match="ids of a batch must have at most 65536 bytes"):
        admit(headers, [*batch, *batch], SESSIONS.get)
    assert admit(headers, batch[:-5], SESSIONS.get).revision is V2025_03_26


@pytest.mark.parametrize("revision", [OLD, NEW])
@pytest.mark.parametrize("id_", ["x" * 1025, "\u00e9" * 513, 10**1024])
def test_an_id_is_short(revision, id_):
    if revision == NEW:
        headers, message = modern_headers(), modern(id_=id_)
    else:
        headers, message = Headers(session=OLD), call(id_=id_)
    assert refusal_of(headers, message) == (-32600, 400)


@pytest.mark.parametrize("id_", ["x" * 1024, "\u00e9" * 512, 10**1023])
def test_an_id_may_be_longer_than_any_that_a_client_needs(id_):
    assert admit(modern_headers(), modern(id_=id_), SESSIONS.get).revision is V2026_07_28
