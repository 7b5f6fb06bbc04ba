"""CEL expressions of rules (https://cel.dev): compiled when rules are read, evaluated when calls
are made. Pure.

The library converts its input value by value, some microseconds each, has no time limit (two
nested macros: the square of a list), and overflows its stack where values are nested some
thousands deep. So `too_large` first checks everything that callers choose, and an expression
that could exceed its bound of steps is rejected, or fails for inputs that are too large for it.

The upper bound of an evaluation, in steps of about 0.1 us, is computed from the syntax tree,
because the library cannot be interrupted and blocks the whole process. It is a function of the
input's size: of JSON, the number of its values plus a sixty-fourth of its bytes of text. Macros
iterate over every member of a list or map, so nested macros multiply; `map` and `filter` copy their
accumulated result with each value; functions copy their arguments; `matches` compiles its pattern
each time.
"""

import re
from bisect import bisect_right
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from schemas.cel_library import cel
from schemas.cel_predicates import Parts, Predicate
from schemas.cel_syntax import ExpressionSyntaxError, Node, parse
from schemas.errors import ToolgateError
from schemas.json_schema.pattern_cost import SATURATION, UnboundedPattern, matching_steps

MACRO_DEPTH = 4  # deepest nesting of macros
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
STEPS_PER_UNIT = 32  # steps to convert one unit of size; a cheaper expression is accepted
# What follows a variable of which only a part is used: `principal.claims.team`.
_MEMBER = r"\s*\.\s*([A-Za-z_]\w*)(?!\w)(?!\s*\()"
_PART = rf"\b%s\b(?:{_MEMBER}(?:{_MEMBER})?)?"
_FAILURES = (ArithmeticError, LookupError, RuntimeError, TypeError, ValueError)
_DETAIL = 200  # characters of the library's error message


class TooCostly(Exception):
    """The expression has no useful bound; the message gives the reason."""


class ExpressionBound(NamedTuple):
    """Upper bounds: the size of a value, and the steps to compute it."""

    size: int
    steps: int


def steps_of(tree: Node, size: int) -> int:
    """Upper bound of the steps for an input of this size. Raises TooCostly for macros nested deeper
    than MACRO_DEPTH, and for patterns that are not literals."""
    return _of(tree, {}, size, 0).steps


def largest_size(tree: Node, steps: int) -> int:
    """The largest input size in SIZES within `steps`, which must be enough for the first."""
    index = bisect_right(SIZES, steps, key=lambda size: steps_of(tree, size))
    return SIZES[max(index - 1, 0)]


def size_of(value: Any, limit: int) -> int:
    """Size of a JSON value; counting stops above `limit`."""
    size, pending = 0, [value]
    while pending and size <= limit:
        node = pending.pop()
        size += 1
        if isinstance(node, str):
            size += len(node) * 4 // BYTES if not node.isascii() else len(node) // BYTES
        elif isinstance(node, dict):
            size += sum(map(len, node)) // BYTES
            pending.extend(node.values())
        elif isinstance(node, list):
            pending.extend(node)
    return size


def _of(node: Node, bounds: Mapping[str, int], default: int, depth: int) -> ExpressionBound:
    """Bound of a node. `bounds`: sizes of the variables of enclosing macros; `default`: that of
    each other variable."""
    if node.kind == "literal":
        return ExpressionBound(1 + len(node.name) // BYTES, 1)
    if node.kind == "name":
        return ExpressionBound(bounds.get(node.name, default), 1)
    if node.kind == "macro":
        return _macro(node, bounds, default, depth)
    parts = [_of(part, bounds, default, depth) for part in node.parts]
    steps = 1 + sum(part.steps for part in parts)
    sizes = sum(part.size for part in parts)
    if node.kind in ("member", "has"):
        return ExpressionBound(sizes, steps)
    if node.kind in ("list", "map"):
        return ExpressionBound(_saturate(1 + sizes), _saturate(steps + 4 * sizes))
    return _call(node, parts, sizes, steps)


def _call(node: Node, parts: list[ExpressionBound], sizes: int, steps: int) -> ExpressionBound:
    match node.name:
        case "&&" | "||":
            return ExpressionBound(1, steps)
        case "?:":
            return ExpressionBound(max(parts[1].size, parts[2].size), _saturate(steps + sizes))
        case "+":  # a text or a list grows with each
            return ExpressionBound(_saturate(1 + sizes), _saturate(steps + 4 * sizes * len(parts)))
        case "[]" | "dyn" | "string" | "bytes":
            return ExpressionBound(_saturate(1 + sizes), _saturate(steps + 4 * sizes))
        case "matches":
            return ExpressionBound(1, _saturate(steps + sizes + _matching(node, parts[0].size)))
    return ExpressionBound(1, _saturate(steps + 4 * sizes))


def _macro(node: Node, bounds: Mapping[str, int], default: int, depth: int) -> ExpressionBound:
    if depth >= MACRO_DEPTH:
        raise TooCostly(f"macros stand more than {MACRO_DEPTH} deep inside each other")
    range_, *bodies = node.parts
    over = _of(range_, bounds, default, depth)
    times = len(range_.parts) if range_.kind == "list" else over.size
    each = [
        _each(body, node.local, bounds, default, depth=depth, size=over.size, times=times)
        for body in bodies
    ]
    steps = over.steps + 4 * over.size + times + sum(bound.steps for bound in each)
    if node.name not in ("map", "filter"):
        return ExpressionBound(1, _saturate(steps))
    result_size = _saturate(1 + (over.size if node.name == "filter" else each[-1].size))
    return ExpressionBound(result_size, _saturate(steps + (times + 1) * result_size))


def _each(
    body: Node,
    local: str,
    bounds: Mapping[str, int],
    default: int,
    *,
    depth: int,
    size: int,
    times: int,
) -> ExpressionBound:
    """Cost of `body` for each member of a value of this size. At most that of members of size 1
    plus one member of the whole size, as bounds grow at least in proportion to sizes."""
    item = _of(body, {**bounds, local: 1}, default, depth + 1)
    all_ = _of(body, {**bounds, local: size}, default, depth + 1)
    return ExpressionBound(
        _saturate(times * item.size + all_.size), _saturate(times * (4 + item.steps) + all_.steps)
    )


def _matching(node: Node, size: int) -> int:
    pattern = node.parts[-1]
    if pattern.kind != "literal":
        raise TooCostly("the pattern of `matches` is a text in quotes")
    try:
        return matching_steps(pattern.name, size)
    except UnboundedPattern as error:
        raise TooCostly(str(error)) from error


def _saturate(number: int) -> int:
    return min(number, SATURATION)


class InvalidExpression(ToolgateError):
    """The text is not a valid expression, or uses an unknown name."""


class ExpressionFailed(ToolgateError):
    """Evaluation failed for these values: a member is missing, types do not fit."""


class Expression:
    """A compiled expression; `variables` are those that it uses."""

    __slots__ = ("_parts", "_program", "_size_limit", "predicate", "text", "variables")

    def __init__(
        self,
        text: str,
        program: cel.Program,
        variables: frozenset[str],
        *,
        size_limit: int,
        tree: Node,
    ) -> None:
        """An expression of this syntax tree. `size_limit`: largest input size within its bound of
        steps."""
        self.text = text
        self.variables = variables
        self._program = program
        self._size_limit = size_limit
        self._parts = {name: _parts(text, name) for name in variables}
        bounded = size_limit < LARGEST_SIZE
        self.predicate = None if bounded else Predicate.of(tree, self._parts)

    def relevant(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """The parts of `values` that the expression uses, or a superset: equal parts give equal
        results."""
        parts = self._parts
        return {name: _part(values[name], parts[name]) for name in parts if name in values}

    def holds(self, values: Mapping[str, Any]) -> bool:
        """Whether the expression is true of `values`, which are JSON and may hold more than it
        uses. Raises ExpressionFailed, also for a result that is not a boolean."""
        if self.predicate is not None and (verdict := self.predicate(values)) is not None:
            return verdict
        outcome = self.value(values)
        if outcome is not True and outcome is not False:
            raise ExpressionFailed("it is neither true nor false")
        return outcome

    def value(self, values: Mapping[str, Any]) -> Any:
        """The result, as JSON has it. Raises ExpressionFailed."""
        try:
            if missing := self.variables - values.keys():
                raise KeyError(min(missing))
            return self._program.execute(self._check_size(self.relevant(values)))
        except _FAILURES as error:
            reason = str(error).partition("\n")[0][:_DETAIL]
            kind = "there is no member " if isinstance(error, KeyError) else ""
            raise ExpressionFailed(f"{kind}{reason}") from error

    def _check_size(self, relevant: dict[str, Any]) -> dict[str, Any]:
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
    variables_read = frozenset(named - (local - set(variables)))
    if unknown := sorted(variables_read - set(variables)):
        is_next = ", ".join(variables)
        raise InvalidExpression(f"there is no variable {unknown[0]!r}; there are {is_next}")
    if unknown := sorted(called - _FUNCTIONS):
        raise InvalidExpression(f"there is no function {unknown[0]!r}")
    per_tool = not variables_read.isdisjoint(_OF_A_TOOL) and variables_read.isdisjoint(_OF_A_CALL)
    if per_tool:
        size_limit = _size_limit(tree, steps // PER_TOOL, MINIMUM_SIZE_OF_TOOL)
    else:
        size_limit = _size_limit(tree, steps, MINIMUM_SIZE)
    return Expression(text, program, variables_read, size_limit=size_limit, tree=tree)


def check_members(text: str, members: Mapping[str, Collection[str]]) -> None:
    """Raises InvalidExpression for a member that its variable never has, such as `tool.nmae`.
    `text`: a valid expression. `members`: of variables with fixed ones."""
    pending = [parse(text)]
    while pending:
        node = pending.pop()
        if node.kind == "macro" and node.local in members:
            continue  # its iteration variable hides one of them
        pending.extend(node.parts)
        if node.kind != "member" or node.parts[0].kind != "name":
            continue
        owner = node.parts[0].name
        names = members.get(owner, (node.name,))
        if node.name not in names:
            raise InvalidExpression(
                f"{owner} has no member {node.name!r}; there is {', '.join(names)}"
            )


def _size_limit(tree: Node, steps: int, minimum_size: int) -> int:
    """Largest input size for that many steps. Raises InvalidExpression where that is below
    `minimum_size`."""
    try:
        needed_steps = steps_of(tree, minimum_size)
        if steps_of(tree, LARGEST_SIZE) <= STEPS_PER_UNIT * LARGEST_SIZE and needed_steps <= steps:
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
    pending = [tree]
    while pending:
        node = pending.pop()
        pending.extend(node.parts)
        if node.kind == "name":
            named.add(node.name)
        elif node.kind == "macro":
            local.add(node.local)
            named.update({node.local} if node.name == "filter" else ())  # which returns it
        elif node.kind == "method" or (node.kind == "call" and _is_function(node.name)):
            called.add(node.name)
    return named, called, local


def _is_function(name: str) -> bool:
    """Whether a call is one of a function, not an operator."""
    return name[0].isalpha() and name != "in"


def _check_agreement(program: cel.Program, names: set[str], function_names: set[str]) -> None:
    """Raises InvalidExpression where the library parses the text differently from the parser that
    its cost was computed with."""
    used = program.references()
    functions = {function for function in used["functions"] if function[0].isalpha()}
    if set(used["variables"]) != names or functions != function_names:
        raise InvalidExpression("it is written in a way whose cost is not known")


def too_large(value: Any, most_values: int, most_bytes: int, most_levels: int) -> str | None:
    """The limit that a JSON value exceeds, as "more than 1,000 values"; None: it fits."""
    if most_levels and _is_small(value, most_values, most_bytes):
        return None
    values, size = 0, 0
    level: list[Any] = [value]
    for _ in range(most_levels + 1):
        below: list[Any] = []
        for member in level:
            values += 1
            if isinstance(member, str):
                size += (
                    len(member)
                    if member.isascii()
                    else len(member.encode("utf-8", "surrogatepass"))
                )
            elif isinstance(member, dict):
                size += sum(map(len, member))
                below.extend(member.values())
            elif isinstance(member, list):
                below.extend(member)
            elif isinstance(member, int):
                size += member.bit_length() // 8
            if values + len(below) > most_values:
                return f"more than {most_values:,} values"
            if size > most_bytes:
                return f"more than {most_bytes:,} bytes of text"
        if not below:
            return None
        level = below
    return f"nested more than {most_levels} deep"


def _is_small(value: Any, most_values: int, most_bytes: int) -> bool:
    """Whether `value` is an object of scalars, clearly within the limits, as most arguments are."""
    if type(value) is not dict or len(value) >= most_values:
        return False
    size = 0
    for name, member in value.items():
        kind = type(member)
        if kind is str:
            size += len(member)
        elif kind is int:
            size += member.bit_length()
        elif kind is not bool and kind is not float and member is not None:
            return False
        size += len(name)
    return 4 * size <= most_bytes  # of UTF-8, a character has at most four


def _parts(text: str, variable: str) -> Parts | None:
    parts: Parts = {}
    for first, second in re.findall(_PART % variable, text):
        if not first:
            return None
        inner = parts.setdefault(first, {})
        if not second:
            parts[first] = None
        elif inner is not None:
            inner[second] = None
    return parts


def _part(value: Any, parts: Parts | None) -> Any:
    if parts is None or not isinstance(value, dict):
        return value
    return {name: _part(value[name], inner) for name, inner in parts.items() if name in value}


def _readable(error: str) -> str:
    """`Failed to parse expression '...': ERROR: <input>:1:5: Syntax error: ...` without the
    parts that repeat the expression."""
    if "Recursion limit" in error:
        return "it is nested too deeply"
    match = re.search(r"<input>:(\d+):(\d+): ([^\n|]*)", error)
    if match is None:
        return "it is no CEL expression"
    line, column, text = match.groups()
    message = text.partition(" expecting ")[0].removeprefix("Syntax error: ").strip()
    return f"line {line}, character {column}: {message[:_DETAIL]}"
