"""Resources of all servers: the server that owns a URI, and the URI that clients see.

A server must not capture another's URIs by listing something later. So of several servers whose
templates match a URI, the one that had such a template first owns it, however specific the others
are. Listed resources take precedence over templates: their names are unique.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from hashlib import sha256

from registry.names.uris import URI_LIMIT, Template, UriBits, looks_wrapped, unwrap_uri, wrap_uri
from schemas.mcp.references import UI, refer_definition
from schemas.mcp.snapshot import Eras, SnapshotItem
from schemas.source import Source
from schemas.tool import Tool

URIS = ("resource", "template")  # kinds of items that are named by URIs
TEMPLATES_COMPARED = 250  # templates of one server compared with one URI
LETTERS = 10_000  # literal characters of those, in all
LOOKUPS = 100  # of URIs of one answer that no list has


@dataclass(frozen=True, slots=True)
class ResourceLocation:
    """The server and URI of a resource."""

    source: Source
    uri: str  # as on its server
    eras: Eras = "both"
    # The resource, or the template that matches; None: in no list.
    item: SnapshotItem | None = field(default=None, compare=False)


class CatalogResources:
    """The resources and templates of one catalog, with their sources."""

    def __init__(self, items: Sequence[SnapshotItem], sources: Mapping[str, Source]) -> None:
        self._sources = sources
        of_servers = [item for item in items if item.source in sources]
        resources = [item for item in of_servers if item.kind == "resource"]
        self._by_name = {item.name: item for item in resources}
        self._by_key = {(item.source, item.key): item for item in resources}
        self._listed = {
            (item.source, item.key): item.name for item in of_servers if item.kind in URIS
        }
        self._of_servers = of_servers
        self._only = _only(of_servers, sources)

    def locate(self, uri: str) -> ResourceLocation | None:
        """The server that owns `uri`: as a listed resource, as the `toolgate://` URI of one, by a
        template; else the only server that has resources at all.

        Of one server's templates, the one with more literal characters wins. Of several servers,
        the one that had a matching template first; of those with equal age, the first by name.
        """
        if item := self._by_name.get(uri):
            return self._at(item, item.key)
        if named := unwrap_uri(uri):
            return self._inside(*named)
        if item := self._template(uri):
            return self._at(item, uri)
        return ResourceLocation(self._only, uri) if self._only else None

    def expose(self, source: str, uri: str, lookups: Iterator[int] | None = None) -> str:
        """The URI under which clients see the resource `uri` of `source`, such that `locate` finds
        it. `lookups` counts those of one answer, of which a server can send any number: beyond
        LOOKUPS that no list has, URIs are wrapped without a look at the templates."""
        if item := self._by_key.get((source, uri)):
            return item.name
        if lookups is not None and next(lookups) >= LOOKUPS:
            return wrap_uri(source, uri)
        located = self.locate(uri)
        if located is not None and located.source.name == source:
            return uri
        return wrap_uri(source, uri)

    def refer(self, source: str, text: str) -> str:
        """A text in the metadata of `source`, exposed if it names a resource or template of that
        source: one that is listed, or a page of an MCP App, which need not be. No template is
        looked at, as any member of metadata may be such a text."""
        name = self._listed.get((source, text))
        if name is not None or not text.startswith(UI):
            return text if name is None else name
        is_only = self._only is not None and self._only.name == source
        return text if is_only and not looks_wrapped(text) else wrap_uri(source, text)

    @cached_property
    def _templates(self) -> "_Templates":
        return _Templates([item for item in self._of_servers if item.kind == "template"])

    def _at(self, item: SnapshotItem, uri: str) -> ResourceLocation:
        return ResourceLocation(self._sources[item.source], uri, item.eras, item)

    def _inside(self, name: str, uri: str) -> ResourceLocation | None:
        """Resolve a `toolgate://` URI: only ever to the server that it names."""
        source = self._sources.get(name)
        if source is None or not source.facts.server or not uri:
            return None
        item = self._by_key.get((name, uri)) or self._template(uri, name)
        return ResourceLocation(source, uri, item.eras if item else "both", item)

    def _template(self, uri: str, source: str | None = None) -> SnapshotItem | None:
        """The template that matches `uri`: of `source`, else of those that clients see
        unprefixed."""
        candidates = self._templates.giving(uri, source)
        if not candidates:
            return None
        first = min((item.since, item.source) for item, _ in candidates)[1]
        source_candidates = [candidate for candidate in candidates if candidate[0].source == first]
        return min(source_candidates, key=lambda pair: (-pair[1].size, pair[0].key))[0]


def with_references(
    tools: Sequence[Tool], items: Sequence[SnapshotItem], sources: Iterable[Source]
) -> tuple[list[Tool], list[SnapshotItem]]:
    """Tools and items whose metadata refers to resources by the URIs that clients know."""
    resources = CatalogResources(items, {source.name: source for source in sources})
    return [_tool(tool, resources) for tool in tools], [_item(item, resources) for item in items]


def _tool(tool: Tool, resources: CatalogResources) -> Tool:
    if tool.definition is None:
        return tool
    definition = refer_definition(tool.definition, partial(resources.refer, tool.source))
    if definition is tool.definition:
        return tool
    # shapes of tools are cached by digest
    digest = sha256(tool.digest.encode() + bytes(definition)).hexdigest()
    return replace(tool, definition=definition, digest=digest)


def _item(item: SnapshotItem, resources: CatalogResources) -> SnapshotItem:
    definition = refer_definition(item.definition, partial(resources.refer, item.source))
    return item if definition is item.definition else replace(item, definition=definition)


class _Templates:
    """Index of templates by literal prefix: a server may have thousands."""

    def __init__(self, items: Sequence[SnapshotItem]) -> None:
        self._by_beginning: defaultdict[str, list[tuple[SnapshotItem, Template]]] = defaultdict(
            list
        )
        for item in sorted(items, key=lambda item: (-len(item.key), item.key)):
            try:
                template = Template.read(item.key)
            except ValueError:  # written by another release, which reads more than this one
                continue
            self._by_beginning[template.literals[0]].append((item, template))
        self._lengths = sorted({len(beginning) for beginning in self._by_beginning}, reverse=True)

    def giving(self, uri: str, source: str | None) -> list[tuple[SnapshotItem, Template]]:
        """Templates that match `uri`: of `source`, else of those that clients see unprefixed."""
        if len(uri) > URI_LIMIT or not self._lengths:
            return []
        tried: Counter[str] = Counter()
        compared: Counter[str] = Counter()  # literal characters, by server
        candidates = []
        letters = UriBits(uri)
        for item, template in self._beginning(uri):
            if item.source != source if source else item.name != item.key:
                continue
            tried[item.source] += 1
            if tried[item.source] > TEMPLATES_COMPARED or not template.may_match(uri):
                continue
            compared[item.source] += template.size
            if compared[item.source] <= LETTERS and template.matches(letters):
                candidates.append((item, template))
        return candidates

    def _beginning(self, uri: str) -> Iterator[tuple[SnapshotItem, Template]]:
        """Templates whose literal prefix `uri` begins with, the longest first."""
        for length in self._lengths:
            if length <= len(uri):
                yield from self._by_beginning.get(uri[:length], ())


def _only(items: Sequence[SnapshotItem], sources: Mapping[str, Source]) -> Source | None:
    """The only server that has resources; None for several."""
    having = {item.source for item in items if item.kind != "prompt"}
    having |= {name for name, source in sources.items() if _promises(source)}
    return sources[having.pop()] if len(having) == 1 else None


def _promises(source: Source) -> bool:
    facts = source.server
    return facts is not None and (
        "resources" in facts.handshake_capabilities or "resources" in facts.stateless_capabilities
    )
