"""How soon the lists of a server that keeps changing them are read again. Pure."""

import math

AT_ONCE = 12  # a server that is being changed by hand is followed without delay
FIRST_S, LONGEST_S = 1.0, 60.0
QUIET_S = 60.0  # without a change: the next is the first again


class Calm:
    """A few changes are read at once; those that follow closely wait, longer and longer."""

    def __init__(self) -> None:
        self._pause_s = 0.0
        self._at_once = AT_ONCE
        self._read = -math.inf

    def wait_s(self, now: float) -> float:
        """How long a change that is heard of `now` has to wait; in seconds, as all here."""
        since_s = now - self._read
        if since_s >= QUIET_S:
            self._pause_s = 0.0
            self._at_once = AT_ONCE
        pause_s = self._pause_s
        if since_s >= pause_s:
            return 0.0
        self._pause_s = min(pause_s * 2, LONGEST_S)
        return pause_s - since_s

    def read(self, now: float) -> None:
        """The lists have been read."""
        self._read = now
        if self._at_once:
            self._at_once -= 1
        else:
            self._pause_s = max(self._pause_s, FIRST_S)
