"""Server name and version, as announced to clients."""

from importlib.metadata import PackageNotFoundError, version
from typing import Any

from msgspec import Raw

from schemas.jsonrpc import encode
from schemas.mcp.messages import META_SERVER, Implementation


def _version() -> str:
    try:
        return version("toolgate")
    except PackageNotFoundError:  # run from a source tree that was never installed
        return "0+unknown"


SERVER = Implementation("toolgate", _version())
WRITTEN = Raw(encode(SERVER))
STAMP: dict[str, Any] = {META_SERVER: SERVER}
