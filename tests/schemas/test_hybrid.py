"""Ids of actions, and Status."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.json import encode

from schemas import hybrid
from schemas.hybrid import (
    AUTH_TOKEN_SCOPE_MISMATCH,
    HANDLER_NOT_FOUND,
    METHOD_MISSING,
    InvalidData,
    ServiceFailed,
    Status,
    StatusFault,
    StatusKind,
    service_id,
    split,
    status_members,
)
from tests.properties import examples

ID = "lightapi.net/rule/deleteRule/0.1.0"
PAYLOAD = {"host": "lightapi.net", "service": "rule", "action": "deleteRule", "version": "0.1.0"}


def kinds():
    return [kind for kind in vars(hybrid).values() if isinstance(kind, StatusKind)]


@pytest.mark.parametrize(
    ("missing", "id_"),
    [
        ([], ID),
        (["version"], "lightapi.net/rule/deleteRule/"),
        (["action"], "lightapi.net/rule/0.1.0"),
        (["host", "service", "action"], "0.1.0"),
        (["host", "service", "action", "version"], ""),
    ],
)
def test_the_id_is_put_together_from_the_parts_that_are_there(missing, id_):
    payload = {name: part for name, part in PAYLOAD.items() if name not in missing}
    assert service_id({**payload, "title": "ignored", "data": {}}) == id_
    assert service_id({**payload, **dict.fromkeys(missing, "")}) == id_


@pytest.mark.parametrize("part", [None, 5, True, [], {}, ["rule"]])
def test_a_part_that_is_no_text_counts_as_missing(part):
    assert service_id({**PAYLOAD, "service": part}) == "lightapi.net/deleteRule/0.1.0"


@settings(max_examples=examples(50), derandomize=True)
@given(st.lists(st.text(st.characters(exclude_characters="/"), min_size=1), min_size=4, max_size=4))
def test_an_id_of_four_parts_goes_there_and_back(parts):
    id_ = "/".join(parts)
    assert service_id(split(id_)) == id_


@pytest.mark.parametrize(
    "id_", ["", "subtract", "a/b/c", "a/b/c/d/e", "a/b/c/", "/b/c/d", "a//c/d"]
)
def test_no_other_id_has_a_legacy_payload(id_):
    assert split(id_) is None


def test_a_status_has_the_members_of_light_4j_in_their_order():
    wire = encode(Status(400, "ERR11200", "HANDLER_NOT_FOUND", 'No "x"'))
    assert wire == (
        b'{"statusCode":400,"code":"ERR11200","message":"HANDLER_NOT_FOUND",'
        b'"description":"No \\"x\\"","severity":"ERROR"}'
    )
    full = Status(404, "E", "M", "D", {"id": 1}, "WARN")
    assert json.loads(encode(full)) == status_members(full)
    assert list(status_members(full)) == [
        "statusCode", "code", "message", "description", "metadata", "severity",
    ]  # fmt: skip
    assert "metadata" not in status_members(Status(400, "E", "M", "D"))


@pytest.mark.parametrize("kind", kinds(), ids=lambda kind: kind.code + kind.message)
def test_every_kind_of_status_can_be_raised(kind):
    fault = StatusFault(kind, *["{0}%s"] * kind.description.replace("{{", "").count("{}"))
    assert (fault.status, fault.code) == (kind.http, kind.rpc_code)
    assert fault.data["statusCode"] == fault.as_status.status_code == kind.http
    assert fault.data["code"] == kind.code
    assert "{{" not in fault.message
    assert 400 <= kind.http <= 599
    assert fault.message == fault.data["description"]


def test_a_status_quotes_any_name_of_its_subject():
    fault = StatusFault(HANDLER_NOT_FOUND, 'a/{}/"b"/0')
    assert fault.message == 'Handler for service a/{}/"b"/0 cannot be found.'
    mismatch = StatusFault(AUTH_TOKEN_SCOPE_MISMATCH, "[portal.r]", "[portal.w]")
    assert mismatch.message == (
        "Scopes [portal.r] in authorization token and specification scopes [portal.w] are not "
        "matched"
    )


def test_a_json_rpc_client_may_be_told_in_other_words_than_the_status():
    fault = StatusFault(METHOD_MISSING, "", text='"method" is missing')
    assert (fault.message, fault.code) == ('"method" is missing', -32600)
    assert fault.data["description"] == "Handler for service  cannot be found."


STATUS = {"statusCode": 401, "code": "ERR10001", "message": "AUTH_TOKEN_EXPIRED", "more": 1}


@pytest.mark.parametrize(
    ("status", "body", "code", "message", "data"),
    [
        (400, STATUS, 401, "AUTH_TOKEN_EXPIRED", STATUS),
        (400, {"statusCode": True, "code": "E"}, 400, "E", {"statusCode": True, "code": "E"}),
        (400, {"statusCode": "401", "message": 5}, 400, "The call failed",
         {"statusCode": "401", "message": 5}),
        (400, {"message": "", "code": "E"}, 400, "E", {"message": "", "code": "E"}),
        (503, "Try later", 503, "Try later", None),
        (503, "", 503, "The call failed", None),
        (500, {}, 500, "The call failed", None),
        (500, [1], 500, "The call failed", None),
    ],
)  # fmt: skip
def test_the_failure_of_a_service_takes_code_and_message_of_its_body(
    status, body, code, message, data
):
    fault = ServiceFailed(status, body)
    assert (fault.status, fault.body) == (status, body)
    assert (fault.code, fault.message, fault.data) == (code, message, data)


def test_a_violation_is_logged_by_its_place_alone() -> None:
    fault = InvalidData('$.born: "a secret" is not a "date"')
    assert "a secret" in fault.message
    assert fault.log_message == "VALIDATOR_SCHEMA at $.born"
