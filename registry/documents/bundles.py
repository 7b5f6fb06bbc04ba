"""The files of one description, as they are kept: enough to read it again without asking the
network or the file system."""

import msgspec
from msgspec import Struct

from schemas.errors import ImportRejected

# in front of a packed bundle; no JSON, YAML or archive begins like that
_MARK = b"\0toolgate bundle 1\n"


class Bundle(Struct, frozen=True, omit_defaults=True):
    entry: str  # the name of the file to begin with
    files: dict[str, bytes]  # by path below a common directory, or by URL
    unread: dict[str, str] = {}  # why files that are referred to are not there
    overlay: bytes | None = None  # what the owner of the gateway says beside it
    overlay_location: str = ""  # for messages

    def pack(self, location: str) -> bytes:
        """One file by itself, at `location`, stays as it is: so releases before kept all of them,
        and read them again."""
        alone = self.files.keys() == {self.entry} and not self.unread and self.overlay is None
        if alone and place(location, self.entry) == location:
            return self.files[self.entry]
        return _MARK + msgspec.msgpack.encode(self, order="sorted")


def unpack(data: bytes, location: str) -> Bundle:
    """`location` is where it came from. Raises ImportRejected for a bundle of a newer release."""
    if not data.startswith(_MARK):
        return Bundle(location, {location: data})
    try:
        return msgspec.msgpack.decode(data[len(_MARK) :], type=Bundle)
    except msgspec.MsgspecError as error:
        raise ImportRejected(f"{location} was kept by a newer release: {error}.") from error


def place(location: str, name: str) -> str:
    """Where the file `name` is, for messages; `location` is that of the description."""
    return location if location.endswith(name) else f"{location}/{name}"
