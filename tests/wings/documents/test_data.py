"""Chunks of structured data, and the types of files."""

import json
from collections.abc import Iterator
from io import BytesIO
from itertools import count
from zipfile import ZipFile

import pytest

from gateway.wings.documents.chunking.chunks import ChunkingOptions
from gateway.wings.documents.chunking.chunks_by_kind import cut
from gateway.wings.documents.chunking.data_chunks import SCANNERS, DataPart, DataRecord, records
from gateway.wings.documents.reading import media_types
from tests.wings.documents.test_chunks import assert_covered, texts

SERVICES = {"services": {name: {"port": 80, "host": "x" * 40} for name in ("web", "api", "db")}}


@pytest.mark.parametrize("indent", [None, 2])
def test_json_is_cut_between_its_outermost_parts_that_fit(indent: int | None) -> None:
    text = json.dumps(SERVICES, indent=indent)
    chunks = cut(text, media_type="application/json", chunking=ChunkingOptions(size=80))
    assert_covered(text, chunks)
    found = [(one.symbol, one.header) for one in chunks]
    assert ("services.api", "services") in found
    assert ("services.db", "services") in found


def test_yaml_and_xml_have_paths() -> None:
    yaml = "services:\n" + "".join(
        f"  s{n}:\n    port: 80\n    host: abcdefghij\n" for n in range(4)
    )
    chunks = cut(yaml, media_type="application/yaml", chunking=ChunkingOptions(size=40))
    assert [one.symbol for one in chunks][1:] == ["services.s1", "services.s2", "services.s3"]
    xml = "<a>" + "".join(f"<b n='{n}'><c>text</c><d/></b>" for n in range(4)) + "</a>"
    chunks = cut(xml, media_type="application/xml", chunking=ChunkingOptions(size=40))
    assert {one.symbol for one in chunks[1:]} == {"a.b"}
    assert texts(xml, chunks)[1] == "<b n='1'><c>text</c><d/></b>"


JSON = '{"a": {"b": [1, {"c": "}]"}], "d": {}}, "e": "x"}'
YAML = "a:\n  b:\n  - 1\n  - c: 2\n  d: 3\n\ne: x\n"
XML = "<a><b n='1'>t</b><!-- <b> --><b/><d><e>x</e></d></a>"


@pytest.mark.parametrize(
    ("text", "media_type", "path", "found"),
    [
        (JSON, "json", "a/b", ['"b": [1, {"c": "}]"}]']),
        (JSON, "json", "a/b/0", ["1"]),
        (JSON, "json", "a/b/1/c", ['"c": "}]"']),
        (JSON, "json", "a/d", ['"d": {}']),
        (JSON, "json", "e", ['"e": "x"']),
        ('{"n": 1}\n{"n": [2]}', "json", "n", ['"n": 1', '"n": [2]']),
        ('{"n": [[1', "json", "n", ['"n": [[1']),
        (YAML, "yaml", "a/b", ["b:\n  - 1\n  - c: 2"]),
        (YAML, "yaml", "a/b/-", ["- 1", "- c: 2"]),
        (YAML, "yaml", "a/b/-/c", ["c: 2"]),
        (YAML, "yaml", "e", ["e: x"]),
        (XML, "xml", "a/b", ["<b n='1'>t</b>", "<b/>"]),
        (XML, "xml", "a/d/e", ["<e>x</e>"]),
        ("<a><b>open", "xml", "a/b", ["<b>"]),
    ],
)
def test_parts_of_data_have_their_path_and_end(
    text: str, media_type: str, path: str, found: list[str]
) -> None:
    parts = records_of(text, f"application/{media_type}")
    named = [one for one in parts if "/".join(filter(None, one.path)) == path]
    assert [text[one.start : one.end] for one in named] == found


def test_the_parts_of_deep_data_are_found_in_linear_time() -> None:
    for text, media_type in (("[" * 100_000, "json"), ("<a>" * 100_000, "xml")):
        assert len(list(records_of(text, f"application/{media_type}"))) == 16


def test_the_parts_of_data_are_not_held_at_once() -> None:
    endless = (DataPart(0, 0, str(number)) for number in count())
    assert next(records("[]", "application/json", endless)).path == ("0",)


def records_of(text: str, media_type: str) -> Iterator[DataRecord]:
    return records(text, media_type, SCANNERS[media_type](text))


def test_tables_have_their_first_row_as_header() -> None:
    text = "name,port\n" + "".join(f"service{n},{n}\n" for n in range(50))
    chunks = cut(text, media_type="text/csv", chunking=ChunkingOptions(size=100))
    assert {one.header for one in chunks} == {"name | port"}
    assert all("\nservice" in one or "service" in one for one in texts(text, chunks))


def test_tables_of_toml_are_headings() -> None:
    text = "[project]\nname = 1\n\n[project.urls]\na = 2\n"
    assert [one.header for one in cut(text, media_type="application/toml")] == [
        "project", "project.urls",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("media_type", "text"),
    [
        ("application/json", "[" * 100_000),
        ("application/json", '{"a": 1e999, "a": 1e999, "b": "unclosed'),
        ("application/xml", '<!DOCTYPE l [<!ENTITY a "&b;&b;">]><l>&a;</l>'),
        ("application/xml", "<a" * 10_000),
        ("application/yaml", "a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]\n"),
        ("text/csv", 'a,"unclosed\nb,c\n'),
        ("text/plain", "x. " + " " * 100_000 + "\n" * 100_000 + "\v"),
    ],
)
def test_hostile_data_is_text(media_type: str, text: str) -> None:
    assert_covered(text, cut(text, media_type=media_type))


def zip_names(*names: str) -> bytes:
    file = BytesIO()
    with ZipFile(file, "w") as archive:
        for name in names:
            archive.writestr(name, "x")
    return file.getvalue()


@pytest.mark.parametrize(
    ("path", "data", "expected"),
    [
        ("a.md", b"text", "text/markdown"),
        ("a.PY", b"x = 1", "text/x-python"),
        ("a.txt", b"\x7fELF\0\0\0", media_types.BINARY),
        ("a.txt", b"%PDF-1.7", media_types.PDF),
        ("a.pdf", b"no PDF", media_types.BINARY),
        ("a.txt", b"\xff\xfea\0b\0", media_types.TEXT),
        ("a", zip_names("word/document.xml"), media_types.DOCX),
        ("a.docx", zip_names("ppt/presentation.xml"), media_types.PPTX),
        ("a.txt", zip_names("xl/workbook.xml"), media_types.XLSX),
        ("a.txt", zip_names("x.txt"), media_types.ZIP),
        ("a.txt", b"PK\x03\x04broken", media_types.BINARY),
        ("a", b"", media_types.TEXT),
        ("a", b"\xef\xbb\xbf<!DOCTYPE html><p>", media_types.HTML),
        ("a", b"<?xml version='1.0'?><a/>", "application/xml"),
        ("a", b'{"a": 1}', "application/json"),
        ("a", b"# Title\n\ntext", "text/markdown"),
        ("a", b"a: 1\nb: 2\nc:\n  - d\n", "application/yaml"),
        ("a", b"2026-01-01 INFO started\n", media_types.TEXT),
    ],
)
def test_media_types_of_files_are_recognised(path: str, data: bytes, expected: str) -> None:
    """Media types of files are recognised (L02)."""
    assert media_types.media_type(path, data) == expected


@pytest.mark.parametrize(
    ("sign", "media_type"),
    [
        ("<!--", "application/xml"),
        ("<![CDATA[", "application/xml"),
        ("<!", "application/xml"),
        ('"\\', "application/json"),
    ],
)
def test_signs_that_are_not_closed_are_read_once(sign: str, media_type: str) -> None:
    assert len(list(records_of(sign * 200_000, media_type))) < 3  # for hours otherwise
