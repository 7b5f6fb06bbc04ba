"""A description in several files becomes one document.

The other files hang below the member `x-files` of the first one, and every reference between files
becomes a pointer into it: `../models/pet.yaml#/Cat` is `#/x-files/models~1pet.yaml/Cat`. So only
this module knows that there were several. Pure: it names the files that are wanted, and others
read them.
"""

from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from registry.importers.openapi.file_names import join, joined
from registry.importers.openapi.pointers import escaped, has
from registry.importers.openapi.scanning import ROOT, Reference, Scan

FILES = "x-files"


@dataclass(frozen=True, slots=True)
class Unread:
    """Stands where a file would be that could not be read."""

    reason: str


class Files:
    """The files of one description, as they become known."""

    def __init__(self, entry: str) -> None:
        self.entry = entry
        self._scans: dict[str, Scan] = {}
        self._unread: dict[str, Unread] = {}
        self._places: dict[str, tuple[str, str]] = {}  # `$id` -> file, pointer
        self._wanted: set[str] = set()
        self._self: str | None = None  # of the entry

    def add(self, found: Scan) -> None:
        self._scans[found.name] = found
        for pointer, uri in found.ids.items():
            self._places.setdefault(uri, (found.name, pointer))
        if found.name == self.entry:
            self._self = found.ids.get(ROOT)
        self._wanted.discard(found.name)
        for reference in found.references:
            name = self._target(found, reference)[0]
            if not (reference.literal or name in self._scans or name in self._unread):
                self._wanted.add(name)

    def miss(self, name: str, reason: str) -> None:
        self._unread[name] = Unread(reason)
        self._wanted.discard(name)

    def wanted(self) -> list[str]:
        """Names of the files that those that were added refer to, and that nobody has added."""
        return sorted(self._wanted)

    def assembled(self) -> dict[str, Any]:
        """The first file with the others in it. Changes what was added, so it works once."""
        root: dict[str, Any] = self._scans[self.entry].tree
        for found in self._scans.values():
            for reference in found.references:
                self._rewrite(found, reference)
        others: dict[str, Any] = {
            name: found.tree for name, found in self._scans.items() if name != self.entry
        }
        if others or self._unread:
            root[FILES] = {**others, **self._unread}
        return root

    def _rewrite(self, found: Scan, reference: Reference) -> None:
        name, base, fragment = self._target(found, reference)
        if reference.literal and name not in self._scans:
            return
        pointer = self._place(name, base, fragment)
        prefix = "#" if name == self.entry else f"#/{FILES}/{escaped(name)}"
        reference.node["$ref"] = prefix + pointer

    def _place(self, name: str, base: str, fragment: str) -> str:
        """Of what `fragment` names in a file; `base`: the `$id` that it is relative to."""
        found = self._scans.get(name)
        if fragment and not fragment.startswith("/"):
            return found.anchors.get(fragment, f"/{fragment}") if found else f"/{fragment}"
        # many write an `$id` and go on to count from the root of the file
        if found and base and has(found.tree, base + fragment):
            return base + fragment
        return fragment

    def _target(self, found: Scan, reference: Reference) -> tuple[str, str, str]:
        """File, `$id` in it that the fragment counts from, fragment."""
        uri, _, fragment = reference.node["$ref"].partition("#")
        if not uri:
            return found.name, reference.base, fragment
        if self._places:  # few have any
            absolute = joined(found.ids.get(reference.base, found.name), uri)
            if absolute in self._places:
                return *self._places[absolute], fragment
            if beside := self._beside(absolute):
                return beside, ROOT, fragment
        return join(found.name, uri), ROOT, fragment

    def _beside(self, absolute: str) -> str | None:
        """Files that were moved together keep their places to each other, so what lies below the
        first one's `$self` is looked for beside it."""
        above = self._self and joined(self._self, ".")
        if not above or not absolute.startswith(above):
            return None
        return join(self.entry, absolute.removeprefix(above))


def shown(ref: str) -> str:
    """A rewritten reference as its author may have written it."""
    prefix = f"#/{FILES}/"
    if not ref.startswith(prefix):
        return ref
    name, _, rest = ref.removeprefix(prefix).partition("/")
    plain = unquote(name).replace("~1", "/").replace("~0", "~")
    return f"{plain}#/{rest}" if rest else plain
