"""The style table of OpenAPI 3.1.1, section 4.8.12.6, and RFC 6570 where the table is silent."""

from urllib.parse import unquote

import pytest
from starlette.requests import cookie_parser

from gateway.upstreams.rest.parameter_styles import in_cookie, in_header, in_path, in_query, plain
from schemas.binding import Parameter
from schemas.errors import InvalidParams

EMPTY, STRING = "", "blue"
ARRAY, OBJECT = ["blue", "black", "brown"], {"R": 100, "G": 200, "B": 150}
ODD = "a/b?c&d=e;f,g h%i#é~"
ODD_ENCODED = "a%2Fb%3Fc%26d%3De%3Bf%2Cg%20h%25i%23%C3%A9~"


def parameter(location, style, explode=False, **others):
    return Parameter("argument", "color", location, style, explode, **others)


@pytest.mark.parametrize(
    ("style", "explode", "value", "text"),
    [
        ("matrix", False, EMPTY, ";color"),
        ("matrix", False, STRING, ";color=blue"),
        ("matrix", False, ARRAY, ";color=blue,black,brown"),
        ("matrix", False, OBJECT, ";color=R,100,G,200,B,150"),
        ("matrix", True, EMPTY, ";color"),
        ("matrix", True, STRING, ";color=blue"),
        ("matrix", True, ARRAY, ";color=blue;color=black;color=brown"),
        ("matrix", True, OBJECT, ";R=100;G=200;B=150"),
        ("label", False, EMPTY, "."),
        ("label", False, STRING, ".blue"),
        ("label", False, ARRAY, ".blue,black,brown"),
        ("label", False, OBJECT, ".R,100,G,200,B,150"),
        ("label", True, EMPTY, "."),
        ("label", True, STRING, ".blue"),
        ("label", True, ARRAY, ".blue.black.brown"),
        ("label", True, OBJECT, ".R=100.G=200.B=150"),
        ("simple", False, STRING, "blue"),
        ("simple", False, ARRAY, "blue,black,brown"),
        ("simple", False, OBJECT, "R,100,G,200,B,150"),
        ("simple", True, STRING, "blue"),
        ("simple", True, ARRAY, "blue,black,brown"),
        ("simple", True, OBJECT, "R=100,G=200,B=150"),
        # members that are empty: RFC 6570, sections 3.2.5 and 3.2.7
        ("matrix", True, ["a", ""], ";color=a;color"),
        ("matrix", True, {"x": "", "y": 1}, ";x;y=1"),
        ("label", True, ["a", ""], ".a."),
        ("simple", False, ["", "a"], ",a"),
        ("simple", True, {"x": ""}, "x="),
        # null is undefined: RFC 6570, section 2.3
        ("simple", False, ["a", None, "b"], "a,b"),
        ("label", True, {"x": None, "y": 1}, ".y=1"),
    ],
)
def test_styles_of_the_path(style, explode, value, text):
    assert in_path(parameter("path", style, explode), value) == text


@pytest.mark.parametrize("style", ["simple", "label", "matrix"])
@pytest.mark.parametrize("explode", [True, False])
@pytest.mark.parametrize("value", [None, [], {}, [None], {"x": None}])
def test_nothing_cannot_stand_in_a_path(style, explode, value):
    with pytest.raises(InvalidParams, match=r"^argument: "):
        in_path(parameter("path", style, explode), value)


@pytest.mark.parametrize("explode", [True, False])
def test_an_empty_text_is_no_path(explode):
    with pytest.raises(InvalidParams, match=r"^argument: an empty value cannot stand in a path"):
        in_path(parameter("path", "simple", explode), "")
    with pytest.raises(InvalidParams, match=r"^argument: an empty value cannot stand in a path"):
        in_path(parameter("path", "simple", explode, media_type="text/plain"), "")


@pytest.mark.parametrize(
    ("style", "explode", "value", "text"),
    [
        ("form", False, EMPTY, "color="),
        ("form", False, STRING, "color=blue"),
        ("form", False, ARRAY, "color=blue,black,brown"),
        ("form", False, OBJECT, "color=R,100,G,200,B,150"),
        ("form", True, EMPTY, "color="),
        ("form", True, STRING, "color=blue"),
        ("form", True, ARRAY, "color=blue&color=black&color=brown"),
        ("form", True, OBJECT, "R=100&G=200&B=150"),
        ("spaceDelimited", False, ARRAY, "color=blue%20black%20brown"),
        ("spaceDelimited", False, OBJECT, "color=R%20100%20G%20200%20B%20150"),
        ("pipeDelimited", False, ARRAY, "color=blue%7Cblack%7Cbrown"),
        ("pipeDelimited", False, OBJECT, "color=R%7C100%7CG%7C200%7CB%7C150"),
        ("deepObject", True, OBJECT, "color%5BR%5D=100&color%5BG%5D=200&color%5BB%5D=150"),
        # what the table leaves out
        ("spaceDelimited", True, ARRAY, "color=blue&color=black&color=brown"),
        ("pipeDelimited", True, ARRAY, "color=blue&color=black&color=brown"),
        ("spaceDelimited", False, STRING, "color=blue"),
        ("deepObject", True, STRING, "color=blue"),
        ("deepObject", True, {"a": {"b": [1]}}, "color%5Ba%5D%5Bb%5D%5B0%5D=1"),
        (
            "deepObject",
            True,
            {"a": [{"b": 1}, 2]},
            "color%5Ba%5D%5B0%5D%5Bb%5D=1&color%5Ba%5D%5B1%5D=2",
        ),
        ("deepObject", True, {"a]": "x&y"}, "color%5Ba%5D%5D=x%26y"),
        ("form", False, [ODD, ODD], f"color={ODD_ENCODED},{ODD_ENCODED}"),
        ("form", True, {"a&b": "c=d"}, "a%26b=c%3Dd"),
        ("form", False, [{"a": 1}, [2]], "color=%7B%22a%22%3A1%7D,%5B2%5D"),
        ("form", True, ["a", "", "b"], "color=a&color=&color=b"),
        # null is undefined: RFC 6570, section 2.3
        ("form", True, ["a", None], "color=a"),
        ("form", False, {"x": None, "y": 1}, "color=y,1"),
        ("deepObject", True, {"x": None, "y": {"z": None}}, ""),
        ("deepObject", True, {"x": [None, 1]}, "color%5Bx%5D%5B1%5D=1"),
    ],
)
def test_styles_of_the_query(style, explode, value, text):
    assert in_query(parameter("query", style, explode), value) == text


@pytest.mark.parametrize("style", ["form", "spaceDelimited", "pipeDelimited", "deepObject"])
@pytest.mark.parametrize("explode", [True, False])
@pytest.mark.parametrize("value", [None, [], {}, [None], {"x": None}])
def test_undefined_values_are_not_sent(style, explode, value):
    assert in_query(parameter("query", style, explode), value) == ""
    assert in_cookie(parameter("cookie", "form", explode), value) == ""
    assert in_header(parameter("header", "simple", explode), value) == ""


@pytest.mark.parametrize(
    ("explode", "value", "text"),
    [
        (False, EMPTY, ""),
        (False, STRING, "blue"),
        (False, ARRAY, "blue,black,brown"),
        (False, OBJECT, "R,100,G,200,B,150"),
        (True, ARRAY, "blue,black,brown"),
        (True, OBJECT, "R=100,G=200,B=150"),
        (False, ODD, ODD),  # headers are not percent-encoded: OpenAPI 3.1.1, 4.8.12.2.1
        (False, "a\tb", "a\tb"),
        (False, True, "true"),
    ],
)
def test_the_style_of_headers(explode, value, text):
    assert in_header(parameter("header", "simple", explode), value) == text


@pytest.mark.parametrize("character", ["\r", "\n", "\0", "\x1f", "\x7f"])
@pytest.mark.parametrize("where", ["{}", "a{}X-Forged: 1", "a{}"])
def test_a_header_cannot_be_forged(character, where):
    text = where.format(character)
    for value in (text, [text], {text: 1}, {"k": text}):
        with pytest.raises(InvalidParams, match="control characters cannot stand in a header"):
            in_header(parameter("header", "simple"), value)


@pytest.mark.parametrize(
    ("explode", "value", "text"),
    [
        (True, STRING, "color=blue"),
        (False, ARRAY, "color=blue,black,brown"),
        (True, ARRAY, "color=blue; color=black; color=brown"),
        (True, OBJECT, "R=100; G=200; B=150"),
        (True, "a;b=c\r\nd", "color=a%3Bb=c%0D%0Ad"),
        (True, "a&b", "color=a%26b"),
    ],
)
def test_the_style_of_cookies(explode, value, text):
    assert in_cookie(parameter("cookie", "form", explode), value) == text


@pytest.mark.parametrize("value", [".", "..", "/", "../../etc", "%2e%2e", ODD, "é/日本", "{id}"])
def test_a_value_stays_in_its_path_segment(value):
    for style in ("simple", "label", "matrix"):
        text = in_path(parameter("path", style), value)
        assert not set("/?#{}") & set(text)
        assert "%2e" not in text  # a percent sign of the value is encoded itself


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("a/b:c@d,e;f!g$h'i(j)k*l", "a/b:c@d,e;f!g$h'i(j)k*l"),
        ("a?b=c", "a?b=c"),
        ("é ü", "%C3%A9%20%C3%BC"),
        ("50%", "50%25"),
        ("a%2Fb%zz", "a%2Fb%25zz"),  # triples pass: RFC 6570, section 3.2.3
        ("x&admin=true", "x%26admin=true"),  # would end the parameter
        ("x#y", "x%23y"),  # would end the query
        ("a+b", "a%2Bb"),  # would be read as a space
    ],
)
def test_reserved_characters_pass_if_allowed(value, text):
    allowing = parameter("query", "form", allow_reserved=True)
    assert in_query(allowing, value) == f"color={text}"


def test_separators_of_paths_and_cookies_never_pass():
    assert in_path(parameter("path", "simple", allow_reserved=True), "a/b?c") == "a%2Fb%3Fc"
    assert in_cookie(parameter("cookie", "form", allow_reserved=True), "a;b") == "color=a%3Bb"


@pytest.mark.parametrize(
    ("media_type", "value", "text"),
    [
        ("application/json", {"a": [1, None]}, '{"a":[1,null]}'),
        ("application/json", "x", '"x"'),
        ("application/json", None, "null"),
        ("application/json", [], "[]"),
        ("application/vnd.api+json", {"a": 1}, '{"a":1}'),
        ("text/plain", "x y", "x y"),
        ("text/plain", 5, "5"),
        ("application/x-www-form-urlencoded", {"a": [1, 2], "b": None}, "a=1&a=2"),
    ],
)
def test_a_content_parameter_is_written_as_its_media_type(media_type, value, text):
    encoded = {'"': "%22", " ": "%20", "{": "%7B", "}": "%7D", ":": "%3A"}
    encoded |= {"=": "%3D", "&": "%26", "[": "%5B", "]": "%5D", ",": "%2C"}
    quoted = "".join(encoded.get(char, char) for char in text)
    of = {"media_type": media_type}
    assert in_query(parameter("query", "form", **of), value) == f"color={quoted}"
    assert in_cookie(parameter("cookie", "form", **of), value) == f"color={quoted}"
    assert in_header(parameter("header", "simple", **of), value) == text
    assert in_path(parameter("path", "simple", **of), value) == quoted


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("x", "x"),
        ("", ""),
        (True, "true"),
        (False, "false"),
        (None, "null"),
        (0, "0"),
        (-7, "-7"),
        (2**70, "1180591620717411303424"),
        (3.0, "3"),  # JSON has one kind of number
        (-0.0, "0"),
        (0.1, "0.1"),
        (1e-7, "1e-7"),
        (1e22, "1e22"),
        ({"a": [1.5, "é"]}, '{"a":[1.5,"é"]}'),
    ],
)
def test_values_are_written_as_json_with_bare_strings(value, text):
    assert plain(value) == text


def test_a_name_is_encoded_as_well():
    odd = Parameter("argument", "filter[a&b]", "query", "form", True)
    assert in_query(odd, "x") == "filter%5Ba%26b%5D=x"
    assert in_query(odd, ["x", "y"]) == "filter%5Ba%26b%5D=x&filter%5Ba%26b%5D=y"


@pytest.mark.parametrize(
    ("explode", "value", "text"),
    [
        (False, {"a": ["x", {"b": 1}]}, "color%5Ba%5D%5B%5D=x&color%5Ba%5D%5B%5D%5Bb%5D=1"),
        (False, ["x", "y"], "color%5B%5D=x&color%5B%5D=y"),
        (True, ["x", "y"], "color%5B0%5D=x&color%5B1%5D=y"),
    ],
)
def test_a_deep_array_is_numbered_only_if_exploded(explode, value, text):
    assert in_query(parameter("query", "deepObject", explode), value) == text


@pytest.mark.parametrize("style", ["form", "deepObject", "pipeDelimited"])
@pytest.mark.parametrize("value", [None, "", [], {}, [None]])
def test_allowed_empty_values_are_sent_empty(style, value):
    assert in_query(parameter("query", style, allow_empty=True), value) == "color="
    assert in_query(parameter("query", style, allow_empty=True), "x") == "color=x"


@pytest.mark.parametrize(
    ("style", "in_a_path", "in_a_header"),
    [
        ("spaceDelimited", "a%20b", "a b"),
        ("pipeDelimited", "a%7Cb", "a|b"),
        ("tabDelimited", "a%09b", "a\tb"),
    ],
)
def test_delimiters_of_swagger_2_in_every_place(style, in_a_path, in_a_header):
    assert in_query(parameter("query", style), ["a", "b"]) == f"color={in_a_path}"
    assert in_path(parameter("path", style), ["a", "b"]) == in_a_path
    assert in_header(parameter("header", style), ["a", "b"]) == in_a_header


@pytest.mark.parametrize(
    ("explode", "value", "text"),
    [
        (True, "a%20b/c=d,", "color=a%20b/c=d,"),
        (True, ["x", "y"], "color=x; color=y"),
        (False, ["x", "y"], "color=x,y"),
        (True, {"R": 1, "G": 2}, "R=1; G=2"),
        (False, {"R": 1, "G": None}, "color=R,1"),
        (True, None, ""),
        (True, [], ""),
    ],
)
def test_the_cookie_style_encodes_nothing(explode, value, text):
    assert in_cookie(parameter("cookie", "cookie", explode), value) == text


@pytest.mark.parametrize("value", ["a;b", "a b", 'a"b', "a\\b", "é", "a\r\nb", ["x", "y;z"]])
@pytest.mark.parametrize("explode", [True, False])
def test_the_cookie_style_refuses_cookie_separators(explode, value):
    with pytest.raises(InvalidParams, match="cannot stand in a cookie"):
        in_cookie(parameter("cookie", "cookie", explode), value)


def test_segment_safe_reserved_characters_pass_in_openapi_3_2():
    open_path = parameter("path", "simple", allow_reserved=True)
    assert in_path(open_path, "a:b@c,d;e=f!g") == "a:b@c,d;e=f!g"
    assert in_path(open_path, "a/b?c#d%2E") == "a%2Fb%3Fc%23d%252E"


@pytest.mark.parametrize(
    ("style", "delimiter"),
    [("spaceDelimited", " "), ("pipeDelimited", "|"), ("tabDelimited", "\t")],
)
@pytest.mark.parametrize("place", ["query", "path", "header"])
def test_a_delimiter_inside_a_member_is_refused(style, delimiter, place):
    """A member that contains the delimiter would reach the service as two (mending 29)."""
    write = {"query": in_query, "path": in_path, "header": in_header}[place]
    for value in (
        ["a", f"b{delimiter}c"],
        [f"b{delimiter}c"],
        {"a": f"b{delimiter}c"},
        {f"b{delimiter}c": "a"},
    ):
        if place == "header" and isinstance(value, dict):
            continue  # objects in headers always have commas
        with pytest.raises(InvalidParams, match=r"^argument: .+ separates the members"):
            write(parameter(place, style), value)
    assert write(parameter(place, style), f"b{delimiter}c")  # a text is no list


@pytest.mark.parametrize("allow_reserved", [True, False])
@pytest.mark.parametrize("place", ["query", "path"])
def test_a_comma_inside_a_member_is_encoded(place, allow_reserved):
    """A comma of a member differs from those between members (mending 29)."""
    style, write = {"query": ("form", in_query), "path": ("simple", in_path)}[place]
    text = write(parameter(place, style, allow_reserved=allow_reserved), ["a,b", "c"])
    assert text.removeprefix("color=") == "a%2Cb,c"


def test_a_comma_inside_a_member_of_a_header_is_refused_unless_quoted():
    """Headers have no percent-encoding; quoted strings may contain commas (mending 29)."""
    header, exploded = parameter("header", "simple"), parameter("header", "simple", True)
    assert in_header(header, ['"a,b"', '"c"']) == '"a,b","c"'
    for written_as, value in (
        (header, ["a,b", "c"]),
        (header, {"k": "a,b"}),
        (exploded, {"k": "a,b", "l": 1}),
    ):
        with pytest.raises(InvalidParams, match="',' separates the members"):
            in_header(written_as, value)
    assert in_header(header, "a,b") == "a,b"
    with pytest.raises(InvalidParams, match="',' separates the members"):
        in_cookie(parameter("cookie", "cookie"), ["a,b", "c"])
    with pytest.raises(InvalidParams, match=r"'\.' separates the members"):
        in_path(parameter("path", "label", True), ["a.b", "c"])


@pytest.mark.parametrize(
    "value",
    [
        "a/b=c",
        "2026-01-02T03:04:05+01:00",
        "a b",
        "50%",
        "a,b",
        "x@y.example:8",
        "{id}~[1]",
        "a&b?",
    ],
)
def test_starlette_reads_the_cookie_that_was_given(value):
    """Starlette, as browsers do, takes the value of a cookie as it stands (mending 29)."""
    sent = in_cookie(parameter("cookie", "form", True), value)
    expected = value.replace("&", "%26")  # the only one of these that is encoded
    assert cookie_parser(sent) == {"color": expected}


@pytest.mark.parametrize("value", ["a;b", 'a"b', "a\\b", "é", "100%25", " a", "a "])
def test_characters_that_cookies_lack_are_percent_encoded(value):
    """Quotes, semicolons and letters outside ASCII are there after decoding (mending 29)."""
    sent = in_cookie(parameter("cookie", "form", True), value)
    assert unquote(sent) == f"color={value}"
    assert len(cookie_parser(sent)) == 1
    assert sent.isascii()
    assert sent == sent.strip()
