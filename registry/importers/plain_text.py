"""HTML and Markdown descriptions to plain text. Pure.

For models, search and terminals, to which tags, emphasis and link targets are noise. Code is kept
verbatim, lists and paragraphs stay apart. Only known HTML elements are tags, and only where one can
stand: `List<T>`, `<id>` and "a < b" are text. Every pattern is bounded, so that all descriptions
take linear time, unlike with `html.parser` for unclosed tags.
"""

import html
import re
from collections.abc import Callable
from functools import lru_cache

TEXTS_CACHED = 4096  # texts cached: members of many schemas share descriptions

_MARKUP = re.compile(r"[<&*`\[_#>|~\\]|^[=-]{3}", re.MULTILINE)
_HOLD, _HELD_END = "\ue000", "\ue001"  # delimit numbers of placeholders; never in a text
_PLACEHOLDER = re.compile(f"{_HOLD}([0-9]{{1,6}}){_HELD_END}")
_FENCE = re.compile(r"^(```|~~~)[^\n]{0,200}\n", re.MULTILINE)
_SPAN = re.compile(r"(?<!`)(`{1,2})(?!`)[^\n`]{1,2000}?(?<!`)\1(?!`)")

_VOID = ("br", "hr", "img", "wbr")
_OPEN = ("p", "li", "tr", "td", "th", "dt", "dd", "thead", "tbody", "tfoot")  # closing tag optional
_PAIRED = (
    *("a", "b", "i", "u", "s", "q", "em", "strong", "small", "big", "sub", "sup", "span", "font"),
    *("code", "kbd", "samp", "tt", "var", "pre", "mark", "del", "ins", "strike", "abbr", "cite"),
    *("div", "section", "article", "aside", "header", "footer", "center", "blockquote", "details"),
    *("summary", "figure", "figcaption", "ul", "ol", "dl", "table", "caption", "label", "nobr"),
    *("h1", "h2", "h3", "h4", "h5", "h6", "script", "style", "iframe", "button", "colgroup", "col"),
)
_ATTRIBUTES = r"""(?:\s(?:[^<>"']|"[^"<]{0,1000}"|'[^'<]{0,1000}'){0,1000})?"""
_TAG = re.compile(
    rf"<(?P<end>/?)(?P<name>{'|'.join(sorted((*_VOID, *_OPEN, *_PAIRED), key=len, reverse=True))})"
    rf"(?P<attributes>{_ATTRIBUTES})/?>",
    re.IGNORECASE,
)
_CLOSING = re.compile(r"</([A-Za-z][A-Za-z0-9]{0,20})")
_COMMENT = re.compile("<!(--)")
_UNSEEN = re.compile(r"<(script|style)\b[^<>]{0,1000}>", re.IGNORECASE)
_PRE = re.compile(r"<(pre)\b[^<>]{0,1000}>", re.IGNORECASE)
_IN_CODE = re.compile(r"<(code|kbd|samp|tt)\b[^<>]{0,1000}>", re.IGNORECASE)
_BREAKS = {"br": "\n", "tr": "\n", "dt": "\n", "dd": "\n", "hr": "\n\n", "li": "\n- "}
_PARAGRAPHS = frozenset(
    (
        *("p", "div", "section", "article", "aside", "header", "footer", "center", "blockquote"),
        *("details", "summary", "figure", "figcaption", "ul", "ol", "dl", "table", "caption"),
        *("pre", "h1", "h2", "h3", "h4", "h5", "h6"),
    )
)
_ALT = re.compile(r"""\balt\s*=\s*(?:"([^"]{0,500})"|'([^']{0,500})')""", re.IGNORECASE)

_TARGET = r"""\((?:<[^<>\n]{0,1000}>|[^()\s]{0,1000}(?:\([^()\s]{0,200}\)[^()\s]{0,500})?)"""
_TITLE = r"""(?:\s{1,10}(?:"[^"\n]{0,300}"|'[^'\n]{0,300}'))?\s{0,10}\)"""
_LINK = re.compile(rf"!?(?<![A-Za-z0-9_\]])\[([^\[\]]{{0,500}})\]{_TARGET}{_TITLE}")
_LINK_TEXT = re.compile(rf"\[([^\[\]]{{0,500}})\](?=\((?:https?://|/|#)){_TARGET}{_TITLE}")
_REFERENCE = re.compile(r"^ {0,3}\[([^\[\]\n]{1,200})\]:[ \t]{1,10}<?\S{1,1000}>?[^\n]{0,300}$\n?",
                        re.MULTILINE)  # fmt: skip
_REFERRING = re.compile(r"\[([^\[\]\n]{1,300})\]\[([^\[\]\n]{0,200})\]")
_AUTOLINK = re.compile(r"<((?:https?://|mailto:)[^\s<>]{1,1000})>")
_BOLD = re.compile(r"(?<![\w*\\])\*\*(?![\s*])([^*\n]{1,1000})(?<!\s)\*\*(?!\*)")
_BOTH = re.compile(r"(?<![\w*\\])\*{3}(?![\s*])([^*\n]{1,500})(?<!\s)\*{3}(?!\*)")
_BOLD_UNDERSCORES = re.compile(
    r"(?<![\w\\])__(?![\s_])([^_\n ]{0,100} [^_\n]{0,900})(?<!\s)__(?![\w_])"
)
_EMPHASIS = re.compile(r"(?<![\w*/\\.])\*(?![\s*./])([^*\n]{1,500})(?<![\s*/])\*(?![\w*/])")
_RULE = re.compile(
    r"^[ \t]{0,3}(?:={3,}|-{3,}|\*{3,}|_{3,}|\|?[ \t]{0,9}:?-{2}[-:| \t]{0,500})$\n?", re.MULTILINE
)
_HEADING = re.compile(
    r"^ {0,3}#{1,6}[ \t]{1,20}(.{0,500}?)[ \t]{0,20}#{0,6}[ \t]{0,20}$", re.MULTILINE
)
_QUOTE = re.compile(r"^ {0,3}>[ \t]?(?:\[!([A-Z]{1,20})\][ \t]{0,20})?", re.MULTILINE)
_BULLET = re.compile(r"^([ \t]{0,40})[*+]([ \t]{1,10})(?=\S)", re.MULTILINE)
_ENDS = re.compile(r"[ \t]{1,200}$", re.MULTILINE)
_GAPS = re.compile(r"\n[ \t]{0,200}(?:\n[ \t]{0,200}){2,200}")
_ENTITY = re.compile(r"&(?:#[0-9]{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z][A-Za-z0-9]{1,30});")


@lru_cache(maxsize=TEXTS_CACHED)
def plain(text: str) -> str:
    """`text` without markup; itself if it contains none."""
    return _Reading().read(text) if _MARKUP.search(text) else text


class _Reading:
    """State of converting one text; code is replaced by placeholders meanwhile."""

    def __init__(self) -> None:
        self._held: list[str] = []

    def read(self, text: str) -> str:
        result = text.replace(_HOLD, "").replace(_HELD_END, "").replace("\r\n", "\n")
        result = _between(result, _FENCE, "\n{}", lambda _code, whole: self._hold(whole))
        result = _SPAN.sub(lambda match: self._hold(match[0]), result)
        result = _markdown(_ENTITY.sub(self._entity, self._html(result)))
        result = _GAPS.sub("\n\n", _ENDS.sub("", result)).strip()
        return self._restore_code(result)

    def _hold(self, code: str) -> str:
        self._held.append(code)
        return f"{_HOLD}{len(self._held) - 1}{_HELD_END}"

    def _restore_code(self, text: str) -> str:
        """`text` with its placeholders filled in; code in HTML may contain code in Markdown."""
        for _ in range(2):
            text = _PLACEHOLDER.sub(self._of, text)
        return text

    def _of(self, match: re.Match[str]) -> str:
        number = int(match[1])
        return self._held[number] if number < len(self._held) else ""

    def _entity(self, match: re.Match[str]) -> str:
        """An entity stands for text, never markup: `&lt;p&gt;` is about a tag."""
        result = html.unescape(match[0])
        return " " if result == "\u00a0" else self._hold(result)

    def _html(self, text: str) -> str:
        if "<" not in text:
            return text
        text = _between(text, _COMMENT, "{}>", lambda _code, _whole: "")
        text = _between(text, _UNSEEN, "</{}>", lambda _code, _whole: "")
        text = _between(text, _PRE, "</{}>", lambda code, _whole: f"\n\n{self._fence(code)}\n\n")
        text = _between(text, _IN_CODE, "</{}>", lambda code, _whole: self._span(code))
        closed = {tag[1].lower() for tag in _CLOSING.finditer(text)}
        return _TAG.sub(lambda match: _tag(match, match["name"].lower() in closed), text)

    def _fence(self, code: str) -> str:
        return self._hold(f"```\n{html.unescape(_TAG.sub('', code)).strip()}\n```")

    def _span(self, code: str) -> str:
        result = " ".join(html.unescape(_TAG.sub("", code)).split())
        if not result or _HOLD in result:  # is code already: <code>`x`</code>
            return result
        return self._hold(f"`{result}`")


def _between(
    text: str, opening: re.Pattern[str], closing: str, change: Callable[[str, str], str]
) -> str:
    """`text` with each span from `opening` to its matching closing replaced by `change(inside,
    whole)`. Unclosed spans stay."""
    if not (match := opening.search(text)):
        return text
    lower, parts, at = text.lower(), [], 0
    while match:
        end = lower.find(closing.format(match[1].lower()), match.end() - 1)
        if end < 0 or len(lower) != len(text):
            break
        inside, after = max(end, match.end()), end + len(closing.format(match[1]))
        parts += [
            text[at : match.start()],
            change(text[match.end() : inside], text[match.start() : after]),
        ]
        at = after
        match = opening.search(text, at)
    return "".join([*parts, text[at:]])


def _tag(match: re.Match[str], closes: bool) -> str:
    """Replacement text of a tag; `closes`: the text contains its closing tag."""
    name, before = match["name"].lower(), match.string[max(match.start() - 1, 0) : match.start()]
    if not closes and (name in _PAIRED or (name in _OPEN and before.isalnum())):
        return match[0]  # a type parameter, or a placeholder
    if name in _PARAGRAPHS:
        return "\n\n"
    if name in ("td", "th"):
        return " " if match["end"] else " | "
    if name == "img":
        result = _ALT.search(match["attributes"] or "")
        return (result[1] or result[2] or "") if result else ""
    return "" if match["end"] else _BREAKS.get(name, "")


def _markdown(text: str) -> str:
    text = _LINK.sub(r"\1", text)
    text = _LINK_TEXT.sub(r"\1", text)
    text = _AUTOLINK.sub(r"\1", text)
    if named := {reference[1].casefold() for reference in _REFERENCE.finditer(text)}:
        text = _REFERRING.sub(
            lambda match: match[1] if (match[2] or match[1]).casefold() in named else match[0],
            _REFERENCE.sub("", text),
        )
    text = _QUOTE.sub(lambda match: f"{match[1].capitalize()}: " if match[1] else "", text)
    text = _BULLET.sub(r"\1-\2", _HEADING.sub(r"\1", _RULE.sub("", text)))
    text = _BOTH.sub(r"\1", text)
    for _ in range(2):  # they may be nested
        text = _BOLD_UNDERSCORES.sub(r"\1", _BOLD.sub(r"\1", _EMPHASIS.sub(r"\1", text)))
    return text.replace("\\_", "_")
