"""Static files: served under names with the hash of their content, so that browsers keep them."""

import hashlib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import NamedTuple

from starlette.responses import PlainTextResponse, Response

FOR_EVER = "public, max-age=31536000, immutable"
TYPES = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}


class Asset(NamedTuple):
    media_type: str
    content: bytes


@cache
def _names() -> Mapping[str, str]:
    """Names with a hash by those of the files."""
    names = {}
    for file in files("gateway.console").joinpath("static").iterdir():
        stem, dot, end = file.name.rpartition(".")
        if f"{dot}{end}" in TYPES:
            digest = hashlib.sha256(file.read_bytes()).hexdigest()[:12]
            names[file.name] = f"{stem}.{digest}.{end}"
    return names


@cache
def assets() -> Mapping[str, Asset]:
    """The files by their name with a hash."""
    folder = files("gateway.console").joinpath("static")
    return {
        hashed: Asset(TYPES[name[name.rindex(".") :]], folder.joinpath(name).read_bytes())
        for name, hashed in _names().items()
    }


def asset(name: str) -> str:
    """The name of a file with its hash."""
    return _names()[name]


def asset_response(name: str) -> Response:
    """The file with a name that has a hash."""
    file = assets().get(name)
    if file is None:
        return PlainTextResponse("There is no such file.", 404)
    return Response(file.content, 200, {"cache-control": FOR_EVER}, file.media_type)
