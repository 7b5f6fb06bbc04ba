"""The draft of a source: what an import makes of what was found, and where its tools are called."""

from collections import Counter
from urllib.parse import urljoin, urlsplit

from registry.importers.imported import Imported
from registry.sources.plan import scrubbed
from registry.sources.source_reader import Found, ImportSpec
from registry.sources.specs import STDIO
from registry.sources.store import SourceDraft


def drafted(spec: ImportSpec, found: Found, imported: Imported) -> SourceDraft:
    """The source that the import makes."""
    declared = None
    if spec.kind == "openapi":
        declared = _declared_base(found.location, imported.servers)
    elif spec.kind == "graphql" and imported.servers:
        declared = imported.servers[0]  # an endpoint: the slash at its end counts
    said, declared = said_base(spec), scrubbed(declared)
    return SourceDraft(
        name=spec.name,
        kind=spec.kind,
        location=found.location,
        base_url=said or declared,
        base_url_trusted=not spec.options.guarded
        and (said is not None or same_origin(spec.location, declared)),
        title=scrubbed(imported.title),
        version=scrubbed(imported.version),
        include=spec.include,
        exclude=spec.exclude,
        digest=found.digest,
        options=spec.options,
        server=imported.server,
        items=imported.items,
        outcomes=Counter(outcome.status for outcome in imported.outcomes),
        origin=spec.origin,
    )


def relative_server(spec: ImportSpec, found: Found, imported: Imported) -> str | None:
    """What to do where a description that is no URL names a server relative to its own."""
    if spec.kind != "openapi" or spec.base_url or is_url(found.location):
        return None
    relative = next((one for one in imported.servers if one and "://" not in one), None)
    if relative is None or _declared_base(found.location, imported.servers):
        return None
    return (
        f"its server {relative!r} is relative to the URL that the description is served at, and it "
        f"was read from {found.location}: say where the service is, as in --base-url "
        f"https://api.example.com{relative if relative.startswith('/') else ''}, or base_url in "
        f"the settings (sources.{spec.name}.base_url)"
    )


def is_url(location: str) -> bool:
    return location.startswith(("http://", "https://"))


def said_base(spec: ImportSpec) -> str | None:
    """Where calls go, if an operator said it; calls of an MCP server go where it is listed."""
    if spec.kind == "mcp" and not spec.location.startswith(STDIO):
        return spec.location
    return spec.base_url


def _declared_base(location: str, servers: tuple[str, ...]) -> str | None:
    """The first server of the description that is an HTTP address, relative ones resolved."""
    at = location if is_url(location) else ""
    for server in servers or ("/",):  # OpenAPI 3.1, 4.8.1: no servers means `/`
        try:
            url = urljoin(at, server) if at else server
            parts = urlsplit(url)
        except ValueError:  # http://[x
            continue
        if parts.scheme in {"http", "https"} and parts.hostname:
            return url.rstrip("/")
    return None


def same_origin(typed: str, declared: str | None) -> bool:
    """A relative server of a fetched description: the operator named that host already."""
    return declared is not None and urlsplit(typed)[:2] == urlsplit(declared)[:2]
