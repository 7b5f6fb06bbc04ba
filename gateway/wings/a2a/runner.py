"""Supervisor of the tasks of this process: start, take over, renew leases, cancel, release."""

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from uuid import uuid4

import anyio
from anyio.abc import TaskGroup
from msgspec.structs import replace

from config.a2a import A2ASettings
from gateway.context import NO_CALL_HEADERS, Context, Identity, Principal, new_request_id
from gateway.interfaces import Log
from gateway.operations.problems import ProblemDetails
from gateway.operations.stored_callers import current_caller, later_context, read_caller
from gateway.state.fair_limiter import FairLimiter
from gateway.wings.a2a.store import (
    A2ATasks,
    Change,
    NewTask,
    StoredTask,
    Work,
    make_status,
    status_event,
    with_message,
)
from gateway.wings.interface import WingParts
from registry.database.leases import LeaseLost
from registry.database.postgres import AWAY
from schemas.a2a.errors import UnsupportedOperation
from schemas.a2a.model import (
    INTERRUPTED,
    Artifact,
    Message,
    Part,
    Role,
    StreamResponse,
    Task,
    TaskArtifactUpdate,
    TaskState,
)
from schemas.a2a.updates import apply_update
from schemas.errors import Fault, Unavailable
from schemas.mcp.revisions import V2025_11_25

log = logging.getLogger("toolgate.a2a")

PRUNE_S = 3600.0  # interval of deleting old tasks
CANCEL_S = 5.0  # that a request waits for the end of a cancelled task


NOBODY = Context(Identity(Principal("", "")), V2025_11_25, "")  # of changes that make no call


def _without_session(context: Context) -> Context:
    """The context of a task's calls, which may outlive the request."""
    return replace(context, session=None, peer=None, note=None)


def stream_of(id_: str) -> str:
    return f"a2a:{id_}"


def text_message(task: Task, text: str, *parts: Part) -> Message:
    """A message of the agent about a task."""
    return Message(
        message_id=uuid4().hex,
        role=Role.AGENT,
        parts=(Part(text=text), *parts),
        context_id=task.context_id,
        task_id=task.id,
    )


class TaskWork:
    """A task while this process works on it."""

    def __init__(self, runner: "TaskRunner", row: StoredTask, context: Context) -> None:
        self.row = row
        self.task = row.task
        self.context = context
        self.parts = runner.parts
        self.settings = runner.settings
        self._runner = runner

    @property
    def is_cancelled(self) -> bool:
        """Whether the owner of the task has ended it."""
        return self._runner.is_cancelled(self.row.id)

    @property
    def message(self) -> Message:
        """The newest message of the client."""
        return next(message for message in reversed(self.task.history) if message.role is Role.USER)

    @property
    def was_working(self) -> bool:
        """Whether a process that is gone worked on the task: perhaps it has done something."""
        return self.row.attempt > 1 and self.row.task.status.state is TaskState.WORKING

    async def status(
        self,
        state: TaskState,
        text: str = "",
        *parts: Part,
        work: Work = "running",
        approval: str | None = None,
    ) -> None:
        """Change the state. `work` other than "running" gives the task away. Raises LeaseLost."""
        message = text_message(self.task, text, *parts) if text else None
        event = status_event(self.task, make_status(state, message))
        await self._store(event, work, approval)

    async def artifact(
        self, artifact: Artifact, *, append: bool = False, last: bool = True
    ) -> None:
        """Add an artifact, or a chunk of one. Raises LeaseLost."""
        update = TaskArtifactUpdate(
            task_id=self.task.id,
            context_id=self.task.context_id,
            artifact=artifact,
            append=append,
            last_chunk=last,
        )
        await self._store(StreamResponse(artifact_update=update))

    async def reply(self, message: Message) -> None:
        """Answer with a message, so that there is no task. Raises LeaseLost."""
        event = StreamResponse(message=message)
        change = Change(work="ended", task=self.task, event=event, reply=message)
        await self._runner.tasks.change(self.row, change)

    async def keep_run(self, run: str) -> None:
        """Raises LeaseLost."""
        await self._runner.tasks.keep_run(self.row, run)

    async def _store(
        self, event: StreamResponse, work: Work = "running", approval: str | None = None
    ) -> None:
        task = apply_update(self.task, event)
        await self._runner.tasks.change(
            self.row, Change(work=work, task=task, event=event, approval=approval)
        )
        self.task = task
        await self._runner.stir(self.row.id)


Execute = Callable[[TaskWork], Awaitable[None]]
"""Works on a task until it has ended or waits for somebody. Raises Fault."""


@dataclass(eq=False)
class HeldTask:
    row: StoredTask
    scope: anyio.CancelScope
    place: ExitStack
    cancelled: bool = False  # by its owner


class TaskRunner:
    def __init__(self, parts: WingParts, agents: Mapping[str, Execute]) -> None:
        """`agents`: how the agents of the settings work. Raises Unavailable."""
        if parts.log is None:
            raise Unavailable("Agents need a gateway")
        self._log: Log = parts.log
        self.parts = parts
        self.settings: A2ASettings = parts.settings
        self.tasks = A2ATasks(parts.pool, uuid4().hex, self.settings.lease_s)
        self._agents = agents
        self._turns = FairLimiter(
            self.settings.tasks,
            of_tenant=self.settings.tasks_per_tenant,
            of_owner=self.settings.tasks_per_principal,
        )
        self._held: dict[str, HeldTask] = {}
        self._is_crowded = False  # whether tasks wait for a place, which new ones do not overtake
        self._contexts: dict[str, Context] = {}  # of callers, of tasks that were begun here
        self._group: TaskGroup | None = None

    async def begin(self, context: Context, new: NewTask) -> tuple[StoredTask, bool]:
        """Begin a task, and whether it is new; without room for it here it waits until a process
        has some. Raises UnsupportedOperation where its owner has too many."""
        with self._take_place(context.principal.tenant, new.owner) as place:
            made = await self.tasks.create(
                context.principal.tenant,
                new,
                limit=self.settings.open_tasks,
                repeat_s=self.settings.repeat_s,
                held=place is not None,
            )
            if made is None:
                most = self.settings.open_tasks
                raise UnsupportedOperation(f"You have {most} tasks that have not ended")
            row, is_new = made
            if is_new and place is not None:
                self._contexts[row.id] = _without_session(context)
                self._start(row, place)
        return row, is_new

    @contextmanager
    def _take_place(
        self, tenant: str, owner: str, *, waited: bool = False
    ) -> Iterator[ExitStack | None]:
        """A place for a task of `owner`, given back at the end unless it moved out of the stack;
        None: there is none now, or others wait for it."""
        is_blocked = self._group is None or (self._is_crowded and not waited)
        if is_blocked or not self._turns.take(tenant, owner):
            yield None
            return
        with ExitStack() as place:
            place.callback(self._turns.release, tenant, owner)
            yield place

    async def answer(self, context: Context, row: StoredTask, message: Message) -> StoredTask:
        """Give a message to a task that asks for one. Raises UnsupportedOperation if it does not,
        or no longer."""
        asks = row.task.status.state is TaskState.INPUT_REQUIRED
        task, event = with_message(row.task, message)
        work: Work = "queued" if row.work == "asking" else row.work
        change = Change(work=work, task=task, event=event)
        if not asks or not await self.tasks.change_idle(row, change):
            state = row.task.status.state.name.lower()
            raise UnsupportedOperation(f"The task takes no message now: it is {state}")
        await self.stir(row.id)
        if work == "queued":
            with self._take_place(row.tenant, row.owner) as place:
                if place is not None and (taken := await self.tasks.claim(row.tenant, row.id)):
                    self._contexts[row.id] = _without_session(context)
                    self._start(taken, place)
        return await self.reread(row)

    async def cancel(self, row: StoredTask) -> StoredTask:
        """The task, once it has ended, or as it is when the time is over."""
        await self.tasks.ask_to_cancel(row)
        # a process that takes it up cancels its run
        while (row := await self.reread(row)).work not in ("running", "ended") and not row.run:
            event = status_event(row.task, make_status(TaskState.CANCELED))
            change = Change(work="ended", task=apply_update(row.task, event), event=event)
            if await self.tasks.change_idle(row, change):
                break
        if (held := self._held.get(row.id)) is not None:
            held.cancelled = True
            held.scope.cancel()
        await self.stir(row.id)
        with anyio.move_on_after(CANCEL_S):
            async for _ in self.follow(row, row.number):
                pass
        return await self.reread(row)

    def is_cancelled(self, id_: str) -> bool:
        held = self._held.get(id_)
        return held is not None and held.cancelled

    async def reread(self, row: StoredTask) -> StoredTask:
        """Raises LeaseLost for a task that was deleted."""
        current = await self.tasks.get(row.tenant, row.owner, row.agent, row.id)
        if current is None:
            raise LeaseLost(row.id)
        return current

    async def stir(self, id_: str) -> None:
        """Make followers at all nodes read the events of a task."""
        with suppress(Fault):  # they look at it now and then
            await self._log.append(stream_of(id_), b"")

    async def follow(
        self, row: StoredTask, after: int
    ) -> AsyncIterator[tuple[int, StreamResponse]]:
        """The events of a task behind a number, up to its end."""
        wake = asyncio.Event()
        with self._log.watch(stream_of(row.id), wake.set):
            while True:
                wake.clear()
                # a reader that leaves within a query would cost the pool a connection
                with anyio.CancelScope(shield=True):
                    current = await self.tasks.get(row.tenant, row.owner, row.agent, row.id)
                    events = await self.tasks.events(row.tenant, row.id, after)
                if current is None:
                    return
                for after, event in events:
                    yield after, event
                if events:
                    continue
                if current.has_ended and after >= current.number:
                    return
                with anyio.move_on_after(self.settings.poll_s):
                    await wake.wait()

    async def wait_until_idle(self, row: StoredTask) -> StoredTask:
        """The task, once it has ended or waits for somebody, or as it is when the time is over."""
        with anyio.move_on_after(self.settings.wait_s):
            if not row.has_ended and row.task.status.state not in INTERRUPTED:
                async for _, event in self.follow(row, row.number):
                    update = event.status_update
                    if update is not None and update.status.state in INTERRUPTED:
                        break
        return await self.reread(row)

    async def run(self) -> None:
        """Take up tasks that no process has, and renew the leases of ours, until cancelled."""
        async with anyio.create_task_group() as group:
            self._group = group
            group.start_soon(self._renew_regularly)
            group.start_soon(self._prune_regularly)
            try:
                while True:
                    with suppress(*AWAY):
                        await self._take_up()
                    await anyio.sleep(self.settings.poll_s)
            finally:
                self._group = None

    async def _take_up(self) -> None:
        is_crowded = False
        held = Counter((task.row.tenant, task.row.owner) for task in self._held.values())
        for tenant, id_, owner in await self.tasks.due(self._turns.free + 1, held, self.settings):
            with self._take_place(tenant, owner, waited=True) as place:
                if place is None:
                    is_crowded = True
                elif id_ not in self._held and (row := await self.tasks.claim(tenant, id_)):
                    self._start(row, place)
        self._is_crowded = is_crowded

    def _start(self, row: StoredTask, place: ExitStack) -> None:
        if self._group is None:
            return  # it is due once its lease is over
        self._held[row.id] = held = HeldTask(row, anyio.CancelScope(), place.pop_all())
        self._group.start_soon(self._work, held)

    async def _work(self, held: HeldTask) -> None:
        """One task in this process."""
        row = held.row
        try:
            with held.scope:
                await self._execute(held)
            if held.cancelled and not (current := await self.reread(row)).has_ended:
                await TaskWork(self, current, NOBODY).status(TaskState.CANCELED)
        except LeaseLost:
            log.warning("a2a_lease_lost", extra={"task": row.id})
        except AWAY as error:  # a process takes it up again when the database is back
            log.warning("a2a_task_released", extra={"task": row.id, "reason": type(error).__name__})
        except asyncio.CancelledError:
            with anyio.CancelScope(shield=True), suppress(*AWAY):
                await self.tasks.release(row)
            raise
        except Exception:  # or the task would stop this process, and then each that takes it up
            log.exception("a2a_task_failed", extra={"task": row.id})
            await self._fail(row, "Internal error; the gateway's log has the story.")
        finally:
            held.place.close()
            self._held.pop(row.id, None)
            self._contexts.pop(row.id, None)  # a token is not held while a task waits

    async def _execute(self, held: HeldTask) -> None:
        row, execute = held.row, self._agents.get(held.row.agent)
        if execute is None:
            await self._fail(row, f"The agent {row.agent} is not served any more.")
            return
        try:
            work = TaskWork(self, row, await self._context(row))
            if row.cancel:
                held.cancelled = True
                held.scope.cancel()
            await execute(work)
        except Fault as fault:
            await self._fail(row, fault.message)
        except ProblemDetails as problem:
            await self._fail(row, problem.detail)

    async def _fail(self, row: StoredTask, text: str) -> None:
        with suppress(LeaseLost, *AWAY):
            await TaskWork(self, await self.reread(row), NOBODY).status(TaskState.FAILED, text)

    async def _context(self, row: StoredTask) -> Context:
        """The context of the task's calls: its caller's. Where the task was taken up, that has no
        token, and what its credential still permits. Raises ProblemDetails if that was revoked."""
        kept = self._contexts.get(row.id)
        if kept is not None:
            return replace(kept, request_id=new_request_id())
        stored = read_caller(row.caller)
        principal = await current_caller(self.parts.pool, stored.principal)
        return later_context(
            stored, principal, request_id=new_request_id(), headers=NO_CALL_HEADERS
        )

    async def _prune_regularly(self) -> None:
        while True:
            with suppress(*AWAY):
                await self.tasks.prune(self.settings.keep_days)
            await anyio.sleep(PRUNE_S)

    async def _renew_regularly(self) -> None:
        while True:
            await anyio.sleep(self.settings.renew_s)
            with suppress(*AWAY):
                await self._renew(list(self._held.values()))

    async def _renew(self, held: list[HeldTask]) -> None:
        ours = await self.tasks.renew([task.row for task in held]) if held else {}
        for task in held:
            task.cancelled = task.cancelled or ours.get(task.row.id, False)
            if task.cancelled or task.row.id not in ours:
                task.scope.cancel()
