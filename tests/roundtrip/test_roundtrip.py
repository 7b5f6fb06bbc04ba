"""Arguments arrive as they were sent, in every place that a description can put them; and the
judge who says so sees it when they do not."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import jsonschema_rs
import msgspec
import pytest

from schemas.binding import Body, OpenAPIBinding, Parameter
from tests.roundtrip.described import Description
from tests.roundtrip.echo import Received
from tests.roundtrip.expressible import why_not
from tests.roundtrip.generate import arguments
from tests.roundtrip.judge import Call
from tests.roundtrip.ours import all_versions, describe_api
from tests.roundtrip.run import round_trip

OURS = dict(all_versions())


def write_document(directory: Path, document: Mapping[str, Any]) -> Path:
    path = directory / "description.json"
    path.write_bytes(msgspec.json.encode(document))
    return path


@pytest.mark.anyio
@pytest.mark.timeout(300)
@pytest.mark.parametrize("version", OURS)
async def test_every_value_arrives(version: str, tmp_path: Path, anyio_backend: str) -> None:
    report = await round_trip(write_document(tmp_path, OURS[version]), variants=8)
    assert not report.wrong, "\n".join(one for all_ in report.examples.values() for one in all_)
    assert report.unmade == []
    assert report.operations == len(Description(tmp_path / "description.json").keys())
    # what cannot be said at all is the exception
    assert report.inexpressible.total() < report.arrived.total() / 20


GET = OpenAPIBinding("GET", "/a/{x}", (Parameter("x", "x", "path", "simple", False),))
LIST = Parameter("q", "q", "query", "form", True)


def call(tmp_path: Path, binding: OpenAPIBinding, operation: dict[str, Any]) -> Call:
    paths = {binding.path: {binding.method.lower(): operation}}
    document = {"openapi": "3.1.0", "info": {}, "paths": paths}
    key = f"{binding.path}@{binding.method.lower()}"
    description = Description(write_document(tmp_path, document))
    return Call(description.operation(key, binding.method), binding)


def wrong(one: Call, received: Received, sent: dict[str, Any]) -> set[str]:
    return {found.feature for found in one.judge(received, sent) if not found.arrived}


IN_PATH = {"name": "x", "in": "path", "required": True, "schema": {"type": "string"}}
IN_QUERY = {"name": "q", "in": "query", "schema": {"type": "array", "items": {"type": "string"}}}


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("/a/1%2F2", set()),
        ("/a/1/2", {"path", "path simple scalar"}),
        ("/a/1%252F2", {"path simple scalar"}),
        ("/a/1%2F2?y=1", {"nothing unasked in the query"}),
        ("/b/1%2F2", {"path", "path simple scalar"}),
    ],
)
def test_the_judge_reads_paths(target: str, expected: set[str], tmp_path: Path) -> None:
    judge = call(tmp_path, GET, {"parameters": [IN_PATH]})
    assert wrong(judge, Received("GET", target, (), b""), {"x": "1/2"}) == expected


@pytest.mark.parametrize(
    ("query", "good"),
    [
        ("q=a%2Cb&q=c+d", True),
        ("q=a%2Cb&q=c%20d", True),
        ("q=a%2Cb,c%20d", False),
        ("q=a&q=b&q=c%20d", False),
        ("q=a%2Cb", False),
        ("", False),
        ("q=%5B%27a,b%27%2C+%27c+d%27%5D", False),  # a list as Python prints it
    ],
)
def test_the_judge_reads_arrays(query: str, good: bool, tmp_path: Path) -> None:
    binding = OpenAPIBinding("GET", "/a", (LIST,))
    judge = call(tmp_path, binding, {"parameters": [IN_QUERY]})
    found = wrong(judge, Received("GET", f"/a?{query}", (), b""), {"q": ["a,b", "c d"]})
    assert found == (set() if good else {"query form explode array"})


@pytest.mark.parametrize(
    ("content_type", "body", "expected"),
    [
        ("application/json", b'{"a": 1, "b": null}', set()),
        ("application/json", b'{"a": 1}', {"body JSON"}),
        ("application/json", b'{"a": true, "b": null}', {"body JSON"}),
        ("application/json", b"{'a': 1, 'b': None}", {"body JSON"}),
        ("text/plain", b'{"a": 1, "b": null}', {"content type"}),
    ],
)
def test_the_judge_reads_bodies(
    content_type: str, body: bytes, expected: set[str], tmp_path: Path
) -> None:
    binding = OpenAPIBinding("POST", "/a", body=Body("application/json", True, argument="body"))
    judge = call(
        tmp_path, binding, {"requestBody": {"content": {"application/json": {"schema": {}}}}}
    )
    headers = (("content-type", content_type),)
    sent = {"body": {"a": 1, "b": None}}
    assert wrong(judge, Received("POST", "/a", headers, body), sent) == expected


def test_the_judge_wants_files_with_their_names(tmp_path: Path) -> None:
    body = Body("multipart/form-data", True, properties=(("file", "file"),))
    binding = OpenAPIBinding("POST", "/a", body=body)
    schema = {"properties": {"file": {"type": "string", "format": "binary"}}}
    media = {"multipart/form-data": {"schema": schema}}
    judge = call(tmp_path, binding, {"requestBody": {"content": media}})
    assert judge.files == {"file"}
    headers = (("content-type", 'multipart/form-data; boundary="b"'),)
    sent = {"file": {"data": "/w==", "filename": "a.bin"}}

    def came(disposition: bytes, content: bytes) -> set[str]:
        part = b"--b\r\nContent-Disposition: form-data; name=file%b\r\n\r\n%b\r\n--b--\r\n"
        received = Received("POST", "/a", headers, part % (disposition, content))
        return wrong(judge, received, sent)

    assert came(b'; filename="a.bin"', b"\xff") == set()
    assert came(b'; filename="b.bin"', b"\xff") == {"multipart file"}
    assert came(b'; filename="a.bin"', b"/w==") == {"multipart file"}
    assert came(b"", b"\xff") == {"multipart file"}


def test_described_but_unbound_parameters_are_found(tmp_path: Path) -> None:
    judge = call(tmp_path, replace_parameters(GET), {"parameters": [IN_PATH, IN_QUERY]})
    found = {one.feature: one.arrived for one in judge.find_unoffered()}
    assert found == {"offered: path parameter": True, "offered: query parameter": False}


def replace_parameters(binding: OpenAPIBinding) -> OpenAPIBinding:
    return msgspec.structs.replace(binding, parameters=GET.parameters)


@pytest.mark.parametrize(
    ("style", "value", "said"),
    [
        ("form", "", True),
        ("form", [], False),
        ("form", None, False),
        ("form", [["a"]], False),
        ("pipeDelimited", ["a b"], True),
        ("pipeDelimited", ["a|b"], False),
        ("spaceDelimited", ["a b"], False),
        ("deepObject", {"a": {"b": [1]}}, True),
        ("deepObject", {"a": {}}, False),
    ],
)
def test_values_inexpressible_in_a_style_are_known(
    style: str, value: Any, said: bool, tmp_path: Path
) -> None:
    judge = call(tmp_path, OpenAPIBinding("GET", "/a", (LIST,)), {"parameters": [IN_QUERY]})
    spot = replace(judge.spots["q"], style=style, explode=False)
    assert (why_not(spot, value) is None) == said


RECURSIVE = {
    "type": "object",
    "properties": {
        "tree": {"$ref": "#/$defs/Tree"},
        "code": {"type": "string", "pattern": "^[A-Z]{2}-\\d{3,}$", "minLength": 9},
        "one": {"oneOf": [{"type": "integer"}, {"type": "array", "items": {"const": 3}}]},
        "both": {"allOf": [{"type": "number", "minimum": 5}, {"maximum": 6}]},
        "never": {"not": {}},
    },
    "required": ["tree", "code"],
    "additionalProperties": False,
    "$defs": {
        "Tree": {
            "type": "object",
            "required": ["name"],
            "properties": {
                "name": {"type": "string", "format": "uuid"},
                "children": {"type": "array", "items": {"$ref": "#/$defs/Tree"}},
            },
        }
    },
}


@pytest.mark.parametrize("variant", range(6))
def test_arguments_fit_a_recursive_schema(variant: int) -> None:
    validator = jsonschema_rs.Draft202012Validator(RECURSIVE)
    for seed in range(20):
        made = arguments(RECURSIVE, Random(seed), variant)
        assert made is not None
        assert validator.is_valid(made)
        assert made == arguments(RECURSIVE, Random(seed), variant)


def test_the_first_variant_has_required_and_the_second_has_all_arguments() -> None:
    least, most = (arguments(RECURSIVE, Random(1), variant) for variant in (0, 1))
    assert least is not None
    assert most is not None
    assert least.keys() == {"tree", "code"}
    assert most.keys() == {"tree", "code", "one", "both"}


def test_a_schema_that_nothing_fits_gives_no_arguments() -> None:
    impossible = {"type": "string", "allOf": [{"type": "integer"}]}
    schema = {"type": "object", "properties": {"a": impossible}, "required": ["a"]}
    assert arguments(schema, Random(1), 0) is None


def test_files_referring_to_each_other_are_read_in_place(tmp_path: Path) -> None:
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "p.yaml").write_text("id:\n  $ref: 'q.json#/a~1b'\n")
    (tmp_path / "parts" / "q.json").write_bytes(msgspec.json.encode({"a/b": IN_PATH}))
    document = describe_api("3.1")
    get = {"parameters": [{"$ref": "parts/p.yaml#/id"}]}
    document["paths"] = {"/a/{x}": {"get": get}}
    description = Description(write_document(tmp_path, document))
    [spot] = description.operation("/a/{x}@get", "GET").spots
    assert (spot.name, spot.location, spot.style) == ("x", "path", "simple")
