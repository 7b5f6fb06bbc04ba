"""Errors of other servers: what each revision gets to see of them."""

import pytest

from gateway.protocol import upstream_errors
from schemas.errors import Fault, InternalError, MissingClientCapability, RelayedFault
from schemas.jsonrpc import encode, error_reply
from schemas.mcp.revisions import JSON_RPC, V2025_11_25, V2026_07_28
from tests.gateway.protocol.views import decode_result
from tests.revisions import by_revision

ASKED = {
    "elicitations": [
        {"mode": "url", "elicitationId": "1", "url": "https://a.example/x", "message": "Sign in"},
        {"mode": "url", "elicitationId": "2", "url": "https://b.example"},
        {"url": 1},
        "junk",
    ]
}
ADDRESSES = "Log in first\nSign in: https://a.example/x\nhttps://b.example"


def fault_members(fault: Fault):
    return fault.code, fault.message, fault.data


@by_revision
@pytest.mark.parametrize(
    ("code", "data"),
    [
        (-32602, {"a": [1]}),
        (-32603, None),
        (-32601, "text"),
        (-32000, [1]),
        (0, 0),
        (7, {"uri": "test://a"}),
    ],
)
def test_errors_come_through_with_code_message_and_data(revision, code, data):
    fault = RelayedFault(code, "No", data)
    assert upstream_errors.fault_for_client(fault, revision) is fault
    assert upstream_errors.read_fault(RelayedFault(code, "No", data), revision, "u").code == code
    with pytest.raises(RelayedFault) as caught:
        upstream_errors.as_result(fault, revision)
    assert fault_members(caught.value) == (code, "No", data)


@pytest.mark.parametrize("data", [[1], "text", 0, False])
def test_data_of_any_kind_is_fit_for_a_reply(data):
    reply = error_reply(1, RelayedFault(-1, "No", data), "r-1")
    assert reply.error.data == data
    assert encode(reply)


def test_error_data_of_an_object_include_the_request_id():
    reply = error_reply(1, RelayedFault(-1, "No", {"a": 1}), "r-1")
    assert reply.error.data == {"a": 1, "requestId": "r-1"}


@by_revision
@pytest.mark.parametrize("data", [None, {"uri": "own://name"}, {"uri": "own://name", "x": 1}])
@pytest.mark.parametrize("code", [-32002, -32602])
def test_a_resource_that_is_not_there_has_the_code_of_the_revision(revision, code, data):
    fault = upstream_errors.read_fault(RelayedFault(code, "Gone", data), revision, "test://asked")
    if code == -32602 and data is None and revision.handshake:
        assert fault_members(fault) == (-32602, "Gone", None)  # may be about any of the params
    else:
        expected = {**(data or {}), "uri": "test://asked"}
        assert fault_members(fault) == (revision.not_found, "Gone", expected)
    assert revision.not_found == (-32602 if revision is V2026_07_28 else -32002)


@by_revision
def test_we_say_the_same_of_a_resource_that_nobody_has(revision):
    fault = upstream_errors.missing("test://a", revision)
    assert fault_members(fault) == (revision.not_found, "Resource not found", {"uri": "test://a"})
    assert fault.status == 200


@by_revision
def test_minus_32002_never_reaches_2026_07_28(revision):
    fault = upstream_errors.fault_for_client(RelayedFault(-32002, "Gone", {"uri": "x"}), revision)
    assert fault_members(fault) == (revision.not_found, "Gone", {"uri": "x"})


@by_revision
def test_addresses_to_open_are_an_error_of_2025_11_25_alone(revision):
    fault = RelayedFault(-32042, "Log in first", ASKED)
    seen = upstream_errors.fault_for_client(fault, revision)
    if revision is V2025_11_25:
        assert seen is fault
        with pytest.raises(RelayedFault):
            upstream_errors.as_result(fault, revision)
    else:
        assert fault_members(seen) == (-32603, ADDRESSES, None)
        text = {"type": "text", "text": ADDRESSES}
        assert decode_result(upstream_errors.as_result(fault, revision)) == {
            "content": [text],
            "isError": True,
        }


@pytest.mark.parametrize("data", [None, [], {}, {"elicitations": {}}, {"elicitations": [1]}])
def test_addresses_that_are_not_there_are_not_told(data):
    assert (
        upstream_errors.fault_for_client(RelayedFault(-32042, "Log in", data), JSON_RPC).message
        == "Log in"
    )


@by_revision
@pytest.mark.parametrize("code", [-32020, -32022])
def test_gateway_mistakes_are_not_blamed_on_the_client(revision, code):
    seen = upstream_errors.fault_for_client(
        RelayedFault(code, "Mcp-Name says 'x'", {"secret": 1}), revision
    )
    assert isinstance(seen, InternalError)
    assert "Mcp-Name" not in seen.message
    assert seen.data is None


@by_revision
@pytest.mark.parametrize("data", [{"requiredCapabilities": {"sampling": {}, "roots": {}}}, None, 1])
def test_missing_client_capabilities_are_named(revision, data):
    seen = upstream_errors.fault_for_client(RelayedFault(-32021, "Needs more", data), revision)
    assert (
        upstream_errors.fault_for_client(RelayedFault(-32021, "Needs more", data), JSON_RPC).code
        == -32603
    )
    if revision is V2026_07_28:
        assert isinstance(seen, MissingClientCapability)
        wanted = data if isinstance(data, dict) else {"requiredCapabilities": {}}
        assert (seen.status, fault_members(seen)) == (400, (-32021, "Needs more", wanted))
    else:
        assert seen.code == -32603
        assert isinstance(data, dict) == seen.message.endswith("can do roots, sampling")
