"""Webhooks that have a source read again, as `/librarian/hooks/TENANT/SOURCE`: signed as Standard
Webhooks or as those of GitHub. What comes while the source waits, or is read, counts once."""

import hashlib
import hmac
import logging
import time
from collections.abc import Mapping

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from gateway.http_client.webhooks import SIGNATURE, SignatureRefused, verify
from gateway.operations.problems import ProblemDetails
from gateway.operations.tool_calls import AS_JOB
from gateway.wings.interface import CallTool
from gateway.wings.librarian.tracked_source_operations import HOOKS, HookSecrets
from gateway.wings.librarian.tracked_sources import TrackedSource, TrackedSources
from registry.database.postgres import is_uuid
from schemas.errors import Fault
from schemas.jsonrpc import encode

log = logging.getLogger("toolgate.librarian")

GITHUB = "x-hub-signature-256"
OPERATION = "librarian_refresh"


class SourceHooks:
    """ASGI application of the webhooks."""

    def __init__(self, call: CallTool, sources: TrackedSources, secrets: HookSecrets) -> None:
        self._call = call
        self._sources = sources
        self._secrets = secrets

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        if request.method != "POST":
            response = _json_response(405, "Expected POST.")
        else:
            response = await self._accept_hook(request)
        await response(scope, receive, send)

    async def _accept_hook(self, request: Request) -> Response:
        source = await self._source(request.url.path.removeprefix(f"{HOOKS}/"))
        secret = None if source is None else await self._secrets.of(source)
        body = await request.body()
        if source is None or not secret or not _is_signed(request.headers, body, secret):
            return _json_response(401, "There is no such webhook, or its signature is not valid.")
        await self._sources.make_due(source)
        await self._ask(source)
        return _json_response(202, "The source will be read.")

    async def _source(self, path: str) -> TrackedSource | None:
        tenant, _, id_ = path.partition("/")
        if not is_uuid(tenant) or not is_uuid(id_):
            return None
        return await self._sources.find_hooked(tenant, id_)

    async def _ask(self, source: TrackedSource) -> None:
        """Have it read at once; where that is not possible the schedule does."""
        try:
            context = await self._sources.context_of(source)
            await self._call(context, OPERATION, {"source": source.id, AS_JOB: True})
        except (Fault, ProblemDetails) as error:
            log.warning("refresh_refused", extra={"source": source.id, "reason": str(error)})


def _is_signed(headers: Mapping[str, str], body: bytes, secret: str) -> bool:
    if SIGNATURE in headers:
        try:
            verify(headers, body, [secret], time.time())
        except SignatureRefused:
            return False
        return True
    expected = hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
    signature = headers.get(GITHUB, "").removeprefix("sha256=")
    return hmac.compare_digest(signature.encode(), expected.encode())


def _json_response(status: int, detail: str) -> Response:
    body = encode({"status": status, "detail": detail})
    return Response(body, status, media_type="application/json")
