"""Ids of events, alike in every store: when the stream was born, the place in it, whose it is.

The birth keeps ids growing when a stream is forgotten and begins again; the last part tells an id
of another stream without asking the store, which may have forgotten both.
"""

import re
from dataclasses import dataclass
from hashlib import blake2b

from schemas.errors import InvalidParams

ID = re.compile(r"([0-9a-f]{14})([0-9a-f]{10})([0-9a-f]{6})")
UNKNOWN = "No such event in this stream"
NOT_KEPT = "What followed this event is no longer kept"


@dataclass(frozen=True, slots=True, order=True)
class StreamPlace:
    born: int  # microseconds since 1970
    n: int  # 1 for the first event


START = StreamPlace(0, 0)


def event_id(stream: str, place: StreamPlace) -> str:
    return f"{place.born:014x}{place.n:010x}{_mark(stream)}"


def place_of(stream: str, event_id: str) -> StreamPlace:
    """Where in `stream` the event is; "" stands before the first. Raises InvalidParams for an id
    that cannot be of this stream."""
    if not event_id:
        return START
    match = ID.fullmatch(event_id)
    if match is None or match[3] != _mark(stream):
        raise InvalidParams(UNKNOWN)
    return StreamPlace(int(match[1], 16), int(match[2], 16))


def check(after: StreamPlace, first: StreamPlace, last: StreamPlace) -> None:
    """Whether a stream that keeps `first` to `last` can be read on from `after`.

    Raises InvalidParams when it was never that long, or when an event in between is forgotten. An
    older birth is no gap: the stream was forgotten whole, when nothing had come for long.
    """
    if after > last:
        raise InvalidParams(UNKNOWN)
    if after.born == first.born and after.n + 1 < first.n:
        raise InvalidParams(NOT_KEPT)


def _mark(stream: str) -> str:
    return blake2b(stream.encode(), digest_size=3).hexdigest()
