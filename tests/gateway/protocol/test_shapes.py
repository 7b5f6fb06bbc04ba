"""Results of tools/call of other servers: what each revision gets to see of them."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET, Raw

from gateway.protocol.revision_adapter import tool_result
from schemas.errors import Unreachable
from schemas.mcp.messages import META_SERVER
from schemas.mcp.revisions import (
    JSON_RPC,
    V2024_11_05,
    V2025_03_26,
    V2025_06_18,
    V2025_11_25,
    V2026_07_28,
)
from schemas.tool import AudioContent, TextContent
from tests.gateway.protocol.views import STAMP, US, decode_result, members, plain, view
from tests.revisions import REVISIONS, by_revision

TEXT = {"type": "text", "text": "hello", "annotations": {"audience": ["user"]}, "x-own": [1.50]}
IMAGE = {"type": "image", "data": "AA==", "mimeType": "image/png"}
AUDIO = {"type": "audio", "data": "AA==", "mimeType": "audio/wav"}
LINK = {"type": "resource_link", "uri": "test://a", "name": "a", "x-own": {"y": None}}
FILE = {"type": "resource", "resource": {"uri": "test://b", "text": "b"}, "annotations": {}}


@by_revision
def test_members_known_to_all_revisions_are_forwarded_verbatim(revision):
    came = members(content=[TEXT, IMAGE], isError=False, **{"x-own": {"a": [1e2]}})
    went = view(revision).call_result(came)
    for name, value in came.items():
        assert bytes(went[name]) == bytes(value)
    assert set(went) - set(came) == ({"resultType", "_meta"} if revision.result_type else set())


def test_a_result_that_fits_is_not_even_copied():
    came = members(content=[TEXT], isError=False)
    assert view(V2025_11_25).call_result(came) is came
    came = members(content=[TEXT], resultType="complete", _meta={META_SERVER: {"name": "s"}})
    assert view(V2026_07_28).call_result(came) is came


@pytest.mark.parametrize(
    ("came", "went"),
    [
        ({}, []),
        ({"content": None}, []),
        ({"structuredContent": {"n": 1}}, [{"type": "text", "text": '{"n": 1}'}]),
        ({"content": [{"type": "text"}]}, [{"type": "text", "text": ""}]),
        ({"content": [{"type": "text", "text": None}, TEXT]}, [{"type": "text", "text": ""}, TEXT]),
        ({"content": [{"type": "text", "text": {"a": 1}}]}, [{"type": "text", "text": '{"a": 1}'}]),
        (
            {"content": [{"text": "bare", "x-own": 1}]},
            [{"type": "text", "text": "bare", "x-own": 1}],
        ),
        ({"content": ["audio"]}, [{"type": "text", "text": "audio"}]),
        ({"content": [None, 1, ["a"]]}, [{"type": "text", "text": t} for t in ("", "1", '["a"]')]),
        ({"content": [{"type": 1}]}, [{"type": "text", "text": '{"type": 1}'}]),
        (
            {"content": [{"type": "image", "mimeType": "image/gif"}]},
            [{"type": "text", "text": "[image: its server left out data]"}],
        ),
        ({"content": [{"type": "x-new", "y": 1}]}, [{"type": "x-new", "y": 1}]),
    ],
)
@pytest.mark.parametrize("revision", [V2025_06_18, V2026_07_28], ids=lambda one: one.name)
def test_results_that_clients_refuse_are_mended(revision, came, went):
    """Absent content, and items without what their type needs, become text (mending 22)."""
    assert decode_result(view(revision).call_result(members(**came)))["content"] == went


@pytest.mark.parametrize(
    ("item", "lacks"),
    [
        ({"type": "image", "data": None, "mimeType": "image/png"}, "data"),
        ({"type": "image", "data": {"a": 1}, "mimeType": None}, "data and mimeType"),
        ({"type": "audio", "data": 7, "mimeType": "audio/wav"}, "data"),
        ({"type": "resource_link", "name": "a", "uri": None}, "uri"),
        ({"type": "resource", "resource": None}, "resource"),
    ],
)
@pytest.mark.parametrize("revision", [V2025_06_18, V2026_07_28], ids=lambda one: one.name)
def test_members_of_another_type_are_no_members(revision, item, lacks):
    """Clients refuse the whole result for a null in an image (mending 35)."""
    came = members(content=[item, TEXT])
    note = {"type": "text", "text": f"[{item['type']}: its server left out {lacks}]"}
    assert decode_result(view(revision).call_result(came))["content"] == [note, TEXT]


def test_prompts_that_clients_refuse_are_mended():
    """A message of a prompt has content of a known form (mending 22)."""
    came = members(messages=[{"role": "user"}, {"role": "user", "content": {"type": "text"}}])
    empty = {"role": "user", "content": {"type": "text", "text": ""}}
    assert decode_result(view(V2025_06_18).prompt_result(came))["messages"] == [empty, empty]
    with pytest.raises(Unreachable, match="messages are no array"):
        view(V2025_06_18).prompt_result(members(messages={}))


def test_links_without_names_are_named_by_their_uris():
    """A resource link without a name, which clients demand, has one (mending 22)."""
    for nameless in ({}, {"name": None}):
        came = members(content=[{"type": "resource_link", "uri": "test://a", **nameless}])
        [link] = decode_result(view(V2025_11_25).call_result(came))["content"]
        assert link["name"] == "test://a"


@by_revision
def test_only_2026_07_28_has_a_result_type(revision):
    came = members(content=[], resultType="complete", ttlMs=5, cacheScope="public")
    assert ("resultType" in decode_result(view(revision).call_result(came))) is revision.result_type
    bare = decode_result(view(revision).call_result(members(content=[])))
    assert bare.get("resultType") == ("complete" if revision.result_type else None)
    if not revision.result_type:
        assert set(decode_result(view(revision).call_result(came))) == {"content"}


def test_server_info_comes_from_the_server_or_the_gateway():
    shape = view(V2026_07_28)
    assert decode_result(shape.call_result(members(content=[])))["_meta"] == STAMP
    own = {"_meta": {META_SERVER: {"name": "theirs"}, "x": [1]}}
    went = decode_result(shape.call_result(members(content=[], **own)))
    assert (went["_meta"], went["resultType"]) == (own["_meta"], "complete")
    other = decode_result(shape.call_result(members(content=[], _meta={"x": {"y": 1.0}})))["_meta"]
    assert other == {META_SERVER: US, "x": {"y": 1.0}}
    assert (
        decode_result(shape.call_result(members(content=[], _meta="no object")))["_meta"] == STAMP
    )


@by_revision
def test_audio_is_a_note_for_revisions_without_audio(revision):
    (item,) = decode_result(view(revision).call_result(members(content=[AUDIO])))["content"]
    if revision is V2024_11_05:
        text = "[audio, audio/wav: 2024-11-05 cannot carry it]"
        assert item == {"type": "text", "text": text}
    else:
        assert item == AUDIO


@by_revision
def test_a_link_is_a_text_for_revisions_without_links(revision):
    (item,) = decode_result(view(revision).call_result(members(content=[LINK])))["content"]
    if revision in {V2024_11_05, V2025_03_26}:
        assert item == {"type": "text", "text": "[resource, a: test://a]"}
    else:
        assert item == LINK


@by_revision
@pytest.mark.parametrize("kind", ["resource_link", "resource"])
def test_addresses_lead_back_to_their_server(revision, kind):
    address = {"uri": "test://shared/1", "name": "n", "x-own": 1}
    sent = {"type": kind, **(address if kind == "resource_link" else {"resource": address})}
    (item,) = decode_result(view(revision).call_result(members(content=[sent])))["content"]
    exposed = "toolgate://src/test://shared/1"
    if item["type"] == "text":
        assert item["text"] == f"[resource, n: {exposed}]"
    else:
        assert item.get("resource", item) == {**item.get("resource", item), **address} | {
            "uri": exposed
        }


SENT = {"ui": {"resourceUri": "test://shared/1"}, "n": [1.5, "test://own", ["test://shared/2"]]}
WENT = {
    "ui": {"resourceUri": "toolgate://src/test://shared/1"},
    "n": [1.5, "test://own", ["toolgate://src/test://shared/2"]],
}


@by_revision
def test_metadata_has_addresses_of_the_gateway(revision):
    """Each URI in `_meta` and annotations of a result is one that can be read (mending 13)."""
    text = {"type": "text", "text": "test://shared/1", "annotations": SENT}
    inner = {"uri": "test://own", "text": "", "_meta": SENT}
    content = [text, {"type": "resource", "resource": inner, "_meta": SENT}]
    result = members(content=content, _meta=SENT, structuredContent=SENT)
    went = decode_result(view(revision).call_result(result))
    assert WENT.items() <= went["_meta"].items()
    assert went["content"][:2] == [
        {**text, "annotations": WENT},
        {"type": "resource", "resource": {**inner, "_meta": WENT}, "_meta": WENT},
    ]
    assert went.get("structuredContent", SENT) == SENT  # data of the tool
    went = decode_result(view(revision).read(members(contents=[inner])))
    assert went["contents"] == [{**inner, "_meta": WENT}]


@pytest.mark.parametrize("metadata", ['{"a": 1e999}', "[" * 300 + "]" * 300, '"x"'])
def test_unreadable_metadata_stays_unchanged(metadata):
    came = {"content": Raw(b"[]"), "_meta": Raw(metadata.encode())}
    assert view(V2025_11_25).call_result(came)["_meta"] == came["_meta"]


def test_only_changed_items_are_rewritten():
    odd = '{"type":"text",  "text":"\\u00e9",  "n": 1.00}'
    link = '{"type":"resource_link","uri":"test://shared/1"}'
    came = {"content": Raw(f"[{odd}, {link}]".encode())}
    went = bytes(view(V2025_11_25).call_result(came)["content"])
    assert odd.encode() in went
    assert b"toolgate://src/test://shared/1" in went


@pytest.mark.parametrize("written", ['"\\u0061udio"', '"audi\\u006f"', '"\\u0061\\u0075dio"'])
def test_a_kind_may_be_written_with_escapes(written):
    item = '{"type":%s,"data":"","mimeType":"audio/wav"}' % written  # noqa: UP031
    went = decode_result(view(V2024_11_05).call_result({"content": Raw(f"[{item}]".encode())}))
    assert went["content"][0]["type"] == "text"


@by_revision
@pytest.mark.parametrize(
    "value", [{"a": 1.0}, {}, [1, 2], "text", 7, True, None], ids=lambda value: json.dumps(value)
)
def test_structure_is_an_object_or_there_is_none_before_2026_07_28(revision, value):
    went = decode_result(
        view(revision).call_result(members(content=[TEXT], structuredContent=value))
    )
    assert went["content"] == [TEXT]
    if revision.any_structure:
        assert went["structuredContent"] == value
    elif revision.titles:
        expected = value if isinstance(value, dict) else {"result": value}
        assert went["structuredContent"] == expected
    else:
        assert "structuredContent" not in went


@pytest.mark.parametrize("content", [[], [IMAGE], None])
def test_structure_that_is_left_out_is_there_as_text(content):
    sent = {"structuredContent": {"a": [1]}} | ({} if content is None else {"content": content})
    went = decode_result(view(V2025_03_26).call_result(members(**sent)))
    *before, text = went["content"]
    assert before == (content or [])
    assert (text["type"], json.loads(text["text"])) == ("text", {"a": [1]})


@by_revision
def test_content_is_always_there(revision):
    assert decode_result(view(revision).call_result(members(isError=True)))["content"] == []


@by_revision
def test_a_failed_tool_stays_failed(revision):
    assert (
        decode_result(view(revision).call_result(members(content=[TEXT], isError=True)))["isError"]
        is True
    )


@pytest.mark.parametrize("kind", ["input_required", "task", "own"])
def test_incomplete_results_get_no_content(kind):
    came = members(resultType=kind, requestState="x", inputRequests={"a": {"method": "roots/list"}})
    went = decode_result(view(V2026_07_28).call_result(came))
    assert plain(went) == plain(decode_result(came))
    assert went["resultType"] == kind


def test_the_promise_of_a_task_gets_no_content():
    came = members(task={"taskId": "t", "status": "working"})
    assert view(V2025_11_25).call_result(came) is came


@pytest.mark.parametrize("content", ["text", 1, {"type": "text"}, True])
@by_revision
def test_content_that_is_no_list_is_no_answer(revision, content):
    with pytest.raises(Unreachable, match="content is no array"):
        view(revision).call_result(members(content=content))


@by_revision
@pytest.mark.parametrize(
    "item",
    [
        {"type": "resource", "resource": {"uri": 1}},
        {"type": "hologram", "resource": "audio"},
    ],
)
def test_items_that_nobody_knows_are_the_business_of_the_client(revision, item):
    assert decode_result(view(revision).call_result(members(content=[item])))["content"] == [item]


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)
ITEMS = st.sampled_from([TEXT, IMAGE, AUDIO, LINK, FILE]) | JSON_VALUES


@given(
    st.lists(ITEMS, max_size=4),
    st.dictionaries(st.sampled_from(["x", "isError", "structuredContent", "_meta"]), JSON_VALUES),
    st.sampled_from(REVISIONS),
)
def test_unknown_members_survive_and_nothing_is_shaped_twice(content, others, revision):
    came = members(content=content, **others)
    once = view(revision).call_result(came)
    assert once.get("x") == came.get("x")
    assert once.get("isError") == came.get("isError")
    assert decode_result(view(revision).call_result(once)) == decode_result(once)


def test_json_rpc_callers_get_a_tool_result():
    came = members(content=[TEXT, AUDIO, LINK], structuredContent=[1], isError=True, _meta={"a": 1})
    result = tool_result(view(JSON_RPC).call_result(came))
    text, audio, link = result.content
    assert (text, audio) == (TextContent("hello"), AudioContent("AA==", "audio/wav"))
    assert isinstance(link, TextContent)
    assert json.loads(link.text) == LINK
    assert (result.structured_content, result.is_error) == (Raw(b"[1]"), True)
    assert result.meta == {"a": 1}


def test_a_bare_result_becomes_a_tool_result():
    result = tool_result(members(content=[]))
    assert (result.content, result.structured_content, result.is_error) == ((), UNSET, False)
    assert result.meta is UNSET


def test_links_stay_links_on_json_rpc():
    assert decode_result(view(JSON_RPC).call_result(members(content=[LINK]))) == {"content": [LINK]}
