"""Arguments to a request."""

import json
from urllib.parse import parse_qsl

import pytest

from gateway.upstreams.openapi import build
from schemas.binding import Body, OpenAPIBinding, Parameter
from schemas.errors import InvalidParams


def path_of(name, style="simple"):
    return Parameter(name, name, "path", style, False)


def query_of(name):
    return Parameter(name, name, "query", "form", True)


def header_of(name, argument="value"):
    return Parameter(argument, name, "header", "simple", False)


REPO = OpenAPIBinding(
    "GET",
    "/repos/{owner}/{repo}/issues",
    (path_of("owner"), path_of("repo"), query_of("state"), query_of("labels")),
)


def target(arguments, binding=REPO):
    return build(binding, arguments).target


def with_body(media_type, arguments, **body):
    return build(OpenAPIBinding("POST", "/pets", (), Body(media_type, **body)), arguments)


def test_each_argument_goes_where_its_parameter_says():
    arguments = {"owner": "a b", "repo": "c/d", "state": "open", "labels": ["x", "y&z"]}
    request = build(REPO, arguments)
    assert request.method == "GET"
    assert request.target == "/repos/a%20b/c%2Fd/issues?state=open&labels=x&labels=y%26z"
    assert (dict(request.headers), request.body, request.server) == ({}, None, None)


def test_what_is_not_given_is_not_sent():
    assert target({"owner": "a", "repo": "b"}) == "/repos/a/b/issues"
    assert target({"owner": "a", "repo": "b", "labels": [], "state": None}) == "/repos/a/b/issues"
    assert target({"owner": "a", "repo": "b", "state": ""}) == "/repos/a/b/issues?state="


def test_an_argument_may_have_another_name_than_its_parameter():
    renamed = Parameter("id_2", "id", "query", "form", True)
    assert target({"id_2": 7, "id": 8}, OpenAPIBinding("GET", "/x", (renamed,))) == "/x?id=7"


def test_a_value_that_looks_like_a_template_is_not_filled_in():
    assert target({"owner": "{repo}", "repo": "b"}) == "/repos/%7Brepo%7D/b/issues"


def test_a_parameter_may_stand_twice_in_a_path():
    binding = OpenAPIBinding("GET", "/{a}/of/{a}", (path_of("a"),))
    assert target({"a": "x"}, binding) == "/x/of/x"


def test_the_server_of_the_operation_is_kept():
    binding = OpenAPIBinding("POST", "/x", server="https://uploads.example.com")
    assert build(binding, {}).server == "https://uploads.example.com"


@pytest.mark.parametrize(
    "value", [".", "..", "../x", "x/..", "a/./b", "..\\x", "/..", "", None, [], {}]
)
def test_a_value_cannot_leave_its_place_in_the_path(value):
    with pytest.raises(InvalidParams):
        target({"owner": value, "repo": "b"})


@pytest.mark.parametrize(
    ("value", "segment"),
    [
        ("%2e%2e", "%252e%252e"),
        ("/", "%2F"),
        ("...", "..."),
        (".github", ".github"),
        ("v1.0", "v1.0"),
        ("a..b", "a..b"),
        ("a/.b", "a%2F.b"),
        ("?x=1#y", "%3Fx%3D1%23y"),
        ("é", "%C3%A9"),
        (0, "0"),
        (True, "true"),
    ],
)
def test_a_value_is_one_segment_whatever_it_holds(value, segment):
    assert target({"owner": value, "repo": "b"}) == f"/repos/{segment}/b/issues"


def test_dots_that_meet_only_in_the_path_are_refused_too():
    binding = OpenAPIBinding("GET", "/files/{a}{b}", (path_of("a"), path_of("b")))
    with pytest.raises(InvalidParams, match=r"'\.' or '\.\.'"):
        target({"a": ".", "b": "."}, binding)
    assert target({"a": "x", "b": "."}, binding) == "/files/x."


def test_headers_and_cookies():
    binding = OpenAPIBinding(
        "GET",
        "/x",
        (
            header_of("X-Trace", "trace"),
            Parameter("theme", "theme", "cookie", "form", True),
            Parameter("ids", "ids", "cookie", "form", False),
        ),
    )
    assert dict(build(binding, {"trace": "t", "theme": "a;b", "ids": [1, 2]}).headers) == {
        "X-Trace": "t",
        "Cookie": "theme=a%3Bb; ids=1,2",
    }
    assert dict(build(binding, {"trace": None, "theme": None, "ids": []}).headers) == {}


@pytest.mark.parametrize(
    "name",
    ["Host", "host", "Content-Length", "Transfer-Encoding", "Connection", "Upgrade", "TE"],
)
def test_what_frames_or_routes_the_request_does_not_come_from_arguments(name):
    binding = OpenAPIBinding("GET", "/x", (header_of(name),))
    assert dict(build(binding, {"value": "evil.example.com"}).headers) == {}


@pytest.mark.parametrize("value", ["a\r\nX-Forged: 1", ["a", "b\n"], {"k\r": 1}])
def test_headers_cannot_be_forged(value):
    with pytest.raises(InvalidParams, match="control characters"):
        build(OpenAPIBinding("GET", "/x", (header_of("X-A"),)), {"value": value})


@pytest.mark.parametrize("media_type", ["application/json", "application/vnd.api+json"])
def test_a_json_body_of_hoisted_properties(media_type):
    properties = (("name", "name"), ("id_2", "id"), ("tag", "tag"))
    arguments = {"name": "Rex", "id_2": 2**70, "other": 1, "tag": None}
    request = with_body(media_type, arguments, properties=properties)
    assert request.headers["Content-Type"] == media_type
    assert json.loads(request.body) == {"name": "Rex", "id": 2**70, "tag": None}


@pytest.mark.parametrize(
    ("value", "text"),
    [([1, "x"], b'[1,"x"]'), ("x", b'"x"'), (None, b"null"), (False, b"false"), ({}, b"{}")],
)
def test_a_json_body_of_one_argument(value, text):
    assert with_body("application/json", {"body": value}, argument="body").body == text


def test_a_body_that_nobody_gave():
    assert with_body("application/json", {}, argument="body").body is None
    assert with_body("application/json", {}, properties=(("a", "a"),)).body is None
    required = with_body("application/json", {}, properties=(("a", "a"),), required=True)
    assert required.body == b"{}"
    assert "Content-Type" not in with_body("application/json", {}, argument="body").headers


def test_a_form():
    properties = tuple((name, name) for name in "abcdef")
    arguments = {"a": "x y&z=é", "b": [1, 2.0, None], "c": {"k": "v"}, "d": None, "e": True}
    request = with_body("application/x-www-form-urlencoded", arguments, properties=properties)
    assert request.headers["Content-Type"] == "application/x-www-form-urlencoded"
    assert parse_qsl(request.body.decode()) == [
        ("a", "x y&z=é"),
        ("b", "1"),
        ("b", "2"),
        ("c", '{"k":"v"}'),
        ("e", "true"),
    ]


def test_a_multipart_form_leaves_the_type_to_who_knows_the_boundary():
    request = with_body("multipart/form-data", {"body": {"a": "x", "b": [1, 2]}}, argument="body")
    assert request.form == [("a", "x"), ("b", "1"), ("b", "2")]
    assert "Content-Type" not in request.headers


@pytest.mark.parametrize(
    ("media_type", "value", "body"),
    [
        ("text/plain", "é", "é".encode()),
        ("text/plain", 5, b"5"),
        ("application/octet-stream", "raw", b"raw"),
        ("application/xml", "<a/>", b"<a/>"),
        ("text/csv", ["a"], b'["a"]'),
    ],
)
def test_a_body_of_another_type_goes_out_as_it_is(media_type, value, body):
    request = with_body(media_type, {"body": value}, argument="body")
    assert (request.body, request.headers["Content-Type"]) == (body, media_type)
