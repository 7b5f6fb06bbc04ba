"""CEL expressions of rules (https://cel.dev): compiled when rules are read, evaluated when calls
are made. Pure.

The library converts its input value by value, some microseconds each, has no time limit (two
nested macros: the square of a list), and overflows its stack where values are nested some
thousands deep. So `too_large` first checks everything that callers choose, and an expression
that could exceed its bound of steps is rejected, or fails for inputs
that are too large for it.

The library exposes no syntax tree, and its errors list names of tokens. So the part of CEL that
rules use (langdef.md of the specification) is parsed here as well: to a tree, or to an error with
the position and what was expected.

The upper bound of an evaluation, in steps of about 0.1 us, is computed from that tree, because the
library cannot be interrupted and blocks the whole process. It is a function of the input's size: of
JSON, the number of its values plus a sixty-fourth of its bytes of text. Macros iterate over every
member of a list or map, so nested macros multiply; `map` and `filter` copy their accumulated result
with each value; functions copy their arguments; `matches` compiles its pattern each time.
"""

import re
from bisect import bisect_right
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import cel

from schemas.errors import ToolgateError
from schemas.pattern_cost import SATURATION, Unbounded, matching_steps

LEVELS = 48  # of nested brackets: parsing each takes nine stack frames
DEPTH = 150  # of the tree: chains of members and of operators
SHOWN = 24  # characters shown before and after the position of an error

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

NESTED = 4  # deepest nesting of macros
MINIMUM_SIZE = 50  # input size that every expression must be able to handle
MINIMUM_SIZE_OF_TOOL = 20  # the same for one over a tool alone
SIZES = tuple(int(MINIMUM_SIZE_OF_TOOL * 1.25**power) for power in range(36))  # to 50,000
BYTES = 64  # of text that count as one value

_FUNCTIONS = frozenset(
    {
        *("size", "contains", "startsWith", "endsWith", "matches", "type", "dyn"),
        *("int", "uint", "double", "string", "bytes", "timestamp", "duration"),
        *("getFullYear", "getMonth", "getDate", "getDayOfMonth", "getDayOfYear", "getDayOfWeek"),
        *("getHours", "getMinutes", "getSeconds", "getMilliseconds"),
    }
)
_OF_A_CALL = frozenset(("arguments", "value"))  # variables that differ with each call
_OF_A_TOOL = frozenset(("tool", "source"))  # with each tool: 10,000 evaluations per list of 10,000
PER_TOOL = 50  # divisor of the steps for an expression over a tool alone
LARGEST_SIZE = SIZES[-1]  # more than the size of any input
CONVERTED = 32  # steps to convert one unit of size; a cheaper expression is accepted
# What follows a variable of which only a part is used: `principal.claims.team`.
_MEMBER = r"\s*\.\s*([A-Za-z_]\w*)(?!\w)(?!\s*\()"
_PART = rf"\b%s\b(?:{_MEMBER}(?:{_MEMBER})?)?"
_FAILURES = (ArithmeticError, LookupError, RuntimeError, TypeError, ValueError)
_DETAIL = 200  # characters of the library's error message


class ExpressionSyntaxError(ToolgateError):
    """The text is not CEL; with the position and what was expected."""


class Node(NamedTuple):
    """Node of an expression. `kind`: "literal", "name", "member", "list", "map", "has", "macro", or
    "call" (operators and indexes too)."""

    kind: str
    name: str  # of the variable, member, function, operator or macro; the text of a literal
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
    found, at = [], 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            hint = _HINTS.get(text[at], f"{text[at]!r} means nothing here")
            raise _error(text, at, hint)
        if match.lastgroup != "space":
            found.append(_Token(str(match.lastgroup), match[0], at))
        at = match.end()
    return [*found, _Token("end", "", len(text.rstrip()))]


def _error(text: str, at: int, problem: str) -> ExpressionSyntaxError:
    line = text.count("\n", 0, at) + 1
    begins = text.rfind("\n", 0, at) + 1
    ends = text.find("\n", at) if "\n" in text[at:] else len(text)
    before, after = text[max(begins, at - SHOWN) : at], text[at : min(ends, at + SHOWN)]
    shown = f"{before}^{after}".strip() or "^"
    return ExpressionSyntaxError(
        f"line {line}, character {at - begins + 1}: {problem}, at ^ in `{shown}`"
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
            raise self._unexpected("an operator or the end")
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
            raise self._unexpected(f"{alternatives}`{text}`")

    def _unexpected(self, expected: str) -> ExpressionSyntaxError:
        token = self._token
        found = f"found `{token.text[:SHOWN]}`" if token.text else "found the end"
        hint = f" ({_HINTS[token.text]})" if token.text in _HINTS else ""
        return _error(self._text, token.at, f"expected {expected}, {found}{hint}")

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
            node = self._extended(node, operator)
        return Node("call", before[0], (node,)) if before else node

    def _following(self) -> str:
        return self._take().text if self._token.text in (".", "[") else ""

    def _extended(self, node: Node, operator: str) -> Node:
        if operator == "[":
            index = self._conditional()
            self._demand("]", "an operator or ")
            return Node("call", "[]", (node, index))
        if self._token.kind != "name":
            raise self._unexpected("the name of a member")
        name = self._take()
        if not self._takes("("):
            return Node("member", name.text, (node,))
        arguments = self._until(")")
        if name.text in MACROS:
            return self._macro(name, node, arguments)
        return Node("call", name.text, (node, *arguments))

    def _macro(self, name: _Token, range_: Node, arguments: Sequence[Node]) -> Node:
        if len(arguments) != 2 and (name.text != "map" or len(arguments) != 3):
            given = f"`{name.text}` takes a name and an expression, as in "
            raise _error(self._text, name.at, f"{given}`items.{name.text}(item, item > 0)`")
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
            raise self._unexpected("a value, such as a name, a number or a text in quotes")
        name = self._take().text
        if self._takes("("):
            arguments = self._until(")")
            return Node("has" if name == "has" else "call", name, tuple(arguments))
        return Node("literal" if name in _LITERALS else "name", name)

    def _until(self, end: str, *, pairs: bool = False) -> list[Node]:
        """Comma-separated list up to the closing bracket; a trailing comma is allowed."""
        found: list[Node] = []
        while not self._takes(end):
            found.append(self._conditional())
            if pairs:
                self._demand(":", "an operator or ")
                found.append(self._conditional())
            if not self._takes(","):
                self._demand(end, "an operator, `,` or ")
                break
        return found


class TooCostly(Exception):
    """The expression has no useful bound; the message gives the reason."""


class Bound(NamedTuple):
    """Upper bounds: the size of a value, and the steps to compute it."""

    size: int
    steps: int


def steps_of(tree: Node, size: int) -> int:
    """Upper bound of the steps for an input of this size. Raises TooCostly for macros nested deeper
    than NESTED, and for patterns that are not literals."""
    return _of(tree, {}, size, 0).steps


def largest_size(tree: Node, steps: int) -> int:
    """The largest input size in SIZES within `steps`, which must be enough for the first."""
    index = bisect_right(SIZES, steps, key=lambda size: steps_of(tree, size))
    return SIZES[max(index - 1, 0)]


def size_of(value: Any, limit: int) -> int:
    """Size of a JSON value; counting stops above `limit`."""
    size, left = 0, [value]
    while left and size <= limit:
        one = left.pop()
        size += 1
        if isinstance(one, str):
            size += len(one) * 4 // BYTES if not one.isascii() else len(one) // BYTES
        elif isinstance(one, dict):
            size += sum(map(len, one)) // BYTES
            left.extend(one.values())
        elif isinstance(one, list):
            left.extend(one)
    return size


def _of(node: Node, known: Mapping[str, int], default: int, depth: int) -> Bound:
    """Bound of a node. `known`: sizes of the variables of enclosing macros; `default`: size of each
    other variable."""
    if node.kind == "literal":
        return Bound(1 + len(node.name) // BYTES, 1)
    if node.kind == "name":
        return Bound(known.get(node.name, default), 1)
    if node.kind == "macro":
        return _macro(node, known, default, depth)
    parts = [_of(part, known, default, depth) for part in node.parts]
    steps = 1 + sum(part.steps for part in parts)
    sizes = sum(part.size for part in parts)
    if node.kind in ("member", "has"):
        return Bound(sizes, steps)
    if node.kind in ("list", "map"):
        return Bound(_saturated(1 + sizes), _saturated(steps + 4 * sizes))
    return _call(node, parts, sizes, steps)


def _call(node: Node, parts: list[Bound], sizes: int, steps: int) -> Bound:
    match node.name:
        case "&&" | "||":
            return Bound(1, steps)
        case "?:":
            return Bound(max(parts[1].size, parts[2].size), _saturated(steps + sizes))
        case "+":  # a text or a list grows with each
            return Bound(_saturated(1 + sizes), _saturated(steps + 4 * sizes * len(parts)))
        case "[]" | "dyn" | "string" | "bytes":
            return Bound(_saturated(1 + sizes), _saturated(steps + 4 * sizes))
        case "matches":
            return Bound(1, _saturated(steps + sizes + _matching(node, parts[0].size)))
    return Bound(1, _saturated(steps + 4 * sizes))


def _macro(node: Node, known: Mapping[str, int], default: int, depth: int) -> Bound:
    if depth >= NESTED:
        raise TooCostly(f"macros stand more than {NESTED} deep inside each other")
    range_, *bodies = node.parts
    over = _of(range_, known, default, depth)
    times = len(range_.parts) if range_.kind == "list" else over.size
    each = [
        _each(body, node.local, known, default, depth=depth, size=over.size, times=times)
        for body in bodies
    ]
    steps = over.steps + 4 * over.size + times + sum(one.steps for one in each)
    if node.name not in ("map", "filter"):
        return Bound(1, _saturated(steps))
    made = _saturated(1 + (over.size if node.name == "filter" else each[-1].size))
    return Bound(made, _saturated(steps + (times + 1) * made))


def _each(
    body: Node,
    local: str,
    known: Mapping[str, int],
    default: int,
    *,
    depth: int,
    size: int,
    times: int,
) -> Bound:
    """Cost of `body` for each member of a value of this size. At most that of members of size 1
    plus one member of the whole size, as bounds grow at least in proportion to sizes."""
    one = _of(body, {**known, local: 1}, default, depth + 1)
    all_ = _of(body, {**known, local: size}, default, depth + 1)
    return Bound(
        _saturated(times * one.size + all_.size), _saturated(times * (4 + one.steps) + all_.steps)
    )


def _matching(node: Node, size: int) -> int:
    pattern = node.parts[-1]
    if pattern.kind != "literal":
        raise TooCostly("the pattern of `matches` is a text in quotes")
    try:
        return matching_steps(pattern.name, size)
    except Unbounded as error:
        raise TooCostly(str(error)) from error


def _saturated(number: int) -> int:
    return min(number, SATURATION)


class InvalidExpression(ToolgateError):
    """The text is not a valid expression, or uses an unknown name."""


class ExpressionFailed(ToolgateError):
    """Evaluation failed for these values: a member is missing, types do not fit."""


class Expression:
    """A compiled expression; `variables` are those that it uses."""

    __slots__ = ("_parts", "_program", "_size_limit", "text", "variables")

    def __init__(
        self, text: str, program: cel.Program, variables: frozenset[str], size_limit: int
    ) -> None:
        """Compile an expression. `size_limit`: largest input size within its bound of steps."""
        self.text = text
        self.variables = variables
        self._program = program
        self._size_limit = size_limit
        self._parts = {name: _parts(text, name) for name in variables}

    def relevant(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """The parts of `values` that the expression uses, or a superset: equal parts give equal
        results."""
        parts = self._parts
        return {name: _part(values[name], parts[name]) for name in parts if name in values}

    def holds(self, values: Mapping[str, Any]) -> bool:
        """Whether the expression is true of `values`, which are JSON and may hold more than it
        uses. Raises ExpressionFailed, also for a result that is not a boolean."""
        try:
            if missing := self.variables - values.keys():
                raise KeyError(min(missing))
            held = self._program.execute(self._bounded(self.relevant(values)))
        except _FAILURES as error:
            reason = str(error).partition("\n")[0][:_DETAIL]
            kind = "there is no member " if isinstance(error, KeyError) else ""
            raise ExpressionFailed(f"{kind}{reason}") from error
        if held is not True and held is not False:
            raise ExpressionFailed("it is neither true nor false")
        return held

    def _bounded(self, relevant: dict[str, Any]) -> dict[str, Any]:
        """`relevant`, if its size is within the bound. Raises ExpressionFailed."""
        if (
            self._size_limit < LARGEST_SIZE
            and size_of(relevant, self._size_limit) > self._size_limit
        ):
            size_limit = f"{self._size_limit:,} values, or {self._size_limit * 64:,} bytes of text"
            raise ExpressionFailed(f"it would take too long for more than {size_limit}")
        return relevant


def compile_expression(text: str, variables: Collection[str], steps: int) -> Expression:
    """Compile an expression of at most `steps`. Raises InvalidExpression with the reason and the
    position in `text`."""
    try:
        tree = parse(text)
        program = cel.compile(text)
    except ExpressionSyntaxError as error:
        raise InvalidExpression(str(error)) from error
    except ValueError as error:
        raise InvalidExpression(_readable(str(error))) from error
    named, called, local = _names(tree)
    _check_agreement(program, named, called)
    wanted = frozenset(named - (local - set(variables)))
    if unknown := sorted(wanted - set(variables)):
        is_next = ", ".join(variables)
        raise InvalidExpression(f"there is no variable {unknown[0]!r}; there are {is_next}")
    if unknown := sorted(called - _FUNCTIONS):
        raise InvalidExpression(f"there is no function {unknown[0]!r}")
    per_tool = not wanted.isdisjoint(_OF_A_TOOL) and wanted.isdisjoint(_OF_A_CALL)
    if per_tool:
        return Expression(
            text, program, wanted, _size_limit(tree, steps // PER_TOOL, MINIMUM_SIZE_OF_TOOL)
        )
    return Expression(text, program, wanted, _size_limit(tree, steps, MINIMUM_SIZE))


def _size_limit(tree: Node, steps: int, minimum_size: int) -> int:
    """Largest input size for that many steps. Raises InvalidExpression where that is below
    `minimum_size`."""
    try:
        needed_steps = steps_of(tree, minimum_size)
        if steps_of(tree, LARGEST_SIZE) <= CONVERTED * LARGEST_SIZE and needed_steps <= steps:
            return LARGEST_SIZE
    except TooCostly as error:
        raise InvalidExpression(f"it may take too long: {error}") from error
    if needed_steps > steps:
        raise InvalidExpression(
            f"it may take too long: {min(needed_steps, 10**12):,} steps for {minimum_size} "
            f"values, expected at most {steps:,} (expression_steps); macros inside each other "
            "multiply, and literal lists count"
        )
    return largest_size(tree, steps)


def _names(tree: Node) -> tuple[set[str], set[str], set[str]]:
    """Names in an expression: variables, functions, and iteration variables of macros."""
    named, called, local = set[str](), set[str](), set[str]()
    left = [tree]
    while left:
        node = left.pop()
        left.extend(node.parts)
        if node.kind == "name":
            named.add(node.name)
        elif node.kind == "macro":
            local.add(node.local)
            named.update({node.local} if node.name == "filter" else ())  # which returns it
        elif node.kind == "call" and node.name[0].isalpha() and node.name != "in":
            called.add(node.name)
    return named, called, local


def _check_agreement(program: cel.Program, named: set[str], called: set[str]) -> None:
    """Raises InvalidExpression where the library parses the text differently from the parser that
    its cost was computed with."""
    used = program.references()
    functions = {one for one in used["functions"] if one[0].isalpha()}
    if set(used["variables"]) != named or functions != called:
        raise InvalidExpression("it is written in a way whose cost is not known")


def too_large(value: Any, most_values: int, most_bytes: int, most_levels: int) -> str | None:
    """The limit that a JSON value exceeds, as "more than 1,000 values"; None: it fits."""
    values, size = 0, 0
    level: list[Any] = [value]
    for _ in range(most_levels + 1):
        below: list[Any] = []
        for one in level:
            values += 1
            if isinstance(one, str):
                size += len(one) if one.isascii() else len(one.encode("utf-8", "surrogatepass"))
            elif isinstance(one, dict):
                size += sum(map(len, one))
                below.extend(one.values())
            elif isinstance(one, list):
                below.extend(one)
            elif isinstance(one, int):
                size += one.bit_length() // 8
            if values + len(below) > most_values:
                return f"more than {most_values:,} values"
            if size > most_bytes:
                return f"more than {most_bytes:,} bytes of text"
        if not below:
            return None
        level = below
    return f"nested more than {most_levels} deep"


_Parts = dict[str, "_Parts | None"]  # tree of members; None: the whole value


def _parts(text: str, variable: str) -> _Parts | None:
    found: _Parts = {}
    for first, second in re.findall(_PART % variable, text):
        if not first:
            return None
        inner = found.setdefault(first, {})
        if not second:
            found[first] = None
        elif inner is not None:
            inner[second] = None
    return found


def _part(value: Any, parts: _Parts | None) -> Any:
    if parts is None or not isinstance(value, dict):
        return value
    return {name: _part(value[name], inner) for name, inner in parts.items() if name in value}


def _readable(error: str) -> str:
    """`Failed to parse expression '...': ERROR: <input>:1:5: Syntax error: ...` without the
    parts that repeat the expression."""
    if "Recursion limit" in error:
        return "it is nested too deeply"
    found = re.search(r"<input>:(\d+):(\d+): ([^\n|]*)", error)
    if found is None:
        return "it is no CEL expression"
    line, column, text = found.groups()
    message = text.partition(" expecting ")[0].removeprefix("Syntax error: ").strip()
    return f"line {line}, character {column}: {message[:_DETAIL]}"
