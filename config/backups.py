"""Settings of backups."""

from typing import Annotated

from msgspec import Meta, Struct

from config.value_types import END, Count, CronSchedule, OptionalUrl, Seconds


class BackupBucket(Struct, frozen=True, forbid_unknown_fields=True):
    endpoint: OptionalUrl
    region: str
    key_id: str
    secret: str
    timeout_s: Seconds


class BackupsSettings(Struct, frozen=True, forbid_unknown_fields=True):
    enabled: bool
    to: Annotated[
        str,
        Meta(
            pattern=r"^(/.+|s3://[a-z0-9][a-z0-9.-]+(/[^\x00-\x1f]*)?)?" + END,
            description="an absolute path of a folder, or s3://BUCKET/PREFIX",
        ),
    ]
    schedule: CronSchedule
    keep: Count
    late_hours: Count
    bucket: BackupBucket
