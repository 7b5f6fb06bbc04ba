"""Results of a server, as the tests write them and as a client reads them."""

import json
from typing import Any

import msgspec
from msgspec import Raw

from gateway.protocol.revision_adapter import Members, View
from schemas.jsonrpc import decode_members
from schemas.mcp.messages import META_SERVER
from schemas.mcp.revisions import Revision

US = {"name": "us", "version": "1"}
STAMP = {META_SERVER: US}


def members(**values: Any) -> Members:
    """As a link hands them over: decoded from the server's answer."""
    return decode_members(json.dumps(values))


def view(revision: Revision, source: str = "src") -> View:
    """Of a server whose URIs `test://shared...` another server has too."""

    def expose(uri: str) -> str:
        return f"toolgate://{source}/{uri}" if uri.startswith("test://shared") else uri

    return View(revision, expose, Raw(msgspec.json.encode(US)), expose)


def decode_result(result: Members) -> dict[str, Any]:
    return json.loads(msgspec.json.encode(result))


def plain(result: dict[str, Any]) -> dict[str, Any]:
    """Without what every 2026-07-28 result has."""
    return {name: v for name, v in result.items() if name not in {"resultType", "_meta"}}
