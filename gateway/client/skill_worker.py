"""Workers of skills, for programs of their own:

    from gateway.client.skill_worker import SkillCall, SkillWorker

    worker = SkillWorker("http://localhost:8765", key="...")

    @worker.skill("report")
    async def report(call: SkillCall) -> dict[str, Any]: ...

    asyncio.run(worker.run())

A function may be called twice for one invocation, as after a crash: with the same
`call.idempotency_key`.
"""

import logging
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp
import anyio
import msgspec
from msgspec import Struct

log = logging.getLogger("toolgate.worker")

WAIT_S = 30.0
RETRY_S = 1.0


class SkillCall(Struct, frozen=True, rename="camel"):
    """A delivery of an invocation."""

    id: str
    fence: int
    skill_name: str
    correlation_id: str
    arguments: Any
    attempt: int
    idempotency_key: str
    principal: str
    deadline_s: float | None = None


class TryAgain(Exception):
    """Raised by a function whose call is to be tried again, after so many seconds at least."""

    def __init__(self, message: str, after_s: float = 0.0) -> None:
        super().__init__(message)
        self.after_s = after_s


Skill = Callable[[SkillCall], Awaitable[Any]]


class _Calls(Struct, frozen=True):
    items: tuple[SkillCall, ...]


class SkillWorker:
    def __init__(
        self, url: str, *, key: str = "", concurrency: int = 1, lease_s: float = 60.0
    ) -> None:
        """`key`: an API key or token with the scope events:work."""
        self._url = f"{url.rstrip('/')}/events/v1"
        self._headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._concurrency = concurrency
        self._lease_s = lease_s
        self._skills: dict[str, Skill] = {}

    def skill(self, name: str) -> Callable[[Skill], Skill]:
        """Decorator of the function that runs a skill. An error of it is a failure, which is tried
        again as for `TryAgain`."""

        def register(function: Skill) -> Skill:
            self._skills[name] = function
            return function

        return register

    async def run(self) -> None:
        """Run skills until cancelled; those that run are then given back."""
        async with (
            aiohttp.ClientSession(headers=self._headers) as http,
            anyio.create_task_group() as group,
        ):
            for _ in range(self._concurrency):
                group.start_soon(self._work, http)

    async def _work(self, http: aiohttp.ClientSession) -> None:
        claim = {"skills": list(self._skills), "waitS": WAIT_S, "leaseS": self._lease_s}
        while True:
            try:
                calls = await self._send(http, "/claims", claim)
            except (aiohttp.ClientError, TimeoutError) as error:
                log.warning("gateway_unreachable", extra={"reason": type(error).__name__})
                await anyio.sleep(RETRY_S)
                continue
            for call in msgspec.json.decode(calls, type=_Calls).items:
                await self._perform(http, call)

    async def _perform(self, http: aiohttp.ClientSession, call: SkillCall) -> None:
        outcome, report = "release", dict[str, Any]()
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(self._renew, http, call, group.cancel_scope)
                outcome, report = await self._outcome(call)
                group.cancel_scope.cancel()
        finally:
            with anyio.CancelScope(shield=True), anyio.move_on_after(self._lease_s):
                await self._report_until_stored(http, call, outcome, report)

    async def _outcome(self, call: SkillCall) -> tuple[str, dict[str, Any]]:
        try:
            return "ack", {"result": await self._skills[call.skill_name](call)}
        except TryAgain as error:
            return "fail", {"error": str(error) or "TryAgain", "retryAfterS": error.after_s}
        except Exception as error:
            log.exception("skill_failed", extra={"invocation": call.id})
            return "fail", {"error": str(error) or type(error).__name__}

    async def _renew(
        self, http: aiohttp.ClientSession, call: SkillCall, scope: anyio.CancelScope
    ) -> None:
        """Renew the lease; cancels the call once it is cancelled, or another worker's."""
        while True:
            await anyio.sleep(self._lease_s / 3)
            try:
                answer = await self._send(http, f"/invocations/{call.id}/extend", self._own(call))
            except aiohttp.ClientResponseError as error:
                if error.status == 409:
                    scope.cancel()
                    return
            except (aiohttp.ClientError, TimeoutError):
                continue
            else:
                if msgspec.json.decode(answer).get("cancelling"):
                    scope.cancel()

    def _own(self, call: SkillCall) -> dict[str, Any]:
        return {"fence": call.fence, "leaseS": self._lease_s}

    async def _report_until_stored(
        self, http: aiohttp.ClientSession, call: SkillCall, outcome: str, report: dict[str, Any]
    ) -> None:
        """Report until the gateway has it, or does not want it any more."""
        while True:
            try:
                body = {"fence": call.fence, **report}
                await self._send(http, f"/invocations/{call.id}/{outcome}", body)
            except aiohttp.ClientResponseError as error:
                if error.status >= 500:
                    await anyio.sleep(RETRY_S)
                    continue
                log.warning("report_refused", extra={"invocation": call.id, "status": error.status})
            except (aiohttp.ClientError, TimeoutError):
                await anyio.sleep(RETRY_S)
                continue
            return

    async def _send(self, http: aiohttp.ClientSession, path: str, body: Any) -> bytes:
        async with http.post(self._url + path, json=body, raise_for_status=True) as response:
            return await response.read()
