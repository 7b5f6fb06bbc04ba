"""Settings of the code wing. Their defaults, units and reasons are in `defaults.yaml`."""

from collections.abc import Mapping, Sequence
from typing import Literal, get_args

from msgspec import Struct

from config.value_types import (
    Amount,
    Bytes,
    CallWay,
    CallWays,
    CodeDisclosure,
    Count,
    Seconds,
    Text,
)
from schemas.globs import ToolGlobs

CALL_WAYS: tuple[CallWay, ...] = get_args(CallWay)


class CodeSettings(Struct, frozen=True, forbid_unknown_fields=True):
    enabled: bool
    disclosure: CodeDisclosure
    languages: tuple[Literal["python", "javascript"], ...]
    callers: Mapping[Text, CallWays]
    writes: Literal["never", "allow"]
    wall_s: Seconds
    job_s: Seconds
    cpu_s: Seconds
    memory_bytes: Bytes
    calls: Count
    parallel: Count
    runs: Count
    runs_per_tenant: Count
    runs_per_principal: Count
    turn_s: Seconds
    source_bytes: Bytes
    call_bytes: Bytes
    total_bytes: Bytes
    journal_bytes: Bytes
    paused_s: Seconds
    paused_runs: Count
    lease_s: Seconds
    poll_s: Seconds
    output_characters: Count
    ready: Amount
    learned_results: Amount

    def callers_of(
        self, names: Sequence[str], tags: Sequence[str], domain: str | None
    ) -> list[CallWay]:
        """The ways in which a tool of these names, tags and domain may be called: those that each
        matching pattern has."""
        ways: list[CallWay] = [*CALL_WAYS] if self.enabled else ["direct"]
        for pattern, permitted in self.callers.items():
            if ToolGlobs([pattern]).match(names, tags, domain):
                ways = [way for way in ways if way in permitted]
        return ways
