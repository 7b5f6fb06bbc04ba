"""Views of resources: lists, entries and what may be done with one, for people.

The console draws its pages from them, the command line its tables.
"""

from collections.abc import Mapping
from typing import Any, Literal

from msgspec import Struct

ColumnKind = Literal["text", "code", "time", "badge", "number", "sentence"]


class StoredLinks(Struct, frozen=True, kw_only=True):
    """Names that an entry is linked with, each by a request of its own."""

    section: str  # of the entry in a file: name -> members of the link
    read: tuple[tuple[str, Mapping[str, Any]], ...]  # members of the entry, and what they mean
    adds: str
    removes: str
    parameter: str  # path parameter of `removes` that takes the name
    listed: str = ""  # member of the body of `adds` that has the names; "": it is in the path
    attribute: str = ""  # member of the body of `adds` that a mapping of names has


class StoredEntries(Struct, frozen=True, kw_only=True):
    """How the entries of a view are written to a file, and made from it: operations, by their ids.

    `toolgate export` and `apply` work with any view that has it."""

    writes: str  # makes an entry; a PUT replaces it, too
    removes: str
    shows: str = ""  # gives an entry as `writes` takes it; "": the list does
    body: str = ""  # member of an entry that is the body; "": the entry
    listed: str = ""  # member of the body that has a list of entries; "": it is one entry
    updates: bool = False  # whether `writes` changes an entry that exists, though it is a POST
    members: Mapping[str, Any] = {}  # members of each request
    only: tuple[tuple[str, Any], ...] = ()  # values of members of entries that a file can have
    prints: str = ""  # member of the answer with a secret, which is given once
    links: tuple[StoredLinks, ...] = ()


class ResourceView(Struct, frozen=True):
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
    empty: str = ""  # sentence for a list without entries
    about: str = ""  # what such entries are, where `empty` does not say it
    also: tuple[tuple[str, str], ...] = ()
    """Further operations whose answers the page of an entry shows: label, id."""
    icon: str = "wing"
    stored: StoredEntries | None = None  # None: its entries are in no file
