"""Settings of what is remembered of calls and decisions."""

from typing import Literal

from msgspec import Struct

from config.types import Bytes, Count, Directory, Seconds, Secret


class Audit(Struct, frozen=True, forbid_unknown_fields=True):
    mode: Literal["authenticated", "always", "never"]
    arguments: Literal["digest", "masked"]
    arguments_bytes: Bytes
    lists: bool
    refusals_s: Seconds
    key: Secret
    batch: Count
    flush_s: Seconds
    queue: Count
    spool_dir: Directory
    spool_bytes: Bytes
    retention_days: Count
    when_full: Literal["refuse", "drop"]
