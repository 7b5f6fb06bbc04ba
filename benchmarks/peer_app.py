"""FastMCP serving the same description, stateless. Runs in the peer's own environment.

TOOLGATE_BENCH_DESCRIPTION is the OpenAPI file, TOOLGATE_BENCH_UPSTREAM the upstream's base URL.
"""

import json
import os
from pathlib import Path

import httpx2
from fastmcp import FastMCP
from starlette.requests import Request
from starlette.responses import Response

_client = httpx2.AsyncClient(
    base_url=os.environ["TOOLGATE_BENCH_UPSTREAM"],
    limits=httpx2.Limits(max_connections=100, max_keepalive_connections=100),
)
_description = json.loads(Path(os.environ["TOOLGATE_BENCH_DESCRIPTION"]).read_text("utf-8"))

_server = FastMCP.from_openapi(_description, client=_client)


@_server.custom_route("/health", methods=["GET"])
async def health(_: Request) -> Response:
    return Response("ok")


app = _server.http_app(path="/mcp", stateless_http=True, json_response=True)
