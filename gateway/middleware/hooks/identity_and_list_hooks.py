"""Hooks beside calls: about identities, in front of lists of tools, and with records."""

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple

import msgspec
from msgspec import Raw, UnsetType
from msgspec.structs import replace as replace_members

from gateway.audit.records import AuditEntry
from gateway.context import Context, Identify, Identity
from gateway.interfaces import Handler, Route
from gateway.middleware.hooks.call_hooks import describe_principal
from gateway.middleware.hooks.configured_hook import Hook, HookFailed
from schemas.errors import Fault, Forbidden, Unavailable
from schemas.jsonrpc import Request, encode

CACHE_KEY = "hooks"  # in `Principal.prepared`
ATTRIBUTES = "attributes"  # the claim of what hooks know about a caller
SETTLE_S = 5.0  # for records at the end of a process
Listed = Callable[[], Sequence[Hook]]
"""The hooks of now."""
Outcome = Callable[[Context, Request], Awaitable[Any]]
"""The dispatcher's answer, or the Fault of a request."""


class _MadeBy(NamedTuple):
    """The origin of a cached identity."""

    hooks: Sequence[Hook]
    until: float  # monotonic time
    identity: Identity | None


NOTHING = _MadeBy((), 0.0, None)


class IdentityHooks:
    """Adds roles, and the claim `attributes`, to verified callers; principal and tenant stay."""

    def __init__(self, hooks: Listed) -> None:
        self._hooks = hooks

    def identifying(self, identify: Identify) -> Identify:
        async def identify_and_ask(scope: MutableMapping[str, Any]) -> Identity:
            return await self.extend(await identify(scope))

        return identify_and_ask

    def asking_later(self, outcome: Outcome) -> Outcome:
        """Requests by which stored calls go on, with what the hooks say about their callers now."""

        async def ask_and_answer(context: Context, request: Request) -> Any:
            if context.absent:
                identity = await self.extend(context.identity)
                if identity.refusal is not context.identity.refusal:
                    return identity.refusal
                context = replace_members(context, identity=identity)
            return await outcome(context, request)

        return ask_and_answer

    async def extend(self, identity: Identity) -> Identity:
        """The identity with what the hooks say about it, or their refusal."""
        hooks = self._hooks()
        if not hooks or identity.refusal is not None or not identity.verified:
            return identity
        principal = identity.principal
        made_by, cached = principal.prepared.get(CACHE_KEY, (NOTHING, None))
        if made_by.hooks == hooks and time.monotonic() < made_by.until:
            cached_identity: Identity = cached
            if made_by.identity is identity:
                return cached_identity
            return replace(identity, principal=cached_identity.principal)  # another X-Scope-Token
        extended = await self._ask_all(hooks, identity)
        if extended.refusal is None:
            until = time.monotonic() + min(hook.settings.cache_s for hook in hooks)
            principal.prepared[CACHE_KEY] = (_MadeBy(hooks, until, identity), extended)
        return extended

    async def _ask_all(self, hooks: Sequence[Hook], identity: Identity) -> Identity:
        own_roles = identity.principal.roles - identity.principal.hook_roles
        roles = set(own_roles)
        attributes: dict[str, Any] = {}
        for hook in hooks:
            try:
                answer = await hook.ask(describe_principal(hook, identity.principal))
            except HookFailed:
                return _refuse(identity, Unavailable(f"The hook {hook.name!r} failed; try again"))
            if answer.refuse is not None:
                text = f"Refused by the hook {hook.name!r}: {answer.refuse}"
                return _refuse(identity, Forbidden(text))
            roles |= set() if isinstance(answer.roles, UnsetType) else set(answer.roles)
            attributes |= {} if isinstance(answer.attributes, UnsetType) else answer.attributes
        # always set: a claim of that name in a token is no word of a hook
        claims = {**identity.principal.claims, ATTRIBUTES: attributes}
        principal = replace(
            identity.principal,
            roles=frozenset(roles),
            hook_roles=frozenset(roles - own_roles),
            claims=claims,
        )
        return replace(identity, principal=principal)


def _refuse(identity: Identity, fault: Fault) -> Identity:
    return replace(identity, refusal=fault, verified=False)


class ListHooks:
    """Hides tools from `tools/list`; rules hide them from everything."""

    def __init__(self, hooks: Sequence[Hook]) -> None:
        self._hooks = hooks

    def middleware(self, handler: Handler, route: Route) -> Handler:
        if route.method != "tools/list":
            return handler

        async def hide_tools(context: Context, request: Request) -> Any:
            listed = await handler(context, request)
            page = msgspec.json.decode(bytes(listed) if isinstance(listed, Raw) else encode(listed))
            for hook in self._hooks:
                facts = describe_principal(hook, context.principal)
                try:
                    answer = await hook.ask({**facts, "tools": page["tools"]})
                except HookFailed as error:
                    raise Unavailable(f"The hook {hook.name!r} failed; try again") from error
                if answer.refuse is not None:
                    raise Forbidden(f"Refused by the hook {hook.name!r}: {answer.refuse}")
                if not isinstance(answer.hide, UnsetType):
                    hidden = answer.hide
                    page["tools"] = [tool for tool in page["tools"] if tool["name"] not in hidden]
            return Raw(encode(page))

        return hide_tools


class AuditHooks:
    """Gives hooks a copy of each record, in order; neither the log nor another hook waits."""

    def __init__(self, hooks: Listed) -> None:
        self._hooks = hooks
        self._waiting: dict[Hook, deque[AuditEntry]] = {}  # while a task delivers to the hook
        self._tasks: set[asyncio.Task[None]] = set()

    def add(self, entry: AuditEntry) -> None:
        for hook in self._hooks():
            waiting = self._waiting.get(hook)
            if waiting is None:
                self._waiting[hook] = deque([entry])
                task = asyncio.create_task(self._deliver(hook))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
            elif len(waiting) < hook.settings.queue:
                waiting.append(entry)
            else:
                hook.outcomes["dropped"] += 1

    async def _deliver(self, hook: Hook) -> None:
        waiting = self._waiting[hook]
        try:
            while waiting:
                entry = waiting.popleft()
                event = {"tenant": entry.host_id, "principal": entry.principal, "record": entry}
                with suppress(HookFailed):  # counted, and logged
                    await hook.ask(event)
        finally:
            del self._waiting[hook]

    async def settle(self) -> None:
        """Deliver what waits, for a while."""
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=SETTLE_S)
            for task in late:
                task.cancel()
