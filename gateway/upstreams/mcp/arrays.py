"""JSON arrays, read no further than needed: 10 MB of `{}` are three million members. Pure."""

from functools import cache

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

MOST = 10_000  # members that are picked out of an array; for more all are read


def first(text: bytes | Raw, limit: int) -> list[Raw]:
    """The first members of an array: at most `limit`, and one more if there is one.

    They are parts of `text`. Raises msgspec.DecodeError.
    """
    if limit > MOST:
        return msgspec.json.decode(text, type=list[Raw])[: limit + 1]
    members = msgspec.structs.astuple(_decoder(limit + 1).decode(text))
    return [member for member in members if member is not UNSET]


@cache
def _decoder(places: int) -> msgspec.json.Decoder[Struct]:
    """Of a struct that is written as an array: the decoder passes over what has no place in it."""
    fields = [(f"member_{place}", Raw | UnsetType, UNSET) for place in range(places)]
    return msgspec.json.Decoder(msgspec.defstruct("Members", fields, array_like=True))
