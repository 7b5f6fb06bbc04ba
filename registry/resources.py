"""Resources of all servers: whose a URI is, and what clients should call it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from registry.uris import MATCHED, Letters, Template, unwrapped, wrapped
from schemas.mcp.snapshot import Eras, Item
from schemas.source import Source


@dataclass(frozen=True, slots=True)
class Located:
    """Where a resource is to be read."""

    source: Source
    uri: str  # as its server knows it
    eras: Eras = "both"


class Resources:
    """The resources and templates of one catalog, with the sources that they are of."""

    def __init__(self, items: Sequence[Item], sources: Mapping[str, Source]) -> None:
        self._sources = sources
        of_servers = [item for item in items if item.source in sources]
        resources = [item for item in of_servers if item.kind == "resource"]
        self._by_name = {item.name: item for item in resources}
        self._by_key = {(item.source, item.key): item for item in resources}
        self._templates = _ordered([item for item in of_servers if item.kind == "template"])
        self._only = _only(of_servers, sources)

    def locate(self, uri: str) -> Located | None:
        """The server that has `uri`: as a resource that it lists, as the `toolgate://` URI of one,
        by a template; else the only server that has resources at all.

        Of several templates the one with more characters of its own is taken, of equal ones that
        of the source whose name comes first.
        """
        if item := self._by_name.get(uri):
            return self._at(item, item.key)
        if named := unwrapped(uri):
            return self._inside(*named)
        if item := self._template(uri):
            return self._at(item, uri)
        return Located(self._only, uri) if self._only else None

    def expose(self, source: str, uri: str) -> str:
        """What clients should call the resource `uri` of `source`, so that `locate` finds it."""
        if item := self._by_key.get((source, uri)):
            return item.name
        located = self.locate(uri)
        if located is not None and located.source.name == source:
            return uri
        return wrapped(source, uri)

    def _at(self, item: Item, uri: str) -> Located:
        return Located(self._sources[item.source], uri, item.eras)

    def _inside(self, name: str, uri: str) -> Located | None:
        """A `toolgate://` URI: never of another server than it says."""
        source = self._sources.get(name)
        if source is None or source.kind != "mcp" or not uri:
            return None
        item = self._by_key.get((name, uri)) or self._template(uri, name)
        return Located(source, uri, item.eras if item else "both")

    def _template(self, uri: str, source: str | None = None) -> Item | None:
        """The template that gives `uri`: of `source`, else of those that clients know plain."""
        if len(uri) > MATCHED or not self._templates:
            return None
        letters = Letters(uri)
        for item, template in self._templates:
            if (item.source == source if source else item.name == item.key) and (
                template.matches(letters)
            ):
                return item
        return None


def _ordered(items: Sequence[Item]) -> list[tuple[Item, Template]]:
    found = []
    for item in items:
        try:
            found.append((item, Template.read(item.key)))
        except ValueError:  # of a later release, which reads more than this one
            continue
    return sorted(found, key=lambda one: (-one[1].size, one[0].source, one[0].key))


def _only(items: Sequence[Item], sources: Mapping[str, Source]) -> Source | None:
    """The server that has resources, if it is one alone."""
    having = {item.source for item in items if item.kind != "prompt"}
    having |= {name for name, source in sources.items() if _promises(source)}
    return sources[having.pop()] if len(having) == 1 else None


def _promises(source: Source) -> bool:
    facts = source.server
    return facts is not None and (
        "resources" in facts.handshake_capabilities or "resources" in facts.stateless_capabilities
    )
