"""An answer to a result."""

import base64
import json

import pytest
from msgspec import UNSET
from msgspec.json import encode

from gateway.upstreams.http.client import HttpResponse
from gateway.upstreams.rest.upstream import read
from schemas.tool import AudioContent, EmbeddedResource, ImageContent, TextContent

PNG = b"\x89PNG\r\n\x1a\n\0\0"


def result(body=b"", media_type="application/json", status=200, reason="OK", **headers):
    if media_type is not None:
        headers["Content-Type"] = media_type
    found = read(HttpResponse(status, reason, headers, body), "r-1")
    assert encode(found)  # whatever came, it can be sent on
    return found


def text(*arguments, **named):
    [content] = result(*arguments, **named).content
    assert isinstance(content, TextContent)
    return content.text


@pytest.mark.parametrize(
    "media_type",
    [
        "application/json",
        "application/json; charset=utf-8",
        "Application/JSON",
        "application/hal+json",
        "application/geo+json;version=1",
    ],
)
@pytest.mark.parametrize(
    "body", [b'{"a": 1.00}', b"[1, 2]", b'"x"', b"null", b"7", b' {\n "a": [] }\n', b"1e400"]
)
def test_json_is_returned_verbatim_as_text_and_structure(media_type, body):
    found = result(body, media_type)
    assert found.content == (TextContent(body.decode()),)
    assert bytes(found.structured_content) == body
    assert found.is_error is False


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"<html>",
        b"{} {}",
        b"NaN",
        b'{"a": 1,}',
        b'"a\nb"',
        b'"\\ud800"',
        b'{"a": "\xff"}',
        b"[" * 1_000_000 + b"]" * 1_000_000,  # more than fit into a stack
        '{"a": 1}'.encode("utf-16"),
    ],
)
def test_invalid_json_is_returned_as_text(body):
    found = result(body)
    assert found.structured_content is UNSET
    assert found.content == (TextContent(body.decode(errors="replace")),)


def test_a_byte_order_mark_is_no_part_of_the_json():
    found = result(b'\xef\xbb\xbf{"a": 1}')  # RFC 8259, section 8.1: parsers may ignore it
    assert bytes(found.structured_content) == b'{"a": 1}'
    assert found.content == (TextContent('{"a": 1}'),)


@pytest.mark.parametrize("status", [200, 201, 202, 204, 205])
def test_an_empty_answer_has_its_status(status):
    assert text(b"", None, status, "Fine") == f"{status} Fine"
    assert text(b"", "application/json", status, "") == str(status)


@pytest.mark.parametrize(
    ("media_type", "body", "expected"),
    [
        ("text/plain", "é".encode(), "é"),
        ("text/plain; charset=iso-8859-1", b"\xe9", "é"),
        ('text/plain; charset="iso-8859-1"', b"\xe9", "é"),
        ("text/plain; Charset=ISO-8859-1; format=flowed", b"\xe9", "é"),
        ("text/plain;charset=utf-16", "é".encode("utf-16"), "é"),
        ("text/plain; charset=utf-8", b"a\xff", "a\ufffd"),
        ("text/html", b"<p>", "<p>"),
        ("text/csv", b"a,b", "a,b"),
        ("application/xml", b"<a/>", "<a/>"),
        ("application/atom+xml", b"<a/>", "<a/>"),
        ("application/problem+json", b"{", "{"),
        ("application/yaml", b"a: 1", "a: 1"),
        ("image/svg+xml", b"<svg/>", "<svg/>"),
        (None, b"plain", "plain"),
        ("", b"plain", "plain"),
        # no charset at all, or one that is none: read as UTF-8
        ("text/plain; charset=", b"x", "x"),
        ("text/plain; charset=nope", b"x", "x"),
        ("text/plain; charset=hex", b"zz", "zz"),
        ("text/plain; charset=idna", b"\xff", "\ufffd"),
        ("text/plain; charset=punycode", b"\xff", "\ufffd"),
        ("text/plain; charset=undefined", b"x", "x"),
        ("text/plain; charset=utf-7", b"+2AA-", "+2AA-"),  # half a character
        ("text/plain; charset=\udcff", b"x", "x"),  # as the HTTP client hands over byte 255
    ],
)
def test_text_is_read_in_its_charset(media_type, body, expected):
    assert text(body, media_type) == expected


@pytest.mark.parametrize(
    ("media_type", "of"), [("image/png", ImageContent), ("audio/wav", AudioContent)]
)
def test_pictures_and_sound_are_content_of_their_own(media_type, of):
    [content] = result(PNG, media_type + "; q=1").content
    assert content == of(base64.b64encode(PNG).decode(), media_type)


@pytest.mark.parametrize(
    ("media_type", "named"),
    [
        ("application/zip", "application/zip"),
        ("application/octet-stream", "application/octet-stream"),
        (None, "application/octet-stream"),
        ("video/mp4", "video/mp4"),
        ("video\udcff/x", "video?/x"),
    ],
)
def test_other_bytes_are_an_embedded_resource(media_type, named):
    [content] = result(PNG, media_type).content
    assert isinstance(content, EmbeddedResource)
    assert content.resource.mime_type == named
    assert content.resource.uri == "toolgate://results/r-1"
    assert base64.b64decode(content.resource.blob) == PNG


@pytest.mark.parametrize("status", [400, 401, 404, 409, 422, 429, 500, 503, 599, 199])
@pytest.mark.parametrize("media_type", ["application/json", "application/problem+json"])
def test_an_error_shows_status_and_body(status, media_type):
    body = b'{"title": "No", "n": 1.00}'
    found = result(body, media_type, status, "Reason")
    assert found.is_error
    assert found.content == (TextContent(f"HTTP {status} Reason\n" + body.decode()),)
    assert bytes(found.structured_content) == b'{"status":%d,"body":%b}' % (status, body)


@pytest.mark.parametrize(
    ("body", "media_type", "shown", "structured"),
    [
        (b"Not here", "text/plain", "HTTP 404 No\nNot here", "Not here"),
        (b"{", "application/json", "HTTP 404 No\n{", "{"),
        (b"", "application/json", "HTTP 404 No", ""),
        (b"", None, "HTTP 404 No", ""),
        (PNG, "image/png", "HTTP 404 No\n[image/png]", "[image/png]"),
    ],
)
def test_an_error_without_json_is_shown_as_text(body, media_type, shown, structured):
    found = result(body, media_type, 404, "No")
    assert found.content == (TextContent(shown),)
    assert json.loads(bytes(found.structured_content)) == {"status": 404, "body": structured}


@pytest.mark.parametrize("status", [301, 302, 303, 304, 307, 308])
@pytest.mark.parametrize(
    ("location", "place"),
    [
        ("https://files.example.com/a?key=s-1", "https://files.example.com/a"),
        ("/elsewhere?key=s-1", "/elsewhere"),
    ],
)
def test_a_public_redirect_is_named_without_its_query(status, location, place):
    """A query may repeat a key that was sent, so it is left out (mending 27)."""
    result_ = result(b"", None, status, "Moved", Location=location)
    assert result_.is_error
    [content] = result_.content
    expected = f"HTTP {status} Moved: it redirects to {place}, which is not followed"
    assert content.text == expected
    assert json.loads(bytes(result_.structured_content)) == {"status": status, "location": place}


@pytest.mark.parametrize(
    "location",
    [
        "",
        "http://10.0.0.7/a",
        "http://[::1]/a",
        "http://2130706433/",
        "https://wiki/a",
        "https://db.internal/a",
        "//db.internal/a",
        "/\\db.internal/a",
        "https://me:secret@files.example.com/a",
        "javascript:alert(1)",
        "https://files.example.com:99999/",
        "https://files.example.com/" + "a" * 5000,
    ],
)
def test_a_redirect_that_may_lead_inside_is_not_named(location):
    """Addresses of internal networks are not shown to models (mending 27)."""
    [content] = result(b"", None, 302, "Moved", Location=location).content
    assert content.text == "HTTP 302 Moved: redirects are not followed"


def test_a_status_line_of_odd_bytes_can_be_sent_on():
    assert text(b"", None, 404, "N\udcfft").startswith("HTTP 404 N?t")
