"""Answers that a program has had, so that it can go on behind a pause without asking again.

A program that gets the same answers in the same order asks the same. Therefore recorded answers are
handed on in their order, and calls that have none wait until all of them are.
"""

import hashlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import anyio
import msgspec
from msgspec import Struct

from gateway.sandbox.program import NO_ANSWER, AskRefused
from schemas.errors import ToolgateError

QUIET_S = 0.05  # without a further request, behind which a program waits for held calls alone

Ask = Callable[[str, Mapping[str, Any]], Awaitable[Any]]


class Answered(Struct, frozen=True, array_like=True):
    """A request of the program by its number, and the answer: a value as JSON, or an error."""

    number: int
    digest: bytes
    value: bytes = b""
    error: Mapping[str, Any] | None = None


class PendingCall(Struct, frozen=True):
    """A call that waits for the approval of a person, until `expires` (RFC 3339)."""

    tool: str
    arguments: Mapping[str, Any]
    approval: str
    expires: str


class HeldCall(ToolgateError):
    """A call that needs an approval."""

    def __init__(self, message: str, pending: PendingCall) -> None:
        super().__init__(message)
        self.pending = pending


class NotRepeatable(ToolgateError):
    """The program asks for something else than before its pause."""


class Journal:
    def __init__(self, recorded: Sequence[Answered], most_bytes: int) -> None:
        """`most_bytes`: of answers; a run with more does not pause."""
        self._recorded = {answer.number: answer for answer in recorded}
        self._order = [answer.number for answer in recorded]
        self._handed = 0
        self._moved = anyio.Event()
        self._left = most_bytes - sum(map(_size, recorded))
        self._is_held = anyio.Event()
        self._open = 0  # live requests without an answer
        self._begun = 0
        self.answers = list(recorded)
        self.held: list[PendingCall] = []

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

    async def _repeat(self, recorded: Answered, digest: bytes) -> Any:
        if recorded.digest != digest:
            raise NotRepeatable("it asks for something else than before its pause")
        while self._order[self._handed] != recorded.number:
            await self._moved.wait()
        self._handed += 1
        self._moved.set()
        self._moved = anyio.Event()
        if recorded.error is not None:
            raise AskRefused(**recorded.error)
        return msgspec.Raw(recorded.value)

    async def _ask(self, ask: Ask, do: str, members: Mapping[str, Any], digest: bytes) -> Any:
        number = members["ask"]
        self._open += 1
        self._begun += 1
        try:
            encoded = msgspec.json.encode(await ask(do, members))
        except HeldCall as held:
            if self._left >= 0:
                self.held.append(held.pending)
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
        self._record(Answered(number, digest, encoded))
        return msgspec.Raw(encoded)

    async def pause(self) -> None:
        """Returns once calls are held, and the program waits for nothing else."""
        await self._is_held.wait()
        begun = -1
        while self._open or begun != self._begun:
            begun = self._begun
            await anyio.sleep(QUIET_S)

    def _record(self, answer: Answered) -> None:
        self._left -= _size(answer)
        self.answers.append(answer)


def _size(answer: Answered) -> int:
    return len(answer.value) + 200


def _digest(members: Mapping[str, Any]) -> bytes:
    return hashlib.sha256(msgspec.json.encode(members, order="deterministic")).digest()
