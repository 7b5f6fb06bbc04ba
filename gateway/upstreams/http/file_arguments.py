"""Files in arguments: parses an argument into a file, without any I/O.

Text is a data: URL, a URI that is read later, or else base64. An object has one of `data`, `text`
and `uri`, and optionally the file's name and type.
"""

import base64
import binascii
import mimetypes
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote, unquote_to_bytes

from msgspec import Struct

from schemas.errors import InvalidParams
from schemas.jsonrpc import encode

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]{0,31}:")
_MEDIA_TYPE = re.compile(r"[\w!#$&^.+-]{1,80}/[\w!#$&^.+-]{1,80}( *;[\x20-\x7e]{0,200})?", re.A)
_URL_SAFE = bytes.maketrans(b"-_", b"+/")
_SPACE = b" \t\r\n"
_KINDS = mimetypes.MimeTypes()  # Python's own table: a machine's files differ
_NAME_CHARS = 200
_MEMBERS = frozenset({"data", "text", "uri", "filename", "mimeType"})
_EXPECTED = "expected base64, a data: or http(s) URL, the URI of a resource, or an object of them"

ANY_TYPE = "application/octet-stream"


class CallFile(Struct, frozen=True):
    """One file of a call; `data` is None where `uri` leads to it."""

    argument: str  # the argument with its value, for messages
    data: bytes | None = None
    uri: str = ""
    name: str | None = None
    media_type: str | None = None


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """File that has to be fetched, and the bytes before it, which depend on its name and type."""

    file: CallFile
    head: Callable[[str, str | None], bytes]  # (name, media type)


Piece = bytes | RemoteFile


@dataclass(frozen=True, slots=True)
class StreamedBody:
    """A body of which some pieces have to be fetched. Without `content_type` it is one file, and of
    that file's type."""

    pieces: Sequence[Piece]
    content_type: str | None


def file_of(argument: str, value: Any) -> CallFile:
    """The file in an argument. Raises InvalidParams."""
    if isinstance(value, str):
        return _of_text(argument, value)
    if not isinstance(value, dict):
        return CallFile(argument, encode(value), media_type="application/json")
    if not value.keys() <= _MEMBERS or len(value.keys() & {"data", "text", "uri"}) != 1:
        raise InvalidParams(
            f"{argument}: a file is one of `data`, `text` and `uri`, with `filename` and `mimeType`"
        )
    if not all(isinstance(member, str) for member in value.values()):
        raise InvalidParams(f"{argument}: the members of a file are text")
    return _of_object(argument, value)


def media_type_of(file: CallFile, media_types: Sequence[str] = ()) -> str | None:
    """The caller's media type, else the description's, else guessed from the file name."""
    if file.media_type:
        return file.media_type
    named = [kind for kind in media_types if "*" not in kind and kind != ANY_TYPE]
    guessed = _KINDS.guess_type(file.name)[0] if file.name else None
    return guessed if guessed in named or not named else named[0]


def known_type(media_type: str | None) -> str | None:
    """A remote server's media type, if it is well-formed: it becomes a header of our request."""
    return media_type if media_type and _MEDIA_TYPE.fullmatch(media_type) else None


def name_of(file: CallFile, media_type: str | None) -> str:
    """A file name with an extension, from which some services infer the type."""
    if file.name:
        return file.name
    _, _, path = file.uri.partition(":")
    last = unquote(re.split(r"[?#]", path, maxsplit=1)[0].rpartition("/")[2])
    if last and last not in (".", ".."):
        return last[-_NAME_CHARS:]
    return "file" + (_KINDS.guess_extension((media_type or "").partition(";")[0]) or "")


def _of_object(argument: str, value: dict[str, str]) -> CallFile:
    media_type = value.get("mimeType") or None
    if media_type is not None and not _MEDIA_TYPE.fullmatch(media_type):
        raise InvalidParams(f"{argument}: `mimeType` is no media type, like image/png")
    name = value.get("filename", "").replace("\\", "/").rpartition("/")[2][-_NAME_CHARS:] or None
    if "text" in value:
        return CallFile(
            argument,
            value["text"].encode(),
            uri="",
            name=name,
            media_type=media_type or "text/plain",
        )
    if "uri" in value and not _SCHEME.match(value["uri"]):
        raise InvalidParams(f"{argument}: `uri` is no URI")
    inner = _of_text(argument, value.get("data", value.get("uri", "")))
    return CallFile(
        argument, inner.data, uri=inner.uri, name=name, media_type=media_type or inner.media_type
    )


def _of_text(argument: str, text: str) -> CallFile:
    scheme = _SCHEME.match(text)
    if scheme is None:
        return CallFile(argument, _unpack(argument, text.encode()))
    if scheme[0].lower() == "data:":
        return _of_data_url(argument, text)
    return CallFile(argument, uri=text)


def _of_data_url(argument: str, url: str) -> CallFile:
    """A file from a data: URL (RFC 2397): `data:image/png;base64,iVBO...`."""
    head, comma, data = url[len("data:") :].partition(",")
    kind, semicolon, last = head.rpartition(";")
    encoded = last.strip().lower() == "base64" and bool(semicolon)
    kind = kind if encoded else head
    if not comma or (kind and not kind.startswith(";") and not _MEDIA_TYPE.fullmatch(kind)):
        raise InvalidParams(f"{argument}: this is no data: URL, like data:image/png;base64,iVBO")
    content = unquote_to_bytes(data)
    media_type = kind if kind and not kind.startswith(";") else "text/plain"
    return CallFile(
        argument,
        _unpack(argument, content) if encoded else content,
        uri="",
        name=None,
        media_type=media_type,
    )


def _unpack(argument: str, text: bytes) -> bytes:
    """Bytes of base64 text (RFC 4648) in either alphabet, with or without line breaks and
    padding."""
    text = text.translate(_URL_SAFE, _SPACE).rstrip(b"=")
    try:
        return base64.b64decode(text + b"=" * (-len(text) % 4), validate=True)
    except (binascii.Error, ValueError) as error:
        raise InvalidParams(
            f"{argument}: this is no file: {_EXPECTED}; plain text goes into {{text}}"
        ) from error
