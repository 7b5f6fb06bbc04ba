"""Contents of the registry: toolsets as server.json, and files with servers of others."""

import hashlib
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from config.settings import Toolset
from config.subregistry import ApprovedServer
from gateway.wings.interface import WingParts
from gateway.wings.subregistry.listing import ListedVersion
from registry.catalog.catalog import Catalog
from schemas.errors import ToolgateError
from schemas.mcp.registry_entries import (
    SCHEMA,
    Input,
    KeyValueInput,
    Remote,
    ServerDetail,
    schema_version,
)
from schemas.mcp.registry_entries import SCHEMA_VERSIONS as KNOWN_SCHEMAS

NO_VERSION = "0"  # version of a document that is stored
KEY = KeyValueInput(
    name="Authorization",
    description="An API key of the gateway",
    is_required=True,
    is_secret=True,
    value="Bearer {api_key}",
    variables={"api_key": Input(description="An API key", is_required=True, is_secret=True)},
)


def toolset_document(parts: WingParts, name: str, toolset: Toolset) -> ServerDetail:
    """A toolset as server.json. It names neither tools nor the services behind them."""
    url = f"{parts.mcp_url}/{name}"
    keyed = {"key": Remote(type="streamable-http", url=url, headers=(KEY,))}
    # clients take the first one
    ways = [
        keyed.get(way, Remote(type="streamable-http", url=url)) for way in parts.callers.credentials
    ]
    return ServerDetail(
        schema=SCHEMA,
        name=f"{parts.settings.namespace}/{name}",
        title=name,
        description=toolset.description or f"The toolset {name}",
        version=NO_VERSION,
        remotes=tuple(ways) or (Remote(type="streamable-http", url=url),),
    )


def content_digest(document: bytes, toolset: Toolset, catalog: Catalog) -> bytes:
    """A digest of what clients would see: of the document, the instructions and the tools."""
    tools = sorted(f"{tool.name} {tool.digest}" for tool in catalog.tools)
    return hashlib.sha256("\n".join([toolset.instructions, *tools]).encode() + document).digest()


def read_approved(entries: Sequence[ApprovedServer], namespace: str) -> list[ListedVersion]:
    """Servers of others. Raises ToolgateError for files that are unreadable, changed or invalid."""
    return [_read_entry(entry, number, namespace) for number, entry in enumerate(entries)]


def _read_entry(entry: ApprovedServer, number: int, namespace: str) -> ListedVersion:
    place = f"subregistry.entries: {entry.file}"
    try:
        data, changed = Path(entry.file).read_bytes(), Path(entry.file).stat().st_mtime
        server = msgspec.json.decode(data, type=ServerDetail)
    except (OSError, msgspec.DecodeError) as error:  # a ValidationError is one
        raise ToolgateError(f"{place}: expected a server.json: {error}") from error
    digest = hashlib.sha256(data).hexdigest()
    if entry.sha256 not in ("", digest):
        raise ToolgateError(f"{place}: expected SHA-256 {entry.sha256}, found {digest}")
    if (version := schema_version(server.schema)) not in KNOWN_SCHEMAS:
        schemas = ", ".join(sorted(KNOWN_SCHEMAS))
        raise ToolgateError(f"{place}: expected a $schema of {schemas}, found {version[:80]!r}")
    if server.namespace == namespace:
        raise ToolgateError(f"{place}: expected a server of others, found {server.name}")
    provenance = {"sha256": digest} | ({"registry": entry.registry} if entry.registry else {})
    return ListedVersion(server, number, datetime.fromtimestamp(changed, UTC), provenance)
