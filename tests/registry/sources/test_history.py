"""What becomes of requests when a binding changes."""

import pytest

from registry.sources.source_versions import request_changes
from schemas.binding import (
    Binding,
    Body,
    Credential,
    GraphQLBinding,
    HybridBinding,
    OpenAPIBinding,
    Parameter,
)

KEY = Credential("key", "apiKey", name="X-Key")
TOKEN = Credential("token", "oauth2", scopes=("read",))
MORE = Credential("token", "oauth2", scopes=("read", "write"))


def get(*alternatives: tuple[Credential, ...]) -> OpenAPIBinding:
    return OpenAPIBinding("GET", "/x", security=alternatives)


@pytest.mark.parametrize(
    ("before", "after", "breaking"),
    [
        (get(), get((KEY,)), True),
        (get((KEY,)), get(), False),
        (get((KEY,)), get((KEY,), ()), False),
        (get((), (KEY,)), get((KEY,)), True),
        (get((KEY,)), get((KEY,), (TOKEN,)), False),
        (get((KEY,), (TOKEN,)), get((KEY,)), True),
        (get((KEY,)), get((KEY, TOKEN)), True),
        (get((KEY, TOKEN)), get((KEY,)), False),
        (get((TOKEN,)), get((MORE,)), True),
        (get((MORE,)), get((TOKEN,)), False),
        (HybridBinding("s", "a.r"), HybridBinding("s", "a.r a.w"), False),
        (HybridBinding("s", "a.r a.w"), HybridBinding("s", "a.r"), True),
        (HybridBinding("s", "a.r"), HybridBinding("s"), False),
        (HybridBinding("s"), HybridBinding("s", "a.r"), True),
        (HybridBinding("s", skip_auth=True), HybridBinding("s"), True),
        (HybridBinding("s", "a.r"), HybridBinding("s", skip_auth=True), False),
    ],
)
def test_more_credentials_than_before_break_calls(
    before: Binding, after: Binding, breaking: bool
) -> None:
    (change,) = request_changes(before, after)
    assert (change.kind, change.breaking) == ("security", breaking)


def test_arguments_that_travel_otherwise_break_nobody() -> None:
    body = Body("application/json", properties=(("b", "b"),))
    before = OpenAPIBinding("GET", "/x", (Parameter("a", "a", "query", "form", True),), body)
    after = OpenAPIBinding(
        "POST",
        "/x",
        (Parameter("a", "A-B", "header", "simple", False),),
        Body("text/xml", properties=(("b", "c"),)),
        server="https://other.example",
    )
    found = list(request_changes(before, after))
    assert not any(one.breaking for one in found)
    assert [(one.where, one.text) for one in found] == [
        ("a", "was query a, is header A-B"),
        ("b", "was body b, is body c"),
        ("", "body was application/json, is text/xml"),
        ("", "server was the source's, is https://other.example"),
    ]


def test_equal_bindings_have_no_changes() -> None:
    for binding in (get((KEY,)), HybridBinding("s", "a.r"), GraphQLBinding("query", "pets")):
        assert list(request_changes(binding, binding)) == []


def test_another_selection_and_another_protocol_are_told() -> None:
    before = GraphQLBinding("query", "pets", selection="{ id }")
    (change,) = request_changes(before, GraphQLBinding("query", "pets", selection="{ name }"))
    assert (change.kind, change.breaking) == ("wire", False)
    (change,) = request_changes(before, get())
    assert change.text == "called by another protocol"
