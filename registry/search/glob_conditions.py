"""Patterns of tools (`schemas.globs`) as conditions in SQL. Pure.

A pattern without brackets becomes LIKE, which is several times as fast as a regular expression.
Brackets are read like Python's `fnmatch.translate`; characters are compared by code point on both
sides, because the column has the collation "C". Case is folded by the database: of names, which are
ASCII, as Python does.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from psycopg import sql

from schemas.globs import DOMAIN, TAG, split

_LIKE = {"*": "%", "?": "_", "%": r"\%", "_": r"\_", "\\": r"\\"}
_NEVER = "(?!)"

_COLUMNS = {
    "": (sql.Identifier("doc", "name"), ""),
    TAG: (sql.Identifier("tag"), "_tag"),
    DOMAIN: (sql.Identifier("doc", "domain"), "_domain"),
}
_WHERE = {
    "": sql.SQL("{}"),
    TAG: sql.SQL(
        "doc.entity_id IN (SELECT tool_id FROM tool_t CROSS JOIN unnest(tags) AS tag"
        " WHERE host_id = %(host)s AND {})"
    ),
    DOMAIN: sql.SQL("(doc.domain IS NOT NULL AND {})"),
}


def condition(
    name: str, patterns: Sequence[str], *, negated: bool = False
) -> tuple[sql.Composed, dict[str, Any]]:
    """Condition that a document matches one of `patterns`; `name` is the prefix of parameters, of
    which `host` is the tenant."""
    parts: list[sql.Composed] = []
    values: dict[str, Any] = {}
    for kind, globs in split(patterns).items():
        if globs:
            column, prefix = _COLUMNS[kind]
            text, more = _matches(column, f"{name}{prefix}", globs)
            parts.append(_WHERE[kind].format(text))
            values |= more
    template = sql.SQL("NOT ({})" if negated else "({})")
    return template.format(sql.SQL(" OR ").join(parts)), values


def _matches(
    column: sql.Identifier, name: str, patterns: Sequence[str]
) -> tuple[sql.Composed, dict[str, Any]]:
    spellings = dict.fromkeys((*patterns, *(pattern.casefold() for pattern in patterns)))
    plain = [like(pattern) for pattern in spellings if "[" not in pattern]
    bracketed = [regex(pattern) for pattern in spellings if "[" in pattern]
    parts: list[sql.Composed] = []
    values: dict[str, Any] = {}
    if plain:
        place = sql.Placeholder(f"{name}_like")
        parts.append(sql.SQL("{} ILIKE ANY({})").format(column, place))
        values[f"{name}_like"] = plain
    if bracketed:
        place = sql.Placeholder(f"{name}_regex")
        parts.append(sql.SQL("{} ~* ANY({})").format(column, place))
        values[f"{name}_regex"] = bracketed
    return sql.SQL("({})").format(sql.SQL(" OR ").join(parts)), values


def like(pattern: str) -> str:
    return "".join(_LIKE.get(character, character) for character in _storable(pattern))


def regex(pattern: str) -> str:
    """A regular expression for PostgreSQL, in which a newline is an ordinary character."""
    return f"^(?:{''.join(_parts(_storable(pattern)))})$"


def _parts(pattern: str) -> Iterator[str]:
    at = 0
    while at < len(pattern):
        character = pattern[at]
        at += 1
        if character == "*":
            yield ".*"
        elif character == "?":
            yield "."
        elif character == "[" and (end := _end(pattern, at)) is not None:
            yield _set(pattern[at:end])
            at = end + 1
        else:
            yield _escape_character(character)


def _end(pattern: str, begin: int) -> int | None:
    """Index of the closing bracket; a "]" first in the set, also after "!", is literal."""
    at = begin + 1 if pattern[begin : begin + 1] == "!" else begin
    end = pattern.find("]", at + 1 if pattern[at : at + 1] == "]" else at)
    return None if end < 0 else end


def _set(inside: str) -> str:
    """A bracket expression; a reversed range is empty."""
    negated = inside.startswith("!")
    ranges = list(_ranges(inside[negated:]))
    if not ranges:
        return "." if negated else _NEVER
    members = "".join(
        _escape_character(first)
        if first == last
        else f"{_escape_character(first)}-{_escape_character(last)}"
        for first, last in ranges
    )
    return f"[{'^' * negated}{members}]"


def _ranges(members: str) -> Iterator[tuple[str, str]]:
    """Hyphens at either end, and after a range, are literal."""
    at = 0
    while at < len(members):
        if members[at + 1 : at + 2] == "-" and at + 2 < len(members):
            first, last = members[at], members[at + 2]
            at += 3
        else:
            first = last = members[at]
            at += 1
        if first <= last:
            yield first, last


def _escape_character(character: str) -> str:
    return character if character.isalnum() and character.isascii() else rf"\U{ord(character):08X}"


def _storable(pattern: str) -> str:
    """NUL and lone surrogates occur in no name; they become U+10FFFF, which occurs in none
    either."""
    return "".join(
        "\U0010ffff" if character == "\0" or "\ud800" <= character <= "\udfff" else character
        for character in pattern
    )
