"""Bodies of operations on the command line."""

from pathlib import Path

import pytest

from gateway.cli.common.parameter_types import read_document
from schemas.errors import ParseError


@pytest.mark.parametrize("name", ["body.yaml", "body:2.yaml", "a: b.json", "[v2].yaml", "{x}.yaml"])
def test_a_file_of_any_name_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Paths may have signs of JSON and YAML in them (mending 35)."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / name
    path.write_text('{"a": 1}')
    assert read_document(str(path)) == {"a": 1}
    assert read_document(name) == {"a": 1}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a": 1}', {"a": 1}),
        ("[1]", [1]),
        ("a: 1", {"a": 1}),
        ("a:\n  b: 1", {"a": {"b": 1}}),
        ("a:", {"a": None}),
        ("a: " + "x" * 5000, {"a": "x" * 5000}),
    ],
)
def test_a_text_that_names_no_file_is_the_document(text: str, value: object) -> None:
    assert read_document(text) == value


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('a: 1\nb: "\\ud800"', "line 2: found invalid Unicode character escape code"),
        ('{"a": "\\ud800"}', "half of a surrogate pair"),
        ("a: 2030-13-01", "month must be in 1..12"),
        ("a: " + "[" * 3000 + "]" * 3000, "nested too deeply"),
    ],
)
def test_a_document_with_an_invalid_value_is_refused(text: str, problem: str) -> None:
    with pytest.raises(ParseError, match=problem):
        read_document(text)


def test_a_file_that_is_not_there_is_named() -> None:
    """A path with a ":" was taken for a text (mending 35)."""
    with pytest.raises(FileNotFoundError, match=r"nowhere:1/body\.yaml"):
        read_document("nowhere:1/body.yaml")
