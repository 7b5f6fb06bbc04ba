"""One configured hook: how it is loaded, asked and judged. Knows no calls and no guards.

A hook is a function of Python, or an HTTP endpoint, that gets an event (`v: 1`) and answers with an
object: `{"refuse": "reason"}`, or what it changes, or nothing. An answer that it may not give, an
error, a timeout and an open circuit are failures, which refuse unless `failure: pass`. Of the
requests at a time, a tenant and a caller have shares; one that gets no turn in time is refused,
whatever `failure` says, and no sign of a fault.
"""

import asyncio
import hashlib
import inspect
import logging
import math
import secrets
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, suppress
from importlib import metadata
from typing import Any, Protocol

import aiohttp
import msgspec
from msgspec import UNSET, Struct, UnsetType

from config.access import BreakerSettings
from config.hooks import HOOK_VARIABLES, HookPoint, HookSettings
from config.settings import Settings
from config.user_modules import load_function
from gateway.http_client.webhooks import key_of, operator_session, request_answer
from gateway.middleware.circuit_breaker import Circuit
from registry.database.fair_limiter import FairLimiter
from schemas.cel_expressions import Expression, compile_expression
from schemas.errors import ToolgateError
from schemas.globs import ToolGlobs
from schemas.jsonrpc import encode
from schemas.memo import Memo
from schemas.tool import Tool

log = logging.getLogger("toolgate.hooks")

GROUP = "toolgate.hooks"  # of entry points
VERSION_CHARACTERS = 40
ANSWER_BYTES = 4 << 20  # of endpoints
CALLERS = 1000  # and tenants, with a circuit of their own
ANSWERS: Mapping[HookPoint, frozenset[str]] = {  # members that change something, by point
    "identity": frozenset({"roles", "attributes"}),
    "list": frozenset({"hide"}),
    "before": frozenset({"arguments", "headers", "answer"}),
    "after": frozenset({"result"}),
    "credential": frozenset({"headers"}),
    "audit": frozenset(),
}
Event = Mapping[str, Any]
Caller = tuple[str, str]
"""Tenant and principal."""
NO_CALLER: Caller = ("", "")


class HookResult(
    Struct, frozen=True, forbid_unknown_fields=True, rename="camel", omit_defaults=True
):
    """The result of a tool, as a hook gets and gives it."""

    content: list[dict[str, Any]] = []
    structured_content: Any = UNSET
    is_error: bool = False
    meta: dict[str, Any] | UnsetType = msgspec.field(default=UNSET, name="_meta")


class HookAnswer(Struct, frozen=True, forbid_unknown_fields=True):
    """The answer of a hook; which members it may have depends on its point."""

    refuse: str | None = None
    roles: tuple[str, ...] | UnsetType = UNSET
    attributes: dict[str, Any] | UnsetType = UNSET
    hide: frozenset[str] | UnsetType = UNSET
    arguments: dict[str, Any] | UnsetType = UNSET
    headers: dict[str, str] | UnsetType = UNSET
    answer: HookResult | UnsetType = UNSET
    result: HookResult | UnsetType = UNSET
    version: str = ""

    @property
    def changes(self) -> frozenset[str]:
        """Names of the members by which it changes something."""
        return frozenset(
            name
            for name in self.__struct_fields__
            if name not in ("refuse", "version", "failure") and getattr(self, name) is not UNSET
        )


class FailedAnswer(HookAnswer, frozen=True, kw_only=True):
    """The answer in place of one that failed, where failures pass."""

    failure: str


PASS = HookAnswer()
Check = Callable[[HookAnswer], None]


class HookFailed(ToolgateError):
    """A hook that gave no answer that counts."""


class HookBusy(HookFailed):
    """A hook at which a caller got no turn in time."""


class HookCode(Protocol):
    """The code behind a hook. `blocks`: `run` goes on when it is cancelled, in its thread."""

    version: str
    blocks: bool

    async def run(self, event: Event) -> Any:
        """The answer, decoded; None: nothing to say. Raises anything."""

    async def close(self) -> None:
        """Release what `run` has opened, and opens again."""


class PythonHook:
    """A function: `module:function`, or an entry point that the settings name."""

    def __init__(self, name: str, target: str, concurrency: int) -> None:
        """Raises ToolgateError."""
        self._function, self.version = _load(name, target)
        self.blocks = not inspect.iscoroutinefunction(self._function)
        self._name, self._concurrency = name, concurrency
        self._threads: ThreadPoolExecutor | None = None

    async def run(self, event: Event) -> Any:
        event_copy = msgspec.json.decode(encode(event))  # what it does to its copy changes nothing
        if not self.blocks:
            return await self._function(event_copy)
        if self._threads is None:
            self._threads = ThreadPoolExecutor(self._concurrency, f"hook-{self._name}")
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, self._function, event_copy)

    async def close(self) -> None:
        threads, self._threads = self._threads, None
        if threads is not None:
            threads.shutdown(wait=False, cancel_futures=True)


class HttpHook:
    """An endpoint that gets each event as a signed POST."""

    blocks = False

    def __init__(self, url: str, secret: str, concurrency: int, limit_bytes: int) -> None:
        """Raises ToolgateError for a secret that signs nothing."""
        key_of(secret)
        self.version = ""
        self._url = url
        self._secret = secret
        self._concurrency = concurrency
        self._limit_bytes = limit_bytes
        self._http: aiohttp.ClientSession | None = None

    async def run(self, event: Event) -> Any:
        if self._http is None:
            self._http = operator_session(self._concurrency)
        answer = await request_answer(
            self._http, self._url, str(event["id"]), encode(event),
            secret=self._secret, limit_bytes=self._limit_bytes,
        )  # fmt: skip
        return msgspec.json.decode(answer) if answer else None

    async def close(self) -> None:
        http, self._http = self._http, None
        if http is not None:
            await http.close()


class SharedCircuit(Circuit):
    """A circuit that counts the failures of one member once until those of another follow."""

    __slots__ = ("_failed",)

    def __init__(self, breaker: BreakerSettings) -> None:
        super().__init__(breaker, _no_jitter)
        self._failed: str | None = None  # the last member whose call failed

    def record_of(self, member: str, began: int, failed: bool | None, now: float) -> None:
        repeats = failed and member == self._failed and self.state == "closed"
        self.record(began, None if repeats else failed, now)
        if failed:
            self._failed = member


class HookCircuits:
    """Circuits of all calls, of each tenant and of each caller: a caller who makes a hook fail
    opens its own alone, and callers of one tenant that of their tenant."""

    def __init__(self, breaker: BreakerSettings) -> None:
        self._breaker = breaker
        self._of_all = SharedCircuit(breaker)
        self._of_tenants: Memo[str, SharedCircuit] = Memo(CALLERS)
        self._own: Memo[Caller, Circuit] = Memo(CALLERS)

    def admit(self, caller: Caller, now: float) -> Sequence[int] | None:
        """The rounds of an admitted call; None when it is rejected."""
        began: list[int] = []
        for circuit in self._circuits(caller):
            number = circuit.admit(now)
            if number is None:
                self.record(caller, began, None, now)
                return None
            began.append(number)
        return began

    def record(self, caller: Caller, began: Sequence[int], failed: bool | None, now: float) -> None:
        circuits = self._circuits(caller)
        for number, circuit, member in zip(began, circuits, (*caller, ""), strict=False):
            if isinstance(circuit, SharedCircuit):
                circuit.record_of(member, number, failed, now)
            else:
                circuit.record(number, failed, now)

    def _circuits(self, caller: Caller) -> tuple[SharedCircuit, SharedCircuit, Circuit]:
        tenant, breaker = caller[0], self._breaker
        of_tenant = self._of_tenants.use(tenant)
        caller_circuit = self._own.use(caller)
        return (
            self._of_all,
            of_tenant or self._of_tenants.put(tenant, SharedCircuit(breaker)),
            caller_circuit or self._own.put(caller, Circuit(breaker, _no_jitter)),
        )


class Hook:
    def __init__(
        self, name: str, settings: HookSettings, breaker: BreakerSettings, steps: int
    ) -> None:
        """`steps`: most that `when` may take. Raises ToolgateError."""
        self.name = name
        self.settings = settings
        self.outcomes: Counter[str] = Counter()
        self.tools = ToolGlobs(settings.tools)
        self.when: Expression | None = None
        if settings.when:
            self.when = compile_expression(settings.when, HOOK_VARIABLES, steps)
        self.code: HookCode
        if settings.use:
            self.code = PythonHook(name, settings.use, settings.concurrency)
        else:
            self.code = HttpHook(
                settings.url, settings.secret or "", settings.concurrency, ANSWER_BYTES
            )
        most = settings.concurrency
        self._turns = FairLimiter(
            most,
            of_tenant=max(1, math.ceil(most * settings.tenant_share)),
            of_owner=max(1, math.ceil(most * settings.caller_share)),
        )
        self._asked = 0  # at present
        self._is_replaced = False
        self._circuits = HookCircuits(breaker) if breaker.enabled else None

    def concerns(self, tool: Tool) -> bool:
        names = (tool.name, *tool.aliases)
        return not self.tools or self.tools.match(names, tool.tags, tool.domain)

    async def ask(self, event: Event, check: Check | None = None) -> HookAnswer:
        """The answer to an event, which gets an id, the time, and the name and point of the hook.
        `check` raises HookFailed for an answer that is of no use. Raises HookFailed, unless
        failures pass, and HookBusy."""
        try:
            answer = await self._ask(event)
            if check is not None and answer.refuse is None:
                check(answer)
        except HookBusy:
            self.outcomes["busy"] += 1
            raise
        except HookFailed as error:
            passes = self.settings.failure == "pass"
            self.outcomes["passed" if passes else "failed"] += 1
            log.warning("hook_failed", extra={"hook": self.name, "reason": str(error)})
            if passes:
                return FailedAnswer(failure=str(error))
            raise
        outcome = "refused" if answer.refuse is not None else "ok"
        self.outcomes["changed" if answer.changes else outcome] += 1
        return answer

    async def retire(self) -> None:
        """Release what is open, behind the calls that still ask a hook which a reload replaced."""
        self._is_replaced = True
        if not self._asked:
            await self.code.close()

    async def _ask(self, event: Event) -> HookAnswer:
        circuits, caller = self._circuits, NO_CALLER
        if self.settings.at != "audit":  # one task delivers all records
            caller = (str(event["tenant"]), str(event["principal"]))
        began: Sequence[int] | None = (
            () if circuits is None else circuits.admit(caller, time.monotonic())
        )
        if began is None:
            raise HookFailed("it failed too often, and is not asked for a while")
        failed: bool | None = None
        self._asked += 1
        try:
            async with AsyncExitStack() as place:
                await self._wait_for_turn(event, place)
                answer = await self._run(event, place)
            failed = False
        except HookBusy:  # which says nothing about the hook
            raise
        except HookFailed:
            failed = True
            raise
        finally:
            self._asked -= 1
            if circuits is not None:
                circuits.record(caller, began, failed, time.monotonic())
            if self._is_replaced:
                await self.retire()
        return answer

    async def _wait_for_turn(self, event: Event, place: AsyncExitStack) -> None:
        """Enter `place`. Raises HookBusy."""
        settings = self.settings
        try:
            async with asyncio.timeout(settings.timeout_s):
                turn = self._turns.turn(str(event["tenant"]), str(event["principal"]))
                await place.enter_async_context(turn)
        except TimeoutError as error:
            raise HookBusy(f"no turn within {settings.timeout_s:g} s") from error

    async def _run(self, event: Event, place: AsyncExitStack) -> HookAnswer:
        """The answer of the code, which keeps its place where it goes on behind the deadline."""
        settings = self.settings
        full_event = {
            "v": 1, "id": f"hook_{secrets.token_urlsafe(12)}", "time": round(time.time(), 3),
            "at": settings.at, "hook": self.name, **event,
        }  # fmt: skip
        try:
            async with asyncio.timeout(settings.timeout_s):
                reply = await self._start(full_event, place)
            answer = PASS if reply is None else msgspec.convert(reply, HookAnswer)
        except TimeoutError as error:
            raise HookFailed(f"no answer within {settings.timeout_s:g} s") from error
        except ToolgateError as error:
            raise HookFailed(f"it {error}") from error
        except Exception as error:  # code of the operator
            raise HookFailed(f"{type(error).__name__} in it, or in its answer") from error
        if wrong := sorted(answer.changes - ANSWERS[settings.at]):
            raise HookFailed(f"its answer has {wrong[0]}, which a hook at {settings.at} cannot")
        if answer.changes and not settings.changes:
            raise HookFailed("it wants to change something, and has no changes: true")
        return answer

    def _start(self, event: Event, place: AsyncExitStack) -> Awaitable[Any]:
        if not self.code.blocks:
            return self.code.run(event)
        running = asyncio.ensure_future(_run_at(place.pop_all(), self.code.run(event)))
        running.add_done_callback(_take_error)
        return asyncio.shield(running)


async def _run_at(place: AsyncExitStack, answer: Awaitable[Any]) -> Any:
    async with place:
        return await answer


def _take_error(running: "asyncio.Future[Any]") -> None:
    """Of an answer that nobody waits for any more: asyncio would log it."""
    if not running.cancelled():
        running.exception()


class Hooks:
    """The hooks of the settings, loaded."""

    def __init__(self, settings: Settings, before: "Hooks | None" = None) -> None:
        """Unchanged ones of `before` stay, with what they have counted. Raises ToolgateError."""
        breaker, steps = settings.breaker, settings.guardrails.expression_steps
        earlier: Sequence[Hook] = () if before is None else before.all
        same = {
            hook.name: hook for hook in earlier if hook.settings == settings.hooks.get(hook.name)
        }
        self.all: Sequence[Hook] = [
            same.get(name) or Hook(name, hook, breaker, steps)
            for name, hook in settings.hooks.items()
        ]
        self._replaced = [hook for hook in earlier if hook not in self.all]

    def at(self, point: HookPoint) -> Sequence[Hook]:
        """The hooks of a point, in the order in which they are asked."""
        hooks = (hook for hook in self.all if hook.settings.at == point)
        return sorted(hooks, key=lambda hook: (hook.settings.order, hook.name))

    async def retire_replaced(self) -> None:
        """Release the hooks that these replace: those that calls still ask, behind them."""
        for hook in self._replaced:
            await hook.retire()
        self._replaced = []

    async def close(self) -> None:
        for hook in self.all:
            await hook.code.close()


def _load(name: str, target: str) -> tuple[Callable[[Any], Awaitable[Any] | Any], str]:
    """The function of a hook, and its version: of its distribution or module, or a digest of its
    source. Raises ToolgateError."""
    setting = f"hooks.{name}.use"
    if ":" in target:
        function = load_function(target, setting)
        return function, _version_of(inspect.getmodule(function))
    entries = metadata.entry_points(group=GROUP, name=target)
    if not entries:
        hook_names = ", ".join(sorted(metadata.entry_points(group=GROUP).names)) or "none"
        raise ToolgateError(
            f"{setting}: no installed package has the hook {target}; known: {hook_names}"
        )
    entry = next(iter(entries))
    function = load_function(entry.value, setting)
    return function, entry.dist.version if entry.dist else ""


def _version_of(module: Any) -> str:
    version = getattr(module, "__version__", "")
    if isinstance(version, str) and version:
        return version[:VERSION_CHARACTERS]
    with suppress(OSError, TypeError):
        return hashlib.sha256(inspect.getsource(module).encode()).hexdigest()[:12]
    return ""


def _no_jitter() -> float:
    return 1.0
