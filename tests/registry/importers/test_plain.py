"""Descriptions in HTML and Markdown become the text that they say, and code stays code."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from registry.importers.drafts import with_plain_descriptions
from registry.importers.plain_text import plain

SAYS = {
    "paragraphs": ("<p>One.</p>\n\n<p>Two<br/>lines.</p>", "One.\n\nTwo\nlines."),
    "a list": ("<ul><li>One</li><li>Two</li></ul>", "- One\n- Two"),
    "a table": (
        "<table><tr><td>a</td><td>b</td></tr><tr><td>c</td></tr></table>",
        "| a  | b\n | c",
    ),
    "code": ("A <code>List&lt;T&gt;</code> of it.", "A `List<T>` of it."),
    "code in code": ("Use `a` and <code>`b`</code>.", "Use `a` and `b`."),
    "a block of code": ("<pre><code>a  &lt;\n  b</code></pre>", "```\na  <\n  b\n```"),
    "a link": ('See <a href="/docs" class=x>the docs</a>.', "See the docs."),
    "links in Markdown": (
        'See [the docs](https://x.example/a_(b) "T"), ![a map](m.png) and <https://y.example>.',
        "See the docs, a map and https://y.example.",
    ),
    "links by reference": (
        "See [it][1] and [that].\n\n[1]: https://x.example",
        "See it and [that].",
    ),
    "emphasis": ("**Note:** *now* and ***both*** and __so it is__.", None),
    "headings and bullets": (
        "# Head\n\n* one\n* two\n  + three",
        "Head\n\n- one\n- two\n  - three",
    ),
    "a callout": ("> [!NOTE]\n> Hi.", "Note:\nHi."),
    "rules": ("a\n\n---\n\nb", "a\n\nb"),
    "entities": ("a &amp; b &lt;p&gt; &#39;c&#39;&nbsp;d", "a & b <p> 'c' d"),
    "comments and scripts": ("a<!-- x --> b<script>alert(1)</script>", "a b"),
}
IS_TEXT = [
    "List<T> of Map<String, List<Object>> for <id>, where a < b && c > d.",
    "if i<b and vector<p>",
    "Use `**not**` and `<p>` and ``[x](y)``.",
    "```json\n{\"a\": \"<p>\", 'b': '**'}\n```",
    "5 * 3 * 2, 2**3**4, SELECT * FROM t, /*/x/* and *.json or *.yml",
    "foo_bar_baz, __init__, $in[0](a) and map[string](x)",
    "Matches ^[a-z]+\\.[0-9]*$",
    "AT&T and R&D; a&b",
    "",
    "1. One\n2. Two\n\n- a\n  - b",
]


@pytest.mark.parametrize(("text", "expected"), SAYS.values(), ids=SAYS)
def test_markup_becomes_plain_text(text: str, expected: str | None) -> None:
    assert plain(text) == (expected or "Note: now and both and so it is.")


@pytest.mark.parametrize("text", IS_TEXT)
def test_text_without_markup_stays_unchanged(text: str) -> None:
    assert plain(text) == text


@pytest.mark.parametrize("text", [text for text, _ in SAYS.values()] + IS_TEXT)
def test_plain_text_conversion_is_idempotent(text: str) -> None:
    once = plain(text)
    if "&lt;" not in text:  # about a tag, which it then has
        assert plain(once) == once


@given(st.text("<>/pb*_`[](){}#|&;lt \n-=~!:a\"'", max_size=60))
def test_no_text_is_too_odd(text: str) -> None:
    assert not re.search("[\ue000\ue001]", plain(text))


@pytest.mark.parametrize(
    "part",
    [
        *("<!--", "<p ", "<pre>", "<code>", "<script>", '<a "', "</a><a>", "&amp;"),
        *("[a](", "[a](b(c", "[a][b", "**a", "*a ", "__a ", "`a", "``a`", "~~~\n", "```\n"),
        *("> ", "# ", "--- ", "\ue0001\ue001"),
    ],
)
def test_no_description_takes_more_than_linear_time(part: str) -> None:
    assert len(plain(part * 50_000)) <= len(part) * 50_000


def test_only_descriptions_of_schemas_are_converted() -> None:
    schema = {
        "description": "<p>An order.</p>",
        "properties": {"description": {"type": "string", "description": "**Why** it is."}},
        "default": {"description": "<p>kept</p>"},
        "anyOf": [{"description": "[A](https://x.example)"}],
    }
    assert with_plain_descriptions(schema) == {
        "description": "An order.",
        "properties": {"description": {"type": "string", "description": "Why it is."}},
        "default": {"description": "<p>kept</p>"},
        "anyOf": [{"description": "A"}],
    }
