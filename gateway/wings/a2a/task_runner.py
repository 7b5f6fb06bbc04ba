"""Tasks of agents in this process: begin, answer, cancel, follow, and work on them."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from functools import partial
from uuid import uuid4

import anyio

from config.a2a import A2ASettings
from gateway.context import Context, Identity, Principal
from gateway.interfaces import Log
from gateway.operations.problems import ProblemDetails
from gateway.wings.a2a.task_store import (
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
from gateway.wings.run_streams import Outlook, follow_events, stir, stream_of
from gateway.wings.run_supervisor import HeldRun, RunSupervisor
from registry.access.approvals import Approvals
from registry.database.fair_limiter import FairLimiter
from registry.database.leases import LeaseLost
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

CANCEL_S = 5.0  # that a request waits for the end of a cancelled task


NOBODY = Context(Identity(Principal("", "")), V2025_11_25, "")  # of changes that make no call


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
        self._number = row.number  # of the newest event that `task` has
        self._storing = anyio.Lock()

    @property
    def is_cancelled(self) -> bool:
        """Whether the owner of the task has ended it."""
        return self._runner.is_cancelled(self.row.id)

    @property
    def request(self) -> Message:
        """The message that the task began with."""
        return next(message for message in self.task.history if message.role is Role.USER)

    @property
    def message(self) -> Message:
        """The newest message of the client."""
        return next(message for message in reversed(self.task.history) if message.role is Role.USER)

    @property
    def was_working(self) -> bool:
        """Whether a process that is gone worked on the task: perhaps it has done something."""
        state = self.row.task.status.state
        return self.row.attempt > 1 and state in (TaskState.WORKING, TaskState.INPUT_REQUIRED)

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
        if not await self._runner.tasks.change(self.row, change, self._number):
            raise LeaseLost(self.row.id)

    async def keep_run(self, run: str) -> None:
        """Raises LeaseLost."""
        await self._runner.tasks.keep_run(self.row, run)

    async def wait_for_message(self, after: Message) -> Message:
        """The newest message of the client, once it is another than `after`. Raises LeaseLost."""
        async for _ in self._runner.follow(self.row, self._number):
            async with self._storing:
                await self._reread()
            if self.message != after:
                return self.message
        raise LeaseLost(self.row.id)

    async def _reread(self) -> None:
        """Raises LeaseLost."""
        row = await self._runner.reread_held(self.row)
        self.task, self._number = row.task, row.number

    async def _store(
        self, event: StreamResponse, work: Work = "running", approval: str | None = None
    ) -> None:
        async with self._storing:
            while True:
                task = apply_update(self.task, event)
                change = Change(work=work, task=task, event=event, approval=approval)
                if await self._runner.tasks.change(self.row, change, self._number):
                    break
                await self._reread()  # there is a message of the client
            self.task, self._number = task, self._number + 1
        await self._runner.stir(self.row.id)


Execute = Callable[[TaskWork], Awaitable[None]]
"""Works on a task until it has ended or waits for somebody. Raises Fault."""


class TaskRunner(RunSupervisor[StoredTask]):
    def __init__(self, parts: WingParts, agents: Mapping[str, Execute]) -> None:
        """`agents`: how the agents of the settings work. Raises Unavailable."""
        if parts.log is None:
            raise Unavailable("Agents need a gateway")
        self._log: Log = parts.log
        self.settings: A2ASettings = parts.settings
        self.tasks = A2ATasks(parts.pool, uuid4().hex, self.settings.lease_s)
        self._agents = agents
        places = FairLimiter(
            self.settings.tasks,
            of_tenant=self.settings.tasks_per_tenant,
            of_owner=self.settings.tasks_per_principal,
        )
        super().__init__("a2a", parts, self.tasks, places, renew_s=self.settings.renew_s)

    async def begin(self, context: Context, new: NewTask) -> tuple[StoredTask, bool]:
        """Begin a task, and whether it is new; without room for it here it waits until a process
        has some. Raises UnsupportedOperation where its owner has too many."""
        with self.take_place(context.principal.tenant, new.owner) as place:
            created = await self.tasks.create(
                context.principal.tenant,
                new,
                limit=self.settings.open_tasks,
                repeat_s=self.settings.repeat_s,
                here=place is not None,
            )
            if created is None:
                most = self.settings.open_tasks
                raise UnsupportedOperation(f"You have {most} tasks that have not ended")
            row, is_new = created
            if is_new and place is not None:
                self.start(row, place, context)
        return row, is_new

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
            with self.take_place(row.tenant, row.owner) as place:
                if place is not None:
                    await self.claim(row.tenant, row.id, place, context)
        return await self.reread(row)

    async def cancel(self, row: StoredTask) -> StoredTask:
        """The task, once it has ended, or as it is when the time is over."""
        await self.tasks.ask_to_cancel(row)
        # a process that takes it up cancels its run
        while (row := await self.reread(row)).work not in ("running", "ended") and not row.run:
            event = status_event(row.task, make_status(TaskState.CANCELED))
            change = Change(work="ended", task=apply_update(row.task, event), event=event)
            if await self.tasks.change_idle(row, change):
                if row.approval is not None:
                    await Approvals(self.parts.pool, row.tenant).withdraw([row.approval])
                break
        self.cancel_here(row.id)
        await self.stir(row.id)
        with anyio.move_on_after(CANCEL_S):
            async for _ in self.follow(row, row.number):
                pass
        return await self.reread(row)

    async def reread(self, row: StoredTask) -> StoredTask:
        """Raises LeaseLost for a task that was deleted."""
        current = await self.tasks.get(row.tenant, row.owner, row.agent, row.id)
        if current is None:
            raise LeaseLost(row.id)
        return current

    async def reread_held(self, row: StoredTask) -> StoredTask:
        """Raises LeaseLost for a task that this process does not hold any more."""
        current = await self.reread(row)
        if current.claim != row.claim or current.work != "running":
            raise LeaseLost(row.id)
        return current

    async def stir(self, id_: str) -> None:
        await stir(self._log, stream_of("a2a", id_))

    def follow(
        self, row: StoredTask, after: int
    ) -> AsyncIterator[Sequence[tuple[int, StreamResponse]]]:
        """The events of a task behind a number, up to its end; those that are stored together at
        once."""

        async def read(_is_late: bool) -> tuple[list[tuple[int, StreamResponse]], Outlook]:
            nonlocal after
            with anyio.CancelScope(shield=True):
                current = await self.tasks.get(row.tenant, row.owner, row.agent, row.id)
                events = await self.tasks.events(row.tenant, row.id, after)
            if events:
                after, _ = events[-1]
            if current is None or (current.has_ended and after >= current.number):
                return events, "end"
            return events, "more" if events else "wait"

        watch = partial(self._log.watch, stream_of("a2a", row.id))
        return follow_events(watch, read, self.settings.poll_s)

    async def wait_until_idle(self, row: StoredTask) -> StoredTask:
        """The task, once it has ended or waits for somebody, or as it is when the time is over."""
        with anyio.move_on_after(self.settings.wait_s):
            if not row.has_ended and row.task.status.state not in INTERRUPTED:
                async for events in self.follow(row, row.number):
                    updates = [event.status_update for _, event in events]
                    if any(update and update.status.state in INTERRUPTED for update in updates):
                        break
        return await self.reread(row)

    async def work(self, active: HeldRun[StoredTask]) -> None:
        row = active.row
        with active.scope:
            await self._execute(active)
        if active.is_cancelled and not (await self.reread(row)).has_ended:
            await TaskWork(self, row, NOBODY).status(TaskState.CANCELED)

    async def _execute(self, active: HeldRun[StoredTask]) -> None:
        row, execute = active.row, self._agents.get(active.row.agent)
        if execute is None:
            await self._fail(row, f"The agent {row.agent} is not served any more.")
            return
        try:
            with anyio.CancelScope(shield=True):  # cancelled work cancels the run of its agent
                context = await self.context_of(active)
            work = TaskWork(self, row, context)
            if row.cancel:
                active.cancel()
            await execute(work)
        except Fault as fault:
            await self._fail(row, fault.message)
        except ProblemDetails as problem:
            await self._fail(row, problem.detail)

    async def fail(self, row: StoredTask) -> None:
        await self._fail(row, "Internal error; the gateway's log has the story.")

    async def _fail(self, row: StoredTask, text: str) -> None:
        await TaskWork(self, await self.reread_held(row), NOBODY).status(TaskState.FAILED, text)

    async def prune(self) -> None:
        await self.tasks.prune(self.settings.keep_days)
