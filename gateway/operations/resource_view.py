"""Views of resources: lists, entries and what may be done with one, for people.

The console draws its pages from them, the command line its tables.
"""

from dataclasses import dataclass
from typing import Literal

ColumnKind = Literal["text", "code", "time", "badge", "number"]


@dataclass(frozen=True, slots=True)
class ResourceView:
    """A list of entries, each of them, and what may be done with it: operations, by their ids."""

    path: str  # one segment of the console's addresses, and the group of its commands
    title: str
    lists: str
    columns: tuple[tuple[str, str, ColumnKind], ...]  # member, label, and how it is shown
    shows: str = ""  # the operation that shows an entry
    key: str = ""  # member that names an entry
    parameter: str = ""  # path parameter of operations that takes the key
    names: str = ""  # member by which people name an entry, beside its key
    ended: str = ""  # member that an entry has once its name is free again
    acts: tuple[str, ...] = ()  # on an entry
    adds: tuple[str, ...] = ()  # without one
    empty: str = ""  # what such entries are, where there is none
    also: tuple[tuple[str, str], ...] = ()
    """Further operations whose answers the page of an entry shows: label, id."""
    icon: str = "wing"
