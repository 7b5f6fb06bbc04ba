"""Retry-After headers (RFC 9110, 10.2.3): their delays, read and written."""

import math
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime


def whole_seconds(seconds: float) -> int:
    """A delay to write: rounded up, at least one."""
    return max(1, math.ceil(seconds))


def retry_after_s(header: str, longest_s: float) -> float | None:
    """The delay of a header: seconds or a date. None for anything else."""
    try:
        wait_s = float(header)
    except ValueError:
        try:
            at = parsedate_to_datetime(header)
        except (ValueError, OverflowError):  # of a time zone with too many digits
            return None
        if at.tzinfo is None:  # of the time zone -0000
            at = at.replace(tzinfo=UTC)
        wait_s = (at - datetime.now(UTC)).total_seconds()
    return min(max(wait_s, 0.0), longest_s) if math.isfinite(wait_s) else None
