"""Hybrid services behind the gateway: an action's arguments as a JSON-RPC or a legacy request.

What a call carries besides its data goes along, of the caller's credentials only what the settings
of the source let through.
"""

import itertools
from typing import Any, cast

from msgspec import UNSET

from gateway.context import Context
from gateway.upstreams.http.answers import lost, no_answer
from gateway.upstreams.http.client import Client
from gateway.upstreams.http.connections import UpstreamFailed
from gateway.upstreams.hybrid.batching import CORRELATION_ID, Batching, Post, exchange
from gateway.upstreams.hybrid.replies import read_legacy
from schemas.binding import HybridBinding
from schemas.errors import ToolgateError
from schemas.hybrid import split
from schemas.jsonrpc import Request, encode, json_type
from schemas.source import HybridOptions, Source
from schemas.tool import Tool, ToolResult

IDEMPOTENCY_KEY = "Idempotency-Key"
PATHS = {"query": "/portal/query", "command": "/portal/command"}


class Unsendable(ToolgateError):
    """A call that the dialect of its source has no form for."""


class HybridUpstream:
    def __init__(self, client: Client) -> None:
        self._client = client
        self._batching = Batching(client)
        # Not 1 each time: an answer to another call would pass for ours.
        self._ids = itertools.count(1)

    async def call(
        self, tool: Tool, source: Source | None, arguments: Any, context: Context
    ) -> ToolResult:
        if source is None:
            return no_answer(f"The source of {tool.name} is gone")
        binding = cast("HybridBinding", tool.binding)  # app.py: each upstream has its own kind
        options = cast("HybridOptions", source.options)  # of their kind of source
        data = data_of(binding, arguments)
        try:
            post = self._post(binding, source, context)
            if options.dialect == "legacy":
                body = encode(legacy(binding.service, data))
                response = await self._client.send(source, post.request(body))
                return read_legacy(response, source.name, context.request_id)
            request = rpc(binding.service, data, next(self._ids))
        except UpstreamFailed as error:
            return lost(error)
        except Unsendable as error:
            return no_answer(str(error))
        if options.batch > 1 and IDEMPOTENCY_KEY not in post.headers:
            return await self._batching.ask(post, request, options.batch)
        [result] = await exchange(self._client, post, [request])
        return result

    def _post(self, binding: HybridBinding, source: Source, context: Context) -> Post:
        query = binding.side == "query"
        # actions that are for everybody are asked for by callers that nobody knows
        caller = self._client.caller(source, context) if context.identity.verified else None
        # a base URL with a path of its own is the whole address, whatever the side
        target = "" if self._client.base_path(source) else PATHS[binding.side or "command"]
        headers = carried(context, query)
        return Post(source, target, headers, context.request_id, query, caller)


def carried(context: Context, query: bool) -> dict[str, str]:
    """The headers of the caller's that a service gets, besides what proves who it is."""
    letter = context.letter
    headers = {
        CORRELATION_ID: letter.correlation_id,
        "X-Traceability-Id": letter.traceability_id,
        IDEMPOTENCY_KEY: None if query else letter.idempotency_key,
    }
    return {name: value for name, value in headers.items() if value}


def data_of(binding: HybridBinding, arguments: Any) -> Any:
    """The action's `data`; UNSET when there is none."""
    if not binding.validated:
        return UNSET if arguments is None or arguments == {} else arguments
    if binding.argument is not None:
        return arguments.get(binding.argument, UNSET)
    return arguments


def legacy(service: str, data: Any) -> dict[str, Any]:
    """The legacy payload. Raises Unsendable for an id that has not four parts."""
    parts = split(service)
    if parts is None:
        raise Unsendable(
            f"{service} is not host/service/action/version, which the legacy payload needs: "
            "its source must have the dialect jsonrpc"
        )
    return parts if data is UNSET else {**parts, "data": data}


def rpc(service: str, data: Any, id_: int) -> Request:
    """The JSON-RPC request. Raises Unsendable for data that JSON-RPC 2.0 has no params for."""
    if data is None:
        data = UNSET
    if data is not UNSET and not isinstance(data, dict | list):
        raise Unsendable(
            f"{service} takes an object or an array in JSON-RPC (section 4.2), "
            f"not {json_type(data)}: its source must have the dialect legacy"
        )
    return Request("2.0", service, data, id_)
