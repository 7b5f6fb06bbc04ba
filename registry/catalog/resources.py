"""Resources of all servers: whose a URI is, and what clients should call it.

A server must not get what is another's by listing something later. So of several servers whose
templates give a URI, the one that had such a template first has it, however much those of others
say. A resource that is listed goes before templates: names of those are unique.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from registry.names.uris import MATCHED, Letters, Template, unwrapped, wrapped
from schemas.mcp.snapshot import Eras, SnapshotItem
from schemas.source import Source

TRIED = 250  # templates of one server that are compared with one URI


@dataclass(frozen=True, slots=True)
class Located:
    """Where a resource is to be read."""

    source: Source
    uri: str  # as its server knows it
    eras: Eras = "both"
    # The resource, or the template that gives it; None: no list has it.
    item: SnapshotItem | None = field(default=None, compare=False)


class CatalogResources:
    """The resources and templates of one catalog, with the sources that they are of."""

    def __init__(self, items: Sequence[SnapshotItem], sources: Mapping[str, Source]) -> None:
        self._sources = sources
        of_servers = [item for item in items if item.source in sources]
        resources = [item for item in of_servers if item.kind == "resource"]
        self._by_name = {item.name: item for item in resources}
        self._by_key = {(item.source, item.key): item for item in resources}
        self._templates = _Templates([item for item in of_servers if item.kind == "template"])
        self._only = _only(of_servers, sources)

    def locate(self, uri: str) -> Located | None:
        """The server that has `uri`: as a resource that it lists, as the `toolgate://` URI of one,
        by a template; else the only server that has resources at all.

        Of the templates of one server, the one with more characters of its own is taken. Of
        several servers, the one that had a template for it first; of those that had it at once, the
        one whose name comes first.
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

    def _at(self, item: SnapshotItem, uri: str) -> Located:
        return Located(self._sources[item.source], uri, item.eras, item)

    def _inside(self, name: str, uri: str) -> Located | None:
        """A `toolgate://` URI: never of another server than it says."""
        source = self._sources.get(name)
        if source is None or not source.facts.server or not uri:
            return None
        item = self._by_key.get((name, uri)) or self._template(uri, name)
        return Located(source, uri, item.eras if item else "both", item)

    def _template(self, uri: str, source: str | None = None) -> SnapshotItem | None:
        """The template that gives `uri`: of `source`, else of those that clients know plain."""
        found = self._templates.giving(uri, source)
        if not found:
            return None
        first = min((item.since, item.source) for item, _ in found)[1]
        own = [one for one in found if one[0].source == first]
        return min(own, key=lambda one: (-one[1].size, one[0].key))[0]


class _Templates:
    """Templates, by how the URIs begin that they give: a server may have thousands."""

    def __init__(self, items: Sequence[SnapshotItem]) -> None:
        self._by_beginning: defaultdict[str, list[tuple[SnapshotItem, Template]]] = defaultdict(
            list
        )
        for item in sorted(items, key=lambda item: (-len(item.key), item.key)):
            try:
                template = Template.read(item.key)
            except ValueError:  # of another release, which reads more than this one
                continue
            self._by_beginning[template.literals[0]].append((item, template))
        self._lengths = sorted({len(beginning) for beginning in self._by_beginning}, reverse=True)

    def giving(self, uri: str, source: str | None) -> list[tuple[SnapshotItem, Template]]:
        """Those that give `uri`: of `source`, else of those that clients know plain."""
        if len(uri) > MATCHED or not self._lengths:
            return []
        tried: Counter[str] = Counter()
        found = []
        letters = Letters(uri)
        for item, template in self._beginning(uri):
            if item.source != source if source else item.name != item.key:
                continue
            tried[item.source] += 1
            if tried[item.source] <= TRIED and template.matches(letters):
                found.append((item, template))
        return found

    def _beginning(self, uri: str) -> Iterator[tuple[SnapshotItem, Template]]:
        """Those whose beginning `uri` has, the longest first."""
        for length in self._lengths:
            if length <= len(uri):
                yield from self._by_beginning.get(uri[:length], ())


def _only(items: Sequence[SnapshotItem], sources: Mapping[str, Source]) -> Source | None:
    """The server that has resources, if it is one alone."""
    having = {item.source for item in items if item.kind != "prompt"}
    having |= {name for name, source in sources.items() if _promises(source)}
    return sources[having.pop()] if len(having) == 1 else None


def _promises(source: Source) -> bool:
    facts = source.server
    return facts is not None and (
        "resources" in facts.handshake_capabilities or "resources" in facts.stateless_capabilities
    )
