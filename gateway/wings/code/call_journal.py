"""Calls that a program has begun, and answers that it has had: it goes on behind a pause, or in
another process, without making a call twice.

A program that gets the same answers in the same order asks the same. Therefore recorded answers
are handed on in their order, and calls that have none wait until all of them are. A call that may
change something is recorded before it is made, with all answers before it.
"""

import hashlib
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import anyio
import msgspec
from msgspec import Raw, Struct

from gateway.context import Hold
from gateway.sandbox.program_process import NO_ANSWER, AskRefused
from registry.access.approvals import ApprovalRequest
from schemas.errors import ToolgateError

QUIET_S = 0.05  # without a further request, behind which a program waits for held calls alone
UNKNOWN = (
    "The run was interrupted while it made this call: nobody knows whether it was carried out."
)

Ask = Callable[[str, Mapping[str, Any]], Awaitable[Any]]


class CallView(Struct, frozen=True):
    """A call that a program made. `ok`: it did not fail."""

    seq: int
    tool: str
    ok: bool
    writes: bool
    ms: int


class Answered(Struct, frozen=True, array_like=True):
    """A request of the program by its number, and the answer: a value as JSON, or an error."""

    number: int
    digest: bytes
    value: bytes = b""
    error: Mapping[str, Any] | None = None


class Begun(Struct, frozen=True, array_like=True):
    """A call that may change something, before it is made. `repeatable`: it may be made again."""

    number: int
    digest: bytes
    tool: str
    repeatable: bool


class Steps(Struct, array_like=True):
    """Steps of a run. `held`: numbers of calls that were begun, and need an approval; `sources`:
    that the run has read; `is_cut`: there are more, which are not stored."""

    answers: list[Answered] = []
    begun: list[Begun] = []
    held: list[int] = []
    calls: list[CallView] = []
    sources: list[str] = []
    is_cut: bool = False

    def add(self, steps: "Steps") -> None:
        """Append later ones."""
        for name in ("answers", "begun", "held", "calls", "sources"):
            getattr(self, name).extend(getattr(steps, name))
        self.is_cut = self.is_cut or steps.is_cut


class HeldCall(ToolgateError):
    """A call that needs an approval."""

    def __init__(self, hold: Hold, arguments: Mapping[str, Any]) -> None:
        self.request: ApprovalRequest = hold.request
        super().__init__(f"{self.request.tool} needs an approval for these arguments.")
        self.arguments, self.hold = arguments, hold


class NotRepeatable(ToolgateError):
    """The program asks for something else than before its pause."""


class Journal:
    def __init__(
        self, past: Steps, most_bytes: int, save: Callable[[Steps], Awaitable[None]] | None
    ) -> None:
        """`most_bytes`: of answers; a run with more neither pauses nor goes on in another process.
        `save` stores further steps; None: none are stored before the run pauses."""
        self.past = past
        self.unsaved = Steps()
        self._save = save
        self._saving = anyio.Lock()
        self._left = most_bytes - sum(map(_size, past.answers))
        self._digests: dict[int, bytes] = {}  # of requests that wait for their answer
        self.open()

    def open(self) -> None:
        """Begin, also again in a new process, with the steps so far."""
        answers = [*self.past.answers, *self.unsaved.answers]
        self._recorded = {answer.number: answer for answer in answers}
        self._order = list(self._recorded)
        begun = [*self.past.begun, *self.unsaved.begun]
        open_ = Counter(call.number for call in begun)
        open_.subtract([*self.past.held, *self.unsaved.held])
        self._repeats = {
            call.number: call
            for call in begun
            if call.number not in self._recorded and open_[call.number] > 0
        }
        self._handed = 0
        self._moved = anyio.Event()
        self._is_held = anyio.Event()
        self._open = 0  # live requests without an answer
        self._begun = 0
        self.held: dict[int, HeldCall] = {}

    @property
    def calls(self) -> list[CallView]:
        return [*self.past.calls, *self.unsaved.calls]

    @property
    def sources(self) -> list[str]:
        return sorted({*self.past.sources, *self.unsaved.sources})

    def add_source(self, source: str) -> None:
        if source not in self.past.sources and source not in self.unsaved.sources:
            self.unsaved.sources.append(source)

    def over(self, ask: Ask) -> Ask:
        """Requests that are answered from the journal as far as it goes, then by `ask`."""

        async def answer(do: str, members: Mapping[str, Any]) -> Any:
            number = members["ask"]
            digest = _digest(members)
            recorded = self._recorded.get(number)
            if recorded is not None:
                return await self._repeat(recorded, digest)
            while self._handed < len(self._order):
                await self._moved.wait()
            return await self._ask(ask, do, members, digest)

        return answer

    async def _repeat(self, answer: Answered, digest: bytes) -> Any:
        _check_same(answer, digest)
        while self._order[self._handed] != answer.number:
            await self._moved.wait()
        self._handed += 1
        self._moved.set()
        self._moved = anyio.Event()
        if answer.error is not None:
            raise AskRefused(**answer.error)
        return Raw(answer.value)

    async def _ask(self, ask: Ask, do: str, members: Mapping[str, Any], digest: bytes) -> Any:
        number = members["ask"]
        self._open += 1
        self._begun += 1
        self._digests[number] = digest
        try:
            self._check_repeat(number, digest)
            encoded = msgspec.json.encode(await ask(do, members))
        except HeldCall as held:
            if self._left >= 0:
                self.held[number] = held
                self.unsaved.held.append(number)
                self._is_held.set()
                return NO_ANSWER
            refused = AskRefused("ApprovalNeeded", str(held))
            self._record(Answered(number, digest, error=refused.members))
            raise refused from held
        except AskRefused as refused:
            self._record(Answered(number, digest, error=refused.members))
            raise
        finally:
            self._open -= 1
            del self._digests[number]
        self._record(Answered(number, digest, encoded))
        return Raw(encoded)

    def _check_repeat(self, number: int, digest: bytes) -> None:
        """Raises AskRefused for a call that was begun before, and may not be made again."""
        begun = self._repeats.get(number)
        if begun is None:
            return
        _check_same(begun, digest)
        if not begun.repeatable:
            self.unsaved.calls.append(CallView(number, begun.tool, ok=False, writes=True, ms=0))
            raise AskRefused("OutcomeUnknown", UNKNOWN)

    async def begin(self, number: int, tool: str, *, repeatable: bool) -> None:
        """Store that a call which may change something is made now, with the steps before it; those
        of calls at the same time are stored together. Raises what `save` does."""
        if number in self._repeats:
            return
        begun = Begun(number, self._digests[number], tool, repeatable)
        self.unsaved.begun.append(begun)
        if self._save is None:
            return
        async with self._saving:
            if begun in self.unsaved.begun:
                await self.save(self._save)

    async def save(self, save: Callable[[Steps], Awaitable[None]]) -> None:
        """Store the steps that are not."""
        steps, self.unsaved = self.unsaved, Steps()
        cut = Steps([], steps.begun, steps.held, steps.calls, steps.sources, is_cut=True)
        try:
            await save(steps if self._left >= 0 else cut)
        except BaseException:
            steps.add(self.unsaved)
            self.unsaved = steps
            raise
        self.past.add(steps)

    async def pause(self) -> None:
        """Returns once calls are held, and the program waits for nothing else."""
        await self._is_held.wait()
        begun = -1
        while self._open or begun != self._begun:
            begun = self._begun
            await anyio.sleep(QUIET_S)

    def _record(self, answer: Answered) -> None:
        self._left -= _size(answer)
        self.unsaved.answers.append(answer)


def _check_same(entry: Answered | Begun, digest: bytes) -> None:
    """Raises NotRepeatable."""
    if entry.digest != digest:
        raise NotRepeatable("it asks for something else than before its pause")


def _size(answer: Answered) -> int:
    return len(answer.value) + 200


def _digest(members: Mapping[str, Any]) -> bytes:
    return hashlib.sha256(msgspec.json.encode(members, order="deterministic")).digest()
