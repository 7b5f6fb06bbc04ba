"""Settings of the librarian wing. Their defaults, units and reasons are in `defaults.yaml`."""

from msgspec import Struct

from config.types import Bytes, Count, CronSchedule, Seconds


class LibrarianSettings(Struct, frozen=True, forbid_unknown_fields=True):
    enabled: bool
    read_bytes: Bytes
    map_tokens: Count
    sources: Count
    refresh_schedule: CronSchedule
    least_interval_s: Count
    lease_s: Seconds
