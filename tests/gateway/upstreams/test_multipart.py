"""Bodies of several parts, read by the standard library's parser of messages."""

import base64

import pytest

from gateway.upstreams.rest.upstream import RequestTemplate
from schemas.binding import Body, OpenAPIBinding, Parameter, Part
from schemas.errors import InvalidParams
from tests.gateway.upstreams.parts import field, parts_of
from tests.registry.importers.describe import describe, only

PNG = b"\x89PNG\r\n\x1a\n--not-a-boundary\r\n\0\xff"
PACKED = base64.b64encode(PNG).decode()


def send_parts(value, *parts, media_type="multipart/form-data"):
    body = Body(media_type, argument="body", parts=parts)
    request = RequestTemplate(OpenAPIBinding("POST", "/x", (), body)).request({"body": value})
    return parts_of(request.headers["Content-Type"], request.body)


def fields(value, *parts):
    return [field(part) for part in send_parts(value, *parts)]


def test_a_member_is_a_part_and_an_array_several():
    value = {"a": "é\r\nb", "n": 1.0, "t": True, "list": [1, "x"], "none": None, "empty": []}
    assert fields(value) == [
        ("a", None, None, "é\r\nb".encode()),
        ("n", None, None, b"1"),
        ("t", None, None, b"true"),
        ("list", None, None, b"1"),
        ("list", None, None, b"x"),
    ]


def test_objects_are_json():
    assert fields({"o": {"a": [None]}, "l": [{"b": 1}]}) == [
        ("o", None, "application/json", b'{"a":[null]}'),
        ("l", None, "application/json", b'{"b":1}'),
    ]


def test_a_part_that_is_json_as_a_whole_says_null_and_nothing_too():
    as_json = [Part(name, "application/json") for name in "abc"]
    assert fields({"a": [1, None], "b": None, "c": []}, *as_json) == [
        ("a", None, "application/json", b"[1,null]"),
        ("b", None, "application/json", b"null"),
        ("c", None, "application/json", b"[]"),
    ]


def test_a_stated_type_is_told():
    stated = Part("a", "text/xml"), Part("b", "application/x")
    assert fields({"a": "<x/>", "b": {"c": 1}}, *stated) == [
        ("a", None, "text/xml", b"<x/>"),
        ("b", None, "application/x", b'{"c":1}'),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("value", "name", "media_type", "data"),
    [
        (PACKED, "file", "application/octet-stream", PNG),
        (f"data:image/png;base64,{PACKED}", "file.png", "image/png", PNG),
        ("data:,a%20b", "file.txt", "text/plain", b"a b"),
        ({"text": "é"}, "file.txt", "text/plain", "é".encode()),
        ({"text": "a,b", "filename": "t.csv", "mimeType": "text/csv"}, "t.csv", "text/csv", b"a,b"),
        ({"data": PACKED, "filename": "a.png"}, "a.png", "image/png", PNG),
        ({"data": PACKED, "filename": 'a"b\r\nX: 1.png'}, "a%22b%0D%0AX: 1.png", "image/png", PNG),
        ({"data": PACKED, "filename": "../../etc/x"}, "x", "application/octet-stream", PNG),
        ({"uri": "data:image/gif;base64,R0lG"}, "file.gif", "image/gif", b"GIF"),
        ("", "file", "application/octet-stream", b""),
    ],
)
def test_files(value, name, media_type, data):
    assert fields({"f": value}, Part("f", file=True)) == [("f", name, media_type, data)]


def test_a_file_is_of_the_type_that_the_description_says():
    png = Part("f", "image/png", file=True)
    assert fields({"f": PACKED}, png) == [("f", "file.png", "image/png", PNG)]
    several = Part("f", "image/png, image/jpeg", file=True)
    assert fields({"f": {"data": PACKED, "filename": "x.jpg"}}, several)[0][2] == "image/jpeg"
    assert fields({"f": {"data": PACKED, "mimeType": "image/webp"}}, png)[0][2] == "image/webp"


def test_an_array_of_files_is_several_parts():
    found = fields({"f": [PACKED, {"text": "x"}, None]}, Part("f", file=True))
    assert [(name, data) for name, _, _, data in found] == [("f", PNG), ("f", b"x")]


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("no base64!", r"^f: this is no file: expected base64.*plain text goes into \{text\}"),
        ("data:image/png;base64,***", "^f: this is no file"),
        ("data:image/png", "^f: this is no data: URL"),
        ({}, "^f: a file is one of `data`, `text` and `uri`"),
        ({"data": "", "text": ""}, "^f: a file is one of"),
        ({"data": "", "other": ""}, "^f: a file is one of"),
        ({"data": 5}, "^f: the members of a file are text"),
        ({"uri": "x.png"}, "^f: `uri` is no URI"),
        ({"text": "x", "mimeType": "text/plain\r\nX: 1"}, "^f: `mimeType` is no media type"),
    ],
)
def test_invalid_files_are_refused(value, problem):
    with pytest.raises(InvalidParams, match=problem):
        fields({"f": value}, Part("f", file=True))


def test_errors_name_the_argument_of_a_renamed_part():
    body = Body("multipart/form-data", properties=(("upload", "f"),), parts=(Part("f", file=True),))
    with pytest.raises(InvalidParams, match=r"^upload: "):
        RequestTemplate(OpenAPIBinding("POST", "/x", (), body)).request({"upload": "!"})


def test_names_cannot_end_their_quotes():
    [part] = send_parts({'a"; filename="x\r\nY: z': "v"})
    assert part.get_filename() is None
    assert field(part)[0] == "a%22; filename=%22x%0D%0AY: z"
    assert "Y" not in part


def test_headers_of_a_part_are_arguments():
    header = Parameter("f_X-Rate", "X-Rate", "header", "simple", False)
    part = Part("f", file=True, headers=(header,))
    body = Body("multipart/form-data", properties=(("f", "f"), ("g", "g")), parts=(part,))
    arguments = {"f": PACKED, "g": "x", "f_X-Rate": [1, 2]}
    request = RequestTemplate(OpenAPIBinding("POST", "/x", (), body)).request(arguments)
    file, other = parts_of(request.headers["Content-Type"], request.body)
    assert (file["X-Rate"], other["X-Rate"]) == ("1,2", None)


def test_a_part_with_a_style():
    commas = Part("a", style="form", explode=False)
    deep = Part("o", style="deepObject", explode=True)
    assert fields({"a": [1, 2], "o": {"k": ["é&"]}}, commas, deep) == [
        ("a", None, None, b"1,2"),
        ("o[k][0]", None, None, "é&".encode()),
    ]


def test_another_multipart_type_keeps_its_name_and_parameters():
    body = Body("multipart/related; type=text/xml; boundary=x", argument="body")
    request = RequestTemplate(OpenAPIBinding("POST", "/x", (), body)).request({"body": {"a": "1"}})
    said = request.headers["Content-Type"]
    assert said.startswith("multipart/related; type=text/xml; boundary=")
    assert "boundary=x" not in said
    assert [field(part) for part in parts_of(said, request.body)] == [("a", None, None, b"1")]


def test_encoded_text_names_its_transfer_encoding():
    """Parts of encoded text name the encoding; files are sent as bytes (mending 29)."""
    icon = {"type": "string", "contentMediaType": "image/png", "contentEncoding": "base64"}
    properties = {
        "icon": icon,
        "icons": {"type": "array", "items": {**icon, "contentEncoding": "BASE64"}},
        "odd": {**icon, "contentEncoding": "base64url"},
        "photo": {"type": "string", "contentMediaType": "image/png"},
    }
    media = {"multipart/form-data": {"schema": {"type": "object", "properties": properties}}}
    draft = only(describe({"requestBody": {"content": media}}, version="3.1.0")).draft
    values = {"icon": PACKED, "icons": [PACKED], "odd": "eA", "photo": PACKED}
    request = RequestTemplate(draft.binding).request(values)
    parts = {
        part.get_param("name", header="Content-Disposition"): part
        for part in parts_of(request.headers["Content-Type"], request.body)
    }
    told = {name: part["Content-Transfer-Encoding"] for name, part in parts.items()}
    assert told == {"icon": "base64", "icons": "base64", "odd": None, "photo": None}
    assert {part.get_payload(decode=True) for part in parts.values()} == {PNG, b"eA"}


def test_a_transfer_encoding_of_the_caller_wins():
    """A described header of the part is not doubled (mending 29)."""
    header = Parameter("how", "content-transfer-encoding", "header", "simple", False)
    part = Part("a", headers=(header,), transfer_encoding="base64")
    body = Body("multipart/form-data", argument="body", parts=(part,))
    template = RequestTemplate(OpenAPIBinding("POST", "/x", (), body))
    request = template.request({"body": {"a": "x"}, "how": "8bit"})
    [arrived] = parts_of(request.headers["Content-Type"], request.body)
    assert arrived.get_all("Content-Transfer-Encoding") == ["8bit"]
