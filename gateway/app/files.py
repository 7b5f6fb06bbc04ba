"""Files that callers name by the URI of a resource: read as the same caller would read them."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any

from msgspec import Raw

from gateway.context import Context
from gateway.upstreams.http.uploads import ReadResource
from schemas.jsonrpc import Request, decode_members
from schemas.mcp.revisions import V2025_11_25


def reading(outcome: Callable[[Context, Request], Awaitable[Any]]) -> ReadResource:
    """`outcome` is that of the dispatcher, so that all middleware sees the reading too."""

    async def read(uri: str, context: Context) -> Mapping[str, Raw] | None:
        # a revision that has the method, whatever the caller speaks, and asks nothing back
        asking = replace(context, revision=V2025_11_25, params={}, peer=None)
        asked = Request("2.0", "resources/read", {"uri": uri}, context.request_id)
        result = await outcome(asking, asked)
        return decode_members(result) if isinstance(result, Raw) else None

    return read
