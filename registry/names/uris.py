"""URIs of other servers' resources: how clients are told them, and which template makes one. Pure.

Where two servers have the same URI, one of them is known as `toolgate://<source>/<URI>`. Templates
are RFC 6570. Nobody needs the values that were put into one, only whether a URI can be made by it;
so expressions of all its levels are read, leniently, by the characters that they can give.
"""

import re
from collections import defaultdict
from dataclasses import dataclass

SCHEME = "toolgate://"
MATCHED = 2048  # characters of a URI; a longer one is of no template
EXPRESSIONS = 16  # in one template

_EXPRESSION = re.compile(r"\{([+#./;?&]?)([A-Za-z0-9_%.,:*-]+)\}")
# By operator, the characters that it never gives. `{x}` would also escape others than "/?#", but
# servers take them unescaped.
_NEVER = {"": "/?#", "+": "", "#": "", ".": "/?#", "/": "?#", ";": "/?#", "?": "#", "&": "#"}


def wrapped(source: str, uri: str) -> str:
    return f"{SCHEME}{source}/{uri}"


def unwrapped(uri: str) -> tuple[str, str] | None:
    """The source and the URI that stand in `toolgate://<source>/<URI>`; None for another one."""
    if not uri.startswith(SCHEME):
        return None
    source, _, inner = uri.removeprefix(SCHEME).partition("/")
    return source, inner


class Letters:
    """A URI as bits, to be compared with many templates: bit n is about its character n."""

    def __init__(self, uri: str) -> None:
        self.uri = uri
        self.all = (1 << len(uri)) - 1
        self._bits: defaultdict[str, int] = defaultdict(int)
        for position, letter in enumerate(uri):
            self._bits[letter] |= 1 << position

    def of(self, letter: str) -> int:
        return self._bits.get(letter, 0)

    def without(self, letters: str) -> int:
        bits = self.all
        for letter in letters:
            bits &= ~self.of(letter)
        return bits


@dataclass(frozen=True, slots=True)
class Template:
    """A URI template, cut at its expressions."""

    literals: tuple[str, ...]  # one more than there are expressions
    never: tuple[str, ...]  # of each expression, the characters that it never gives

    @classmethod
    def read(cls, text: str) -> "Template":
        """Raises ValueError that says what is wrong with `text`."""
        parts = _EXPRESSION.split(text)
        literals = tuple(parts[::3])
        if any(brace in literal for literal in literals for brace in "{}"):
            raise ValueError("is no URI template (RFC 6570): its braces hold no variables")
        if len(literals) > EXPRESSIONS + 1:
            raise ValueError(f"has more than {EXPRESSIONS} expressions")
        return cls(literals, tuple(_NEVER[operator] for operator in parts[1::3]))

    @property
    def size(self) -> int:
        """Characters that stand in every URI of this template: with more it says more."""
        return sum(map(len, self.literals))

    def matches(self, letters: Letters) -> bool:
        """Whether the template can give this URI.

        A set of positions moves through the URI, all at once, as the bits of one number: the time
        is bounded by the lengths, whatever the server wrote into its template and the client into
        the URI.
        """
        if not letters.uri.startswith(self.literals[0]):
            return False
        places = 1 << len(self.literals[0])
        for never, literal in zip(self.never, self.literals[1:], strict=True):
            allowed = letters.without(never)
            # From each place as far as the allowed characters reach: the carries of the addition
            # run through them (MatchStar in Cameron et al., "Bitwise data parallelism", 2014).
            places |= ((places & allowed) + allowed) ^ allowed
            for letter in literal:
                places = (places & letters.of(letter)) << 1
            if not places:
                return False
        return bool(places >> len(letters.uri) & 1)
