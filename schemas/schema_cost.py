"""How often a validator may look at one value: schemas that apply to it, and are reached by
references more than once, multiply. One kilobyte can ask for 2^40 looks, and nothing can stop a
validator that has begun.
"""

from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote

LIMIT = 10_000  # looks at one value, of which there may be a million; GitHub's worst takes 46
_MOST = 1 << 60
_ONE = ("not", "if", "then", "else")
_SEVERAL = ("allOf", "anyOf", "oneOf")


def check_cost(schema: Any) -> None:
    """Raises ValueError for a schema whose parts multiply beyond LIMIT. One that is as long as it
    says is none of those."""
    costs = _Costs(schema)
    left: list[Any] = [schema] if isinstance(schema, dict) else []
    written = worst = 0
    try:
        while left:
            node = left.pop()
            written, worst = written + 1, max(worst, costs.of(node))
            inner = node.values() if isinstance(node, dict) else node
            left.extend(one for one in inner if isinstance(one, dict | list))
    except RecursionError as error:
        raise ValueError("its schemas apply one another too many levels deep") from error
    if worst > max(LIMIT, written):
        raise ValueError("its schemas apply one another more often than can be checked")


class _Costs:
    def __init__(self, root: Any) -> None:
        self._root = root
        self._named = _named(root) if isinstance(root, dict) else {}
        self._known: dict[int, int] = {}

    def of(self, node: Any) -> int:
        if not isinstance(node, dict):
            return 1
        known = self._known.get(id(node))
        if known is None:
            self._known[id(node)] = 1  # for who comes here again: validators notice circles
            known = min(_MOST, 1 + sum(map(self.of, self._applied(node))))
            self._known[id(node)] = known
        return known

    def _applied(self, node: dict[str, Any]) -> Iterator[Any]:
        """The schemas that apply to the same value."""
        for keyword in ("$ref", "$dynamicRef"):
            if isinstance(reference := node.get(keyword), str):
                yield self._resolved(reference)
        yield from (node[name] for name in _ONE if name in node)
        for name in _SEVERAL:
            yield from branches if isinstance(branches := node.get(name), list) else ()
        if isinstance(dependent := node.get("dependentSchemas"), dict):
            yield from dependent.values()

    def _resolved(self, reference: str) -> Any:
        base, _, fragment = unquote(reference).partition("#")
        if fragment and not fragment.startswith("/"):
            return self._named.get(f"#{fragment}")
        found = self._named.get(base) if base else self._root
        for step in fragment.split("/")[1:]:
            name = step.replace("~1", "/").replace("~0", "~")
            if isinstance(found, list):
                found = found[int(name)] if name.isdecimal() and int(name) < len(found) else None
            else:
                found = found.get(name) if isinstance(found, dict) else None
        return found


def _named(schema: Any) -> dict[str, Any]:
    """Schemas by their `$id` and their anchors."""
    found: dict[str, Any] = {}
    left = [schema]
    while left:
        node = left.pop()
        if isinstance(node, dict):
            for keyword, mark in (("$id", ""), ("$anchor", "#"), ("$dynamicAnchor", "#")):
                if isinstance(name := node.get(keyword), str):
                    found[mark + name] = node
        inner = node.values() if isinstance(node, dict) else node
        left.extend(one for one in inner if isinstance(one, dict | list))
    return found
