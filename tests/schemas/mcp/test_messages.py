import pytest
from msgspec import UNSET

from schemas.errors import InvalidParams
from schemas.mcp.messages import (
    CallToolParams,
    CancelledParams,
    InitializeParams,
    ListenParams,
    ListParams,
    read,
)


def test_absent_params_are_read_as_empty_params():
    assert read(UNSET, ListParams) == ListParams(cursor=None)


def test_unknown_members_are_ignored():
    params = {"name": "t", "arguments": {"a": 1}, "_meta": {"progressToken": 1}, "more": {}}
    assert read(params, CallToolParams) == CallToolParams("t", {"a": 1})


@pytest.mark.parametrize("arguments", [{}, {"arguments": None}])
def test_a_call_may_come_without_arguments(arguments):
    assert read({"name": "t", **arguments}, CallToolParams).arguments is None


@pytest.mark.parametrize(
    ("params", "as_type", "text"),
    [
        ([], CallToolParams, "params must be an object, not an array"),
        ({}, CallToolParams, "params: name: is required"),
        ({"name": 1}, CallToolParams, "params: name: expected string, got 1"),
        ({"name": "t", "arguments": [1]}, CallToolParams, "params: arguments: expected"),
        ({"cursor": 1}, ListParams, "params: cursor: expected"),
        ({"protocolVersion": "x", "capabilities": {}}, InitializeParams, "params: clientInfo: is"),
        ({"requestId": None}, CancelledParams, "params: requestId: expected"),
        ({"requestId": True}, CancelledParams, "params: requestId: expected"),
        ({}, ListenParams, "params: notifications: is"),
        ({"notifications": {"toolsListChanged": 1}}, ListenParams, "toolsListChanged"),
    ],
)
def test_bad_params_name_the_member_and_its_expected_type(params, as_type, text):
    with pytest.raises(InvalidParams, match=text):
        read(params, as_type)


@pytest.mark.parametrize("id_", [1, "1"])
def test_a_cancelled_id_keeps_its_type(id_):
    assert read({"requestId": id_}, CancelledParams).request_id == id_


def test_a_listener_hears_only_its_requested_notifications():
    wanted = read({"notifications": {"promptsListChanged": True}}, ListenParams)
    assert not wanted.notifications.tools_list_changed
