"""Settings of the code wing. Their defaults, units and reasons are in `defaults.yaml`."""

from typing import Literal

from msgspec import Struct

from config.value_types import Amount, Bytes, CodeDisclosure, Count, Seconds


class CodeSettings(Struct, frozen=True, forbid_unknown_fields=True):
    enabled: bool
    disclosure: CodeDisclosure
    languages: tuple[Literal["python", "javascript"], ...]
    writes: Literal["never", "allow"]
    wall_s: Seconds
    cpu_s: Seconds
    memory_bytes: Bytes
    calls: Count
    parallel: Count
    runs: Count
    runs_per_principal: Count
    source_bytes: Bytes
    call_bytes: Bytes
    total_bytes: Bytes
    journal_bytes: Bytes
    paused_s: Seconds
    paused_runs: Count
    output_characters: Count
    ready: Amount
