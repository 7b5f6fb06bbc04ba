"""Challenges of protected resources: `WWW-Authenticate: Bearer` (RFC 6750, section 3; RFC 9728,
section 5.1; RFC 9470, section 3)."""

import re
from collections.abc import Iterable

from msgspec import Struct

LIMIT = 8192  # characters of the headers that are read
_BEARER = re.compile(r"(?:^|,)\s*bearer(?=\s|,|$)", re.IGNORECASE)
_NEXT = re.compile(r",\s*[A-Za-z0-9-]+\s+[A-Za-z0-9_-]+\s*=")  # the scheme after this one
_PARAMETER = re.compile(r'([A-Za-z0-9_-]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s,"]+))')
_QUOTED_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')


class Challenge(Struct, frozen=True):
    """The demands of a Bearer challenge."""

    error: str = ""
    scopes: tuple[str, ...] = ()
    resource_metadata: str = ""
    acr_values: str = ""
    max_age: str = ""
    realm: str = ""  # of registries of images: where tokens are
    service: str = ""


def read_challenge(headers: Iterable[str]) -> Challenge | None:
    """The first Bearer challenge of WWW-Authenticate headers; None without one."""
    text = ", ".join(headers)[:LIMIT]
    # schemes are looked for outside of quoted texts, which are as long without their content
    bare = _QUOTED_STRING.sub(lambda quoted: '"' + "_" * (len(quoted[0]) - 2) + '"', text)
    start = _BEARER.search(bare)
    if start is None:
        return None
    end = _NEXT.search(bare, start.end())
    parameters: dict[str, str] = {}
    for name, quoted, plain in _PARAMETER.findall(text[start.end() : end and end.start()]):
        value = re.sub(r"\\(.)", r"\1", quoted) if quoted else plain
        parameters.setdefault(name.lower(), value)
    return Challenge(
        error=parameters.get("error", ""),
        scopes=tuple(dict.fromkeys(parameters.get("scope", "").split())),
        resource_metadata=parameters.get("resource_metadata", ""),
        acr_values=parameters.get("acr_values", ""),
        max_age=parameters.get("max_age", ""),
        realm=parameters.get("realm", ""),
        service=parameters.get("service", ""),
    )
