"""Results of prompts/get, resources/read and completion/complete of other servers."""

import json

import pytest

from schemas.errors import Unreachable
from schemas.mcp.messages import META_SERVER
from schemas.mcp.revisions import V2024_11_05, V2025_03_26, V2025_11_25, V2026_07_28
from tests.gateway.protocol.views import STAMP, decode_result, members, plain, view
from tests.revisions import by_revision

AUDIO = {"type": "audio", "data": "AA==", "mimeType": "audio/wav"}
LINK = {"type": "resource_link", "uri": "test://shared/1", "name": "one"}
EMBEDDED = {"type": "resource", "resource": {"uri": "test://shared/1", "blob": "AA=="}}
EXPOSED = "toolgate://src/test://shared/1"
FILE = {"uri": "test://shared/1", "mimeType": "text/plain", "text": "x", "x-own": {"a": 1}}


def make_message(content, role="user"):
    return {"role": role, "content": content, "x-own": 1}


@by_revision
def test_text_messages_are_forwarded_verbatim(revision):
    came = members(
        description="d", messages=[make_message({"type": "text", "text": "t", "a": 1})], x=[1]
    )
    went = view(revision).prompt_result(came)
    assert all(bytes(went[name]) == bytes(value) for name, value in came.items())
    assert ("resultType" in went) is revision.result_type


@by_revision
def test_messages_have_content_that_the_revision_knows(revision):
    went = decode_result(
        view(revision).prompt_result(
            members(messages=[make_message(AUDIO), make_message(LINK, "assistant")])
        )
    )
    sound, link = went["messages"]
    assert (sound["role"], link["role"], sound["x-own"]) == ("user", "assistant", 1)
    assert sound["content"]["type"] == ("text" if revision is V2024_11_05 else "audio")
    if revision in {V2024_11_05, V2025_03_26}:
        text = f"[resource, one: {EXPOSED}]"
        assert link["content"] == {"type": "text", "text": text}
    else:
        assert link["content"] == {**LINK, "uri": EXPOSED}


@by_revision
def test_resources_in_messages_lead_back_to_their_server(revision):
    (message,) = decode_result(
        view(revision).prompt_result(members(messages=[make_message(EMBEDDED)]))
    )["messages"]
    assert message["content"]["resource"] == {"uri": EXPOSED, "blob": "AA=="}


@pytest.mark.parametrize("message", [None, "resource", {"x": "resource"}])
def test_messages_that_nobody_knows_are_the_business_of_the_client(message):
    went = view(V2025_11_25).prompt_result(members(messages=[message]))
    assert decode_result(went)["messages"] == [message]


@by_revision
def test_contents_lead_back_to_their_server(revision):
    came = members(contents=[FILE, {**FILE, "uri": "test://own"}], x=1)
    went = decode_result(view(revision).read(came))
    assert went["contents"] == [{**FILE, "uri": EXPOSED}, {**FILE, "uri": "test://own"}]
    assert went["x"] == 1


@by_revision
@pytest.mark.parametrize("uri", [{}, {"uri": None}, {"uri": 7}])
def test_contents_without_an_address_get_the_requested_address(revision, uri):
    """Clients refuse the whole result for contents without a text as `uri` (mending 22)."""
    came = members(contents=[{"text": "x", "x-own": [1], **uri}, {**FILE, "uri": "test://own"}])
    went = decode_result(view(revision).read(came, "test://shared/1"))
    assert went["contents"] == [
        {"uri": EXPOSED, "text": "x", "x-own": [1]},
        {**FILE, "uri": "test://own"},
    ]


def test_unaffected_contents_are_forwarded_verbatim():
    came = members(contents=[{**FILE, "uri": "test://own"}])
    assert view(V2025_11_25).read(came)["contents"] is came["contents"]


@pytest.mark.parametrize(
    ("sent", "ttl"),
    [
        ({}, 0),
        ({"ttlMs": 0}, 0),
        ({"ttlMs": 5000, "cacheScope": "public"}, 5000),
        ({"ttlMs": -1}, 0),
        ({"ttlMs": "5000"}, 0),
        ({"ttlMs": 1.5}, 0),
        ({"ttlMs": None}, 0),
        ({"ttlMs": 10**30}, 0),
    ],
)
def test_how_long_contents_hold_is_said_on_2026_07_28_alone(sent, ttl):
    went = decode_result(view(V2026_07_28).read(members(contents=[FILE], **sent)))
    assert (went["ttlMs"], went["cacheScope"]) == (ttl, "private")
    assert (went["resultType"], went["_meta"]) == ("complete", STAMP)
    older = decode_result(view(V2025_11_25).read(members(contents=[FILE], **sent)))
    assert set(older) == {"contents"}


@pytest.mark.parametrize("method", ["prompt_result", "read", "call_result"])
def test_a_question_to_the_client_is_passed_on_whole(method):
    question = {"inputRequests": {"k": {"method": "roots/list"}}, "requestState": "s"}
    came = members(resultType="input_required", **question)
    went = decode_result(getattr(view(V2026_07_28), method)(came))
    assert plain(went) == question
    assert META_SERVER in went["_meta"]


@pytest.mark.parametrize(
    ("method", "sent"),
    [
        ("prompt_result", {}),
        ("prompt_result", {"messages": {}}),
        ("prompt_result", {"messages": None}),
        ("read", {}),
        ("read", {"contents": {}}),
        ("read", {"contents": "text"}),
        ("completion_result", {}),
        ("completion_result", {"completion": {"values": {}}}),
    ],
)
@by_revision
def test_a_result_of_something_else_is_no_answer(revision, method, sent):
    with pytest.raises(Unreachable, match=r"^The server answered with a (result|prompt)"):
        getattr(view(revision), method)(members(**sent))


@by_revision
@pytest.mark.parametrize("count", [0, 1, 100])
def test_completions_are_forwarded_verbatim(revision, count):
    values = [f"v{n}" for n in range(count)]
    came = members(completion={"values": values, "total": 1000, "hasMore": False, "x": 1})
    assert bytes(view(revision).completion_result(came)["completion"]) == bytes(came["completion"])


@by_revision
def test_more_than_100_completions_are_cut(revision):
    values = [f"v{n}" for n in range(101)]
    came = members(completion={"values": values, "total": 101, "x": 1}, y=2)
    went = decode_result(view(revision).completion_result(came))
    kept = {"values": values[:100], "total": 101, "hasMore": True, "x": 1}
    assert (went["completion"], went["y"]) == (kept, 2)


@by_revision
def test_a_completion_always_has_values(revision):
    went = decode_result(view(revision).completion_result(members(completion={})))
    assert went["completion"] == {"values": []}


def test_an_empty_result_of_a_handshake_revision_is_empty():
    assert json.dumps(decode_result(view(V2025_11_25).stamp_result({}))) == "{}"
