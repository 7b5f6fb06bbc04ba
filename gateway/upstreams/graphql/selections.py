"""What a caller wants of a GraphQL answer: `_fields`, as a selection set. Pure.

Paths are taken apart and put together anew from names; nothing of a caller's text is sent as it is.
What a path leaves open is as in the selection of the tool: arguments, and the fields of an object.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from schemas.errors import InvalidParams

PATHS_LIMIT = 200
DEPTH_LIMIT = 15

_SEGMENT = re.compile(r"(on +)?([_A-Za-z][_0-9A-Za-z]{0,127})", re.ASCII)
_TOKEN = re.compile(
    r"""\s*(?:\.\.\.\s*on\s+(?P<type>\w+)|(?P<open>\{)|(?P<close>\})
    |(?P<head>(?:(?P<alias>\w+)\s*:\s*)?(?P<name>\w+)
      (?:\s*\((?:\"\"\"(?:[^\"]|\"(?!\"\"))*\"\"\"|"(?:\\.|[^"\\])*"|[^()"])*\))?))""",
    re.VERBOSE | re.ASCII,
)


@dataclass(slots=True)
class Node:
    """A field, or a fragment, of a selection."""

    head: str  # as it is printed: `issues(first: 10)`, `... on Pet`
    inner: "dict[str, Node]" = field(default_factory=dict)  # by name, alias or `on Type`

    def printed(self) -> str:
        return f"{self.head} {_braced(self.inner.values())}" if self.inner else self.head


@dataclass(slots=True)
class _Wanted:
    whole: bool = False  # a path ends here
    inner: "dict[str, _Wanted]" = field(default_factory=dict)


def narrowed(selection: str, paths: Iterable[Sequence[str]], always: Mapping[str, str]) -> str:
    """The selection set that asks for `paths`, and for `always`: further fields as they are
    printed, by name. `on User` between two names of a path leads to a field of that type alone.

    Raises InvalidParams.
    """
    if not selection:
        raise InvalidParams("_fields: the answer has no fields to choose from")
    root = _Wanted()
    for path in map(_checked, paths):
        at = root
        for segment in path:
            at = at.inner.setdefault(segment, _Wanted())
        at.whole = True
    known = read_selection(selection)
    nodes = dict(_rendered(root, known))
    for name, printed in always.items():
        nodes[name] = Node(printed)
    return _braced(nodes.values())


@lru_cache(maxsize=512)
def read_selection(selection: str) -> Mapping[str, Node]:
    """The fields of a selection as an import wrote it."""
    root = Node("")
    stack, last = [root], root
    for token in _TOKEN.finditer(selection):
        if token["open"]:
            stack.append(last)
        elif token["close"]:
            stack.pop()
        else:
            key = f"on {token['type']}" if token["type"] else token["alias"] or token["name"]
            head = f"... {key}" if token["type"] else token["head"]
            last = stack[-1].inner.setdefault(key, Node(head))
    return root.inner


def _checked(path: Sequence[str]) -> list[str]:
    names = []
    for segment in path:
        match = _SEGMENT.fullmatch(segment.strip())
        if match is None:
            raise InvalidParams(
                f"_fields: {segment[:60]!r} is no name of a field; expected paths such as "
                '["id", "owner.login", "on User.email"]'
            )
        names.append(f"on {match[2]}" if match[1] else match[2])
    return names


def _rendered(wanted: _Wanted, known: Mapping[str, Node]) -> Iterator[tuple[str, Node]]:
    for name, sub in wanted.inner.items():
        if name in known or name.startswith("on "):
            yield name, _node(name, sub, known.get(name))
            continue
        inside = [(key, one) for key, one in known.items() if name in one.inner and _is_type(key)]
        for key, one in inside:  # a field of some of the objects that it may be
            yield f"{key} {name}", Node(one.head, {name: _node(name, sub, one.inner[name])})
        if not inside:
            yield name, _node(name, sub, None)


def _node(name: str, wanted: _Wanted, known: Node | None) -> Node:
    head = known.head if known else f"... {name}" if _is_type(name) else name
    inner = dict(known.inner) if known and wanted.whole else {}
    inner |= _rendered(wanted, known.inner if known else {})
    return Node(head, inner)


def _is_type(key: str) -> bool:
    return key.startswith("on ")


def _braced(nodes: Iterable[Node]) -> str:
    return f"{{ {' '.join(node.printed() for node in nodes)} }}"
