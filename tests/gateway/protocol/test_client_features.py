"""What servers ask clients, of any revision."""

import copy

import pytest

from gateway.protocol.client_features import ELICIT, SAMPLE, RefusalReason, for_client, for_server
from schemas.mcp.revisions import V2024_11_05, V2025_03_26, V2025_06_18, V2025_11_25, V2026_07_28
from tests.revisions import by_revision

NEWER = (V2025_11_25, V2026_07_28)
ABLE = {
    "elicitation": {"form": {}, "url": {}},
    "sampling": {"tools": {}, "context": {}},
    "roots": {"listChanged": True},
}
TITLED = [{"const": "r", "title": "Red"}, {"const": "g", "title": "Green"}, {"const": "b"}]
FORM = {
    "mode": "form",
    "message": "Which?",
    "requestedSchema": {
        "type": "object",
        "properties": {
            "name": {"type": "string", "title": "Name", "default": "John"},
            "age": {"type": "integer", "default": 30, "minimum": 0},
            "plain": {"type": "string", "enum": ["a", "b"], "default": "a"},
            "legacy": {"type": "string", "enum": ["a"], "enumNames": ["A"]},
            "one": {"type": "string", "title": "One", "oneOf": TITLED, "default": "r"},
            "many": {"type": "array", "items": {"type": "string", "enum": ["a", "b"]},
                     "minItems": 1, "maxItems": 2, "default": ["a"], "description": "Some"},
            "titled": {"type": "array", "items": {"anyOf": TITLED}},
        },
        "required": ["many"],
    },
    "_meta": {"x": 1},
}  # fmt: skip
ADDRESS = {"mode": "url", "message": "Sign in", "url": "https://a.example"}


def properties(asked):
    return asked["requestedSchema"]["properties"]


@pytest.mark.parametrize("revision", NEWER, ids=lambda revision: revision.name)
@pytest.mark.parametrize("can", [{}, {"form": {}}, {"form": {}, "url": {}}])
def test_a_fully_supported_form_is_unchanged(revision, can):
    assert for_client(ELICIT, FORM, revision, {"elicitation": can}) == FORM


def test_a_form_of_2025_06_18_has_plain_choices_and_no_mode():
    before = copy.deepcopy(FORM)
    asked = for_client(ELICIT, FORM, V2025_06_18, {"elicitation": {}})
    was, now = properties(FORM), properties(asked)
    assert before == FORM  # the server may still be answered by what it asked
    assert "mode" not in asked
    assert asked["_meta"] == {"x": 1}
    for name in ("name", "age", "legacy"):
        assert now[name] == was[name]
    assert now["plain"] == {"type": "string", "enum": ["a", "b"], "default": "a"}
    names = {"enum": ["r", "g", "b"], "enumNames": ["Red", "Green", "b"]}
    assert now["one"] == {"type": "string", "title": "One", "default": "r", **names}
    assert now["many"] == {"type": "string", "description": "Some", "enum": ["a", "b"]}
    assert now["titled"] == {"type": "string", **names}
    assert asked["requestedSchema"]["required"] == ["many"]


def test_one_choice_goes_back_as_the_list_that_was_asked_for():
    result = {"action": "accept", "content": {"many": "a", "titled": "r", "one": "g", "x": 1}}
    went = for_server(ELICIT, FORM, result, V2025_11_25)
    assert went["content"] == {"many": ["a"], "titled": ["r"], "one": "g", "x": 1}
    assert went["action"] == "accept"


@pytest.mark.parametrize(
    "result",
    [
        {"action": "accept", "content": {"many": ["a", "b"], "name": "x"}},
        {"action": "decline"},
        {"action": "cancel", "content": None},
        "junk",
        None,
    ],
)
def test_valid_answers_to_forms_are_returned_unchanged(result):
    assert for_server(ELICIT, FORM, result, V2025_11_25) == result
    assert for_server(ELICIT, {"requestedSchema": 1}, result, V2025_11_25) == result


@by_revision
@pytest.mark.parametrize(
    "can", [{}, {"form": {}}, {"url": {}}, {"form": {}, "url": {}}], ids=lambda can: str(list(can))
)
def test_urls_are_opened_only_by_declaring_clients(revision, can):
    asked = for_client(ELICIT, ADDRESS, revision, {"elicitation": can})
    if revision in NEWER and "url" in can:
        assert {**ADDRESS, **asked} == asked
    else:
        assert isinstance(asked, RefusalReason)
        wanted = {"url": {}} if revision.elicits else {}
        assert asked.required == {"elicitation": wanted}


def test_an_address_has_an_id_on_2025_11_25_alone():
    first, second = (for_client(ELICIT, ADDRESS, V2025_11_25, ABLE) for _ in range(2))
    assert first["elicitationId"] != second["elicitationId"]
    known = {**ADDRESS, "elicitationId": "own"}
    assert for_client(ELICIT, known, V2025_11_25, ABLE) == known
    assert for_client(ELICIT, known, V2026_07_28, ABLE) == ADDRESS


@by_revision
def test_clients_without_elicitation_are_not_asked(revision):
    for can in ({}, {"elicitation": None}, {"elicitation": True}, {"sampling": {}}):
        assert isinstance(for_client(ELICIT, FORM, revision, can), RefusalReason)
    asked = for_client(ELICIT, FORM, revision, ABLE)
    assert isinstance(asked, RefusalReason) is (revision in {V2024_11_05, V2025_03_26})


@pytest.mark.parametrize("revision", NEWER, ids=lambda revision: revision.name)
def test_clients_with_only_urls_get_no_form(revision):
    asked = for_client(ELICIT, FORM, revision, {"elicitation": {"url": {}}})
    assert asked == RefusalReason("The client shows no forms", {"elicitation": {"form": {}}})


@pytest.mark.parametrize("params", [FORM, ADDRESS])
def test_questions_name_the_asking_server(params):
    asked = for_client(ELICIT, params, V2025_11_25, ABLE, asker="petshop")
    assert asked["message"] == f"petshop: {params['message']}"
    assert "message" not in for_client(ELICIT, {"mode": "form"}, V2025_11_25, ABLE, asker="petshop")


@pytest.mark.parametrize(
    "schema",
    [None, [], {}, {"properties": []}, {"properties": {"a": 1, "b": {"type": "array"}}},
     {"properties": {"a": {"oneOf": [{"type": "string"}]}, "b": {"anyOf": 1}}}],
)  # fmt: skip
def test_a_form_that_nobody_knows_is_the_business_of_the_client(schema):
    asked = for_client(ELICIT, {"requestedSchema": schema}, V2025_06_18, ABLE)
    assert asked == {"requestedSchema": schema}


SAMPLING = {
    "messages": [
        {"role": "user", "content": {"type": "text", "text": "Hi"}},
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
    ],
    "maxTokens": 100,
    "x-own": 1,
}


@by_revision
def test_a_message_of_many_contents_is_many_messages_before_2025_11_25(revision):
    asked = for_client(SAMPLE, SAMPLING, revision, {"sampling": {}})
    texts = [one["content"] for one in asked["messages"]]
    if revision in NEWER:
        assert asked == SAMPLING
    else:
        assert [text["text"] for text in texts] == ["Hi", "a", "b"]
        assert {**asked, "messages": 0} == {**SAMPLING, "messages": 0}


@by_revision
def test_a_model_without_ears_reads_that_there_is_sound(revision):
    sound = {"type": "audio", "data": "", "mimeType": "audio/wav"}
    params = {"messages": [{"role": "user", "content": sound}]}
    (message,) = for_client(SAMPLE, params, revision, ABLE)["messages"]
    assert (message["content"] == sound) is (revision is not V2024_11_05)
    assert message["content"]["type"] in {"audio", "text"}


@by_revision
@pytest.mark.parametrize("more", [{"tools": []}, {"toolChoice": {"mode": "auto"}}])
def test_sampling_with_tools_requires_client_support(revision, more):
    params = {**SAMPLING, **more}
    without = for_client(SAMPLE, params, revision, {"sampling": {}})
    assert isinstance(without, RefusalReason)
    assert without.required == {"sampling": {"tools": {}}}
    assert isinstance(for_client(SAMPLE, params, revision, ABLE), dict) is (revision in NEWER)


@by_revision
@pytest.mark.parametrize("method", [SAMPLE, "roots/list"])
def test_undeclared_client_features_are_not_requested(revision, method):
    name = "sampling" if method == SAMPLE else "roots"
    refused = for_client(method, {"messages": []}, revision, {"elicitation": {}, name: None})
    assert isinstance(refused, RefusalReason)
    assert refused.required == {name: {}}
    assert for_client(method, {"messages": []}, revision, ABLE) == {"messages": []}


@by_revision
@pytest.mark.parametrize("method", ["ping", "tools/call", "notifications/message", ""])
def test_nothing_else_is_asked(revision, method):
    assert isinstance(for_client(method, {}, revision, ABLE), RefusalReason)


@pytest.mark.parametrize("params", [{"messages": None}, {"messages": [1, {"role": "user"}]}])
def test_messages_that_nobody_knows_are_the_business_of_the_client(params):
    asked = for_client(SAMPLE, params, V2025_06_18, ABLE)
    assert isinstance(asked, dict)
    assert len(asked["messages"] or []) == len(params["messages"] or [])


@by_revision
def test_older_servers_get_one_content_for_an_answer(revision):
    text = {"type": "text", "text": "x"}
    result = {"role": "assistant", "content": [text], "model": "m"}
    went = for_server(SAMPLE, SAMPLING, result, revision)
    assert went == (result if revision in NEWER else {**result, "content": text})
    many = {**result, "content": [text, text]}
    assert for_server(SAMPLE, SAMPLING, many, revision) == many
