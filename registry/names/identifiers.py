"""Identifiers of tools in programs, `tools.gh_list_issues`. Pure."""

import keyword
import re
from collections.abc import Iterable

from registry.names.tool_names import LIMIT, add_suffix, assign, legal

_NOT_WORD = re.compile(r"[^A-Za-z0-9_]+")

# Not to be had as `tools.NAME`: words of either language, since one name serves both; the
# functions of `tools`; and what every object of JavaScript has, `then` making it a promise.
_RESERVED_WORDS = frozenset(
    (*keyword.kwlist, "call", "all", "pages", "search", "describe", "read", "then", "toJSON",
     "constructor", "hasOwnProperty", "isPrototypeOf", "propertyIsEnumerable", "toLocaleString",
     "toString", "valueOf", "arguments", "case", "catch", "const", "debugger", "default", "delete",
     "do", "enum", "eval", "export", "extends", "false", "function", "implements", "instanceof",
     "interface", "let", "new", "null", "package", "private", "protected", "public", "static",
     "super", "switch", "this", "throw", "true", "typeof", "undefined", "var", "void")
)  # fmt: skip


def identifier_names(names: Iterable[str]) -> dict[str, str]:
    """Exact names of tools by their identifiers in programs, `gh_list_issues` for `gh.list-issues`.

    A name that is an identifier is its own; of others that want the same one, each gets a hash of
    its name. The result does not depend on the order of `names`.
    """
    exact = {name: (identifier_of(name), name) for name in names}
    return {identifier: name for name, identifier in assign(exact).items()}


def identifier_of(name: str) -> str:
    """The identifier for one name, whatever others want."""
    word = legal(name, _NOT_WORD, LIMIT) or add_suffix("tool", name)
    if not word[0].isalpha():  # no private attributes, no `__class__`
        word = f"tool_{word.lstrip('_')}"
    return f"{word}_" if word in _RESERVED_WORDS else word
