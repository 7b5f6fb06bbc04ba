"""Names that only look like others, and readers that are not there."""

import ast
from pathlib import Path

import pytest

import gateway
import registry
from registry.names.tool_names import assign, legal, tool_name

XML_READERS = {"xml", "lxml", "defusedxml", "xmltodict"}
HARMLESS = {"xml.sax.saxutils"}  # writes


@pytest.mark.parametrize(
    "name",
    [
        "get\u0420et",  # Cyrillic
        "get\u03a1et",  # Greek
        "g\u0435tPet",
        "getPet\u200b",  # no width
        "get\u00adPet",
        "\u202eteP\u202cteg",  # from right to left
        "\uff47etPet",
        "getPet\u0000",
        "getPet\r\n",
        "getPet ",
    ],
)
def test_a_look_alike_has_a_name_that_does_not_look_alike(name: str) -> None:
    for given in (legal(name), tool_name(name, "GET", "/pets")):
        assert given.isascii()
        assert given.isprintable()
    first, second = "00000000-first", "00000000-second"
    names = assign({first: ("getPet", None), second: (tool_name(name, "GET", "/pets"), None)})
    assert len({one.casefold() for one in names.values()}) == 2


def test_nothing_here_parses_xml() -> None:
    """So no entity of an answer or a description is ever expanded. Listings of buckets are read
    without entities: wings/documents/test_listings.py."""
    for package in (gateway, registry):
        for file in Path(str(package.__file__)).parent.rglob("*.py"):
            if file.parts[-3:] == ("documents", "reading", "url_and_s3_files.py"):
                continue
            text = file.read_text()
            if "xml" not in text:  # to parse all files takes seconds
                continue
            for node in ast.walk(ast.parse(text)):
                named = [one.name for one in node.names] if isinstance(node, ast.Import) else []
                if isinstance(node, ast.ImportFrom) and not _errors_alone(node):
                    named = [node.module or ""]
                found = {one for one in named if one.split(".")[0] in XML_READERS}
                assert found <= HARMLESS, file


def _errors_alone(node: ast.ImportFrom) -> bool:
    """Whether it imports exceptions and nothing else, of what another library parses with."""
    return all(one.name.endswith("Error") for one in node.names)
