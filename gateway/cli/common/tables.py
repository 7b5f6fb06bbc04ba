"""Tables of entries, and of the members of one, for people and pipes."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gateway.cli.common.output import print_rows, say
from gateway.cli.common.text import first_line, one_line, time_text
from gateway.cli.common.tool_arguments import Argument
from schemas.jsonrpc import encode

CELL = 120  # characters of a list that stands in a cell; each text of a longer one has a line
SCALARS = str | int | float | bool

Columns = Sequence[tuple[str, str, str]]  # member, as `entry.principal`, label, kind
Json = Mapping[str, Any]


def print_entries(columns: Columns, entries: Sequence[Json]) -> None:
    """A table of entries; without columns their scalar members. Nothing without entries."""
    if not entries:
        return
    if not columns:
        names = [name for name, value in entries[0].items() if is_plain(value)]
        columns = [(name, name, "text") for name in names]
    titles = [label.lower() for _, label, _ in columns]
    rows = [[cell(_member(entry, name)) for name, _, _ in columns] for entry in entries]
    if titles:
        print_rows(titles, rows)


def print_arguments(arguments: Sequence[Argument]) -> None:
    if not arguments:
        say("It takes no arguments.")
        return
    print_rows(
        ("argument", "kind", "", "description"),
        [
            (
                argument.name,
                argument.kind,
                "required" if argument.required else "",
                argument.description,
            )
            for argument in arguments
        ],
        wrap=True,
    )


def _member(entry: Json, path: str) -> Any:
    if path in entry:  # a name of its own, dots and all
        return entry[path]
    value: Any = entry
    for name in path.split("."):
        value = value.get(name)
    return value


def print_entry(value: Any) -> None:
    """An object by its members: those of one line first, tables and texts below."""
    if not isinstance(value, Mapping):
        say(cell(value))
        return
    short = dict(_short(value))
    print_rows(("member", "value"), list(short.items()))
    for name, member in value.items():
        if name in short or member in (None, "", [], {}):
            continue
        say(f"\n{one_line(name)}:")
        if isinstance(member, list) and all(isinstance(entry, Mapping) for entry in member):
            _print_list(member)
        elif isinstance(member, str):
            say(member)
        elif isinstance(member, list) and all(isinstance(text, SCALARS) for text in member):
            for text in member:
                say(text if isinstance(text, str) else cell(text))
        else:
            say(encode(member).decode())


def _print_list(entries: Sequence[Json]) -> None:
    """A table; entries with texts of several lines, which a cell would cut, one below the other."""
    if not any(
        isinstance(text, str) and "\n" in text for entry in entries for text in entry.values()
    ):
        print_entries((), entries)
        return
    for entry in entries:
        print_entry(entry)
        say("")


def _short(value: Json) -> Iterator[tuple[str, str]]:
    for name, member in value.items():
        if not is_plain(member) or member == "":
            continue
        text = cell(member)
        if not isinstance(member, list) or len(text) <= CELL:
            yield name, text


def is_plain(value: Any) -> bool:
    """Whether a value fits in a cell."""
    if isinstance(value, list):
        return bool(value) and all(isinstance(item, SCALARS) and is_plain(item) for item in value)
    if isinstance(value, Mapping):
        return bool(value) and all(is_plain(member) or not member for member in value.values())
    return isinstance(value, SCALARS) and "\n" not in str(value).strip()


def cell(value: Any) -> str:
    if value is None or value in ("", [], {}):
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(cell(_name_of(item)) for item in value)
    if isinstance(value, Mapping):
        parts = [f"{name}: {cell(member)}" for name, member in value.items() if member]
        return "; ".join(parts)
    return time_text(first_line(str(value)))


def _name_of(item: Any) -> Any:
    """The first member of an object, which names it."""
    return next(iter(item.values()), "") if isinstance(item, Mapping) else item
