"""A bundle: the files of one description as stored, enough to read it again without the network or
the file system."""

import msgspec
from msgspec import Struct

from schemas.errors import ImportRejected

# magic prefix of a packed bundle; no JSON, YAML or archive begins with it
_MARK = b"\0toolgate bundle 1\n"


class Bundle(Struct, frozen=True, omit_defaults=True):
    entry: str  # name of the root file
    files: dict[str, bytes]  # by path below a common directory, or by URL
    unread: dict[str, str] = {}  # referenced files that are missing: name -> reason
    overlay: bytes | None = None  # the gateway owner's overlay file
    overlay_location: str = ""  # for messages

    def pack(self, location: str) -> bytes:
        """Serialize. A single file, at `location`, is stored unchanged: earlier releases stored all
        files so, and can still read them."""
        alone = self.files.keys() == {self.entry} and not self.unread and self.overlay is None
        if alone and place(location, self.entry) == location:
            return self.files[self.entry]
        return _MARK + msgspec.msgpack.encode(self, order="sorted")


def unpack(data: bytes, location: str) -> Bundle:
    """Parse a stored bundle; `location` is its origin. Raises ImportRejected for a newer release's
    format."""
    if not data.startswith(_MARK):
        return Bundle(location, {location: data})
    try:
        return msgspec.msgpack.decode(data[len(_MARK) :], type=Bundle)
    except msgspec.MsgspecError as error:
        raise ImportRejected(f"{location} was kept by a newer release: {error}.") from error


def place(location: str, name: str) -> str:
    """Path or URL of the file `name`, for messages; `location` is that of the description."""
    return location if location.endswith(name) else f"{location}/{name}"
