"""Templates of pages and their filters: Markdown, JSON, numbers, short texts."""

import re
from collections.abc import Mapping
from functools import cache, lru_cache
from importlib.resources import files
from typing import Any

import msgspec
from jinja2 import Environment, FunctionLoader, StrictUndefined
from markdown_it import MarkdownIt
from markupsafe import Markup, escape

from gateway.console.assets import asset
from gateway.console.forms import words
from gateway.console.texts import LANGUAGES, OUTCOMES, encode_json, visible
from gateway.methods.results_by_revision import SERVER
from schemas.jsonrpc import nests_within

THEMES = ("auto", "light", "dark")
JSON_BYTES = 200_000  # of JSON on a page
INDENTED_BYTES, INDENTED_LEVELS = 1 << 20, 32  # of JSON: indented, 800 kB in 900 levels are 720 MB
MARKDOWN_CHARACTERS = 20_000  # characters of Markdown
FLAT = 6  # members of an object in one line
KINDS = {
    "openapi": "OpenAPI", "graphql": "GraphQL", "mcp": "MCP", "a2a": "A2A", "hybrid": "light-4j",
}  # fmt: skip
RENDERINGS = 64  # that are kept
UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def templates_of(package: str) -> Environment:
    """The templates of a package. All values are escaped; invisible characters of texts are
    written out."""
    folder = files(package).joinpath("templates")
    templates = Environment(
        loader=FunctionLoader(lambda name: folder.joinpath(name).read_text()),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_finalize,
    )
    templates.globals.update(asset=asset)
    return templates


@cache
def environment() -> Environment:
    templates = templates_of("gateway.console")
    templates.filters.update(
        exact=lambda text: Markup(escape(text)),  # noqa: S704 - escaped
        pretty=pretty,
        indented=indent_json,
        markdown=markdown,
        code_spans=code_spans,
        number=number,
        words=words,
        short=short,
        short_id=lambda text: f"{text[:8]}…" if UUID.fullmatch(text) else text,
        short_text=lambda text: text if len(text) <= JSON_BYTES else f"{text[:JSON_BYTES]}\n…",
    )
    templates.tests.update(flat=_is_flat)
    templates.globals.update(
        languages=LANGUAGES, kinds=KINDS, outcomes=OUTCOMES, themes=THEMES, version=SERVER.version
    )
    return templates


def _is_flat(value: Any) -> bool:
    """Whether an object is short enough for one line: few members, none with parts."""
    return (
        isinstance(value, Mapping)
        and len(value) <= FLAT
        and all(isinstance(member, str | int | float | None) for member in value.values())
    )


def _finalize(value: Any) -> Any:
    if isinstance(value, str) and not isinstance(value, Markup):
        return visible(value)
    return "" if value is None else value


def pretty(value: Any) -> str:
    """Any value as indented JSON, cut where it is too long for a page."""
    text = in_lines(value)
    return text if len(text) <= JSON_BYTES else f"{text[:JSON_BYTES]}\n…"


def in_lines(value: Any) -> str:
    """Any value as JSON, whole, indented as `indent_json` does: what forms begin with."""
    return indent_json(encode_json(value))


def indent_json(text: str) -> str:
    """JSON, indented; a text that is none, such as JSON that was cut, and one that is long or
    nested deeply, as it is."""
    data = text.encode()
    if len(data) > INDENTED_BYTES or not nests_within(data, INDENTED_LEVELS):
        return text
    try:
        return msgspec.json.format(data, indent=2).decode()
    except msgspec.DecodeError:
        return text


def markdown(text: str) -> Markup:
    """CommonMark as HTML, without HTML of its own and without pictures, which another host has. A
    long text is shown as it is written: hostile Markdown takes 10 us a character."""
    if len(text) > MARKDOWN_CHARACTERS:
        return Markup('<pre tabindex="0">{}</pre>').format(visible(text[:JSON_BYTES]))
    return _render_markdown(text)


@lru_cache(RENDERINGS)  # a chat is rendered again with each of its events
def _render_markdown(text: str) -> Markup:
    return Markup(_markdown().render(visible(text)))  # noqa: S704 - escaped


@cache
def _markdown() -> MarkdownIt:
    return MarkdownIt("commonmark", {"html": False}).enable("table").disable("image")


def code_spans(text: str) -> Markup:
    """A sentence in which texts between backticks are code."""
    escaped = str(escape(visible(text)))
    return Markup(re.sub(r"`([^`\n]+)`", r"<code>\1</code>", escaped))  # noqa: S704 - escaped


def number(value: float | None, digits: int = 0) -> str:
    """A number in groups of three digits; a dash for none."""
    return "\u2013" if value is None else f"{value:,.{digits}f}".replace(",", "\u202f")


def short(text: str, characters: int = 160) -> str:
    """The first line, cut at a word."""
    line = text.strip().split("\n", 1)[0]
    if len(line) <= characters:
        return line
    return line[:characters].rsplit(" ", 1)[0] + " …"
