"""Syntax of CEL expressions: the part of the language that rules use (langdef.md of the
specification), as a tree. Pure.

The library that evaluates expressions exposes no tree, and its errors list names of tokens. This
parser gives a tree, or an error with the position and what was expected.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

from schemas.errors import ToolgateError

LEVELS = 48  # of nested brackets: parsing each takes nine stack frames
DEPTH = 150  # of the tree: chains of members and of operators
REACH = 24  # characters shown before and after the position of an error

MACROS = {"all": 2, "exists": 2, "exists_one": 2, "existsOne": 2, "filter": 2, "map": 2}
_OPERATORS: tuple[tuple[str, ...], ...] = (
    ("||",),
    ("&&",),
    ("==", "!=", "<", "<=", ">", ">=", "in"),
    ("+", "-"),
    ("*", "/", "%"),
)
_CHAINS = ("||", "&&", "+")  # one node for all: rules list hundreds of names so
_TOKEN = re.compile(
    r"""
    (?P<space>(?:\s+|//[^\n]*)+)
    |(?P<text>(?:[rR][bB]?|[bB][rR])(?:\"\"\"[\s\S]*?\"\"\"|'''[\s\S]*?'''|"[^"\n]*"|'[^'\n]*')
        |[bB]?(?:\"\"\"(?:\\[\s\S]|[^\\])*?\"\"\"|'''(?:\\[\s\S]|[^\\])*?'''
        |"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'))
    |(?P<number>0[xX][0-9a-fA-F]+[uU]?|(?:\d+\.\d+|\.\d+|\d+)(?:[eE][+-]?\d+)?[uU]?)
    |(?P<name>[A-Za-z_][A-Za-z0-9_]*)
    |(?P<sign>&&|\|\||==|!=|<=|>=|[-+*/%<>!?:.,()\[\]{}])
    """,
    re.VERBOSE,
)
_LITERALS = frozenset(("true", "false", "null"))
_HINTS = {
    "=": "equality is written ==",
    "&": "and is written &&",
    "|": "or is written ||",
    "and": "and is written &&",
    "or": "or is written ||",
    "not": "not is written !",
    "'": "the text that begins here does not end",
    '"': "the text that begins here does not end",
}


class ExpressionSyntaxError(ToolgateError):
    """The text is not CEL; with the position and what was expected."""


class Node(NamedTuple):
    """Node of an expression. `kind`: "literal", "name", "member", "list", "map", "has", "macro",
    "method", or "call" (functions, operators and indexes)."""

    kind: str
    name: str  # of the variable, member, function, operators or macro; the text of a literal
    parts: tuple["Node", ...] = ()
    local: str = ""  # the iteration variable of a macro


class _Token(NamedTuple):
    kind: str
    text: str
    at: int


def parse(text: str) -> Node:
    """Parse an expression. Raises ExpressionSyntaxError."""
    tree = _Parser(text, _tokens(text)).whole()
    level = [tree]
    for _ in range(DEPTH):
        level = [part for node in level for part in node.parts]
        if not level:
            return tree
    raise ExpressionSyntaxError("it is nested too deeply")


def _tokens(text: str) -> list[_Token]:
    tokens, at = [], 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            hint = _HINTS.get(text[at], f"{text[at]!r} means nothing here")
            raise _error(text, at, hint)
        if match.lastgroup != "space":
            tokens.append(_Token(str(match.lastgroup), match[0], at))
        at = match.end()
    return [*tokens, _Token("end", "", len(text.rstrip()))]


def _error(text: str, at: int, problem: str) -> ExpressionSyntaxError:
    line = text.count("\n", 0, at) + 1
    begins = text.rfind("\n", 0, at) + 1
    ends = text.find("\n", at) if "\n" in text[at:] else len(text)
    before, after = text[max(begins, at - REACH) : at], text[at : min(ends, at + REACH)]
    excerpt = f"{before}^{after}".strip() or "^"
    return ExpressionSyntaxError(
        f"line {line}, character {at - begins + 1}: {problem}, at ^ in `{excerpt}`"
    )


class _Parser:
    def __init__(self, text: str, tokens: Sequence[_Token]) -> None:
        self._text = text
        self._tokens = tokens
        self._next = 0
        self._level = 0

    def whole(self) -> Node:
        node = self._conditional()
        if self._token.kind != "end":
            raise self._unexpected_token_error("an operator or the end")
        return node

    @property
    def _token(self) -> _Token:
        return self._tokens[self._next]

    def _take(self) -> _Token:
        token = self._token
        self._next += 1
        return token

    def _takes(self, *texts: str) -> bool:
        is_next = self._token.kind in ("sign", "name") and self._token.text in texts
        self._next += is_next
        return is_next

    def _demand(self, text: str, alternatives: str = "") -> None:
        if not self._takes(text):
            raise self._unexpected_token_error(f"{alternatives}`{text}`")

    def _unexpected_token_error(self, expected: str) -> ExpressionSyntaxError:
        token = self._token
        actual = f"found `{token.text[:REACH]}`" if token.text else "found the end"
        hint = f" ({_HINTS[token.text]})" if token.text in _HINTS else ""
        return _error(self._text, token.at, f"expected {expected}, {actual}{hint}")

    def _conditional(self) -> Node:
        self._level += 1
        if self._level > LEVELS:
            raise _error(self._text, self._token.at, "it is nested too deeply")
        node = self._binary(0)
        if self._takes("?"):
            chosen = self._binary(0)
            self._demand(":", "an operator or ")
            node = Node("call", "?:", (node, chosen, self._conditional()))
        self._level -= 1
        return node

    def _binary(self, rank: int) -> Node:
        if rank == len(_OPERATORS):
            return self._unary()
        node = self._binary(rank + 1)
        while self._token.kind != "text" and self._token.text in _OPERATORS[rank]:
            operator = self._take().text
            right = self._binary(rank + 1)
            chained = operator in _CHAINS and node.kind == "call" and node.name == operator
            node = Node("call", operator, (*(node.parts if chained else (node,)), right))
        return node

    def _unary(self) -> Node:
        before = []
        while self._token.text in ("!", "-"):
            before.append(self._take().text)
        node = self._primary()
        while operator := self._following():
            node = self._parse_suffix(node, operator)
        return Node("call", "".join(before), (node,)) if before else node

    def _following(self) -> str:
        return self._take().text if self._token.text in (".", "[") else ""

    def _parse_suffix(self, node: Node, operator: str) -> Node:
        if operator == "[":
            index = self._conditional()
            self._demand("]", "an operator or ")
            return Node("call", "[]", (node, index))
        if self._token.kind != "name":
            raise self._unexpected_token_error("the name of a member")
        name = self._take()
        if not self._takes("("):
            return Node("member", name.text, (node,))
        arguments = self._until(")")
        if name.text in MACROS:
            return self._macro(name, node, arguments)
        return Node("method", name.text, (node, *arguments))

    def _macro(self, name: _Token, range_: Node, arguments: Sequence[Node]) -> Node:
        if len(arguments) != 2 and (name.text != "map" or len(arguments) != 3):
            usage = f"`{name.text}` takes a name and an expression, as in "
            raise _error(self._text, name.at, f"{usage}`items.{name.text}(item, item > 0)`")
        local, *bodies = arguments
        if local.kind != "name":
            problem = f"the first argument of `{name.text}` is a name, as in `item`"
            raise _error(self._text, name.at, problem)
        return Node("macro", name.text, (range_, *bodies), local.name)

    def _primary(self) -> Node:
        token = self._token
        if token.kind in ("text", "number"):
            return Node("literal", self._take().text)
        if self._takes("("):
            node = self._conditional()
            self._demand(")", "an operator or ")
            return node
        if self._takes("["):
            return Node("list", "", tuple(self._until("]")))
        if self._takes("{"):
            return Node("map", "", tuple(self._until("}", pairs=True)))
        if token.kind != "name" or token.text in ("in", "not"):
            raise self._unexpected_token_error(
                "a value, such as a name, a number or a text in quotes"
            )
        name = self._take().text
        if self._takes("("):
            arguments = self._until(")")
            return Node("has" if name == "has" else "call", name, tuple(arguments))
        return Node("literal" if name in _LITERALS else "name", name)

    def _until(self, end: str, *, pairs: bool = False) -> list[Node]:
        """Comma-separated list up to the closing bracket; a trailing comma is allowed."""
        items: list[Node] = []
        while not self._takes(end):
            items.append(self._conditional())
            if pairs:
                self._demand(":", "an operator or ")
                items.append(self._conditional())
            if not self._takes(","):
                self._demand(end, "an operator, `,` or ")
                break
        return items
