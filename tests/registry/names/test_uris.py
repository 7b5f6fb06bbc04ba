"""URI templates: which URIs they give."""

import re
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from registry.names.uris import (
    EXPRESSIONS_LIMIT,
    Template,
    UriBits,
    expand_template,
    template_variables,
    unwrap_uri,
    wrap_uri,
)


@pytest.mark.parametrize(
    ("template", "uri", "gives"),
    [
        ("test://template/{id}/data", "test://template/123/data", True),
        ("test://template/{id}/data", "test://template/1/2/data", False),
        ("test://template/{id}/data", "test://template/123/data/x", False),
        ("test://template/{id}/data", "test://template//data", True),
        ("test://template/{id}/data", "Test://template/1/data", False),
        ("file:///{+path}", "file:///a/b/c.txt", True),
        ("file:///{+path}", "file://a", False),
        ("db://{table}/{row}", "db://t/r", True),
        ("db://{table}/{row}", "db://t/r/s", False),
        ("db://x{#part}", "db://x#here", True),
        ("db://x{/a,b}", "db://x/1/2", True),
        ("db://x{?q,limit}", "db://x?q=1/2&limit=3", True),
        ("db://x{?q,limit}", "db://x", True),
        ("db://x/{id}", "db://x/a?b", False),
        ("{+any}", "whatever:it#is", True),
        ("db://{a}-{b}-{c}", "db://1-2-3-4-5", True),
        ("no-expression", "no-expression", True),
        ("no-expression", "no-expressions", False),
        ("x:{name}", "x:Zürich", True),
    ],
)
def test_a_template_matches_its_uris_only(template: str, uri: str, gives: bool) -> None:
    assert Template.read(template).matches(UriBits(uri)) == gives


@pytest.mark.parametrize("text", ["x:{", "x:}", "x:{}", "x:{a", "x:{a}}", "x:{a b}", "x:{!a}"])
def test_braces_that_hold_no_variables_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no URI template"):
        Template.read(text)


def test_so_are_more_expressions_than_anybody_needs() -> None:
    Template.read("x:" + "{a}" * EXPRESSIONS_LIMIT)
    with pytest.raises(ValueError, match=f"more than {EXPRESSIONS_LIMIT} expressions"):
        Template.read("x:" + "{a}" * (EXPRESSIONS_LIMIT + 1))


PARTS = st.lists(st.sampled_from(["a", "b", "/", "ab", "{x}", "{+x}"]), max_size=6).map("".join)


@given(PARTS, st.text("ab/", max_size=8))
def test_matching_agrees_with_a_regular_expression(template: str, uri: str) -> None:
    pattern = re.escape(template).replace(r"\{x\}", "[^/?#]*").replace(r"\{\+x\}", ".*")
    assert Template.read(template).matches(UriBits(uri)) == bool(re.fullmatch(pattern, uri))


@given(st.text(string.printable), st.text(string.printable))
def test_matching_accepts_any_text(template: str, uri: str) -> None:
    try:
        read = Template.read(template)
    except ValueError:
        return
    read.matches(UriBits(uri))


def test_wrapped_uris_can_be_unwrapped() -> None:
    assert wrap_uri("fs", "file:///a") == "toolgate://fs/file:///a"
    assert unwrap_uri("toolgate://fs/file:///a") == ("fs", "file:///a")
    assert unwrap_uri(wrap_uri("a", wrap_uri("b", "c:d"))) == ("a", "toolgate://b/c:d")
    assert unwrap_uri("file:///a") is None


@pytest.mark.parametrize(
    ("template", "uri"),
    [  # RFC 6570, section 3.2, with texts
        ("/a/{var}", "/a/value"),
        ("{hello}", "Hello%20World%21"),
        ("{+path}/here", "/foo/bar/here"),
        ("{#path,x}", "#/foo/bar,1024"),
        ("{.x,y}", ".1024.768"),
        ("{/var:3,x}", "/val/1024"),
        ("{;x,empty}", ";x=1024;empty"),
        ("{?x,y,undef}", "?x=1024&y=768"),
        ("?fixed=yes{&empty*}", "?fixed=yes&empty="),
        ("{undef}{?undef}", ""),
    ],
)
def test_templates_are_expanded(template: str, uri: str) -> None:
    values = {"var": "value", "hello": "Hello World!", "path": "/foo/bar", "x": "1024"}
    assert expand_template(template, {**values, "y": "768", "empty": ""}) == uri


def test_variables_of_a_template_are_named_once() -> None:
    assert template_variables("{a}/{+b:3,c*}{?a}") == ["a", "b", "c"]
