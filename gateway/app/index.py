"""What is answered at `/`: what this is, and where its endpoints are."""

from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from config.settings import Settings
from gateway.methods.server import SERVER


def index(settings: Settings) -> Callable[[Request], Awaitable[Response]]:
    about = {"name": SERVER.name, "version": SERVER.version, "endpoints": _paths(settings)}

    async def answer(_request: Request) -> Response:
        return JSONResponse(about)

    return answer


def _paths(settings: Settings) -> dict[str, str]:
    mcp, rpc, portal = settings.mcp.path, settings.rpc.path, settings.portal
    paths = {"mcp": mcp, "mcp-2024-11-05": f"{mcp}/sse", "jsonrpc": rpc}
    if portal.enabled:
        paths |= {"portal-query": portal.query_path, "portal-command": portal.command_path}
    if settings.admin.enabled and settings.auth.mode != "none":
        paths["admin"] = settings.admin.path
    return paths
