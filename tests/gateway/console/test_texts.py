"""Texts of the console: complete in every language, and none in a template."""

import ast
import re
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from string import Formatter
from typing import get_args

import msgspec
import pytest

from gateway.admin.resource_views import VIEWS
from gateway.connections import connect_pages as connection_pages
from gateway.console.activity import DENIED, OTHER, REASONS
from gateway.console.navigation import GROUPS, OF_WINGS, title_of_wing
from gateway.console.pages.costs import NAMES_OF_NOTHING
from gateway.console.pages.costs import TITLES as COSTS
from gateway.console.pages.limits import DERIVED, LIMITS, REFUSALS, UNLIMITED, WHEN_DOWN
from gateway.console.pages.lists_and_entries import FILTER_TEXTS
from gateway.console.pages.operation_buttons import TITLES
from gateway.console.rendering import MARKDOWN_CHARACTERS, code_spans, indent_json, markdown
from gateway.console.texts import OUTCOMES, PROBLEMS, Texts, language_of, translations, visible
from gateway.login import texts as login_texts
from gateway.operations.csv_cells import csv_cell
from gateway.wings.agent.wing import PAGES as AGENT
from gateway.wings.events.wing import PAGES as EVENTS
from gateway.wings.knowledge.wing import PAGES as KNOWLEDGE
from gateway.wings.librarian.wing import PAGES as LIBRARIAN
from gateway.wings.memory.wing import PAGE as MEMORY
from gateway.wings.notifications.concerns import sources_down
from registry.catalog.feed import DatabaseState

CONSOLE = files("gateway.console")
LOGIN = files("gateway.login")
WINGS = Path(str(files("gateway.wings")))
TEMPLATES = {
    f"{part.name}/{file.name}": file.read_text()
    for part in (CONSOLE, LOGIN)
    for file in part.joinpath("templates").iterdir()
}
TEXT = re.compile(r"""_\(\s*"((?:[^"\\]|\\.)*)"|_\(\s*'((?:[^'\\]|\\.)*)'""")
TABLE = re.compile(r"_\(\{(.*?)\}\[")
# What is the same in every language, between tags.
PLAIN = {"Toolgate", "MCP", "JSON", "UTC", "ms", "toolgate", "doctor", "p", "s"}
PLAIN |= {"policy", "rules", "keys", "create", "console", "scope", "admin"}
PLAIN |= {"SKILL", "md", "Markdown", "temperature", "max", "tokens"}  # names of fields, formats
PLAIN |= {"listPets", "petshop", "name", "kind", "cat", "text", "adopted"}  # in examples


def used_texts() -> Iterator[str]:
    for text in TEMPLATES.values():
        yield from (one or other for one, other in TEXT.findall(text))
        for table in TABLE.findall(text):
            yield from re.findall(r': "([^"]+)"', table)
    for file in (*CONSOLE.iterdir(), *CONSOLE.joinpath("pages").iterdir()):
        if file.name.endswith(".py"):
            yield from re.findall(r'texts\(\s*"((?:[^"\\]|\\.)*)"', file.read_text())
    for page in (*VIEWS.values(), *AGENT, *EVENTS, *KNOWLEDGE, *LIBRARIAN, MEMORY):
        yield from (page.title, page.empty, page.about)
        yield from (label for _, label, _ in page.columns)
        yield from (label for label, _ in page.also)
    for group, places in (*GROUPS.items(), *OF_WINGS.items()):
        yield from (title_of_wing(group), *(place.title for place in places))
    yield from (*COSTS.values(), *NAMES_OF_NOTHING.values())
    yield from (text.title for text in FILTER_TEXTS.values())
    yield from (*LIMITS.values(), *REFUSALS.values(), *WHEN_DOWN.values(), UNLIMITED, DERIVED)
    yield from (*OUTCOMES.values(), *PROBLEMS, *sentences())
    yield from (*TITLES.values(), *REASONS.values(), DENIED, OTHER, *get_args(DatabaseState))
    for module in (login_texts, connection_pages):
        constants = (text for name, text in vars(module).items() if name.isupper())
        yield from (text for text in constants if isinstance(text, str) and " " in text)


def sentences() -> Iterator[str]:
    """Texts of concerns, where they are written."""
    for file in WINGS.rglob("*.py"):
        source = file.read_text()
        for call in ast.walk(ast.parse(source)) if "Sentence(" in source else ():
            match call:
                case ast.Call(func=ast.Name("Sentence"), args=[ast.Constant(value=str(text)), *_]):
                    yield text


def names(text: str) -> set[str]:
    return {name for _, name, _, _ in Formatter().parse(text) if name}


def test_every_text_is_translated() -> None:
    missing = {text for text in used_texts() if text} - translations("zh").keys()
    assert not missing


def test_states_of_the_database_have_a_colour() -> None:
    template = TEMPLATES["console/ui.html"]
    assert [state for state in get_args(DatabaseState) if f'"{state}": "' not in template] == []


def test_translations_have_the_values_of_their_texts() -> None:
    for text, other in translations("zh").items():
        names = [
            {name for _, name, _, _ in Formatter().parse(one) if name} for one in (text, other)
        ]
        assert names[0] == names[1], text


@pytest.mark.parametrize("name", sorted(TEMPLATES))
def test_a_template_has_no_text_of_its_own(name: str) -> None:
    text = re.sub(r"\{% set \w+ %\}.*?\{% endset %\}", "", TEMPLATES[name], flags=re.DOTALL)
    text = re.sub(r"\{%.*?%\}|\{\{.*?\}\}|<svg.*?</svg>", "\n", text, flags=re.DOTALL)
    text = re.sub(r"<[^>]*>|&\w+;", "\n", text, flags=re.DOTALL)
    assert set(re.findall(r"[A-Za-z]+", text)) <= PLAIN


@pytest.mark.parametrize("name", sorted(TEMPLATES))
def test_a_template_runs_nothing_inline(name: str) -> None:
    text = re.sub(r"\{%.*?%\}|\{\{.*?\}\}", "", TEMPLATES[name], flags=re.DOTALL)
    assert not re.search(r"<[^>]*\s(on\w+|style)\s*=", text)
    assert not re.search(r"<script(?![^>]*\ssrc=)|<style|javascript:", text)
    assert "hx-on" not in text


def test_a_text_keeps_braces_of_its_values() -> None:
    assert Texts("en")("Try {name}", name="{7*7}") == "Try {7*7}"
    assert Texts("zh")("Try {name}", name="100%") == "试用 100%"
    assert Texts("zh")("no such text") == "no such text"


@pytest.mark.parametrize(
    ("cookie", "accepted", "language"),
    [
        ("zh", "en", "zh"),
        ("", "zh-TW,zh;q=0.9,en;q=0.8", "zh"),
        ("", "de-DE,de;q=0.9,en;q=0.5", "en"),
        ("../x", "", "en"),
    ],
)
def test_the_language_is_that_of_the_visitor(cookie: str, accepted: str, language: str) -> None:
    assert language_of(cookie, accepted) == language


def test_invisible_characters_are_written_out() -> None:
    assert visible("a\u202eb\x00c\nd") == "a⟨U+202E⟩b⟨U+0000⟩c\nd"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("*so*", "<p><em>so</em></p>\n"),
        ("<img src=x onerror=alert(1)>", "<p>&lt;img src=x onerror=alert(1)&gt;</p>\n"),
        ("[a](javascript:alert(1))", "<p>[a](javascript:alert(1))</p>\n"),
        ("![a](https://evil.example/?secret)", None),
        ("\u202e", "<p>⟨U+202E⟩</p>\n"),
        (
            "<" * (MARKDOWN_CHARACTERS + 1),
            f'<pre tabindex="0">{"&lt;" * (MARKDOWN_CHARACTERS + 1)}</pre>',
        ),
    ],
)
def test_markdown_escapes_html_and_long_texts_are_not_rendered(
    text: str, shown: str | None
) -> None:
    found = markdown(text)
    assert "<img" not in found
    assert shown is None or found == shown


def test_a_cell_of_an_export_is_no_formula() -> None:
    hostile = ("=cmd|' /C calc'!A0", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1")
    assert all(csv_cell(one) == f"'{one}" for one in hostile)
    assert (csv_cell("plain"), csv_cell(-5)) == ("plain", "-5")  # a number is none


def test_json_is_indented_where_that_does_not_multiply_its_length() -> None:
    assert indent_json('{"a":[1]}') == '{\n  "a": [\n    1\n  ]\n}'
    for text in ("[" * 900 + "1," * 999 + "1" + "]" * 900, "[" + "1," * 600_000 + "1]"):
        assert indent_json(text) == text


def test_a_sentence_of_a_concern_is_translated_with_its_values() -> None:
    chinese = Texts("zh")
    [concern] = sources_down({"shop": "connection refused"})
    assert chinese(concern.title.text, **concern.title.values) == "来源 shop 不可用"
    assert str(concern.title) == "The source shop is down"
    sentences = msgspec.to_builtins({"title": concern.title, "detail": concern.detail})
    incident = {"title": "", "detail": "", "sentences": sentences}
    assert chinese.sentence(incident, "title") == "来源 shop 不可用"
    assert chinese.sentence(incident, "detail") == "connection refused"
    assert chinese.sentence({"title": "of an older gateway"}, "title") == "of an older gateway"


@pytest.mark.parametrize(
    ("problem", "value"),
    [("Required scope: admin:read.", "admin:read"), ("There is no tool 'a b'.", "a b")],
)
def test_problems_of_operations_are_translated(problem: str, value: str) -> None:
    translation = Texts("zh").problem(problem)
    assert value in translation
    assert problem.split()[0] not in translation


def test_the_action_that_needs_a_scope_stays_apart_from_its_name() -> None:
    translation = Texts("zh").problem("Required scope: admin. A key of another takes it.")
    assert "A key of another" in translation
    assert "Required" not in translation
    assert "takes it" not in translation


def test_texts_between_backticks_are_code() -> None:
    assert code_spans("Store it with `toolgate <b>`.") == (
        "Store it with <code>toolgate &lt;b&gt;</code>."
    )
