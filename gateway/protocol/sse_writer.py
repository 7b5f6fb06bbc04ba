"""Server-sent events and the ids of their streams, as bytes (WHATWG HTML, section 9.2).

An id is `<stream>.<id in the log>[.<rest>]`. The stream "g" is the one that GET opens, "p..." that
of one POST, whose name contains its node. An id is only valid in its session.
"""

import re
from dataclasses import dataclass

from schemas.errors import InvalidRequest

KEEP_ALIVE = b": keep-alive\n\n"


def event(message: bytes, name: bytes = b"message", id_: str = "") -> bytes:
    """One event whose data is `message`: JSON text, or a URL. Without a name it is "message", too,
    and says so nowhere, as contracts of others have it."""
    # a service's JSON may contain line breaks, which are only white space between tokens
    line = message.replace(b"\r", b" ").replace(b"\n", b" ")
    head = b"id: " + id_.encode() + b"\n" if id_ else b""
    kind = b"event: " + name + b"\n" if name else b""
    return head + kind + b"data: " + line + b"\n\n"


def priming(id_: str, retry_ms: int) -> bytes:
    """An event without data: only the id to resume from, and the retry delay (2025-11-25)."""
    return b"id: " + id_.encode() + b"\nretry: %d\ndata: \n\n" % retry_ms


STANDALONE = "g"
VERSION_LENGTH = 12  # of `told`
START = "-"
END = "end"

_POSITION = re.compile(
    r"(?P<stream>g|p[0-9a-f]{1,32}-[0-9]{1,18})\.(?P<after>[!-\-/-~]{1,100})"
    r"(?:\.(?P<rest>[!-\-/-~]{1,64}))?"
)


@dataclass(frozen=True, slots=True)
class Position:
    stream: str
    after: str  # id of the last event in the log; "" if none
    version: str = ""  # of the standalone stream: the list version known to the client
    unique: str = ""  # makes ids of events outside the log unique
    ended: bool = False  # of a POST's stream: the event was its answer

    @property
    def id(self) -> str:
        rest = f".{END}" if self.ended else f".{self.version}{self.unique}" if self.version else ""
        return f"{self.stream}.{self.after or START}{rest}"

    @property
    def node(self) -> str:
        """The node that writes a POST's stream."""
        return self.stream[1:].partition("-")[0]


def read_position(id_: str) -> Position:
    """The position that `Last-Event-ID` names. Raises InvalidRequest for a foreign id."""
    match = _POSITION.fullmatch(id_)
    if match is None:
        raise InvalidRequest(
            "Last-Event-ID is no id of an event of this server: send the last one that came, "
            "unchanged, or none"
        )
    after = "" if match["after"] == START else match["after"]
    rest = match["rest"] or ""
    if match["stream"] == STANDALONE:
        return Position(STANDALONE, after, rest[:VERSION_LENGTH], rest[VERSION_LENGTH:])
    return Position(match["stream"], after, ended=rest == END)
