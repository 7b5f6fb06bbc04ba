"""Hooks of the operator in access control: of identities, records, lists and calls."""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

from config.hooks import HookPoint
from config.settings import Settings
from gateway.audit.records import AuditEntry
from gateway.context import Identify
from gateway.interfaces import Guard, Middleware
from gateway.protocol.sealed_state import Sealer
from schemas.errors import ToolgateError

if TYPE_CHECKING:  # a gateway without hooks does not import them
    from gateway.middleware.hooks.configured_hook import Hook, Hooks
    from gateway.middleware.hooks.identity_and_list_hooks import AuditHooks, IdentityHooks, Outcome


class AccessHooks(Collector):
    def __init__(self, settings: Settings, sealer: Callable[[], Awaitable[Sealer]]) -> None:
        """Hooks and counts of their answers. `sealer`: of what hooks decided for a call that its
        client goes on with. Raises ToolgateError for hooks that cannot be loaded."""
        self._sealer = sealer
        self._rounds_s = settings.mcp.parked_s
        # points that have listeners, from the start on; None: it has not begun
        self._begun: frozenset[str] | None = None
        self._hooks: Hooks | None = None
        self._hooks = self.load(settings)
        self._begun = frozenset(hook.at for hook in settings.hooks.values())
        self._of_identities = self._identity_hooks()
        self._of_records = self._audit_hooks()

    def load(self, settings: Settings) -> "Hooks | None":
        """The hooks of settings; None: there are none. Raises ToolgateError."""
        if not settings.hooks and self._hooks is None:
            return None
        for name, hook in settings.hooks.items():
            if self._begun is not None and hook.at in {"identity", "audit"} - self._begun:
                text = "needs a restart: the gateway began without a hook there"
                raise ToolgateError(f"hooks.{name}.at: {hook.at} {text}")
        from gateway.middleware.hooks.configured_hook import Hooks

        return Hooks(settings, self._hooks)

    def replace(self, hooks: "Hooks | None") -> None:
        """Use other hooks for new requests."""
        self._hooks = hooks

    @property
    def copy_record(self) -> Callable[[AuditEntry], None] | None:
        """Hands each record to the hooks of the audit log; None: there are none."""
        return None if self._of_records is None else self._of_records.add

    def identifying(self, identify: Identify) -> Identify:
        hooks = self._of_identities
        return identify if hooks is None else hooks.identifying(identify)

    def asking_later(self, outcome: "Outcome") -> "Outcome":
        """The outcomes of requests of wings, some of which are made when their callers are gone."""
        hooks = self._of_identities
        return outcome if hooks is None else hooks.asking_later(outcome)

    @property
    def middleware(self) -> Sequence[Middleware]:
        """The hooks of lists."""
        if not (hooks := self._at("list")):
            return []
        from gateway.middleware.hooks.identity_and_list_hooks import ListHooks

        return [ListHooks(hooks).middleware]

    def guards(self) -> tuple[Sequence[Guard], Sequence[Guard]]:
        """The hooks of calls: in front of the rules, and next to the services."""
        if self._hooks is None:
            return (), ()
        from gateway.middleware.hooks.call_hooks import AfterHooks, BeforeHooks

        before, at = self._hooks.at("before"), self._hooks.at
        inner = AfterHooks(at("after"), before=before, credential=at("credential"))
        return [BeforeHooks(before, self._sealer, self._rounds_s)], [inner]

    def _at(self, point: HookPoint) -> "Sequence[Hook]":
        return () if self._hooks is None else self._hooks.at(point)

    def _identity_hooks(self) -> "IdentityHooks | None":
        if not self._at("identity"):
            return None
        from gateway.middleware.hooks.identity_and_list_hooks import IdentityHooks

        return IdentityHooks(lambda: self._at("identity"))

    def _audit_hooks(self) -> "AuditHooks | None":
        if not self._at("audit"):
            return None
        from gateway.middleware.hooks.identity_and_list_hooks import AuditHooks

        return AuditHooks(lambda: self._at("audit"))

    async def settle(self) -> None:
        if self._of_records is not None:
            await self._of_records.settle()

    async def close(self) -> None:
        if self._hooks is not None:
            await self._hooks.close()

    def collect(self) -> Iterator[Metric]:
        if self._hooks is None:
            return
        calls = CounterMetricFamily(
            "toolgate_hook_calls",
            "Answers of hooks, by outcome; passed: a failure that passes; busy: there was no turn.",
            labels=("hook", "outcome"),
        )
        for hook in self._hooks.all:
            for outcome, count in hook.outcomes.items():
                calls.add_metric([hook.name, outcome], count)
        yield calls
