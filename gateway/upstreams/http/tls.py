"""Whom a source's certificate has to come from, and which one it is shown. There is no way to look
at none."""

import ssl
from collections.abc import Mapping
from pathlib import Path

from config.sources import SourceSettings, Tls
from schemas.errors import ToolgateError

NO_PASSWORD = ""  # of a key that wants one: nobody is here to be asked


class TlsUnusable(ToolgateError):
    """Certificates that cannot be used; names the setting and the file."""


class Contexts:
    """How one source's certificates are checked."""

    def __init__(self, name: str, tls: Tls | None) -> None:
        """Raises TlsUnusable."""
        self.calls: ssl.SSLContext | bool = True
        # Of its token_url, which may be anybody's: no certificate of ours is shown there.
        self.tokens: ssl.SSLContext | bool = True
        if tls is None:
            return
        self.calls = _context(name, tls.ca_file)
        _show(self.calls, name, tls)
        # one of its own in any case: True would mean that of the calls to aiohttp
        self.tokens = _context(name, "")
        if tls.ca_file:
            self.tokens.load_verify_locations(cafile=tls.ca_file)


USUAL = Contexts("", None)


def contexts(sources: Mapping[str, SourceSettings]) -> dict[str, Contexts]:
    """Those of the sources that have any of their own. Raises TlsUnusable."""
    return {
        name: Contexts(name, source.tls)
        for name, source in sources.items()
        if source.tls is not None
    }


def _context(name: str, ca_file: str) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=ca_file or None)
    except (OSError, ValueError) as error:
        raise _unusable(name, "ca_file", ca_file, error, "certificates in PEM") from error
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


def _show(context: ssl.SSLContext, name: str, tls: Tls) -> None:
    if not tls.cert_file:
        return
    _readable(name, "cert_file", tls.cert_file)
    if tls.key_file:
        _readable(name, "key_file", tls.key_file)
    try:
        context.load_cert_chain(tls.cert_file, tls.key_file or None, password=lambda: NO_PASSWORD)
    except (OSError, ValueError) as error:
        expected = "a certificate in PEM and the key to it, without a password"
        raise _unusable(name, "cert_file", tls.cert_file, error, expected) from error


def _readable(name: str, key: str, path: str) -> None:
    try:
        Path(path).open("rb").close()
    except OSError as error:
        raise _unusable(name, key, path, error, "a file") from error


def _unusable(name: str, key: str, path: str, error: Exception, expected: str) -> TlsUnusable:
    reason = f"expected {expected}"
    if isinstance(error, OSError) and not isinstance(error, ssl.SSLError) and error.strerror:
        reason = error.strerror.lower()
    return TlsUnusable(f"sources.{name}.tls.{key}: {path}: {reason}")
