"""Forms and files: which parts travel otherwise than by default, and what callers are offered."""

import pytest

from registry.importers.openapi.property_encodings import FILE
from schemas.binding import Body, Parameter, Part
from tests.registry.importers.describe import components, describe, only

FORM = "application/x-www-form-urlencoded"
MULTIPART = "multipart/form-data"
STRING = {"type": "string"}
BINARY = {"type": "string", "format": "binary"}
A_FILE = {"type": ["string", "object"], "description": FILE}


def form(properties, encoding=None, media_type=MULTIPART, version="3.1.0", **rest):
    media = {"schema": {"type": "object", "properties": properties}}
    media |= {"encoding": encoding} if encoding else {}
    operation = {"requestBody": {"required": True, "content": {media_type: media}}}
    return only(describe(operation, version=version, **rest))


def parts(*arguments, **keywords):
    return form(*arguments, **keywords).draft.binding.body.parts


@pytest.mark.parametrize(
    ("version", "schema"),
    [
        ("3.0.3", BINARY),
        ("3.0.3", {"type": "file"}),
        ("3.0.3", {"$ref": "#/components/schemas/Upload"}),
        ("3.0.3", {"allOf": [{"$ref": "#/components/schemas/Upload"}]}),
        ("3.1.0", {"type": "string", "contentMediaType": "image/png"}),
        ("3.1.0", {"contentMediaType": "application/pdf"}),
        ("3.1.0", {"type": ["string", "null"], "format": "binary"}),
        ("3.1.0", {}),
    ],
)
def test_a_binary_string_is_offered_as_a_file(version, schema):
    one = form({"f": schema, "n": STRING}, version=version, components=components(Upload=BINARY))
    assert one.properties == {"f": A_FILE, "n": STRING}
    [part] = one.draft.binding.body.parts
    assert (part.name, part.file) == ("f", True)
    assert one.outcome.status == "imported"


@pytest.mark.parametrize(
    "schema",
    [
        STRING,
        {"type": "string", "format": "byte"},
        {"type": "string", "contentMediaType": "image/png", "contentEncoding": "base64"},
        {"type": "string", "contentMediaType": "text/html"},
        {"type": "integer"},
        {"type": "object"},
    ],
)
def test_text_and_encoded_text_are_no_files(schema):
    assert not any(part.file for part in parts({"f": schema}))


def test_an_array_of_files():
    one = form({"f": {"type": "array", "items": BINARY, "maxItems": 3, "description": "Pages."}})
    assert one.properties["f"] == {
        "type": "array", "items": A_FILE, "maxItems": 3, "description": "Pages.",
    }  # fmt: skip
    assert one.draft.binding.body.parts == (Part("f", file=True),)


def test_a_file_keeps_its_description():
    one = form({"f": {**BINARY, "description": "A picture.", "maxLength": 5}})
    assert one.properties["f"] == {**A_FILE, "description": f"A picture.\n\n{FILE}"}


@pytest.mark.parametrize(
    ("schema", "content_type", "part"),
    [
        (STRING, "image/png", Part("f", "image/png", file=True)),
        (STRING, "image/png, image/jpeg", Part("f", "image/png, image/jpeg", file=True)),
        (STRING, "application/octet-stream", Part("f", "application/octet-stream", file=True)),
        (STRING, "text/xml", Part("f", "text/xml")),
        (STRING, "text/plain", None),
        ({"type": "string", "format": "byte"}, "image/png", Part("f", "image/png")),
        (BINARY, "text/csv", Part("f", "text/csv", file=True)),
        ({"type": "object"}, "application/json", Part("f", "application/json")),
        ({"type": "array", "items": STRING}, "application/json", Part("f", "application/json")),
    ],
)
def test_the_type_of_a_part(schema, content_type, part):
    found = parts({"f": schema}, {"f": {"contentType": content_type}})
    assert found == ((part,) if part else ())


@pytest.mark.parametrize("version", ["3.0.3", "3.1.0"])
@pytest.mark.parametrize(
    ("encoding", "part"),
    [
        ({"style": "deepObject", "explode": True}, Part("f", style="deepObject")),
        ({"style": "deepObject"}, Part("f", style="deepObject", explode=False)),
        ({"explode": False}, Part("f", style="form", explode=False)),
        ({"style": "pipeDelimited"}, Part("f", style="pipeDelimited", explode=False)),
        ({"allowReserved": True}, Part("f", style="form", allow_reserved=True)),
        ({"contentType": "application/json"}, Part("f", "application/json")),
        ({"contentType": "text/plain"}, None),
    ],
)
def test_how_a_field_of_a_form_is_written(version, encoding, part):
    found = parts({"f": STRING}, {"f": encoding}, FORM, version)
    assert found == ((part,) if part else ())


def test_styles_of_multipart_parts_began_with_3_1():
    encoding = {"f": {"style": "form", "explode": False}}
    assert parts({"f": STRING}, encoding, version="3.0.3") == ()
    assert parts({"f": STRING}, encoding) == (Part("f", style="form", explode=False),)


def test_a_style_that_no_form_has_is_reported():
    one = form({"f": STRING}, {"f": {"style": "matrix"}})
    assert one.reason == "body: style 'matrix' of f is not for a form"
    assert one.draft.binding.body.parts == (Part("f", style="form", explode=True),)


def test_headers_of_parts_become_arguments():
    headers = {
        "X-Rate": {"schema": {"type": "integer"}, "required": True},
        "Content-Type": {"schema": STRING},
    }
    one = form({"f": BINARY}, {"f": {"headers": headers}})
    described = "Named X-Rate by the service."
    assert one.properties["f_X-Rate"] == {"type": "integer", "description": described}
    assert "f_X-Rate" not in one.schema.get("required", ())
    [part] = one.draft.binding.body.parts
    assert part.headers == (Parameter("f_X-Rate", "X-Rate", "header", "simple", False),)


def test_a_form_with_a_file_prefers_multipart():
    media = {"schema": {"properties": {"f": BINARY}}}
    operation = {"requestBody": {"content": {FORM: media, MULTIPART: media}}}
    assert only(describe(operation)).draft.binding.body.media_type == MULTIPART


def test_a_form_that_is_one_argument_still_has_files():
    schema = {"allOf": [{"properties": {"f": BINARY}}, {"properties": {"n": STRING}}]}
    operation = {"requestBody": {"required": True, "content": {MULTIPART: {"schema": schema}}}}
    one = only(describe(operation))
    body = Body(MULTIPART, required=True, argument="body", parts=(Part("f", file=True),))
    assert one.draft.binding.body == body
    assert one.accepts(body={"f": "data:,x", "n": "y"})


@pytest.mark.parametrize(
    ("media_type", "schema", "file"),
    [
        ("application/octet-stream", BINARY, True),
        ("application/octet-stream", STRING, True),
        ("application/octet-stream", {}, True),
        ("image/png", {"type": "string"}, True),
        ("application/pdf", {"contentMediaType": "application/pdf"}, True),
        ("text/csv", BINARY, True),
        ("text/csv", STRING, False),
        ("application/graphql", STRING, False),
        ("application/x-ndjson", STRING, False),
        ("application/json", BINARY, False),
        ("application/x-amz-json-1.1", {"type": "object"}, False),
    ],
)
def test_a_body_that_is_a_file(media_type, schema, file):
    operation = {"requestBody": {"content": {media_type: {"schema": schema}}}}
    one = only(describe(operation, version="3.1.0"))
    assert one.draft.binding.body.file is file
    assert (FILE in str(one.properties)) is file


@pytest.mark.parametrize("encoding", [{"f": 5}, {"f": {"$ref": "#/nowhere"}}])
def test_a_broken_encoding_is_reported(encoding):
    one = form({"f": STRING}, encoding)
    assert "the encoding of f" in one.reason
    assert one.draft.binding.body.parts == ()


@pytest.mark.parametrize(
    ("properties", "file"),
    [
        ({"file": {"type": "string", "description": "To upload."}}, True),
        ({"file": {"type": "string", "maxLength": 80}}, False),
        ({"file": {"type": "string", "enum": ["a"]}}, False),
        ({"file": STRING, "data": BINARY}, False),
        ({"name": STRING}, False),
    ],
)
def test_a_form_s_only_file_may_be_described_as_text(properties, file):
    found = {part.name for part in parts(properties) if part.file}
    assert ("file" in found) is file
    assert parts(properties, media_type=FORM) == ()


@pytest.mark.parametrize("header", [{"$ref": "#/nowhere"}, 5, {"style": ["x"]}])
def test_a_broken_header_of_a_part_is_reported_or_taken_as_text(header):
    one = form({"f": STRING}, {"f": {"headers": {"X-A": header, "bad name": {}}}})
    assert one.outcome.status == "degraded"
    assert "no legal name in a header" in one.reason


@pytest.mark.parametrize("style", [5, ["form"], {}, None, "simple", "cookie"])
def test_a_broken_style_is_reported(style):
    assert "is not for a form" in form({"f": STRING}, {"f": {"style": style}}, FORM).reason
