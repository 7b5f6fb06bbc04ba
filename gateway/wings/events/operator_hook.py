"""The hook of operators: a function of theirs that hears of each step of invocations run here.

    async def hook(step: str, invocation: Mapping[str, Any]) -> None: ...

`before_dispatch` comes before the call, and a ValueError refuses it; then `dispatched`, and after
its end `acked`, `failed` (another attempt follows) or `dead`. Errors of later steps are logged.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Literal

from config.user_modules import load_function
from gateway.wings.events.invocation_journal import Delivery, End

log = logging.getLogger("toolgate.events")

HookPoint = Literal["before_dispatch", "dispatched", "acked", "failed", "dead"]
Hook = Callable[[HookPoint, Mapping[str, Any]], Awaitable[None]]


class Hooks:
    def __init__(self, target: str) -> None:
        """`target` "": there is none. Raises ToolgateError."""
        self._hook: Hook | None = load_function(target, "events.hook") if target else None

    async def before(self, delivery: Delivery) -> str | None:
        """The reason why the hook refuses the call; None: it may be made."""
        if self._hook is None:
            return None
        facts = _facts(delivery)
        try:
            await self._hook("before_dispatch", facts)
        except ValueError as error:
            return f"Refused: {error}"
        await self._hook("dispatched", facts)
        return None

    async def after(self, delivery: Delivery, end: End) -> None:
        if self._hook is None:
            return
        final: HookPoint = "dead" if end.retry_s is None else "failed"
        try:
            await self._hook("acked" if end.error is None else final, _facts(delivery))
        except Exception:  # code of the operator
            log.exception("hook_failed", extra={"invocation": delivery.invocation_id})


def _facts(delivery: Delivery) -> Mapping[str, Any]:
    return {
        "id": delivery.invocation_id,
        "tenant": delivery.host_id,
        "skillName": delivery.skill_name,
        "correlationId": delivery.correlation_id,
        "arguments": delivery.arguments,
        "attempt": delivery.attempt,
    }
