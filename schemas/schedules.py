"""Times of a cron schedule, in a time zone."""

from datetime import datetime
from functools import cached_property
from typing import Any
from zoneinfo import ZoneInfo

from msgspec import Struct

UTC = "UTC"
_ANY = (2000, 1, 1)  # every use starts elsewhere


class Schedule(Struct, frozen=True, dict=True):
    """A cron expression, and the IANA name of the zone whose clocks it goes by.

    Around changes of the clock croniter decides: a time that is skipped comes when the clock has
    jumped, and a time that comes twice counts twice.
    """

    cron: str
    timezone: str = ""  # "": UTC

    @property
    def mistake(self) -> str:
        """The mistake in it; "" for none."""
        try:
            self.times.get_prev(float)
        except (ValueError, OSError) as error:  # ZoneInfoNotFoundError is a KeyError
            return f"expected a schedule that comes, found {self.cron!r} ({error})"
        except KeyError:
            return (
                "expected a time zone that this machine knows, such as Europe/Berlin, found "
                f"{self.timezone!r}"
            )
        return ""

    @cached_property
    def times(self) -> Any:  # croniter has no types
        """An iterator over the times, as `croniter` has it. Raises ValueError and KeyError."""
        from croniter import croniter  # two thirds of a tenth of a second, of every command

        return croniter(self.cron, datetime(*_ANY, tzinfo=ZoneInfo(self.timezone or UTC)))
