"""URIs of other servers' resources: how clients see them, and which URI template matches one. Pure.

Where two servers have the same URI, one of them is exposed as `toolgate://<source>/<URI>`; a page
of an MCP App as `ui://toolgate/<source>/<rest>`, since hosts accept no other scheme for those.
Templates are RFC 6570. Of a URI only whether it matches is needed, not the values of its variables;
so expressions of all levels are read, leniently, by the characters that they can produce.
"""

import re
from collections import defaultdict
from collections.abc import Mapping
from functools import cached_property
from urllib.parse import quote

from msgspec import Struct

from schemas.mcp.references import UI

SCHEME = "toolgate://"
PAGES = f"{UI}toolgate/"
URI_LIMIT = 2048  # characters of a URI; a longer one matches no template
EXPRESSIONS_LIMIT = 16  # in one template

_EXPRESSION = re.compile(r"\{([+#./;?&]?)([A-Za-z0-9_%.,:*-]+)\}")
# By operator, the characters that an expansion never contains. `{x}` would also escape others than
# "/?#", but servers take them unescaped.
_EXCLUDED = {"": "/?#", "+": "", "#": "", ".": "/?#", "/": "?#", ";": "/?#", "?": "#", "&": "#"}

_SAFE = ":/?#[]@!$&'()*+,;="  # that `{+x}` and `{#x}` leave as they are
_WITH_NAME = frozenset(";?&")  # operators whose values follow their names


def template_variables(template: str) -> list[str]:
    """The names of the variables of a URI template, in their order."""
    specs = [spec for _, specs in _EXPRESSION.findall(template) for spec in specs.split(",")]
    return list(dict.fromkeys(spec.partition(":")[0].rstrip("*") for spec in specs))


def expand_template(template: str, values: Mapping[str, str]) -> str:
    """The URI of a template: /a/{x}{?y} with x: b is /a/b. Variables without a value are left
    out."""

    def expand(expression: re.Match[str]) -> str:
        operator, pieces = expression[1], []
        for spec in expression[2].split(","):
            name, _, length = spec.rstrip("*").partition(":")
            if name not in values:
                continue
            value = values[name][: int(length)] if length.isdecimal() else values[name]
            value = quote(value, safe=_SAFE if operator in {"+", "#"} else "")
            has_name = operator in _WITH_NAME
            omits = operator == ";" and not value
            pieces.append(name if omits else f"{name}={value}" if has_name else value)
        separator = {"": ",", "+": ",", "#": ",", "?": "&"}.get(operator, operator)
        first = "" if operator in {"", "+"} else operator
        return first + separator.join(pieces) if pieces else ""

    return _EXPRESSION.sub(expand, template)


def wrap_uri(source: str, uri: str) -> str:
    if uri.startswith(UI):
        return f"{PAGES}{source}/{uri.removeprefix(UI)}"
    return f"{SCHEME}{source}/{uri}"


def unwrap_uri(uri: str) -> tuple[str, str] | None:
    """The source and URI in what `wrapped` makes; None for any other URI."""
    if uri.startswith(SCHEME):
        source, _, inner = uri.removeprefix(SCHEME).partition("/")
        return source, inner
    if uri.startswith(PAGES):
        source, _, inner = uri.removeprefix(PAGES).partition("/")
        return source, inner and UI + inner
    return None


def looks_wrapped(uri: str) -> bool:
    """Whether a URI begins as those that name their source."""
    return uri.startswith((SCHEME, PAGES))


class UriBits:
    """Bit sets of a URI, to match it against many templates: bit n stands for character n."""

    def __init__(self, uri: str) -> None:
        self.uri = uri
        self.all = (1 << len(uri)) - 1

    @cached_property
    def _bits(self) -> Mapping[str, int]:
        bits: defaultdict[str, int] = defaultdict(int)
        for position, letter in enumerate(self.uri):
            bits[letter] |= 1 << position
        return bits

    def of(self, letter: str) -> int:
        return self._bits.get(letter, 0)

    def without(self, letters: str) -> int:
        bits = self.all
        for letter in letters:
            bits &= ~self.of(letter)
        return bits


class Template(Struct, frozen=True):
    """A URI template, split at its expressions."""

    literals: tuple[str, ...]  # one more than there are expressions
    excluded: tuple[str, ...]  # per expression, the characters that it never produces

    @classmethod
    def read(cls, text: str) -> "Template":
        """Parse a template. Raises ValueError that names what is wrong with `text`."""
        parts = _EXPRESSION.split(text)
        literals = tuple(parts[::3])
        if any(brace in literal for literal in literals for brace in "{}"):
            raise ValueError("is no URI template (RFC 6570): its braces hold no variables")
        if len(literals) > EXPRESSIONS_LIMIT + 1:
            raise ValueError(f"has more than {EXPRESSIONS_LIMIT} expressions")
        return cls(literals, tuple(_EXCLUDED[operator] for operator in parts[1::3]))

    @property
    def size(self) -> int:
        """Number of literal characters: the larger it is, the more specific the template."""
        return sum(map(len, self.literals))

    def may_match(self, uri: str) -> bool:
        """Whether `uri` has the literals in their order, whatever stands between them: a cheap look
        before `matches`."""
        first, *others = self.literals
        if not uri.startswith(first) or not uri.endswith(self.literals[-1]):
            return False
        place = len(first)
        for literal in others:
            place = uri.find(literal, place)
            if place < 0:
                return False
            place += len(literal)
        return True

    def matches(self, letters: UriBits) -> bool:
        """Whether the template matches this URI.

        Simulates a bit-parallel NFA: all positions in the URI advance at once, as the bits of one
        number, so time is bounded by the lengths, whatever template the server and URI the client
        sent.
        """
        if not letters.uri.startswith(self.literals[0]):
            return False
        positions = 1 << len(self.literals[0])
        for excluded, literal in zip(self.excluded, self.literals[1:], strict=True):
            allowed = letters.without(excluded)
            # Extend each position over the run of allowed characters: the carries of the addition
            # propagate through it (MatchStar in Cameron et al., "Bitwise data parallelism", 2014).
            positions |= ((positions & allowed) + allowed) ^ allowed
            for letter in literal:
                positions = (positions & letters.of(letter)) << 1
            if not positions:
                return False
        return bool(positions >> len(letters.uri) & 1)
