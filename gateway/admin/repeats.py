"""POST requests that are done once, however often they are sent (Idempotency-Key).

A secret that an answer holds is not kept: who repeats the request gets the rest of it.
"""

import logging
import re
from collections.abc import Awaitable, Callable

import anyio
import msgspec
import psycopg
from msgspec import Struct
from psycopg_pool import PoolTimeout

from gateway.admin.answers import AdminResponse
from gateway.admin.problems import Mistake, ProblemDetails, bad_request, unavailable
from gateway.context import Principal
from gateway.state.once import NoDatabase, Once, OtherRequest, Owner, Unfinished

log = logging.getLogger("toolgate.admin")

KEY = re.compile(r"[\x21-\x7e]{1,128}")


class _Kept(Struct):
    status: int
    body: str
    headers: dict[str, str]
    media_type: str


_kept = msgspec.json.Decoder(_Kept)

Done = tuple[
    AdminResponse, AdminResponse
]  # what is told, and what is told to who repeats the request


class Repeats:
    def __init__(self, once: Once) -> None:
        self._once = once

    async def run(
        self,
        key: str,
        principal: Principal,
        what: str,
        request: bytes,
        work: Callable[[], Awaitable[Done]],
    ) -> AdminResponse:
        """Do `work`, or give what it gave before. Raises Problem, and what `work` raises: then
        nothing is kept."""
        if not KEY.fullmatch(key):
            text = "expected 1 to 128 visible ASCII characters"
            raise bad_request("The key cannot be used.", Mistake(text, header="Idempotency-Key"))
        owner = Owner(principal.tenant, principal.id[:256], f"admin {what}", key)
        try:
            earlier = await self._once.claim(owner, request)
        except OtherRequest as error:
            text = "The Idempotency-Key was used for a different request."
            raise ProblemDetails(422, "idempotency-key-reused", text) from error
        except Unfinished as error:
            text = "A request with this Idempotency-Key still runs, or its outcome is not known."
            raise ProblemDetails(409, "idempotency-key-in-use", text) from error
        except (psycopg.OperationalError, PoolTimeout, NoDatabase) as error:
            raise unavailable("The database does not answer; nothing was done.") from error
        if earlier is not None:
            return _restored(earlier)
        # Else the key would belong to nobody knows what.
        with anyio.CancelScope(shield=True):
            return await self._first(owner, work)
        raise AssertionError  # a scope that nobody cancels swallows nothing

    async def _first(self, owner: Owner, work: Callable[[], Awaitable[Done]]) -> AdminResponse:
        try:
            told, again = await work()
        except BaseException:
            await self._settle(owner, None)
            raise
        await self._settle(owner, again if again.status < 500 else None)
        return told

    async def _settle(self, owner: Owner, again: AdminResponse | None) -> None:
        try:
            if again is None:
                await self._once.release(owner)
            else:
                await self._once.keep(owner, _encoded(again))
        except (psycopg.OperationalError, PoolTimeout, NoDatabase):
            log.exception("admin_key_not_kept")


def _encoded(response: AdminResponse) -> bytes:
    headers = dict(response.headers)
    kept = _Kept(response.status, response.body.decode(), headers, response.media_type)
    return msgspec.json.encode(kept)


def _restored(data: bytes) -> AdminResponse:
    kept = _kept.decode(data)
    return AdminResponse(kept.status, kept.body.encode(), kept.headers, kept.media_type)
