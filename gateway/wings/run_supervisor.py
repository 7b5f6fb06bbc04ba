"""Supervisor of the leased runs of a wing in this process: start, take over, renew leases, cancel,
release.

A process that dies leaves its runs to the others, once their leases are over. Places are shared by
tenants and owners, so that the many runs of one do not hold up those of another.
"""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

import anyio
from anyio.abc import TaskGroup
from msgspec.structs import replace

from gateway.context import NO_CALL_HEADERS, Context, new_request_id
from gateway.operations.problems import ProblemDetails
from gateway.operations.stored_callers import current_caller, later_context, read_caller
from gateway.wings.interface import WingParts
from registry.database.fair_limiter import FairLimiter
from registry.database.leases import LeasedRow, LeasedRows, LeaseLost
from registry.database.postgres import AWAY
from schemas.errors import Unavailable

log = logging.getLogger("toolgate.wings")

PRUNE_S = 600.0  # interval of deleting old runs


class LeasedRun(LeasedRow, Protocol):
    """A row of a run. `caller` is JSON, without a token; None: a job goes on with the run."""

    @property
    def tenant(self) -> str: ...
    @property
    def id(self) -> str: ...
    @property
    def owner(self) -> str: ...
    @property
    def caller(self) -> str | bytes | None: ...


Row = TypeVar("Row", bound=LeasedRun)


@dataclass(eq=False)
class HeldRun(Generic[Row]):
    """A run in this process. `context` is that of the request that began it, if that was here."""

    row: Row
    place: ExitStack = field(default_factory=ExitStack)
    context: Context | None = None
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    is_cancelled: bool = False  # by its owner
    ended: anyio.Event = field(default_factory=anyio.Event)

    def cancel(self) -> None:
        self.is_cancelled = True
        self.scope.cancel()


@dataclass(eq=False)
class PendingClaim:
    """A run that this process takes up just now: its cancellation may be stored too late for the
    row that the claim returns."""

    id: str
    is_cancelled: bool = False  # by its owner


class RunSupervisor(ABC, Generic[Row]):
    def __init__(
        self,
        wing: str,
        parts: WingParts,
        rows: LeasedRows[Row],
        places: FairLimiter,
        *,
        renew_s: float,
    ) -> None:
        self.parts = parts
        self._wing = wing
        self._rows = rows
        self._places = places
        self._renew_s = renew_s
        self._held: dict[str, HeldRun[Row]] = {}
        self._claims: set[PendingClaim] = set()
        self._is_crowded = False  # whether runs wait for a place, which new ones do not overtake
        self._group: TaskGroup | None = None

    @abstractmethod
    async def work(self, active: HeldRun[Row]) -> None:
        """Work on a run until it has ended or waits; it is cancelled by its scope. Raises LeaseLost
        and psycopg.OperationalError."""

    @abstractmethod
    async def fail(self, row: Row) -> None:
        """Store that a run has ended by a defect. Raises LeaseLost and psycopg.OperationalError."""

    @abstractmethod
    async def prune(self) -> None:
        """Delete old runs. Raises psycopg.OperationalError."""

    @property
    def count(self) -> int:
        return len(self._held)

    @contextmanager
    def take_place(
        self, tenant: str, owner: str, *, waited: bool = False
    ) -> Iterator[ExitStack | None]:
        """A place for a run of `owner`, given back at the end unless it moved out of the stack;
        None: there is none now, or others wait for it."""
        is_blocked = self._group is None or (self._is_crowded and not waited)
        if is_blocked or not self._places.take(tenant, owner):
            yield None
            return
        with ExitStack() as place:
            place.callback(self._places.release, tenant, owner)
            yield place

    async def claim(
        self, tenant: str, id_: str, place: ExitStack, context: Context | None = None
    ) -> None:
        """Work on a run if it is due, and no other process was faster."""
        self._claims.add(claim := PendingClaim(id_))
        try:
            row = await self._rows.claim(tenant, id_)
        finally:
            self._claims.remove(claim)
        if row is not None:
            self.start(row, place, context)
            if claim.is_cancelled:
                self.cancel_here(id_)

    def start(self, row: Row, place: ExitStack, context: Context | None = None) -> None:
        """Work on a run that this process has claimed."""
        if self._group is None:
            return  # it is due once its lease is over
        if context is not None:  # the run may outlive its request
            context = replace(context, session=None, peer=None, note=None)
        self._held[row.id] = active = HeldRun(row, place.pop_all(), context)
        self._group.start_soon(self._work, active)

    @contextmanager
    def hold(self, active: HeldRun[Row]) -> Iterator[None]:
        """Renew the lease of a run within, and end it when its owner wants it."""
        self._held[active.row.id] = active
        try:
            yield
        finally:
            active.place.close()
            if self._held.get(active.row.id) is active:  # else it was claimed anew
                del self._held[active.row.id]
            active.ended.set()

    def cancel_here(self, id_: str) -> bool:
        """Whether the run was in this process, which now ends it."""
        claims = [claim for claim in self._claims if claim.id == id_]
        for claim in claims:
            claim.is_cancelled = True
        if (active := self._held.get(id_)) is not None:
            active.cancel()
        return active is not None or bool(claims)

    def is_cancelled(self, id_: str) -> bool:
        active = self._held.get(id_)
        return active is not None and active.is_cancelled

    async def wait_here(self, id_: str) -> None:
        """Wait until this process lets a run go; else for `poll_s`."""
        active = self._held.get(id_)
        with anyio.move_on_after(self.parts.settings.poll_s):
            await (active.ended.wait() if active is not None else anyio.sleep_forever())

    async def context_of(self, active: HeldRun[Row]) -> Context:
        """The context of the run's calls: its caller's. Where the run was taken up, that has no
        token, and what its credential still permits. Raises ProblemDetails if that was revoked."""
        if active.context is not None:
            return replace(active.context, request_id=new_request_id())
        stored = read_caller(active.row.caller or b"")
        principal = await current_caller(self.parts.pool, stored.principal)
        return later_context(
            stored, principal, request_id=new_request_id(), headers=NO_CALL_HEADERS
        )

    async def run(self) -> None:
        """Take up runs that no process has, and renew the leases of ours, until cancelled."""
        settings = self.parts.settings
        async with anyio.create_task_group() as group:
            self._group = group
            try:
                group.start_soon(self._repeat, self._renew, self._renew_s)
                group.start_soon(self._repeat, self._end_revoked, settings.lease_s)
                group.start_soon(self._repeat, self.prune, PRUNE_S)
                await self._repeat(self.take_up, settings.poll_s)
            finally:
                self._group = None

    async def _repeat(self, action: Callable[[], Awaitable[None]], every_s: float) -> None:
        while True:
            with suppress(Unavailable, *AWAY):
                await action()
            await anyio.sleep(every_s)

    async def take_up(self) -> None:
        """Take up runs that are due, as far as there are places."""
        places, is_crowded = self._places, False
        due = await self._rows.due(
            places.free + 1,
            places.places_by_owner,
            of_tenant=places.of_tenant,
            of_owner=places.of_owner,
        )
        for tenant, id_, owner in due:
            with self.take_place(tenant, owner, waited=True) as place:
                if place is None:
                    is_crowded = True
                elif id_ not in self._held:
                    await self.claim(tenant, id_, place)
        self._is_crowded = is_crowded

    async def _work(self, active: HeldRun[Row]) -> None:
        row = active.row
        facts = {"wing": self._wing, "run": row.id}
        with self.hold(active):
            try:
                await self.work(active)
            except LeaseLost:
                log.warning("run_lease_lost", extra=facts)
            except AWAY as error:  # a process takes it up again when the database is back
                log.warning("run_released", extra={**facts, "reason": type(error).__name__})
            except asyncio.CancelledError:
                with anyio.CancelScope(shield=True), suppress(*AWAY):
                    await self._rows.release(row)
                raise
            except Exception:  # or the run would stop this process, and then each that takes it up
                log.exception("run_failed", extra=facts)
                with suppress(LeaseLost, *AWAY):
                    await self.fail(row)

    async def _renew(self) -> None:
        runs = [active for active in self._held.values() if active.row.claim is not None]
        ours = await self._rows.renew(active.row for active in runs) if runs else {}
        for active in runs:
            if ours.get(active.row.id, False):
                active.cancel()
            elif active.row.id not in ours:
                active.scope.cancel()

    async def _end_revoked(self) -> None:
        """End the runs whose callers' credentials were revoked; jobs are judged at their starts."""
        runs = defaultdict[str | bytes | None, list[HeldRun[Row]]](list)
        for active in self._held.values():
            runs[active.row.caller].append(active)
        for caller, held_runs in runs.items():
            if caller is None:
                continue
            try:
                await current_caller(self.parts.pool, read_caller(caller).principal)
            except ProblemDetails:
                for active in held_runs:
                    active.cancel()
