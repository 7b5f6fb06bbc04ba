"""Names of the files of a description: paths below a common directory (`models/pet.yaml`), or
URLs."""

import posixpath
import re
from urllib.parse import unquote, urldefrag, urljoin

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")


def join(base: str, reference: str) -> str:
    """The name of the file that `reference` means in the file `base`. What leaves the common
    directory begins with `../` or `/`."""
    if scheme(reference) or is_url(base):
        return joined(base, reference)
    path = unquote(reference.partition("?")[0])
    return posixpath.normpath(posixpath.join(posixpath.dirname(base), path))


def joined(base: str, reference: str) -> str:
    """Like `urljoin`, without the fragment; what is no URL stays as it is."""
    try:
        return urldefrag(urljoin(base, reference)).url
    except ValueError:  # http://[
        return reference


def scheme(name: str) -> str:
    """Of a URL; "" of a path."""
    match = _SCHEME.match(name)
    return match[1].lower() if match else ""


def is_url(name: str) -> bool:
    return name.startswith(("http://", "https://"))
