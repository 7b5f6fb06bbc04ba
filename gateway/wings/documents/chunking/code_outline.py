"""Outline of source code: what it defines, calls, imports and inherits, by one walk over its syntax
tree without recursion. Pure. Offsets are bytes."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from tree_sitter import Node, Parser

from gateway.wings.documents.chunking.chunks import Mention
from gateway.wings.documents.chunking.code_grammars import GRAMMARS, Grammar, parser

SYMBOL = 256  # characters
_SIGNATURE = 300  # characters
_BASES = 24  # of one symbol
_DECLARATORS = 8  # pointers and arrays around a name in C
_OBJECTS = 8  # of objects in each other, whose names begin that of a member
# What a name is assigned to that its users do not write.
_PREFIX = re.compile(r"^(?:module\.exports\.|exports\.|this\.|self\.)")
_DOTTED_NAME = re.compile(r"[A-Za-z_$][\w$]*(?:(?:\.|::|->)[\w$]+)*")
_LAST = re.compile(r"[\w$]+\Z")
_REFERENCE = re.compile(r"(?:[&*(]|'\w+\b|(?:mut|const|dyn)\b|\s)+")  # of Rust: &'a mut Map
_QUOTES = "\"'<>`"
_KEYWORDS = frozenset(
    _DOTTED_NAME.findall(
        "import from as use static pub crate self super extends implements public private protected"
        " virtual for dyn where metaclass type typeof"
    )
)
_LEADING = frozenset(
    ["comment", "line_comment", "block_comment", "attribute_item", "decorator", "attribute"]
)
_OPENED = re.compile(rb"[ \t]+[<(\[]")  # a line that begins with a bracket
_MEMBER_END = re.compile(rb"[\w)\]}>'\"`]\Z")
_COMMENT_LINE = re.compile(rb"^[ \t]*//[^\n]*\n", re.MULTILINE)
_VISIBILITY = re.compile(r"\b(public|private|protected|pub|export|static)\b")
_AS_KNOWN = {"pub": "public", "export": "public"}
_TYPES = frozenset(["class", "interface", "struct", "trait", "impl", "enum", "union", "type"])


@dataclass(slots=True)
class Scope:
    """A definition and those in it. The root is the whole file."""

    kind: str
    symbol: str
    start: int  # with comments and attributes before
    end: int
    signature: str = ""
    visibility: str = ""
    bases: tuple[str, ...] = ()  # the names of what it inherits
    is_signature: bool = False  # without a body
    is_secondary: bool = False  # an implementation of a trait, a test, or a definition in one
    inner: list["Scope"] = field(default_factory=list)

    def all(self) -> Iterator["Scope"]:
        """The scope and those in it, in order."""
        stack = [self]
        while stack:
            scope = stack.pop()
            yield scope
            stack.extend(reversed(scope.inner))


@dataclass(slots=True)
class Outline:
    root: Scope
    mentions: list[Mention] = field(default_factory=list)
    beginnings: dict[int, int] = field(default_factory=dict)  # start of a node: its least depth


@dataclass(frozen=True, slots=True)
class _Visit:
    node: Node
    scope: Scope
    owner: Node  # that defines the scope; the root of the tree for a file
    depth: int
    start: int  # of the node, with the comments and wrappers around it
    outer: Node  # the outermost wrapper


def outline(data: bytes, language: str) -> Outline:
    """The outline of a text in a language of `GRAMMARS`; empty if its package is missing."""
    outline = Outline(Scope("", "", 0, len(data)))
    reader = parser(language)
    if reader is None:
        return outline
    grammar = GRAMMARS[language]
    root = _parse(data, reader, grammar)
    stack = [_Visit(root, outline.root, root, 0, 0, root)]
    while stack:
        visit = stack.pop()
        node, scope, owner = visit.node, visit.scope, visit.owner
        at = node.start_byte
        outline.beginnings[at] = min(visit.depth, outline.beginnings.get(at, visit.depth))
        if kind := _kind(node, scope, grammar):
            scope, owner = _scope(visit, kind, language), node
            lead = data[visit.start : at]
            scope.is_secondary = visit.scope.is_secondary or _is_secondary(node, lead, grammar)
            _add(scope, visit.scope, is_signature=node.type in grammar.signatures)
            bases = [*_bases(node, grammar)]
            scope.bases = tuple(dict.fromkeys(base.name for base in bases))[:_BASES]
            outline.mentions.extend(bases)
        outline.mentions.extend(_references(node, grammar))
        stack.extend(reversed([*_below(visit, scope, owner, grammar)]))
    return outline


def _parse(data: bytes, reader: Parser, grammar: Grammar) -> Node:
    """The root of the syntax tree.

    The grammar of TypeScript reads two members of an interface that begin with brackets, with only
    a line break between them, as one, and may then take the whole file for an error. They are read
    with semicolons in their indentation, if fewer bytes are errors then.
    """
    root = reader.parse(data).root_node
    if not (root.has_error and grammar.separated):
        return root
    separated = reader.parse(_separate_members(data)).root_node
    return min(root, separated, key=_error_bytes)


def _separate_members(data: bytes) -> bytes:
    lines = data.split(b"\n")
    ends = False  # whether the last line of code may end a member
    for at, line in enumerate(lines):
        code = line.strip()
        if ends and _OPENED.match(line):
            indent = len(line) - len(line.lstrip())
            lines[at] = line[: indent - 1] + b";" + line[indent:]
        if code and not code.startswith((b"//", b"/*", b"*")):
            ends = _MEMBER_END.search(code.partition(b" //")[0].rstrip()) is not None
    return b"\n".join(lines)


def _error_bytes(root: Node) -> int:
    size, stack = 0, [root]
    while stack:
        node = stack.pop()
        if node.is_error:
            size += node.end_byte - node.start_byte
        elif node.has_error:
            stack.extend(node.children)
    return size


def _add(scope: Scope, outer: Scope, *, is_signature: bool) -> None:
    """Add a definition to the one around it; overloads are one with what follows them."""
    last = outer.inner[-1] if outer.inner else None
    if last is not None and last.is_signature and last.symbol == scope.symbol:
        scope.start, scope.signature = last.start, last.signature
        outer.inner.pop()
    scope.is_signature = is_signature
    outer.inner.append(scope)


def _below(visit: _Visit, scope: Scope, owner: Node, grammar: Grammar) -> Iterator[_Visit]:
    """Visits of the children; comments right above one belong to it."""
    children = visit.node.named_children
    wraps = visit.node.type in grammar.wrappers
    wraps = wraps and sum(child.type in grammar.definitions for child in children) < 2
    lead, row = -1, -1  # of the comments held, and the line after them
    line = -1  # last line of the node before
    for child in children:
        begin = child.start_point.row
        start = lead if lead >= 0 and begin <= row else child.start_byte
        if child.type in _LEADING:
            trails = begin == line
            lead, row = (-1, -1) if trails else (start, _last_row(child) + 1)
        else:
            lead = -1
        line = _last_row(child)
        if wraps:
            yield _Visit(child, scope, owner, visit.depth + 1, visit.start, visit.outer)
        else:
            yield _Visit(child, scope, owner, visit.depth + 1, start, child)


def _last_row(node: Node) -> int:
    row, column = node.end_point
    return row if column else row - 1  # comments of Rust include their line break


def _kind(node: Node, scope: Scope, grammar: Grammar) -> str:
    """The kind of symbol that a node defines; empty: none."""
    defined = grammar.definitions.get(node.type, "")
    bodied = node.type in grammar.bodied
    if not defined or (bodied and not all(map(node.child_by_field_name, ("name", "body")))):
        return ""
    if node.type in grammar.variables:
        value = _value(node)
        left = node.child_by_field_name("left")
        if value is None or value.type not in grammar.values or _is_computed(left):
            return "constant" if _is_exported(node, grammar) else ""
    if node.type in grammar.named and not _has_own_name(node, grammar):
        return ""
    if defined == "constant" and _text(node.child_by_field_name("name")) == "_":
        return ""  # of Rust: it is evaluated, and has no name
    return "method" if defined == "function" and scope.kind in _TYPES else defined


def _is_exported(node: Node, grammar: Grammar) -> bool:
    """Whether a variable is one name that its file exports: `export const LIMIT = 5`."""
    name = node.child_by_field_name("name")
    outer = node.parent.parent if node.parent else None
    if name is None or outer is None or name.type != "identifier":
        return False
    return outer.type in grammar.exported


def _has_own_name(node: Node, grammar: Grammar) -> bool:
    """Whether a node has a name, and is no value of a variable, by which it is called."""
    if node.parent is not None and node.parent.type in grammar.variables:
        return False
    return node.child_by_field_name("name") is not None


def _scope(visit: _Visit, defined: str, language: str) -> Scope:
    node = visit.node
    name = _name(node, visit.owner)
    decorated = visit.outer.type == "decorated_definition"
    signature = _signature(node if decorated else visit.outer, _body(node))
    visibility = _visibility(signature, name.rpartition(".")[2], language)
    if defined == "constant" and GRAMMARS[language].exported:
        visibility = "public"  # `export` is not in the signature of one of several
    return Scope(
        "method" if "." in name and defined == "function" else defined,
        f"{visit.scope.symbol}.{name}".strip(".")[:SYMBOL],
        visit.start,
        visit.outer.end_byte,
        signature,
        visibility,
    )


def _is_secondary(node: Node, lead: bytes, grammar: Grammar) -> bool:
    """Whether a definition implements a trait, as `impl Debug for Map`, or is a test. `lead`: the
    attributes and comments before it."""
    if grammar.implements and node.child_by_field_name(grammar.implements) is not None:
        return True
    return grammar.tests is not None and grammar.tests.search(lead) is not None


def _value(node: Node) -> Node | None:
    """Value of a variable or a member; the only one of a list of values."""
    value = node.child_by_field_name("value") or node.child_by_field_name("right")
    if value is not None and value.type == "expression_list":  # Go
        return value.named_children[0] if value.named_child_count == 1 else None
    return value


def _is_computed(target: Node | None) -> bool:
    """Whether what gets a value has no name that can be read: `table[key]`, or several."""
    if target is None:
        return False
    return target.type in ("subscript_expression", "subscript") or "," in _text(target)


def _body(node: Node) -> Node | None:
    value = _value(node)
    if value is not None and (body := value.child_by_field_name("body")) is not None:
        return body
    return node.child_by_field_name("body")


def _signature(outer: Node, body: Node | None) -> str:
    """The beginning of a definition up to its body, with the bracket that opens that."""
    text = outer.text or b""
    if body is None:
        return _one_line(text.split(b"\n", 1)[0])
    opens = b" {" if (body.text or b"")[:1] == b"{" else b""
    return _one_line(text[: body.start_byte - outer.start_byte].rstrip() + opens)


def _one_line(text: bytes) -> str:
    return " ".join(_COMMENT_LINE.sub(b"", text).decode(errors="replace").split())[:_SIGNATURE]


def _name(node: Node, owner: Node) -> str:
    if (receiver := node.child_by_field_name("receiver")) is not None:  # Go
        names = _DOTTED_NAME.findall(_text(receiver).partition("[")[0])
        return f"{names[-1] if names else ''}.{_text(node.child_by_field_name('name'))}"
    if node.parent is not None and node.parent.type == "object":
        return _member(node, owner)
    if (left := node.child_by_field_name("left")) is not None:
        return _PREFIX.sub("", _plain(_text(left))).replace(".prototype.", ".")
    for name in ("name", "property", "pattern", "type"):
        child = node.child_by_field_name(name)
        if child is not None and not (name == "type" and node.child_by_field_name("declarator")):
            return _plain(_text(child))
    for _ in range(_DECLARATORS):
        inner = node.child_by_field_name("declarator")
        if inner is None:
            break
        node = inner
    return _plain(_text(node))


def _member(node: Node, owner: Node) -> str:
    """The name of a member of an object, after those that the object is the value of, up to the
    definition that it is in."""
    names: list[str] = []
    for _ in range(_OBJECTS):
        if node == owner:
            return ".".join(names)
        key = node.child_by_field_name("key") or node.child_by_field_name("name")
        if key is None:
            break
        names.insert(0, _text(key).strip(_QUOTES))
        if node.parent is None or node.parent.type != "object" or node.parent.parent is None:
            break
        node = node.parent.parent
    if (left := node.child_by_field_name("left")) is not None:
        prefix = _PREFIX.sub("", f"{_plain(_text(left))}.").strip(".")
        names = [*filter(None, [prefix]), *names]
    return ".".join(names)


def _plain(name: str) -> str:
    """A name without type arguments and what refers to it, in dotted form."""
    reference = _REFERENCE.match(name)
    match = _DOTTED_NAME.search(name, reference.end() if reference else 0)
    return match[0].replace("::", ".") if match else name.lstrip("#~&*")[:SYMBOL]


def _text(node: Node | None) -> str:
    return "" if node is None else (node.text or b"")[:1000].decode(errors="replace")


def _visibility(signature: str, name: str, language: str) -> str:
    if language == "go":
        return "public" if name[:1].isupper() else "private"
    if language == "python":
        return "private" if name.startswith("_") and not name.endswith("__") else "public"
    match = _VISIBILITY.search(signature.partition(name)[0] if name else signature)
    if match is None:
        return "private" if language == "rust" else ""
    if match[1] == "static":
        return "private" if language in ("c", "cpp", "rust") else ""
    return _AS_KNOWN.get(match[1], match[1])


def _references(node: Node, grammar: Grammar) -> Iterator[Mention]:
    if (called := grammar.calls.get(node.type)) is not None:
        target = node.child_by_field_name(called)
        text = _text(target)
        match = _DOTTED_NAME.fullmatch(text) or _LAST.search(text)
        if target is not None and match is not None and target.end_byte - target.start_byte < 1000:
            end = target.end_byte
            yield Mention(match[0], "identifier", "call", end - len(match[0].encode()), end)
    elif (imported := grammar.imports.get(node.type)) is not None:
        yield from _import_mentions(node, imported)


def _import_mentions(node: Node, module: str) -> Iterator[Mention]:
    target = node.child_by_field_name(module) if module else node
    text = _text(target)
    if target is not None and text[:1] in _QUOTES:
        inner = text.strip(_QUOTES)
        start = target.start_byte + 1
        yield Mention(inner, "path", "import", start, start + len(inner.encode()))
    elif target is not None:
        yield from _dotted_mentions(target, "import")


def _bases(node: Node, grammar: Grammar) -> Iterator[Mention]:
    for at, child in enumerate(node.children):
        if child.type in grammar.inherits or node.field_name_for_child(at) in grammar.inherits:
            yield from _dotted_mentions(child, "inherit")


def _dotted_mentions(node: Node, role: str) -> Iterator[Mention]:
    """Each dotted name in the text of a node, but for keywords."""
    text = _text(node)
    for match in _DOTTED_NAME.finditer(text):
        if match[0] not in _KEYWORDS:
            start = node.start_byte + len(text[: match.start()].encode())
            yield Mention(match[0], "identifier", role, start, start + len(match[0].encode()))
