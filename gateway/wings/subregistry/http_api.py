"""The registry over HTTP: the reads of v0.1, below /registry. Writes are not implemented.

Answers are the same for every caller: nothing in them depends on a header of the request, and on a
Host least of all.
"""

import base64
import hashlib
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from config.subregistry import SubregistrySettings
from gateway.context import Identify, Identity
from gateway.operations.rest_api import refusal_problem
from gateway.protocol.challenges import REALM
from gateway.wings.subregistry.listing import Listing, Place

ROOT = "/registry"
LIMIT = 100  # of the official registry
LIMITS = re.compile(r"[1-9][0-9]?|100")
# A name has one slash, which proxies may decode.
PATH = re.compile(
    rf"{ROOT}/v0\.1/servers(?:/(?P<name>[^/]+/[^/]+)/versions(?:/(?P<version>[^/]+))?)?/?"
)
WRITES = frozenset({"POST", "PUT", "PATCH", "DELETE"})
CORS = {
    "access-control-allow-origin": "*",
    "access-control-allow-methods": "GET, OPTIONS",
    "access-control-allow-headers": "Authorization, Content-Type",
    "access-control-expose-headers": "ETag",
    "access-control-max-age": "86400",
}
ALLOW = {"allow": "GET, HEAD, OPTIONS"}
NO_HEADERS: Mapping[str, str] = {}
START: Place = ("", -1)


class RegistryError(Exception):
    def __init__(self, status: int, text: str, headers: Mapping[str, str] = NO_HEADERS) -> None:
        super().__init__(text)
        self.status = status
        self.headers = headers


class RegistryApi:
    """ASGI application."""

    def __init__(
        self, settings: SubregistrySettings, listing: Callable[[], Listing], identify: Identify
    ) -> None:
        self._settings = settings
        self._listing = listing
        self._identify = identify
        shared = "public" if settings.access == "open" else "private"
        self._caching = {"cache-control": f"{shared}, max-age={settings.max_age_s}"}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        try:
            response = await self._respond(request)
        except RegistryError as error:
            response = _json_response({"error": str(error)}, error.status)
            response.headers.update(error.headers)
        response.headers.update(CORS)
        await response(scope, receive, send)

    async def _respond(self, request: Request) -> Response:
        if request.method == "OPTIONS":
            return Response(status_code=204)
        if request.method in WRITES:
            raise RegistryError(501, "This registry is read-only: its content is in the settings")
        if request.method not in ("GET", "HEAD"):
            raise RegistryError(405, "Expected GET", ALLOW)
        if self._settings.access == "token":
            _check_caller(await self._identify(request.scope))
        match = PATH.fullmatch(request.scope["path"])
        if match is None:
            raise RegistryError(404, "Expected /v0.1/servers, or a version of one below it")
        answer = self._read(match["name"], match["version"], request.query_params)
        response = _json_response(answer, 200)
        response.headers.update(self._caching)
        etag = f'"{hashlib.sha256(response.body).hexdigest()[:32]}"'
        response.headers["etag"] = etag
        cached_tags = request.headers.get("if-none-match", "")
        if etag in (tag.strip().removeprefix("W/") for tag in cached_tags.split(",")):
            return Response(status_code=304, headers={**self._caching, "etag": etag})
        return response

    def _read(self, name: str | None, version: str | None, query: Mapping[str, str]) -> Any:
        listing = self._listing()
        if query.get("include_deleted", "false") not in ("true", "false"):  # nothing is deleted
            raise RegistryError(400, "include_deleted: expected true or false")
        if name is None:
            return self._page(listing, query)
        if version is not None:
            listed = listing.find(name, version)
            if listed is None:
                raise RegistryError(404, "Server not found")
            return listing.view(listed)
        if not (versions := listing.versions(name)):
            raise RegistryError(404, "Server not found")
        return _list_view(listing, versions)

    def _page(self, listing: Listing, query: Mapping[str, str]) -> Any:
        versions, has_more = listing.page(
            _read_cursor(query.get("cursor", "")),
            self._read_limit(query.get("limit")),
            search=query.get("search", ""),
            version=query.get("version", ""),
            since=_read_time(query.get("updated_since")),
        )
        more = {"nextCursor": _write_cursor(versions[-1].place)} if has_more else {}
        return _list_view(listing, versions, more)

    def _read_limit(self, text: str | None) -> int:
        if text is None:
            return self._settings.page_size
        if not LIMITS.fullmatch(text):
            raise RegistryError(400, f"limit: expected 1 to {LIMIT}, found {text[:20]!r}")
        return int(text)


def _check_caller(identity: Identity) -> None:
    text = "Expected a token of the gateway (Authorization: Bearer)"
    if identity.refusal is not None:
        problem = refusal_problem(identity.refusal)
        text = text if problem.status == 401 else problem.detail
        raise RegistryError(problem.status, text, problem.headers)
    if not identity.verified:
        raise RegistryError(401, text, {"www-authenticate": REALM})


def _list_view(
    listing: Listing, versions: Any, more: Mapping[str, str] | None = None
) -> dict[str, Any]:
    servers = [listing.view(listed) for listed in versions]
    return {"servers": servers, "metadata": {"count": len(servers), **(more or {})}}


def _write_cursor(place: Place) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(place)).decode().rstrip("=")


def _read_cursor(text: str) -> Place:
    if not text:
        return START
    try:
        data = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        place: Place = msgspec.json.decode(data, type=Place)
    except ValueError as error:  # as are those of base64 and msgspec
        raise RegistryError(400, "cursor: expected metadata.nextCursor of a page") from error
    return place


def _read_time(text: str | None) -> datetime | None:
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise RegistryError(400, "updated_since: expected a time of RFC 3339") from error
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _json_response(value: Any, status: int) -> Response:
    return Response(msgspec.json.encode(value), status, media_type="application/json")
