"""Arguments of the tools that run programs, and their results: the end of a program, its pause, and
the summary of its calls."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from gateway.sandbox.program_process import ProgramLanguage
from gateway.wings.code.call_journal import CallView
from gateway.wings.code.stored_runs import PendingCall, RunEntry

FILES = 100
CALLS_SHOWN = 100

ProgramState = Literal["completed", "failed", "paused", "running"]


class RunProgram(Struct, frozen=True, forbid_unknown_fields=True):
    """A program, or the id of a paused run that goes on. Both tools have these arguments, which the
    description of `run_code` explains once."""

    code: str = ""
    run: str = ""
    cancel: bool = False
    language: ProgramLanguage = "python"
    files: Annotated[tuple[str, ...], Meta(max_length=FILES)] = ()
    time_s: Annotated[float, Meta(ge=0)] = 0  # 0: the gateway's limit
    calls: Annotated[int, Meta(ge=0)] = 0


class RunList(Struct, frozen=True):
    """The newest runs of the caller that are stored."""

    runs: tuple[RunEntry, ...]


class ProgramView(Struct, frozen=True, omit_defaults=True):
    """The end of a program, or its pause. `made`: calls by tool; `calls`: each of them, unless all
    went well, in their order; `left_out` are more, which only read where there is a choice."""

    state: ProgramState
    result: Raw | UnsetType = UNSET
    output: str = ""
    error: str = ""
    made: Mapping[str, int] = {}
    calls: tuple[CallView, ...] = ()
    left_out: int = 0
    run: str = ""
    pending: tuple[PendingCall, ...] = ()

    @classmethod
    def of(
        cls, state: ProgramState, calls: Sequence[CallView] = (), **members: Any
    ) -> "ProgramView":
        """A view with `calls`. One that was cut off, and made again, counts once."""
        each = list({call.seq: call for call in calls}.values())
        counts = dict(Counter(call.tool for call in each))
        if state == "completed" and all(call.ok for call in each):
            return cls(state, made=counts, **members)
        by_effect = sorted(each, key=lambda call: not call.writes)[:CALLS_SHOWN]
        in_order = tuple(sorted(by_effect, key=lambda call: call.seq))
        return cls(
            state, made=counts, calls=in_order, left_out=len(each) - len(by_effect), **members
        )


def failure_view(error: str, calls: Sequence[CallView] = ()) -> ProgramView:
    return ProgramView.of("failed", calls, error=error)


def decode_view(data: bytes) -> ProgramView:
    return msgspec.json.decode(data, type=ProgramView)
