"""Arguments to a request."""

import json
from urllib.parse import parse_qsl

import pytest
from msgspec import Raw
from msgspec.structs import replace

from gateway.upstreams.rest.parameter_styles import FORM
from gateway.upstreams.rest.upstream import RequestTemplate
from schemas.binding import Body, Credential, OpenAPIBinding, Parameter, Part
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
    return RequestTemplate(binding).request(arguments).target


def with_body(media_type, arguments, **body):
    return RequestTemplate(OpenAPIBinding("POST", "/pets", (), Body(media_type, **body))).request(
        arguments
    )


def test_each_argument_goes_where_its_parameter_says():
    arguments = {"owner": "a b", "repo": "c/d", "state": "open", "labels": ["x", "y&z"]}
    request = RequestTemplate(REPO).request(arguments)
    assert request.method == "GET"
    assert request.target == "/repos/a%20b/c%2Fd/issues?state=open&labels=x&labels=y%26z"
    assert (dict(request.headers), request.body, request.server) == ({}, None, None)


def test_absent_arguments_are_not_sent():
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
    assert RequestTemplate(binding).request({}).server == "https://uploads.example.com"


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
def test_any_value_is_one_path_segment(value, segment):
    assert target({"owner": value, "repo": "b"}) == f"/repos/{segment}/b/issues"


def test_dots_that_meet_only_in_the_path_are_refused_too():
    binding = OpenAPIBinding("GET", "/files/{a}{b}", (path_of("a"), path_of("b")))
    with pytest.raises(InvalidParams, match=r"'\.' or '\.\.'"):
        target({"a": ".", "b": "."}, binding)
    assert target({"a": "x", "b": "."}, binding) == "/files/x."


@pytest.mark.parametrize("path", ["/files/{a};v=1", "/files/{a};v=1/x", "/{a};"])
def test_dots_before_a_parameter_of_their_segment_are_refused_too(path):
    """Servlets take `..;v=1` for `..`."""
    binding = OpenAPIBinding("GET", path, (path_of("a"),))
    with pytest.raises(InvalidParams, match=r"'\.' or '\.\.'"):
        target({"a": ".."}, binding)
    assert target({"a": "x..;"}, binding) == path.format(a="x..%3B")


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
    assert dict(
        RequestTemplate(binding).request({"trace": "t", "theme": "a;b", "ids": [1, 2]}).headers
    ) == {
        "X-Trace": "t",
        "Cookie": "theme=a%3Bb; ids=1,2",
    }
    assert (
        dict(RequestTemplate(binding).request({"trace": None, "theme": None, "ids": []}).headers)
        == {}
    )


@pytest.mark.parametrize(
    "name",
    ["Host", "host", "Content-Length", "Transfer-Encoding", "Connection", "Upgrade", "TE"],
)
def test_framing_and_routing_headers_do_not_come_from_arguments(name):
    binding = OpenAPIBinding("GET", "/x", (header_of(name),))
    assert dict(RequestTemplate(binding).request({"value": "evil.example.com"}).headers) == {}


@pytest.mark.parametrize("value", ["a\r\nX-Forged: 1", ["a", "b\n"], {"k\r": 1}])
def test_headers_cannot_be_forged(value):
    with pytest.raises(InvalidParams, match="control characters"):
        RequestTemplate(OpenAPIBinding("GET", "/x", (header_of("X-A"),))).request({"value": value})


@pytest.mark.parametrize("media_type", ["application/json", "application/vnd.api+json"])
def test_a_json_body_of_hoisted_properties(media_type):
    properties = (("name", "name"), ("id_2", "id"), ("tag", "tag"))
    arguments = {"name": "Rex", "id_2": 2**70, "other": 1, "tag": None}
    request = with_body(media_type, arguments, properties=properties)
    assert request.headers["Content-Type"] == media_type
    assert json.loads(request.body) == {"name": "Rex", "id": 2**70, "tag": None}


def test_further_members_of_a_body_stand_beside_its_properties():
    """Members that no description names are sent, and replace no property (mending 24)."""
    body = {"properties": (("size", "size"),), "additional": "more"}
    sent = with_body("application/json", {"size": 1, "more": {"hue": "red", "size": 2}}, **body)
    assert json.loads(sent.body) == {"hue": "red", "size": 1}
    only_more = with_body("application/json", {"more": {"hue": "red"}}, **body)
    assert json.loads(only_more.body) == {"hue": "red"}


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
def test_a_body_of_another_type_is_sent_verbatim(media_type, value, body):
    request = with_body(media_type, {"body": value}, argument="body")
    assert (request.body, request.headers["Content-Type"]) == (body, media_type)


HIDDEN = Parameter("", "v", "query", "form", True, fixed=Raw(b'["a",1]'))


def test_hidden_values_are_always_sent_and_cannot_be_overridden():
    binding = OpenAPIBinding("GET", "/x", (HIDDEN, query_of("q")))
    assert target({"q": 1}, binding) == "/x?v=a&v=1&q=1"
    assert target({"v": "mine", "": "mine"}, binding) == "/x?v=a&v=1"
    hidden_header = Parameter("", "X-Api", "header", "simple", False, fixed=Raw(b"2"))
    request = RequestTemplate(OpenAPIBinding("GET", "/x", (hidden_header,))).request({"X-Api": 3})
    assert dict(request.headers) == {"X-Api": "2"}


def test_hidden_members_are_sent_with_the_body():
    properties, fixed = (("a", "a"),), {"kind": "pet"}
    sent = with_body("application/json", {"a": 1}, properties=properties, fixed=fixed)
    assert json.loads(sent.body) == {"a": 1, "kind": "pet"}
    assert with_body("application/json", {}, properties=properties, fixed=fixed).body is None
    whole = with_body("application/json", {"b": {"kind": 1}}, argument="b", fixed=fixed)
    assert json.loads(whole.body) == {"kind": "pet"}


def test_a_path_may_have_a_query_of_its_own():
    binding = OpenAPIBinding("GET", "/x?action={id}", (path_of("id"), query_of("q")))
    assert target({"id": "a&b"}, binding) == "/x?action=a%26b"
    assert target({"id": "1", "q": ".."}, binding) == "/x?action=1&q=.."


def test_several_variables_in_one_segment():
    binding = OpenAPIBinding("GET", "/{a}.{b}-{c}", tuple(path_of(name) for name in "abc"))
    assert target({"a": "x", "b": "{c}", "c": "y.z"}, binding) == "/x.%7Bc%7D-y.z"


@pytest.mark.parametrize(
    ("media_type", "value", "query"),
    [
        (FORM, {"a": "x y", "b": [1, 2], "c": None}, "a=x%20y&b=1&b=2"),
        ("application/json", {"a": [1]}, "%7B%22a%22%3A%5B1%5D%7D"),
        ("text/plain", "a&b=c", "a%26b%3Dc"),
    ],
)
def test_the_query_as_a_whole(media_type, value, query):
    whole = Parameter("q", "q", "querystring", "form", True, media_type=media_type)
    assert target({"q": value}, OpenAPIBinding("GET", "/x", (whole,))) == f"/x?{query}"


STYLED = (
    Part("commas", style="form", explode=False),
    Part("pipes", style="pipeDelimited", explode=False),
    Part("deep", style="deepObject", explode=True),
    Part("open", style="form", allow_reserved=True),
    Part("json", "application/json"),
)


@pytest.mark.parametrize(
    ("value", "body"),
    [
        ({"commas": ["a", "b,c"]}, "commas=a,b%2Cc"),
        ({"pipes": [1, 2]}, "pipes=1%7C2"),
        ({"deep": {"a": {"b": [1]}}}, "deep%5Ba%5D%5Bb%5D%5B0%5D=1"),
        ({"open": "http://x/?y"}, "open=http://x/?y"),
        ({"json": ["x"]}, "json=%5B%22x%22%5D"),
        ({"json": None}, "json=null"),
        ({"json": []}, "json=%5B%5D"),
        ({"plain": ["a b", None], "none": None, "empty": [], "text": ""}, "plain=a+b&text="),
    ],
)
def test_a_form_with_encodings(value, body):
    sent = with_body(FORM, {"body": value}, argument="body", parts=STYLED)
    assert sent.body.decode() == body


@pytest.mark.parametrize(
    ("media_type", "value", "body"),
    [
        ("application/yaml", {"a": [None]}, b'{"a":[null]}'),
        ("application/apply-patch+yaml", {"a": 1}, b'{"a":1}'),
        ("application/merge-patch+json", {"a": None, "b": []}, b'{"a":null,"b":[]}'),
        ("application/jsonl", [{"a": 1}, 2], b'{"a":1}\n2\n'),
        ("application/x-ndjson", [1], b"1\n"),
        ("application/json-seq", [1, 2], b"\x1e1\n\x1e2\n"),
        ("application/x-amz-json-1.1", {"a": 1}, b'{"a":1}'),
    ],
)
def test_yaml_bodies_are_written_as_json(media_type, value, body):
    assert with_body(media_type, {"body": value}, argument="body").body == body


@pytest.mark.parametrize(
    ("value", "sent"),
    [
        ("aGk=", ("application/octet-stream", b"hi")),
        ("aGk", ("application/octet-stream", b"hi")),
        ("_-8=", ("application/octet-stream", b"\xff\xef")),
        ({"text": "hi"}, ("application/octet-stream", b"hi")),
    ],
)
def test_a_body_that_is_a_file(value, sent):
    request = with_body("application/octet-stream", {"f": value}, argument="f", file=True)
    assert (request.headers["Content-Type"], request.body) == sent


@pytest.mark.parametrize(
    ("stated", "value", "sent"),
    [
        ("*/*", "data:image/png;base64,AA==", "image/png"),
        ("image/*", {"data": "AA==", "filename": "x.gif"}, "image/gif"),
        ("*/*", "AA==", "application/octet-stream"),
        ("image/png", "data:image/gif;base64,AA==", "image/png"),
    ],
)
def test_a_range_of_types_is_that_of_the_file(stated, value, sent):
    request = with_body(stated, {"f": value}, argument="f", file=True)
    assert request.headers["Content-Type"] == sent


def test_remote_files_are_left_to_be_opened():
    request = with_body("image/*", {"f": "https://example.com/a.png"}, argument="f", file=True)
    assert (request.body, request.upload.content_type) == (None, None)
    assert [piece.file.uri for piece in request.upload.pieces] == ["https://example.com/a.png"]


@pytest.mark.parametrize("location", ["query", "querystring", "cookie"])
@pytest.mark.parametrize("name", ["tenant", "key"])
def test_members_of_an_object_pass_for_no_hidden_parameter_and_no_credential(location, name):
    place = "query" if location == "querystring" else location
    media_type = "application/x-www-form-urlencoded" if location == "querystring" else None
    binding = OpenAPIBinding(
        "GET",
        "/x",
        (
            Parameter("filter", "filter", location, "form", True, media_type=media_type),
            Parameter("tenant", "tenant", place, "form", True, fixed=b'"ours"'),
        ),
        security=((Credential("k", "apiKey", place, "key"),),),
    )
    with pytest.raises(InvalidParams, match=f"filter: {name} cannot be given"):
        RequestTemplate(binding).request({"filter": {"a": 1, name: "theirs"}})
    RequestTemplate(binding).request({"filter": {"a": 1}})
    deep = Parameter("filter", "filter", place, "deepObject", True)
    RequestTemplate(replace(binding, parameters=(deep, binding.parameters[1]))).request(
        {"filter": {name: 1}}
    )
